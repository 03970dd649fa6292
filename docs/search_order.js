// In which order the search of the site shows its results, and the passage it shows of each: see
// search_index.py.
var Scorer = {
  objNameMatch: 11,
  objPartialMatch: 4,
  objPrio: { 0: 5, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
  score: (result) => {
    const [page, fullTitle, anchor, , score, , kind] = result;
    const isLog = /^(changes|evidence)$/.test(page); // it repeats other pages: one result, after all others
    const title = isLog ? (result[1] = fullTitle.split(" > ")[0]) : fullTitle;
    const home = isLog ? "" : kind === "index" ? window.PLACES?.[page + anchor] : anchor.slice(1);
    const passage = bestPassage(page, home);
    if (passage) {
      const [place, heading] = passage;
      result[3] = (heading && kind !== "object" && !title.endsWith(heading) ? `${heading} – ` : "") + excerpt(passage);
      if (isLog || kind === "index" || kind === "text") result[2] = place ? `#${place}` : "";
    }
    if (isLog) return score - 1000;
    if (kind === "index") return score;
    if (kind === "object") return nameScore(title) ?? score - title.split(".").length;
    if (/^(ARCHITECTURE|benchmarks|compare|families|genindex|reference\/index|add\/)/.test(page)) return score - 4;
    const [, forPhrase, extra] = KINDS.find(([begin]) => page.startsWith(begin));
    return score + extra + (passage && hasPhrase(passage) ? forPhrase : 0);
  },
};

// How a page's path begins, what it gains where a passage has all that was typed, word by word, and always.
const KINDS = [["reference/", 50, -1], ["notebooks/", 25, -1], ["", 20, 0]];

const typed = new URLSearchParams(window.location.search).get("q") ?? "";

// The score of a function or class whose name was typed: above the entries of pages (100 at most) if it was typed as
// code, else below them.
function nameScore(fullName) {
  const bare = (text) => text.toLowerCase().replace(/[_\s]/g, "");
  const parts = fullName.split(".");
  const isMember = /^[A-Z]/.test(parts.at(-2) ?? "");
  if (isMember || ![parts.at(-1), fullName].map(bare).includes(bare(typed))) return undefined;
  return /[_.]|[a-z][A-Z]/.test(typed) ? 200 : 99;
}

function hasPhrase([, , text]) {
  const phrase = typed.trim().toLowerCase();
  return phrase.includes(" ") && text.toLowerCase().includes(phrase);
}

let typedWords; // each with its stem, once language_data.js is there

function stemTyped() {
  const stemmer = new Stemmer();
  const words = splitQuery(typed).map((word) => word.toLowerCase());
  typedWords = words.filter((word) => !stopwords.has(word)).map((word) => [word, stemmer.stemWord(word)]);
}

// How many of the typed words a text has.
function matches(text) {
  if (!typedWords) stemTyped();
  const words = splitQuery(text).map((word) => word.toLowerCase());
  return typedWords.filter(([whole, stem]) => words.some((word) => word === whole || word.startsWith(stem))).length;
}

// The passage of a page, or of a place in it, that has most of the typed words; the first one where none has any.
function bestPassage(page, home) {
  const all = window.PASSAGES?.[page] ?? [];
  const near = all.filter(([place]) => home && place === home);
  const here = near.length ? near : all;
  const phrase = typed.trim().toLowerCase();
  const score = ([, title, text, isCode]) =>
    2 * matches(text) + matches(title) + (text.toLowerCase().includes(phrase) ? 1 : 0) - isCode / 2;
  return here.reduce((best, passage) => (score(passage) > score(best) ? passage : best), here[0]);
}

// The sentence of a passage that has most of the typed words, cut around the first of them.
function excerpt([, , text], length = 200) {
  const sentences = text.split(/(?<=[.!?]) (?=[\p{Lu}`\[])/u);
  const counts = sentences.map(matches);
  const first = counts.indexOf(Math.max(...counts));
  let shown = sentences[first];
  for (const next of sentences.slice(first + 1)) if (shown.length + next.length < length) shown += ` ${next}`; else break;
  if (shown.length <= length) return shown;
  const at = Math.max(0, ...typedWords.map(([, stem]) => shown.toLowerCase().indexOf(stem)));
  const begin = at < length - 40 ? 0 : shown.indexOf(" ", at - 60) + 1;
  const end = shown.lastIndexOf(" ", begin + length);
  return (begin ? "… " : "") + shown.slice(begin, end) + " …";
}

// Sphinx writes what it says of a result in parentheses, which a passage does not need.
new MutationObserver((changes) => {
  for (const item of changes.flatMap((change) => [...change.addedNodes])) {
    const shown = item.matches?.("ul.search > li") && item.querySelector(":scope > span");
    if (shown) shown.innerHTML = shown.innerHTML.replace(/^ \(/, "").replace(/\)$/, "");
  }
}).observe(document, { childList: true, subtree: true });

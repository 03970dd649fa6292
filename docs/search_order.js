// The search of the site. It ranks sections, not pages: all that stands in passages.js, see search_index.py. Sphinx
// writes the results, and calls this file for their order.
var Scorer = {}; // Sphinx' own, which is not asked

const QUESTIONS = new Set(["how", "what", "when", "where", "which", "why"]); // count little beside other words
const LITTLE = 0.3;
const MOST_OF_A_PAGE = 2; // sections
const MOST = 30; // results
const LEAST = 0.04; // of the score of the first result

// How a page's path begins, and its weight: guides before lists.
const WEIGHTS = [
  ["reference/index", 0.2], ["reference/", 0.75], ["notebooks/", 0.8], ["add/", 0.6], ["ARCHITECTURE", 0.3], ["commands", 0.75],
  ["benchmarks", 0.6], ["compare", 0.6], ["families", 0.6], ["simd", 0.6], ["coming-from", 0.8], ["index", 0.6], ["", 1],
];
const isLog = (page) => /^(changes|evidence)$/.test(page); // it repeats other pages: one result, after all others

const stems = new Map();

function stemOf(word) {
  if (!stems.has(word)) stems.set(word, new Stemmer().stemWord(word));
  return stems.get(word);
}

// The words of a text; a name of code counts whole and in its parts.
function wordsOf(text) {
  const found = [];
  for (const [word] of text.matchAll(/[\p{L}\p{N}_]+/gu)) {
    const parts = splitQuery(word).map((part) => part.toLowerCase());
    found.push(...parts);
    if (parts.length > 1) found.push(parts.join(""));
  }
  return found;
}

const stemsOf = (text) => wordsOf(text).map(stemOf);

// The words that are searched: a name in its parts, `CutEdge`; but whole where fewer than two have three letters, `bf16`.
function askedWords(text) {
  const named = [...text.matchAll(/[\p{L}\p{N}_]+/gu)].map(([word]) => splitQuery(word).map((part) => part.toLowerCase()));
  return named.flatMap((parts) => (parts.filter((part) => part.length > 2).length > 1 ? parts : parts.join("")));
}

// What was typed: each word's stem, once, with its weight. Words such as "the" count where there are no others.
function termsOf(text) {
  const words = askedWords(text);
  const telling = words.filter((word) => !stopwords.has(word));
  const asked = telling.filter((word) => !QUESTIONS.has(word));
  return new Map((telling.length ? telling : words).map((word) => [stemOf(word), asked.length && QUESTIONS.has(word) ? LITTLE : 1]));
}

let typed, TERMS, WHOLE;

function ask(text) {
  typed = text;
  TERMS = termsOf(text);
  WHOLE = new Set(askedWords(text));
}

ask(new URLSearchParams(window.location.search).get("q") ?? "");
const matches = (text) => new Set(stemsOf(text).filter((stem) => TERMS.has(stem))).size;

// Every section, and every name of the reference, with how often it has each typed word.
function sectionsOf(titles) {
  const sections = [];
  for (const [page, passages] of Object.entries(window.PASSAGES)) {
    const here = new Map();
    const at = (place, title) => {
      if (!here.has(place)) here.set(place, { page, place, title, pageTitle: titles[page] ?? page, phrases: [], passages: [], counts: new Map(), length: 0 });
      return here.get(place);
    };
    for (const passage of passages) {
      const section = at(passage[0], passage[1]);
      section.passages.push(passage);
      for (const word of wordsOf(passage[2])) {
        section.length += 1;
        const stem = stemOf(word), count = (WHOLE.has(word) ? 1 : 0.6) * (passage[3] ? 0.5 : 1); // less for other forms, and in code
        if (TERMS.has(stem)) section.counts.set(stem, (section.counts.get(stem) ?? 0) + count);
      }
    }
    for (const [place, phrase] of window.PHRASES[page] ?? []) at(place, "").phrases.push(phrase);
    sections.push(...here.values());
    for (const section of here.values()) if (!section.passages.length) section.passages.push(...passages.slice(0, 1)); // to show
  }
  return sections.filter(({ passages }) => passages.length);
}

// The weight of each typed word: the more, the fewer sections have it.
function rarities(sections) {
  return new Map([...TERMS].map(([stem, weight]) => {
    const having = sections.filter(({ counts }) => counts.has(stem)).length;
    return [stem, weight * Math.log(1 + (sections.length - having + 0.5) / (having + 0.5))];
  }));
}

const sum = (numbers) => [...numbers].reduce((total, number) => total + number, 0);

function scoreOf(section, rarity, meanLength) {
  const all = sum(rarity.values()) || 1;
  const heading = new Set(stemsOf(section.title)), pageTitle = new Set(stemsOf(section.pageTitle));
  let score = 0, covered = 0;
  for (const [stem, weight] of rarity) {
    const count = section.counts.get(stem) ?? 0;
    const frequency = (2.2 * count) / (count + 0.3 + (0.9 * section.length) / meanLength);
    const here = frequency + (heading.has(stem) ? 3 : 0) + (pageTitle.has(stem) ? 1.5 : 0);
    score += weight * here;
    if (here) covered += weight;
  }
  const phrases = section.phrases.map((phrase) => [phrase, [...termsOf(phrase).keys()]]);
  const meant = phrases.filter(([, words]) => words.length && words.every((stem) => rarity.has(stem)));
  const named = sum([...new Set(meant.flatMap(([, words]) => words))].map((stem) => rarity.get(stem)));
  covered = Math.max(covered, named);
  const together = Math.max(...section.passages.map(([, , text]) => sum([...new Set(stemsOf(text))].map((stem) => rarity.get(stem) ?? 0))));
  score = (score + 5 * named) * (covered / all) ** 2 * (0.5 + (0.5 * Math.max(together, named)) / all);
  if (hasPhrase(section)) score *= 1.4;
  const [, weight] = WEIGHTS.find(([begin]) => section.page.startsWith(begin));
  return weight * score;
}

// Does a passage of the glossary say what the typed word is?
const thing = () => typed.trim().toLowerCase().replace(/^what (is|are) (an? |the )?/, "");
const isDefinition = (page, text) => page === "glossary" && text.toLowerCase().startsWith(`${thing()} ·`);
const defines = ({ page, passages }) => passages.some(([, , text]) => isDefinition(page, text));

// A page, or a section, that says that it answers what was typed comes before all others.
const isAnswer = ({ phrases }) => phrases.some((phrase) => phrase.toLowerCase() === typed.trim().toLowerCase());

function hasPhrase({ title, passages }) {
  const phrase = typed.trim().toLowerCase();
  return /[ _.]/.test(phrase) && [title, ...passages.map(([, , text]) => text)].some((text) => text.toLowerCase().includes(phrase));
}

// The score of a function or class whose name was typed: above the phrases of pages if it was typed as code, else below.
function nameScore({ page, place }) {
  const bare = (text) => text.toLowerCase().replace(/[_\s]/g, "");
  const parts = place.split(".");
  const isMember = /^[A-Z]/.test(parts.at(-2) ?? "");
  if (!page.startsWith("reference/") && !place.includes(".")) return 0;
  if (isMember || ![parts.at(-1), place].map(bare).includes(bare(typed))) return 0;
  return /[_.]|[a-z][A-Z]/.test(typed) ? 3000 : 500;
}

// The passage of a section that has most of the typed words.
function bestPassage({ page, passages }) {
  const phrase = typed.trim().toLowerCase();
  const score = ([, , text, isCode]) => {
    const isWhole = text.toLowerCase().includes(phrase);
    return 2 * matches(text) + (isDefinition(page, text) ? 3 : 0) + (isWhole ? 1 : 0) - isCode / 2;
  };
  return passages.reduce((best, passage) => (score(passage) > score(best) ? passage : best), passages[0]);
}

// The sentence of a passage that has most of the typed words, cut around the first of them.
function excerpt(text, length = 200) {
  const sentences = text.split(/(?<=[.!?]) (?=[\p{Lu}`\[])/u);
  const counts = sentences.map(matches);
  const first = counts.indexOf(Math.max(...counts));
  let shown = sentences[first];
  for (const next of sentences.slice(first + 1)) if (shown.length + next.length < length) shown += ` ${next}`; else break;
  if (shown.length <= length) return shown;
  const places = [...TERMS.keys()].map((stem) => shown.toLowerCase().indexOf(stem)).filter((place) => place >= 0);
  const at = places.length ? Math.min(...places) : 0;
  const begin = at < length - 40 ? 0 : shown.indexOf(" ", at - 60) + 1;
  const end = begin + length >= shown.length ? shown.length : shown.lastIndexOf(" ", begin + length);
  return (begin ? "… " : "") + shown.slice(begin, end) + (end < shown.length ? " …" : "");
}

// The top of a page that answers without the typed words gives its place to the section that has them.
function leadOn(top, sections) {
  const phrase = typed.trim().toLowerCase();
  const fit = (section) => {
    const [, , text] = bestPassage(section);
    return matches(text) + (text.toLowerCase().includes(phrase) ? 2 : 0);
  };
  const best = sections.reduce((one, other) => (fit(other) > fit(one) ? other : one), top);
  if (fit(best) < fit(top) + 2) return;
  best.score = Math.max(best.score, top.score);
  top.score = 0;
}

function ranked(titles) {
  const sections = sectionsOf(titles);
  const rarity = rarities(sections), meanLength = sum(sections.map(({ length }) => length)) / sections.length;
  for (const section of sections) section.score = scoreOf(section, rarity, meanLength);
  const least = LEAST * Math.max(...sections.map(({ score }) => score)), numbers = new Map();
  for (const section of sections) {
    section.score += nameScore(section) + (isAnswer(section) ? 1000 : 0) + (defines(section) ? 700 : 0);
  }
  sections.filter(({ place }) => place === "").forEach((top) => leadOn(top, sections.filter(({ page }) => page === top.page)));
  const byScore = sections.filter(({ score }) => score > 0).sort((one, other) => other.score - one.score);
  const isShown = ({ page, score }) => {
    numbers.set(page, (numbers.get(page) ?? 0) + 1);
    return score >= least && numbers.get(page) <= (isLog(page) ? 1 : MOST_OF_A_PAGE);
  };
  const shown = byScore.filter(isShown);
  return [...shown.filter(({ page }) => !isLog(page)).slice(0, MOST), ...shown.filter(({ page }) => isLog(page))];
}

// Every word of the site, with how often it stands there.
function vocabulary(titles) {
  const counts = new Map();
  const add = (text) => wordsOf(text).forEach((word) => counts.set(word, (counts.get(word) ?? 0) + 1));
  Object.values(titles).forEach(add);
  for (const [, title, text] of Object.values(window.PASSAGES).flat()) add(`${title} ${text}`);
  for (const [, phrase] of Object.values(window.PHRASES).flat()) add(phrase);
  return counts;
}

// How many letters are missing, too many, wrong, or swapped with their neighbor.
function distance(one, other) {
  let before, last, row = [...other, ""].map((_, column) => column);
  for (let i = 1; i <= one.length; i++) {
    [before, last, row] = [last, row, [i]];
    for (let k = 1; k <= other.length; k++) {
      const isSwap = i > 1 && k > 1 && one[i - 1] === other[k - 2] && one[i - 2] === other[k - 1];
      const changed = last[k - 1] + (one[i - 1] === other[k - 1] ? 0 : 1);
      row[k] = Math.min(last[k] + 1, row[k - 1] + 1, changed, isSwap ? before[k - 2] + 1 : Infinity);
    }
  }
  return row.at(-1);
}

// The word of the site that is nearest to a word, the most frequent of equals; "" where none is near. Few mistype the first letter.
function nearest(word, counts) {
  const most = word.length < 4 ? 0 : word.length < 9 ? 1 : 2;
  const isNear = (other) => other[0] === word[0] && other.length > 2 && Math.abs(other.length - word.length) <= most;
  const near = [...counts.keys()].filter(isNear);
  const rated = near.map((other) => [distance(word, other), -counts.get(other), other]).filter(([steps]) => steps <= most);
  return rated.sort((one, other) => one[0] - other[0] || one[1] - other[1])[0]?.[2] ?? "";
}

// Each typed word that no page has, with the nearest word.
function misspelled(titles) {
  const counts = vocabulary(titles), known = new Set([...counts.keys()].map(stemOf));
  const unknown = [...WHOLE].filter((word) => !stopwords.has(word) && !known.has(stemOf(word)));
  return new Map(unknown.map((word) => [word, nearest(word, counts)]));
}

// Say which words no page has, and what is searched in their place.
function tell(wrong, corrected) {
  const line = document.createElement("p");
  line.textContent = `No page has '${[...wrong.keys()].join("' or '")}'`;
  line.textContent += corrected === typed ? "." : `; these are the results of '${corrected}'.`;
  document.querySelector(".search-summary").before(line);
}

Documentation.TRANSLATIONS["Search finished, found one page matching the search query."] = ["One place.", "${resultCount} places."];
Documentation.TRANSLATIONS["Your search did not match any documents. Please make sure that all words are spelled correctly and that you've selected enough categories."] = "Nothing was found.";

// What is marked, in results and on their pages: the words that were searched, questions only where there is nothing else.
function mark(marked) {
  const telling = [...WHOLE].filter((word) => !stopwords.has(word)), asked = telling.filter((word) => !QUESTIONS.has(word));
  marked.clear();
  (asked.length ? asked : telling).forEach((word) => marked.add(word));
  if (SPHINX_HIGHLIGHT_ENABLED) localStorage.setItem("sphinx_highlight_terms", [...marked].join(" "));
}

Search._performSearch = (_query, _terms, _excluded, marked) => {
  const titles = Object.fromEntries(Search._index.docnames.map((page, i) => [page, Search._index.titles[i]]));
  const wrong = misspelled(titles);
  const corrected = typed.replace(/[\p{L}\p{N}_]+/gu, (word) => wrong.get(word.toLowerCase()) || word);
  if (wrong.size) tell(wrong, corrected);
  ask(corrected);
  mark(marked);
  return ranked(titles).map((section) => {
    const { page, place, title, pageTitle, score } = section;
    const isName = page.startsWith("reference/") && place.includes(".");
    const heading = title && !isName && title !== pageTitle ? `${title} – ` : "";
    return [page, isName ? place : pageTitle, place && `#${place}`, heading + excerpt(bestPassage(section)[2]), score, "", "text"];
  }).reverse(); // the last is shown first
};

// Sphinx writes what it says of a result in parentheses, which a passage does not need.
new MutationObserver((changes) => {
  for (const item of changes.flatMap((change) => [...change.addedNodes])) {
    const shown = item.matches?.("ul.search > li") && item.querySelector(":scope > span");
    if (shown) shown.innerHTML = shown.innerHTML.replace(/^ \(/, "").replace(/\)$/, "");
  }
}).observe(document, { childList: true, subtree: true });

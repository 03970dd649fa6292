// All sentences of the room Models.

import { count, isTouched, quote, wordLabel, wordProbability, wordTrimmed } from "attnlab/draw/report/elements.js";

function wordAnswer({ told: { places, cosine, moved, tokens }, edits }) {
  if (cosine !== undefined) return edits.length ? MODEL_WORDS.cosine(cosine, moved, tokens) : MODEL_WORDS.asItWas;
  const rows = places.flatMap((place) => place.rows);
  const most = rows.reduce((one, two) => (Math.abs(two[2] - two[1]) > Math.abs(one[2] - one[1]) ? two : one));
  if (most[1] === most[2]) return "The answer is as it was.";
  return `${quote(most[0])}: ${wordProbability(most[1])} before, ${wordProbability(most[2])} after.`;
}

export const MODEL_WORDS = {
  title: "Real models",
  subtitle: "Open a pretrained model on this computer: see where all its heads look, take one away, and see what it says then.",
  model: "Model",
  hint: "a folder, a GGUF file, a hub id in your cache, or a run",
  open: "Open",
  there: "Models that are here",
  kinds: { recent: "opened before", run: "a run of yours", folder: "on the disk", hub: "in the hub's cache" },
  none: "None yet. Type the folder of one, or fetch MiniLM into runs/models first, from the folder of attnlab's source: python examples/small_models.py minilm",
  opening: (name, said) => `Opening ${name} … ${said ? `${said[0].toUpperCase()}${said.slice(1)}.` : "It takes some seconds; a GGUF file is converted first."}`,
  clock: (seconds) => `${seconds} s`,
  notOpened: (sentence, open) => `${sentence} ${open ? `${open} stays open` : "No model is open"}: type another, or choose one that is here.`,
  opened: (name) => `${name} is open. ${isTouched() ? "Tap a square of a head to read it, and again to cut that edge." : "Click a square of a head to cut that edge; h knocks the head out."}`,
  facts: ({ family, layers, notes }, parameters) => [
    ["Family", family], ["Attention layers", layers.length], ["Heads", layers.reduce((sum, [, size]) => sum + size, 0)],
    ["Parameters", parameters], ...notes.map((note) => ["Note", note]),
  ],
  text: "Text",
  read: "Read",
  reads: (expected) => `It reads ${expected}. Enter reads it; Shift and Enter begin a new line.`,
  cutsDropped: (edges) => `Another text: ${count(edges, "cut edge")} taken back, for they were of the old one.`,

  measures: {
    label: "What all heads are shown by",
    names: { first: "To the first", previous: "To the one before", own: "To itself", entropy: "Entropy" },
    titles: {
      first: "mean weight on the first token", previous: "mean weight on the token before",
      own: "mean weight of a token on itself", entropy: "nats; 0: one key alone",
    },
  },
  headsNote: "A row for each layer, a column for each head: means over all queries. Click one to see it large.",
  headCell: (name, words) => `Head ${name}: ${words}.`,
  sorted: (shown, all) => (shown < all ? `The first ${shown} of ${count(all, "head")}` : `All ${count(all, "head")}`),
  head: "Head",
  mapKeys: "Arrow keys read squares, x cuts an edge or mends it, w says why it is there, Enter does what a click does, plus and minus zoom",
  headKeys: "Arrow keys read heads, Enter shows one large",
  knockOut: (name) => `Knock out head ${name}`,
  giveBack: (name) => `Give head ${name} back`,
  tokensNote: (query) => `Line: the weight that ${query} puts on each token. Click a token to look from there.`,

  whole: (tokens, queries, keys) => `All ${tokens.toLocaleString("en-GB")} tokens; above, queries ${queries} and keys ${keys}`,
  wholeKeys: "Arrow keys read squares, Enter shows the part around one exactly",
  wholeCell: (queries, keys, words) => `Queries ${queries} → keys ${keys}: ${words} at most.`,

  answerTitle: ({ cosine }) => (cosine === undefined ? "What it says" : "Its vectors"),
  columns: ["", "before", "after"],
  likeliest: "Likeliest",
  vector: "This model gives a vector for each token; it chooses no answer.",
  cosine: (cosine, { token, cosine: least }, tokens) =>
    `Cosine of its mean vector, before and after: ${wordTrimmed(cosine, 6)}. `
    + `Most moved: token ${token} ${quote(tokens[token])}, ${wordTrimmed(least, 6)}.`,
  asItWas: "Nothing is changed: knock a head out, or cut an edge.",
  taken: (lab, isAdded) => `${isAdded ? "Done." : "Taken back."} ${wordAnswer(lab)}`,
  badChange: (word) => `This link says “${word.slice(0, 20)}”, which is no edit of this room.`,
  keys: [
    ["arrow keys", "read the squares of a map, or move among the heads"], ["x", "cut the edge, or mend it"], ["w", "say why the head looks there"],
    ["h", "knock the head out, or give it back"], ["[ ]", "previous and next head"], ["+ −", "zoom in a map"],
    ["z Z", "undo, redo"], ["1 2 3", "before, after, difference"], ["?", "these keys"],
  ],
};

export const WHY_WORDS = {
  presses: {
    label: "What a click on a square does",
    names: { cut: "A click cuts", why: "A click says why" },
    titles: { cut: "cut the edge, or mend it", why: "the score of the square, taken apart into the parts of the stream" },
  },
  title: (head, [query, of], [key, to]) => `Why head ${head} looks from ${query} ${quote(of)} at ${key} ${quote(to)}`,
  said: (score, weight) =>
    `The score is ${score}, the weight ${weight}. The score is a sum of products: a part of the query’s stream, times a part of the key’s. The largest:`,
  term: (query, key) => `${query} · ${key}`,
  rest({ others, rest, position }, word) {
    const words = others ? `${count(others, "other term")} together: ${word(rest)}. ` : "";
    return `${words}${position ? `A bias by position: ${word(position)}. ` : ""}It is of the model without edits.`;
  },
};

export const PATCH_WORDS = {
  title: "Which place carries the answer?",
  note: "Activation patching: the model reads the corrupted text, and at one place a value is replaced by that of the clean text.",
  kind: "What is patched",
  kinds: [
    ["stream", "the stream before a layer, at a position"], ["heads", "the output of a head"],
    ["attentions", "the output of an attention, at a position"], ["mlps", "the output of a feed-forward part, at a position"],
  ],
  clean: "Clean text",
  corrupted: "Corrupted text, of as many tokens",
  target: "Answer",
  ownAnswer: "what the model says of the clean text",
  patch: "Patch each place",
  noCorrupted: "Type a corrupted text: the clean one with another name or number, of as many tokens.",
  map: "What each patch brings back",
  keys: "Arrow keys read squares, Enter keeps the number below",
  choose: "Click a square to keep its number here.",
  metric: ({ answer, rival }) => `logit of ${quote(answer)} less that of ${quote(rival)}`,
  mapTitle: (told) => `Share of the ${PATCH_WORDS.metric(told)} that a patch brings back: 0 as corrupted, 1 as clean`,
  label: (told) => `${told.axes.join(" by ")}: ${PATCH_WORDS.metric(told)}, 0 as corrupted, 1 as clean`,
  cell(told, i, j, share, value) {
    const [row, column] = told.axes;
    const before = told.kind === "stream" ? "Before layer" : row[0].toUpperCase() + row.slice(1);
    const [position, ...token] = told.columns[j].split(":");
    const words = token.length ? ` ‘${wordLabel(token.join(":"))}’` : ""; // of two texts, so blanks are none of a token's
    return `${before} ${told.layers[i]}, ${column} ${position}${words}: share ${share}; ${PATCH_WORDS.metric(told)}: ${value}.`;
  },
  said(told, word) {
    const [clean, corrupted] = told.ends.map(word);
    const [was, now] = told.probabilities.map(wordProbability);
    const metric = PATCH_WORDS.metric(told);
    return `${metric[0].toUpperCase()}${metric.slice(1)}: ${clean} for the clean text, ${corrupted} for the corrupted one. `
      + `Probability of ${quote(told.answer)}: ${was} and ${now}.`;
  },
};

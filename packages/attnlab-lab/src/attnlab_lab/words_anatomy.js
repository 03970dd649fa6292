// The sentences of the anatomy room, and the Python lines that compute the same.

import { wordNumber, wordProbability, wordTrimmed } from "attnlab/draw/report/elements.js";
import { wordShare } from "./parts/bars.js";

const POSITION_WORDS = { none: "no", sinusoidal: "sinusoidal", learned: "learned (here random)", rotary: "rotary" };
const tokens = (length) => `${wordNumber(length)} tokens`;
const listed = (numbers, digits = 4) => Array.from(numbers, (each) => Number(each.toFixed(digits))).join(", ");
const nested = (numbers, width) => {
  const rowAt = (i) => `    [${listed(numbers.slice(i * width, (i + 1) * width))}],`;
  return Array.from({ length: numbers.length / width }, (_, i) => rowAt(i)).join("\n");
};
const amount = (value, units, step) => {
  const k = Math.max(0, Math.min(units.length - 1, Math.floor(Math.log2(value) / Math.log2(step) + 1e-9)));
  return `${wordNumber(value / step ** k)} ${units[k]}`.trim();
};
export const wordCount = (value) => amount(value, ["", "thousand", "million", "billion", "trillion", "quadrillion"], 1000);
export const wordBytes = (value) => amount(value, ["bytes", "KiB", "MiB", "GiB", "TiB"], 1024);

export const ANATOMY = {
  title: "Take attention apart",
  subtitle: "Six small experiments, each at work already. Move a control: everything is computed anew, in this page.",
  command: (part) => `attnlab run anatomy --set only=${part}`,
  parts: {
    scaling: "scaling", masks: "masking", hiding: "mask_value", order: "position", norms: "normalization",
    costs: "complexity",
  },
  codeNote: "The Python lines compute what is shown here; the command measures it many times over, with a report.",

  scaling: {
    title: "Why divide by √d_k?",
    lead: "Ten random queries meet ten random keys. Make the vectors wider: without the division each row puts all weight on one key, and no gradient is left to learn from.",
    width: "Width of the vectors, d_k",
    scaled: "divided by √d_k", plain: "not divided",
    label: (name, width) => `Attention weights, scores ${name}, at d_k = ${width}`,
    figures: { largest: "largest weight", gradient: "gradient left" },
    said({ scaled, plain }, width) {
      const [one, other] = [scaled, plain].map(({ largest }) => wordProbability(largest));
      const parts = `At d_k = ${wordNumber(width)} the largest weight of a row is ${one} on average if scores are divided, ${other} if not`;
      if (width === 1) return `${parts}: √1 is 1, and the division changes nothing.`;
      const [more, less] = [scaled, plain].map(({ gradient }) => wordNumber(gradient));
      const ratio = scaled.gradient / plain.gradient;
      const beside = ratio > 1.05 ? `: ${wordTrimmed(ratio, 2)} times smaller` : "";
      return `${parts}. The gradient through softmax is ${more} with the division and ${less} without${beside}.`;
    },
    python: (width) => `import attnlab, torch
from attnlab.look.statistics import softmax_jacobian_norm

query, key = torch.randn(2, 10, ${width})  # other random numbers than here
for scale in (True, False):
    weights = attnlab.attend(query, key, key, scale=scale).weights
    print(weights.amax(-1).mean(), softmax_jacobian_norm(weights).mean())`,
  },

  masks: {
    title: "Who may look at whom?",
    lead: "One small head under five masks. Each row is a word that looks, each column a word that it looks at. Paint the last one: a red corner marks a word that is seen before it is written.",
    window: "Words in the window",
    names: { none: "no mask", causal: "causal", reversed: "reversed (wrong)", window: "window", own: "yours: paint it" },
    brief: { none: "no mask", causal: "causal", reversed: "reversed", window: "window", own: "yours" },
    label: (name) => `Attention weights, mask: ${name}`,
    paintKeys: "Arrow keys read squares, Enter or space opens or closes one",
    masked: "masked", later: "a later word is seen",
    cell: (from, to, words) => `‘${from}’ → ‘${to}’: ${words}`,
    hint: "Point at a square to read it under every mask.",
    said(leaks, own, dead) {
      const counts = Object.entries(leaks).map(([name, { number }]) => `${this.brief[name]} ${number}`);
      const worst = own.number
        ? `In yours ‘${own.from}’ sees ‘${own.to}’ with weight ${wordProbability(own.weight)}: a model could copy what it should predict.`
        : "Yours shows no word its future.";
      const zeros = dead ? ` ‘${dead}’ may look at nothing in yours, and gets zeros, not NaN.` : "";
      return `Squares that show a later word: ${counts.join(", ")}. ${worst}${zeros}`;
    },
    python: (scores, window, own) => `import attnlab, torch
from attnlab.parts.masks import anti_causal_mask, causal_mask, sliding_window_mask

scores = torch.tensor([
${nested(scores, 6)}
])
own = torch.tensor([
${nested(own, 6)}
]) > 0
masks = None, causal_mask(6), anti_causal_mask(6), sliding_window_mask(6, ${window}), own
for mask in masks:
    print(attnlab.attend(torch.eye(6), scores.T, scores, mask, scale=False).weights)`,
  },

  hiding: {
    title: "Which number hides a key?",
    lead: "The last four keys are masked by a number in place of their scores. Push the true scores down: below that number, the masked keys take all the weight.",
    value: "In place of a masked score", size: "True scores are about", all: "Mask all eight keys",
    wordSize: (size) => (size ? `−${wordNumber(size)}` : "0"),
    values: { "-100": "−100", "-1e4": "−10⁴", "-1e9": "−10⁹", "-inf": "−∞" },
    usual: (value) => `softmax with ${value}`, ours: "attnlab, boolean mask",
    key: (i, isOpen) => `key ${i + 1}${isOpen ? "" : ", masked"}`,
    said(leak, value, size, isAll) {
      if (isAll && value === "−∞") return "Every key is masked: softmax of nothing but −∞ is 0 / 0, and NaN spreads to every weight of the model. attnlab gives zeros, forward and backward.";
      if (isAll) return `Every key is masked, all by ${value}: softmax looks at them anyway, each with weight 0.125. attnlab gives zeros.`;
      if (value === "−∞") return "With −∞ the masked keys get exactly 0, however low the scores are. But mask all eight keys, and see.";
      const words = `With scores around ${size} and ${value} for masked keys, these get ${wordShare(leak)} of the weight`;
      const verdicts = [[0.5, "the mask is turned around"], [1e-3, "it leaks"], [0, "too little to matter"]];
      const [, verdict] = verdicts.find(([least]) => leak > least) ?? [0, "the mask holds"];
      return `${words}: ${verdict}. attnlab's boolean mask: exactly 0.`;
    },
    python: (noise, open, value, size) => `import attnlab, torch
from attnlab.experiments.anatomy.mask_value import filled_weights

scores = torch.tensor([${listed(noise)}]).double() - ${size}
mask = torch.tensor([${open.join(", ")}]) > 0
print(filled_weights(scores, mask, ${value === "-inf" ? 'float("-inf")' : Number(value).toFixed(1)}))
one, key = torch.ones(1, 1).double(), scores[:, None]
print(attnlab.attend(one, key, key, mask, scale=False).weights)`,
  },

  order: {
    title: "Does the order of words matter?",
    lead: "A small encoder with random weights reads the same words in two orders. A row is what it makes of one word. Without positions both pictures are the same; give it some, and compare.",
    kind: { label: "Positions", names: { none: "none", sinusoidal: "sinusoidal", learned: "learned", rotary: "rotary" } },
    order: { label: "The other order", names: { swapped: "swap cat and mat", backwards: "backwards", mixed: "mixed" } },
    table: "Sinusoidal positions",
    output: "channel of the output", word: "word", position: "position", channel: "channel",
    label: (words) => `Outputs for the words of: ${words}`,
    tableLabel: "Sinusoidal positions, 32 positions by 32 channels: sines and cosines of falling frequency",
    cell: (word, channel, value) => `‘${word}’, channel ${channel}: ${value}`,
    tableCell: (position, channel, value) => `position ${position}, channel ${channel}: ${value}`,
    said(kind, changes, words) {
      const most = Math.max(...changes);
      if (most < 1e-9) return `Without positions no output changes: by ${wordNumber(most)} at most, which is rounding. Attention alone sees a set of words, not a sentence.`;
      const number = changes.filter((change) => change > 1e-9).length;
      return `With ${POSITION_WORDS[kind]} positions ${number} of ${changes.length} outputs change, that of ‘${words[changes.indexOf(most)]}’ most, by ${wordNumber(most)}: the order is seen.`;
    },
    python: (kind, first, second, places) => `import attnlab, torch

config = attnlab.EncoderConfig(vocab_size=5, max_length=16, d_model=8, num_heads=2, d_ff=16, positions="${kind}")
model = attnlab.Encoder(config).double()  # other random weights than here
first, second = model(torch.tensor([[${first.join(", ")}], [${second.join(", ")}]]))
print((first - second[[${places.join(", ")}]]).abs().amax(-1))`,
  },

  norms: {
    title: "What does a norm forget?",
    lead: "Drag the eight numbers. Add 1 to all: layer norm does not notice. Double them: neither does.",
    number: (i) => `Number ${i + 1}`, add: "Add 1 to all", double: "Double all", negate: "Turn all around",
    columns: { none: "as it is", layer: "layer norm", rms: "RMS norm" },
    sums: { mean: "mean", size: "length" },
    said({ none, layer, rms }) {
      if (layer.size < 0.01) return "All eight numbers are the same: layer norm leaves zeros, for it forgets what they have in common.";
      const [before, byLayer, byRms] = [none, layer, rms].map(({ mean, size }) => [mean, size].map(wordHundredths));
      return `Mean ${before[0]} and length ${before[1]} go in. Layer norm forgets both: mean ${byLayer[0]}, length ${byLayer[1]}. `
        + `RMS norm forgets the length only: mean ${byRms[0]}, length ${byRms[1]}.`;
    },
    python: (numbers) => `import torch
from attnlab.parts.norms import layer_norm, rms_norm

x = torch.tensor([${listed(numbers, 1)}]).double()
print(layer_norm(x))
print(rms_norm(x))`,
  },

  costs: {
    title: "What does length cost?",
    lead: "Attention compares every word with every other: its cost grows with the square of the length, that of the feed-forward part in step with it. Lengthen the text, and see where attention overtakes.",
    length: "Length of the text", model: "Width of the model, d_model",
    wordLength: tokens,
    counts: { title: "Multiply-adds, log–log", names: { attention: "attention", feedForward: "feed-forward" } },
    bytes: { title: "Memory, log–log", names: { attention: "attention weights", feedForward: "hidden layer" } },
    chart: (title, length, parts) => `${title}, by length. At ${tokens(length)}: ${parts.join(", ")}.`,
    said({ counts, bytes, overtakes }, at, length) {
      const ratio = counts.attention[at] / counts.feedForward[at];
      const often = ratio === 1 ? "as many as" : `${wordTrimmed(ratio, 3)} times those of`;
      return `At ${tokens(length)} attention takes ${wordCount(counts.attention[at])} multiply-adds, ${often} the feed-forward part; `
        + `beyond ${tokens(overtakes)} (d_ff − 2 d_model) it takes more. Its weights fill ${wordBytes(bytes.attention[at])}. `
        + "Twice the length: four times that.";
    },
    python: (width, heads, hidden, length) => `import attnlab, torch
from attnlab.experiments.anatomy.cost import multiply_adds
from attnlab.parts.feed_forward import FeedForward

x = torch.randn(1, ${length}, ${width})
attention = attnlab.multi_head_attention(${width}, ${heads})
print(multiply_adds(lambda: attention(x, need_weights=True)))  # holds ${wordBytes(4 * heads * length ** 2)} of weights
print(multiply_adds(lambda: FeedForward(${width}, ${hidden})(x)))`,
  },
};

// Hundredths, as few as needed, without minus zero.
export function wordHundredths(value) {
  return wordTrimmed(Number(value.toFixed(2)) + 0);
}

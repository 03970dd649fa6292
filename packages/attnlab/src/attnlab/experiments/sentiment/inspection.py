"""Inspection of the two models: attention, accuracy without attention, strongest words."""

import copy
import itertools
from collections.abc import Sequence

import torch
from torch import Tensor

from attnlab.draw.sections import Heatmap
from attnlab.errors import not_none
from attnlab.experiments.sections import rounded
from attnlab.experiments.sentiment.config import WORDS, ModelName
from attnlab.experiments.sentiment.fit import SplitOutcome, is_right
from attnlab.experiments.sentiment.models import EncodedTexts
from attnlab.look.heads import head_at
from attnlab.look.questions import Classification
from attnlab.look.trace import Trace
from attnlab.models.encoder import Encoder
from attnlab.tasks.texts import LabeledText
from attnlab.tasks.tokenizers import UNK, PartTokenizer, TextTokenizer, clean

UNKNOWN_WORDS = WORDS.text("unknown")
_LONGEST_SHOWN = 18  # tokens of a text that is shown, if possible
_MOST_MAPS, _MOST_TOKENS = 64, 40  # of a text that is shown
_MOST_STRONGEST = 12  # parts of each class


def ask_text(
    model: Encoder, tokenizer: TextTokenizer, classes: Sequence[str], text: str
) -> Classification:
    """Put one text to a model."""
    ids = torch.tensor([tokenizer.ids(text)])
    words, note = ids, ""
    if tokenizer.num_parts > 1:
        words = ids[..., 0]
    if (words == UNK).any():
        note = UNKNOWN_WORDS
    return Classification(model, ids, tokenizer.words(text), classes, note=note)


@torch.no_grad()
def correct_without_attention(model: Encoder, test: EncodedTexts) -> Tensor:
    """Which test texts are right with the attention outputs set to 0? (texts,) boolean."""
    model = copy.deepcopy(model)
    for name, value in model.named_parameters():
        if ".attention.output." in name:
            value.zero_()
    return is_right(model, test)


@torch.no_grad()
def strongest_parts(model: Encoder, tokenizer: PartTokenizer) -> list[list[str]]:
    """List for each class the words, beginnings and pairs whose vectors add most to its logit."""
    logits: Tensor = model.embedding.tokens.weight[3:] @ not_none(model.head).weight.T
    logits = logits - logits.mean(1, keepdim=True)
    names = tokenizer.names[3:]
    strongest = logits.topk(min(_MOST_STRONGEST, len(names)), 0).indices.T.tolist()
    return [[names[place] for place in column] for column in strongest]


def texts_to_show(
    outcome: SplitOutcome, name: ModelName, shown_texts: str | None
) -> list[tuple[str, str | None]]:
    """Choose texts with their labels: the given ones, or a right and a wrong one of each class.

    Of the test texts that are short enough, the verdicts shown are the surest.
    """
    if shown_texts is not None:
        return [(text.strip(), None) for text in shown_texts.split("|") if clean(text)]
    prepared, rows = outcome.prepared[name], outcome.arrangement.split.test
    places = _short_texts(prepared.tokenizer, rows)
    sureness = outcome.models[name][0].probabilities.amax(-1).tolist()
    correct = outcome.correct[name][0].tolist()
    chosen: dict[str, tuple[str, str | None]] = {}
    for wanted in itertools.product(prepared.classes[:4], (True, False)):
        fitting = [place for place in places if (rows[place].label, correct[place]) == wanted]
        if fitting:
            row = rows[max(fitting, key=lambda place: sureness[place])]
            chosen.setdefault(clean(row.text), (row.text, row.label))
    return list(chosen.values())


def _short_texts(tokenizer: TextTokenizer, rows: Sequence[LabeledText]) -> list[int]:
    """Return the places of the texts that are short enough, or of the shortest."""
    lengths = [tokenizer.count(row.text) for row in rows]
    places = [place for place, length in enumerate(lengths) if length <= _LONGEST_SHOWN]
    return places or sorted(range(len(rows)), key=lambda place: len(rows[place].text))[:20]


def maps_of(trace: Trace) -> list[Heatmap]:
    """Turn a trace's heads into maps: layer by layer, head by head."""
    words, maps = list(trace.tokens[:_MOST_TOKENS]), []
    for head in trace.attention[:_MOST_MAPS]:
        rows = rounded(row[:_MOST_TOKENS] for row in head.rows[:_MOST_TOKENS])
        title = f"Head {head_at(head.site, head.head)}"
        maps.append(Heatmap.of_weights(title, rows, words, words))
    return maps

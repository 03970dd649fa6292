"""Activation patching of two texts: which position of which layer carries the answer.

The residual stream before each block is patched from the clean text into the corrupted one, one
position at a time, and measured at the first token of the answer. A part of the process with torch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from attnlab.edits.effects import patch_all
from attnlab.edits.effects.metrics import Metric
from attnlab.errors import WrongUsage
from attnlab.look.questions import Continuation, Question, Verdict
from attnlab.look.recording.tokens import token_name
from attnlab.look.text_questions import TextChoice, TextContinuation
from attnlab.pretrained.text import TokenNames

_SHOWN_TOKENS = 12  # of a text whose number of tokens is refused


@dataclass(frozen=True)
class _Prompt:
    """A text as its model reads it: the position whose logits answer, and the answers' names."""

    inputs: Mapping[str, object]
    words: tuple[str, ...]
    position: int
    names: TokenNames | Sequence[str]


def patch_map(clean: Question, corrupted: Question, target: str) -> dict[str, object]:
    """Patch the residual stream, layer by position; return the map, the metric and its two ends.

    target: the answer that is measured; empty for what the model says of the clean text.

    Raises:
        WrongUsage: texts of different lengths, an unknown answer, or a model without one answer.
    """
    one, other = _prompt(clean), _prompt(corrupted)
    if len(one.words) != len(other.words) or one.position != other.position:
        raise WrongUsage(
            "patching needs two texts of equally many tokens, with the answer at the same place; "
            f"the clean one has {_listed(one.words)}, the corrupted one {_listed(other.words)}."
        )
    logits = [_answer_logits(clean, one), _answer_logits(corrupted, other)]
    answer = _answer_id(one.names, logits[0], target) if target.strip() else int(logits[0].argmax())
    rival = int(logits[1].argmax())
    label = torch.tensor([answer])
    metric = Metric("logit", label, position=one.position)
    if rival != answer:
        other_label = torch.tensor([rival])
        metric = Metric("logit_difference", label, other_label, position=one.position)
    patched = patch_all(clean.model, one.inputs, other.inputs, "stream", metric=metric)
    [table, *_] = patched.number_tables()
    return {
        "layers": list(table.rows),
        "positions": [
            was if was == now else f"{was}/{now}"
            for was, now in zip(one.words, other.words, strict=True)
        ],
        "shares": [list(row) for row in table.values],
        "answer": token_name(answer, one.names),
        "rival": None if rival == answer else token_name(rival, one.names),
        "ends": [float(patched.ends.clean.mean()), float(patched.ends.corrupted.mean())],
        "probabilities": [float(row.softmax(-1)[answer]) for row in logits],
        "caution": patched.caution,
    }


def has_one_answer(question: Question) -> bool:
    """Does the model give one answer to this text, which patching can measure?"""
    try:
        _prompt(question)
    except WrongUsage:
        return False
    return True


def _prompt(question: Question) -> _Prompt:
    if isinstance(question, Continuation):
        names = question.vocabulary
        words = tuple(token_name(token, names) for token in question.prompt[0].tolist())
        return _Prompt({"tokens": question.prompt}, words, -1, names)
    passage = question.passage()
    words = next(iter(passage.words.values()))
    inputs = dict(passage.options)
    if isinstance(question, TextContinuation):
        return _Prompt(inputs, words, -1, question.vocabulary)
    if isinstance(question, Verdict):
        return _Prompt({"tokens": question.tokens, **inputs}, words, 0, question.classes)
    if isinstance(question, TextChoice) and len(question.names) > 1:
        places = question.places or (0,)
        if len(places) == 1:
            return _Prompt(inputs, words, places[0], question.names)
    raise WrongUsage(
        "patching measures one answer to a text: the next token, one masked word, or a class; "
        "this model gives vectors, a number, or several answers."
    )


@torch.no_grad()
def _answer_logits(question: Question, prompt: _Prompt) -> Tensor:
    """Return the logits of the answer, (answer,)."""
    logits = question.model(**prompt.inputs)[0]
    row: Tensor = logits if logits.dim() == 1 else logits[prompt.position]
    return row.float()


def _answer_id(names: TokenNames | Sequence[str], logits: Tensor, target: str) -> int:
    """Return the id of an answer; where several ids are written so, the likeliest."""
    if isinstance(names, TokenNames):
        known = names.ids_of(target)
    else:
        known = [id for id in range(len(names)) if names[id] == target.strip()]
    if not known:
        raise WrongUsage(f"{target[:60]!r} is no answer of this model, or is several tokens of it.")
    return max(known, key=lambda id: float(logits[id]))


def _listed(words: Sequence[str]) -> str:
    more = " …" if len(words) > _SHOWN_TOKENS else ""
    return f"{len(words)}: {' '.join(map(repr, words[:_SHOWN_TOKENS]))}{more}"

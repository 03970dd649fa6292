"""Pairs of a clean and a corrupted input: read by the model, and grouped by their shapes.

A patch goes from a position to the same position, so both texts of a pair need as many tokens. A
pair that cannot be patched is refused with the reason, and the others are patched. Positions of
different pairs correspond only where all texts have equally many tokens.
"""

import csv
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from attnlab.edits.effects.metrics import Metric, MetricLike
from attnlab.errors import CouldNotRun, WrongUsage, did_you_mean
from attnlab.look.inputs import Call, Inputs, is_text, texts_of
from attnlab.look.position_names import position_names
from attnlab.look.pretrained_questions import (
    TextAnswer,
    TextChoice,
    TextContinuation,
    answer_kind,
    question_of,
)
from attnlab.look.questions import Classification, Continuation, Question, Translation
from attnlab.look.readers import reader_of
from attnlab.look.target_ids import AnswerTarget, target_ids
from attnlab.pretrained.model import Pretrained
from attnlab.shapes import shape_text

_SHOWN_TOKENS = 12  # of a text whose number of tokens is refused
_ANSWER_METRICS = ("logit", "probability", "loss", "accuracy", "logit_difference")


class Refusal(NamedTuple):
    """A pair that was not patched.

    row: its number, from 0 · why: a sentence.
    """

    row: int
    why: str


@dataclass(frozen=True)
class PairGroup:
    """Pairs of one shape. rows: their numbers among all pairs."""

    clean: Call
    corrupted: Call
    metric: Metric
    rows: Sequence[int]


@dataclass(frozen=True)
class Pairs:
    """Pairs in groups of one shape each, those that are refused, and the texts of all."""

    groups: Sequence[PairGroup]
    refused: Sequence[Refusal] = ()
    texts: Sequence[tuple[str, str]] = ()

    @property
    def lengths(self) -> str:
        """The numbers of tokens if they differ, such as "12 to 15"; else ""."""
        if len(self.groups) == 1:
            return ""
        numbers = {_length(group.clean) for group in self.groups}
        return f"{min(numbers)} to {max(numbers)}" if len(numbers) > 1 else ""


def pairs_of(
    model: nn.Module, clean: Inputs, corrupted: Inputs, metric: MetricLike, target: AnswerTarget
) -> Pairs:
    """Read pairs of texts one by one; other inputs are one group, of one shape.

    Raises:
        WrongUsage: no pair can be patched.
    """
    if is_text(clean) and is_text(corrupted):
        return _text_pairs(model, texts_of(clean), texts_of(corrupted), metric, target)
    one, other = Call.of(clean, model), Call.of(corrupted, model)
    if _shapes_of(one) != _shapes_of(other):
        got = f"{_shapes_of(one)} and {_shapes_of(other)}"
        raise WrongUsage(
            f"clean and corrupted inputs are of the same shapes; got {got}. A patch goes from a "
            "position to the same position: give texts of as many tokens."
        )
    rows = range(one.num_rows)
    return Pairs([PairGroup(one, other, Metric.of(metric, target, model, clean), rows)])


def _text_pairs(
    model: nn.Module,
    clean: Sequence[str],
    corrupted: Sequence[str],
    metric: MetricLike,
    target: AnswerTarget,
) -> Pairs:
    if len(clean) != len(corrupted):
        raise WrongUsage(f"{len(clean)} clean texts need as many others; got {len(corrupted)}.")
    texts = list(zip(clean, corrupted, strict=True))
    metrics, ask = _metrics(metric, target, model, len(texts)), _asker(model)
    groups: dict[object, list[PairGroup]] = {}
    refused: list[Refusal] = []
    seen: dict[object, int] = {}
    for row, (pair_texts, pair_metric) in enumerate(zip(texts, metrics, strict=True)):
        try:
            pair = _read_pair(model, ask, pair_texts, pair_metric, row)
            first = seen.setdefault((pair_texts, repr(pair_metric)), row)
            if first != row:
                raise WrongUsage(f"it repeats pair {first + 1}, which would count twice.")
        except WrongUsage as error:
            refused.append(Refusal(row, str(error)))
            continue
        has_target = (pair.metric.target is None, pair.metric.others is None)
        groups.setdefault((_shapes_of(pair.clean), has_target), []).append(pair)
    if not groups:
        if len(texts) == 1:
            raise WrongUsage(refused[0].why)
        raise WrongUsage(f"none of {len(texts)} pairs can be patched; the first: {refused[0].why}")
    return Pairs(list(map(_joined, groups.values())), refused, texts)


def _metrics(
    metric: MetricLike, target: AnswerTarget, model: nn.Module, pairs: int
) -> list[Metric]:
    """Return the metric of each pair, with its targets as they were named."""
    named = Metric.named(metric, target, model)
    for targets in (named.target, named.others):
        if isinstance(targets, list | tuple) and len(targets) != pairs:
            Metric.of(metric, target, model)  # refuses what is no token
            raise WrongUsage(f"{pairs} pairs need {pairs} targets, or one; got {len(targets)}.")
    return [named.rows(row) for row in range(pairs)]


def _read_pair(
    model: nn.Module, ask: Callable[[str], Question], texts: Sequence[str], metric: Metric, row: int
) -> PairGroup:
    """Read one pair as a group of its own."""
    read = partial(_read_text, ask, metric)
    (one, place), (other, other_place) = map(read, texts)
    if texts[0] == texts[1]:
        raise WrongUsage(
            "both texts are the same: a patch has nothing to bring from one to the other."
        )
    if _shapes_of(one) != _shapes_of(other) or place != other_place:
        names = [next(iter(position_names([call], model).values()), ()) for call in (one, other)]
        raise WrongUsage(
            "patching needs two texts of equally many tokens, with the answer at the same place; "
            f"the clean one has {_tokens(names[0])}, the corrupted one {_tokens(names[1])}."
        )
    target, others = (
        target_ids(token, model, texts[0]) for token in (metric.target, metric.others)
    )
    if target is not None and others is not None and bool((target == others).all()):
        raise WrongUsage("the answer and the wrong one are the same token.")
    rows = [None if ids is None else ids.unsqueeze(0) for ids in (target, others)]
    metric = Metric(metric.measure, rows[0], rows[1], torch.tensor([place]))
    return PairGroup(one, other, metric, (row,))


def _read_text(ask: Callable[[str], Question], metric: Metric, text: str) -> tuple[Call, int]:
    """Return a text's inputs, and the position that counts: the last is that of the answer."""
    if not text.strip():
        raise WrongUsage("a text is empty.")
    question = ask(text)
    inputs = dict(question.prompt_inputs())
    if inputs.keys() == {"input_ids", "attention_mask"}:
        del inputs["attention_mask"]  # which masks nothing
    place = int(metric.position)
    if place == -1 and metric.measure in _ANSWER_METRICS:
        place = answer_position(question)
    return Call.of(inputs), place


def answer_position(question: Question) -> int:
    """Return the position whose logits are the model's one answer to a text.

    Raises:
        WrongUsage: the model gives several answers, or none.
    """
    if isinstance(question, Continuation | Translation | TextContinuation | TextAnswer):
        return -1
    if isinstance(question, Classification):
        return 0
    if isinstance(question, TextChoice) and len(question.names) > 1:
        places = question.places or (0,)
        if len(places) == 1:
            return places[0]
    raise WrongUsage(
        "patching measures one answer to a text: the next token, one masked word, or a class; "
        'this model gives vectors, a number, or several answers. metric="cosine" measures vectors.'
    )


def _asker(model: nn.Module) -> Callable[[str], Question]:
    """Return a function that puts texts to a model; what a foreign model does is tried out once."""
    reader = reader_of(model)
    if reader is not None:
        return partial(reader.ask, model)
    if not isinstance(model, Pretrained):
        raise WrongUsage(
            f"this {type(model).__name__} does not know the names of its tokens: give ids, or load "
            "it from its run."
        )
    kind: str | None = None

    def ask(text: str) -> Question:
        nonlocal kind
        kind = kind or answer_kind(model, model.inputs(text))
        return question_of(model, text, kind=kind)

    return ask


def _joined(pairs: Sequence[PairGroup]) -> PairGroup:
    """Join pairs of one shape, row by row."""
    values: dict[str, Any] = {}
    for name in ("target", "others", "position"):
        column = [getattr(pair.metric, name) for pair in pairs]
        values[name] = None if column[0] is None else torch.cat(column)
    calls = []
    for side in ("clean", "corrupted"):
        inputs = [getattr(pair, side).options for pair in pairs]
        joined = {name: torch.cat([named[name] for named in inputs]) for name in inputs[0]}
        calls.append(Call((), joined, len(pairs)))
    metric = Metric(pairs[0].metric.measure, **values)
    return PairGroup(calls[0], calls[1], metric, [row for pair in pairs for row in pair.rows])


def _length(call: Call) -> int:
    return next(len(value[0]) for value in call.options.values() if isinstance(value, Tensor))


def _tokens(names: Sequence[str]) -> str:
    more = " …" if len(names) > _SHOWN_TOKENS else ""
    return f"{len(names)}: {' '.join(map(repr, names[:_SHOWN_TOKENS]))}{more}"


def _shapes_of(call: Call) -> str:
    """Describe the tensors of a call, by their names."""
    named = {f"input {index}": argument for index, argument in enumerate(call.arguments)}
    shapes = []
    for name, value in (named | dict(call.options)).items():
        if isinstance(value, Tensor):
            shapes.append(f"{name} {shape_text(value.shape)}")
    return ", ".join(shapes)


class PairFile(NamedTuple):
    """The pairs of a file: texts, answers (None where the cell is empty), the number of each row,
    from 0, and the rows without a pair."""

    clean: list[str]
    corrupted: list[str]
    answer: list[str | None]
    wrong: list[str | None]
    rows: list[int]
    refused: list[Refusal]


def read_pairs(path: Path | str) -> PairFile:
    """Read pairs from a CSV file with the columns clean and corrupted, and answer and wrong where
    there are such; other columns are ignored.

    Raises:
        WrongUsage: a column is missing.
        CouldNotRun: the file cannot be read.
    """
    pairs = PairFile([], [], [], [], [], [])
    try:
        with Path(path).open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, strict=True)
            columns = reader.fieldnames or []
            for name in ("clean", "corrupted"):
                if name not in columns:
                    raise WrongUsage(
                        f"{path} has no column {name!r}; {did_you_mean(name, columns)}"
                    )
            for row, cells in enumerate(reader):
                if None in cells or None in cells.values():
                    wrong = f"it has more or fewer than {len(columns)} cells"
                    pairs.refused.append(Refusal(row, wrong))
                    continue
                pairs.rows.append(row)
                pairs.clean.append(cells["clean"])
                pairs.corrupted.append(cells["corrupted"])
                pairs.answer.append(cells.get("answer") or None)
                pairs.wrong.append(cells.get("wrong") or None)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise CouldNotRun(f"{path} cannot be read as CSV in UTF-8: {error}.") from None
    if not pairs.rows:
        raise WrongUsage(f"{path} has no pair: {len(pairs.refused)} rows were refused.")
    return pairs

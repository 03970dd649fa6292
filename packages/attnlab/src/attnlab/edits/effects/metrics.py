"""Metrics: one number for each input that says how a model does, from its logits.

    logit               of the right token
    probability         of the right token
    loss                cross-entropy of the right token, nats
    accuracy            1 where the right token is the likeliest, else 0
    logit_difference    logit of the right token less that of another
    kl                  Kullback–Leibler divergence from the unedited to the edited model, nats
    cosine              1 less the cosine of the output vector to the unedited one

Where several positions of an input count, the number is their mean. A metric may also be a function
from logits to one number for each row.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import torch
from torch import Tensor, nn

from attnlab.edits.targets import described
from attnlab.errors import WrongUsage, not_none, require_known
from attnlab.look.inputs import places_of
from attnlab.look.target_ids import AnswerTarget, answer_name, answer_words, target_ids
from attnlab.pretrained.model import Pretrained
from attnlab.shapes import shape_text

MetricKind = Literal["logit", "probability", "loss", "accuracy", "logit_difference", "kl", "cosine"]
MetricLike: TypeAlias = "MetricKind | Callable[[Tensor], Tensor] | Metric"

IGNORED = -100
"""The label of a position that does not count, as in PyTorch's cross-entropy."""

_AT_ONCE = 2**21
"""Logits that are measured at once: all of a long text would take several times their memory."""

_NEED_LABELS = ("loss", "accuracy")
_WHOLE = ("kl", "cosine")
"""Metrics of all logits of a position, of no one token."""


@dataclass(frozen=True)
class Metric:
    """A metric and its target.

    Args:
        measure: a name, or a function from the logits (row, …) to one number for each row.
        target: the right token's text or id, for all inputs at their `position`; a list of these or
            ids (row,), one for each input; ids (row, length), -100 where a position does not count;
            None for the model's own answer there (loss and accuracy need a target), and for all
            positions with a cosine.
        others: for a difference, the same for the other token; None for the likeliest other one
            (where a clean and a corrupted run are compared, to the corrupted one).
        position: the one that counts where a target is one for each input: an integer, or (row,) of
            them. Negative ones count from the last token that is not padding, if the inputs
            (real=, attention_mask=, mask=) tell.
    """

    measure: MetricKind | Callable[[Tensor], Tensor] = "logit"
    target: AnswerTarget = None
    others: AnswerTarget = None
    position: int | Tensor = -1

    @classmethod
    def of(
        cls, metric: "MetricLike", target: AnswerTarget, model: nn.Module, inputs: object = None
    ) -> "Metric":
        """Build a metric from a name with a target, its tokens as ids of this model."""
        named = cls.named(metric, target, model)
        target, others = target_ids(named.target, model, inputs), named.others
        return cls(named.measure, target, target_ids(others, model, inputs), named.position)

    @classmethod
    def named(cls, metric: "MetricLike", target: AnswerTarget, model: nn.Module) -> "Metric":
        """Build a metric from a name with a target, its tokens as they were named.

        A model without logits is measured by the cosine of its vectors where nothing else is asked.
        """
        if not isinstance(metric, Metric):
            if metric == "logit" and gives_vectors(model):
                if target is not None:
                    raise WrongUsage("this model gives vectors, no logits: leave target= out.")
                metric = "cosine"
            metric = cls(metric, target)
        elif target is not None:
            raise WrongUsage("target= was given twice; put it into the Metric alone.")
        if callable(metric.measure) and (metric.target is not None or metric.others is not None):
            raise WrongUsage(
                "a metric that is a function takes no target; let the function know it."
            )
        return metric

    def rows(self, index: slice | int) -> "Metric":
        """Return the metric for some of the inputs, or for one; a single token is for all."""
        arguments: list[Any] = [self.target, self.others, self.position]
        for place, argument in enumerate(arguments):
            is_tensor = isinstance(argument, Tensor) and argument.dim() > 0
            if isinstance(argument, list | tuple) or is_tensor:
                arguments[place] = argument[index]
        return Metric(self.measure, *arguments)


@dataclass(frozen=True, eq=False)
class PreparedMetric:
    """A metric with its labels, for the logits of any pass over the same inputs.

    name · labels (row, length) ids, `IGNORED` where a position does not count; None for a function
    · others: the ids whose logits are subtracted, likewise · measure: a user's function of the
    logits; None for a named metric.
    """

    name: str
    labels: Tensor | None
    others: Tensor | None = None
    measure: Callable[[Tensor], Tensor] | None = None

    def one_each(self, ids: Tensor | None) -> list[int]:
        """Return the ids (row, length) of rows that have one that counts, else no ids."""
        if self.labels is None or ids is None or bool(((self.labels != IGNORED).sum(1) != 1).any()):
            return []
        return ids[self.labels != IGNORED].tolist()

    def answers(self, model: nn.Module, size: int) -> list[tuple[str, str]]:
        """Name each row's answer and the token that is subtracted, or "", of logits (…, size).

        Empty where rows have several answers or none.
        """
        wrong, answers = self.one_each(self.others), []
        for row, answer in enumerate(self.one_each(self.labels)):
            rival = answer_name(wrong[row], model, size) if wrong else ""
            answers.append((answer_name(answer, model, size), rival))
        return answers

    @property
    def num_last(self) -> int | None:
        """The number of last positions that the metric needs; None for all."""
        if self.labels is None:
            return None
        counted = (self.labels != IGNORED).any(0)
        return int(len(counted) - counted.int().argmax())

    def __call__(self, logits: Tensor, before: Tensor) -> Tensor:
        """Measure copies of all inputs: logits (copy · row, …) -> (copy, row), in float64.

        Args:
            logits: (copy · row, position, vocabulary), the last positions of each at least; or
                (copy · row, classes).
            before: (row, …), the model's logits as it was, likewise.
        """
        if self.measure is not None:
            return torch.stack(list(map(self._own, logits.view(-1, *before.shape))))
        if before.dim() == 2:
            logits, before = logits.unsqueeze(1), before.unsqueeze(1)
        num_rows, length = not_none(self.labels).shape
        labels = not_none(self.labels).to(logits.device)
        row, place = (labels != IGNORED).nonzero(as_tuple=True)
        position = place - length  # from the end, for the first ones may be left out
        copies = logits.view(-1, num_rows, *logits.shape[1:])
        many = max(1, _AT_ONCE // max(1, len(copies) * logits.shape[-1]))
        places = zip(torch.split(row, many), torch.split(position, many), strict=True)
        values = torch.cat([self._at(where, copies, before, labels) for where in places], 1)
        sums = values.new_zeros(len(values), num_rows).double().index_add_(1, row, values.double())
        return sums / torch.bincount(row, minlength=num_rows)

    def _at(
        self, where: tuple[Tensor, Tensor], copies: Tensor, before: Tensor, labels: Tensor
    ) -> Tensor:
        """Measure some places, by row and position: copies (copy, row, …) -> (copy, place)."""
        chosen = widened(copies[:, *where])
        if self.name == "kl":
            return divergence(before[where], chosen)
        if self.name == "cosine":
            return cosine_distance(before[where], chosen)
        values = _values(self.name, chosen, labels[where])
        if self.others is None:
            return values
        return values - _of(chosen, self.others.to(labels.device)[where])

    def _own(self, logits: Tensor) -> Tensor:
        """Measure all rows once by the user's function."""
        values = not_none(self.measure)(logits)
        if isinstance(values, Tensor) and values.shape == (len(logits),):
            return values.detach().double()
        raise WrongUsage(f"a metric returns one number for each row; got {described(values)}.")


def measured_words(name: str, answers: Sequence[tuple[str, str]], position: object) -> str:
    """Say what is measured: the metric's name, and whose it is and where, if rows have one each.

    position: of the answers; None where logits have no positions.
    """
    words = "1 less the cosine of the vectors to what they were"
    if name != "cosine":
        words = name.replace("_", " ")
    if not answers:
        return words
    if name in _WHOLE:
        answers = []
    elif len(set(answers)) == 1 and answers[0][1]:
        words = "logit"
    return words + answer_words(answers, position)


def _values(name: str, logits: Tensor, labels: Tensor) -> Tensor:
    """Measure each place: logits (copy, place, vocabulary), ids (place,) -> (copy, place)."""
    if name == "accuracy":
        return logits.argmax(-1) == labels
    if name == "probability":
        return _of(logits.softmax(-1), labels)
    if name == "loss":
        return -_of(logits.log_softmax(-1), labels)
    return _of(logits, labels)


def _of(logits: Tensor, ids: Tensor) -> Tensor:
    return logits.gather(-1, ids.expand(logits.shape[:-1]).unsqueeze(-1)).squeeze(-1)


def gives_vectors(model: nn.Module) -> bool:
    """Does a pretrained model give the vectors of its last layer, and no logits?"""
    if not isinstance(model, Pretrained) or not hasattr(model.foreign, "config"):
        return False
    return "logits" not in model.sites


def next_tokens(tokens: Tensor) -> Tensor:
    """Return a language model's labels: the next token at each position, none at the last.

    >>> next_tokens(torch.tensor([[5, 6, 7]]))
    tensor([[   6,    7, -100]])
    """
    return torch.cat((tokens[:, 1:], torch.full_like(tokens[:, :1], IGNORED)), 1)


def prepare_metric(
    metric: Metric, logits: Tensor, real: Tensor | None = None, *, rivals: Tensor | None = None
) -> PreparedMetric:
    """Prepare a metric for inputs whose plain logits are (row, length, vocabulary) or (row,
    classes).

    Args:
        metric: the metric and its target.
        logits: of the plain pass.
        real: (row, length), False at padding; negative positions count from the last real one.
        rivals: logits of the same shape, whose likeliest other token is subtracted in a
            difference; None for the plain pass's own.

    Raises:
        WrongUsage: an unknown name, a target that is missing, of a wrong shape or out of range.
    """
    measure, others = metric.measure, metric.others
    if callable(measure):
        return PreparedMetric(getattr(measure, "__name__", "metric"), None, measure=measure)
    require_known("metric", measure, get_args(MetricKind))
    if logits.dim() not in (2, 3):
        raise WrongUsage(
            f"{measure} needs logits (row, length, vocabulary) or (row, classes); got "
            f"{shape_text(logits.shape)}. Pass a function of the output as the metric."
        )
    whole = logits.unsqueeze(1) if logits.dim() == 2 else logits
    labels = _labels(metric, whole, real)
    if measure != "logit_difference":
        if others is not None:
            raise WrongUsage(f"others= goes with logit_difference; {measure} takes a target alone.")
        return PreparedMetric(measure, labels)
    if others is None:
        right = torch.nn.functional.one_hot(labels.clamp(min=0), whole.shape[-1]).bool()
        likely = logits if rivals is None else rivals
        others = likely.view_as(whole).masked_fill(right, float("-inf")).argmax(-1)
        return PreparedMetric(measure, labels, others)
    others = _spread("others", others, whole, metric.position, real)
    if bool(((others == IGNORED) & (labels != IGNORED)).any()):
        raise WrongUsage("others must name a token wherever the target does.")
    return PreparedMetric(measure, labels, others)


def _labels(metric: Metric, whole: Tensor, real: Tensor | None) -> Tensor:
    """Return the labels (row, length): the target, or the model's own answer."""
    if metric.target is not None:
        labels = _spread("target", metric.target, whole, metric.position, real)
    elif metric.measure in _NEED_LABELS:
        raise WrongUsage(f"{metric.measure} needs target=, such as next_tokens(tokens); got none.")
    elif metric.measure == "cosine":
        labels = whole.new_zeros(whole.shape[:2], dtype=torch.int64)
        if real is not None and real.shape == labels.shape:
            labels = labels.masked_fill(~real.to(labels.device), IGNORED)
    else:
        labels = whole.argmax(-1).masked_fill(~_at(metric.position, whole, real), IGNORED)
    if not bool((labels != IGNORED).any(1).all()):
        raise WrongUsage("every input needs a position that counts; some have only -100.")
    return labels


def _at(position: int | Tensor, whole: Tensor, real: Tensor | None) -> Tensor:
    """Mark the position of each row: (row, length)."""
    places = places_of(position, whole.shape[0], whole.shape[1], real).to(whole.device)
    return torch.arange(whole.shape[1], device=whole.device) == places.unsqueeze(1)


def _spread(
    name: str, target: AnswerTarget, whole: Tensor, position: int | Tensor, real: Tensor | None
) -> Tensor:
    """Bring ids to (row, length)."""
    ids = torch.as_tensor(target, device=whole.device)
    shape = tuple(whole.shape[:2])
    is_whole = not ids.is_floating_point() and ids.dtype != torch.bool
    if not is_whole or tuple(ids.shape) not in (shape, shape[:1], ()):
        raise WrongUsage(
            f"{name}: expected integer ids of shape {shape_text(shape)}, or one for each of "
            f"{shape[0]} rows; got {shape_text(ids.shape)} of {ids.dtype}."
        )
    if ids.dim() == 0:
        ids = ids.expand(shape[:1])
    ids = ids.long()  # -100 does not fit into every type of integer
    used = ids[ids != IGNORED]
    if bool(((used < 0) | (used >= whole.shape[-1])).any()):
        raise WrongUsage(
            f"{name}: expected ids from 0 to {whole.shape[-1] - 1}, or -100; got "
            f"{used[:8].tolist()}."
        )
    if ids.dim() == 1:
        return ids.unsqueeze(1).expand(shape).masked_fill(~_at(position, whole, real), IGNORED)
    if real is None or real.shape != shape:
        return ids
    return ids.masked_fill(~real.to(ids.device), IGNORED)


def widened(logits: Tensor) -> Tensor:
    """Convert half precision to float32."""
    return logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits


def cosine_distance(was: Tensor, vectors: Tensor) -> Tensor:
    """Return 1 less the cosine of vectors to what they were: (…, width) -> (…,)."""
    cosine = torch.nn.functional.cosine_similarity(was.double(), vectors.double(), dim=-1)
    return (1.0 - cosine).round(decimals=12).abs()  # 0 for equal vectors, whatever the rounding


def divergence(was: Tensor, logits: Tensor) -> Tensor:
    """Return the Kullback–Leibler divergence between logits, in nats: (…, vocabulary) -> (…,).

    A token with a logit of -inf before adds nothing, as p ln p goes to 0 with p.
    """
    log_was, log_is = was.double().log_softmax(-1), logits.double().log_softmax(-1)
    terms = log_was.exp() * (log_was - log_is)
    return terms.masked_fill(log_was == float("-inf"), 0.0).sum(-1)

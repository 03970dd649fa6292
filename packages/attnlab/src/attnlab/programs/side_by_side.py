"""A learned model beside a compiled one: inputs on which they differ, and heads that look alike.

Heads are compared by the total variation distance of their attention rows, ½ Σ |p - q|, over all
queries but BOS, of all inputs: 0 for the same rows, 1 for rows without a common key.
"""

import math
from collections.abc import Sequence as Items
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnlab import seeds
from attnlab.display import Card, card_text, displayed
from attnlab.errors import WrongUsage
from attnlab.models.encoder import Encoder
from attnlab.programs.check import inputs_of, read_answers
from attnlab.programs.compiled_program import CompiledProgram, head_names
from attnlab.programs.values import Value
from attnlab.sites import Hook, installed


@dataclass(frozen=True)
class Difference:
    """An input on which two models differ, and their outputs at the first such position."""

    tokens: tuple[Value, ...]
    position: int
    compiled: Value
    learned: Value

    def __str__(self) -> str:
        words = " ".join(map(str, self.tokens))
        return (
            f"{words}, position {self.position}: compiled {self.compiled}, learned {self.learned}"
        )


@dataclass(frozen=True)
class Match:
    """The learned head whose attention is closest to a compiled head's.

    distance: mean total variation distance of their rows. chance: the same of the best head of a
    model that was not trained, on average over some.
    """

    head: str
    line: str
    learned: str
    distance: float
    chance: float


@displayed
@dataclass(frozen=True)
class Comparison:
    """Where a learned model differs from a compiled one.

    Attributes:
        program: the compiled one's name.
        lengths: for each length, how many inputs there are, and on how many the answers differ.
        examples: the first inputs that differ, shortest first.
        matches: for each compiled head, the learned one that is most like it.
    """

    program: str
    lengths: tuple[tuple[int, int, int], ...]
    examples: tuple[Difference, ...]
    matches: tuple[Match, ...]

    @property
    def inputs(self) -> int:
        """How many inputs were compared: all up to a length."""
        return sum(inputs for _, inputs, _ in self.lengths)

    @property
    def differing(self) -> int:
        """On how many of them the answers differ at some position."""
        return sum(differing for _, _, differing in self.lengths)

    def _card(self) -> Card:
        lines = []
        for match in self.matches:
            lines.append(
                f"  head {match.head} is most like learned {match.learned}: {match.distance:.2f} "
                f"apart (untrained {match.chance:.2f})  {match.line}"
            )
        for example in self.examples:
            lines.append(f"  {example}")
        title = (
            f"{self.program}: the answers differ on {self.differing:,} of {self.inputs:,} inputs"
        )
        return Card(title, columns=("length", "inputs", "differ"), rows=self.lengths, lines=lines)

    def __str__(self) -> str:
        return card_text(self._card())


def compare(
    compiled: CompiledProgram,
    learned: Encoder,
    *,
    values: Items[Value] | None = None,
    longest: int | None = None,
    examples: int = 5,
    draws: int = 5,
) -> Comparison:
    """Put every input through a compiled and a learned model.

    Args:
        compiled: what to compare with.
        learned: an encoder with classes at each token, which reads the same ids, BOS included.
        values: what its classes mean; None for the compiled one's values in their order.
        longest: None for as long as the compiled one takes.
        examples: how many inputs that differ are kept.
        draws: untrained models that tell how alike heads are by chance.

    Raises:
        WrongUsage: the learned model reads other ids, or has other classes.
    """
    values = tuple(compiled.values if values is None else values)
    _check_alike(compiled, learned, values)
    untrained = []
    for draw in range(draws):
        with seeds.isolated(draw, "untrained"):
            untrained.append(Encoder(learned.config).to(next(learned.parameters()).dtype).eval())
    tally = _Tally(compiled, learned, untrained, values)
    lengths = []
    for length in range(1, (longest or compiled.longest) + 1):
        inputs, before = 0, tally.differing
        for ids in inputs_of(len(compiled.alphabet), length, tally.pairs):
            tally.add(ids, examples)
            inputs += len(ids)
        lengths.append((length, inputs, tally.differing - before))
    return Comparison(compiled.name, tuple(lengths), tuple(tally.examples), tally.matches())


class _Tally:
    """The differences so far, and the distances of the heads."""

    def __init__(
        self,
        compiled: CompiledProgram,
        learned: Encoder,
        untrained: list[Encoder],
        values: Items[Value],
    ) -> None:
        self.compiled, self.models, self.values = compiled, [learned, *untrained], values
        self.same = np.array([[one == other for other in values] for one in compiled.values])
        self.names = head_names(learned)
        self.apart = torch.zeros(
            len(self.models), len(compiled.heads), len(self.names), dtype=torch.float64
        )
        self.pairs = self.apart[0].numel()
        self.differing = self.queries = 0
        self.examples = list[Difference]()

    def add(self, ids: NDArray[np.int64], most: int) -> None:
        """Compare on some inputs of one length."""
        rows = self.compiled.with_bos(torch.from_numpy(ids))
        logits, weights = self._pass(self.compiled.model, rows)
        numbers, tolerance = self.compiled.numbers, self.compiled.tolerance
        answers, _ = read_answers(logits, np.zeros_like(logits), numbers, tolerance)
        places = list(map(head_names(self.compiled.model).index, self.compiled.heads))
        for number, model in enumerate(self.models):
            logits_of_model, others = self._pass(model, rows)
            for place, head in enumerate(places):
                moved = (weights[:, head : head + 1] - others).abs().sum(-1) / 2
                self.apart[number, place] += moved.sum((0, 2))
            if number == 0:
                self._differ(ids, answers, logits_of_model.argmax(-1), most)
        self.queries += ids.size

    def _differ(self, ids: Any, answers: Any, learned: Any, most: int) -> None:
        wrong = ~self.same[answers, learned]
        self.differing += int(wrong.any(-1).sum())
        for row in wrong.any(-1).nonzero()[0][: most - len(self.examples)]:
            position = int(wrong[row].argmax())
            self.examples.append(
                Difference(
                    tuple(self.compiled.alphabet[code] for code in ids[row]),
                    position,
                    self.compiled.values[answers[row, position]],
                    self.values[learned[row, position]],
                )
            )

    def _pass(self, model: Encoder, rows: Tensor) -> tuple[Any, Tensor]:
        """Return the logits and the rows of all heads (input, head, query, key) at the tokens."""
        hook, first = _Weights(), int(self.compiled.has_bos)
        with torch.no_grad(), installed(model, hook):
            logits = model(rows)[:, first:].double().numpy()
        weights = torch.cat(hook.layers, 1)[:, :, first:].double()
        return logits, weights

    def matches(self) -> tuple[Match, ...]:
        """Return the nearest learned head of each compiled one."""
        nearest, matches = (self.apart / self.queries).min(-1), []
        for place, (head, line) in enumerate(self.compiled.heads.items()):
            learned = self.names[int(nearest.indices[0, place])]
            distance, *chance = nearest.values[:, place].tolist()
            matches.append(Match(head, line, learned, distance, fmean(chance or [math.nan])))
        return tuple(matches)


class _Weights(Hook):
    """Keeps the attention weights of one pass, layer by layer."""

    def __init__(self) -> None:
        self.layers = list[Tensor]()

    def wants(self, site: str) -> bool:
        return site.endswith(".attention.weights")

    def visit(self, site: str, value: Tensor) -> Tensor:
        self.layers.append(value)
        return value


def _check_alike(compiled: CompiledProgram, learned: Encoder, values: Items[Value]) -> None:
    config, tokens = learned.config, len(compiled.alphabet) + compiled.has_bos
    if config.vocab_size != tokens or config.max_length < compiled.longest + compiled.has_bos:
        raise WrongUsage(
            f"the compiled model reads {tokens} ids (BOS included, where it has one) and "
            f"{compiled.longest} tokens; the learned one reads {config.vocab_size} ids and "
            f"{config.max_length} positions."
        )
    if not config.per_token or config.num_classes != len(values):
        raise WrongUsage(
            f"the learned model chooses among {len(values)} values at each token; "
            f"got num_classes {config.num_classes}, per_token {config.per_token}."
        )

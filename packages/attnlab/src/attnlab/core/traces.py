"""A trace as data: the steps of a generation, and the attention of each head."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import zip_longest

from attnlab.core.store import JsonObject
from attnlab.display import Card, displayed


@dataclass(frozen=True)
class Step:
    """One choice among `candidates` with their probabilities, made at `position`, the last known
    token.

    The position is None for a model that reads out all positions together; if it answers at each of
    them, `place` is the one. `expected` is the correct choice, None if unknown.
    """

    position: int | None
    candidates: Sequence[str]
    probabilities: Sequence[float]
    choice: str
    place: int | None = None
    expected: str | None = None

    @property
    def share(self) -> float | None:
        """The probability of the choice, if it is among the candidates."""
        shares = dict(zip(self.candidates, self.probabilities, strict=False))
        return shares.get(self.choice)

    @property
    def is_wrong(self) -> bool:
        """Whether the choice differs from the correct one."""
        return self.expected is not None and self.choice != self.expected


@displayed
@dataclass(frozen=True)
class HeadTrace:
    """The attention of one head in a trace.

    site: such as `layers.0.attention.weights` · head: its number · rows: of each query its weights
    over keys 0 … its own; they sum to 1 · key_tokens: for cross-attention the names of the keys,
    and rows are over all of them; None for self-attention, whose keys are the trace's own tokens.
    """

    site: str
    head: int
    rows: Sequence[Sequence[float]]
    key_tokens: Sequence[str] | None = None


@displayed
@dataclass(frozen=True)
class Trace:
    """One generation, step by step.

    input: the names of the prompt's tokens · tokens: those of all tokens · steps: what was chosen,
    and how sure · attention: the weights of each head · note: a remark on the names.
    """

    input: Sequence[str]
    tokens: Sequence[str]
    steps: Sequence[Step]
    attention: Sequence[HeadTrace]
    note: str = ""

    @property
    def choices(self) -> tuple[str, ...]:
        """The token that each step chose."""
        return tuple(step.choice for step in self.steps)

    def _card(self) -> Card:
        rows = []
        for number, step in enumerate(self.steps, 1):
            rows.append([number, step.choice, step.share, step.expected or ""])
        facts = [("read", " ".join(self.input)), ("heads", len(self.attention))]
        columns = ("step", "choice", "probability", "expected")
        title = "Trace of 1 step" if len(self.steps) == 1 else f"Trace of {len(self.steps)} steps"
        if not self.steps:
            return Card("Trace", facts, lines=["it reads the input and chooses no token"])
        return Card(title, facts, columns, rows)

    def with_expected(self, expected: Sequence[str] | None) -> "Trace":
        """Return the trace with the correct choice of each step, if known."""
        known = (expected or ())[: len(self.steps)]
        steps = []
        for step, choice in zip_longest(self.steps, known):
            steps.append(replace(step, expected=choice))
        return replace(self, steps=tuple(steps))

    def to_mapping(self) -> JsonObject:
        """Return the trace as plain values for JSON; weights are rounded to 6 decimals."""
        mapping: JsonObject = asdict(self)
        for head in mapping["attention"]:
            head["rows"] = [[round(weight, 6) for weight in row] for row in head["rows"]]
        return mapping

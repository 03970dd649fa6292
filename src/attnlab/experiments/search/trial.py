"""A trial: one setting, and the results of its seeds."""

from typing import Any, NamedTuple

from attnlab.configs import Fields
from attnlab.core.stats import Interval, share_interval
from attnlab.display import displayed
from attnlab.experiments.sweeps.axes import shown
from attnlab.experiments.sweeps.outcome import CellOutcome

RANDOM = 10
"""The number of random trials before the first one that learns from the others."""


@displayed
class Trial(NamedTuple):
    """One setting with its results.

    fields: of the space alone. seeds, solved: the number of models, and of those that solved the
    problem. solved_at, loss: medians, see `CellOutcome`. refusal: why nothing could be trained,
    most often because the values cannot be combined. computed: where, in words.
    """

    number: int
    fields: Fields
    seeds: int = 0
    solved: int = 0
    solved_at: float | None = None
    loss: float | None = None
    broken: int = 0
    refusal: str = ""
    computed: str = ""

    @classmethod
    def of_cell(cls, number: int, cell: CellOutcome, computed: str) -> "Trial":
        """Summarize a cell."""
        found = (len(cell.members), cell.solved, cell.solved_at, cell.loss, cell.broken)
        return cls(number, cell.cell.fields, *found, computed=computed)

    @property
    def name(self) -> str:
        """Its values as a person would type them."""
        return " ".join(f"{name}={shown(value)}" for name, value in self.fields.items())

    @property
    def success(self) -> Interval | None:
        """The share of seeds that solved the problem, with its 95 % interval (Wilson)."""
        return share_interval(self.solved, self.seeds) if self.seeds else None

    @property
    def score(self) -> float:
        """The share of seeds that solved the problem; ties are broken by the loss.

        The loss counts for less than one seed: (solved + 1 / (2 + loss)) / seeds.
        """
        if not self.seeds:
            return float("-inf")
        tie_break = 0.0 if self.loss is None else 1 / (2 + max(0.0, self.loss))
        return (self.solved + tie_break) / self.seeds

    def to_json(self) -> dict[str, Any]:
        """Return the results as plain values, without the number and fields of the trial."""
        return {
            name: value
            for name, value in self._asdict().items()
            if name not in ("number", "fields")
        }

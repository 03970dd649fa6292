"""A trial: one setting, and what its seeds came to."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from attnlab.display import displayed
from attnlab.experiments.intervals import Interval, share_interval
from attnlab.experiments.sweeps.axes import shown
from attnlab.experiments.sweeps.outcome import CellOutcome

__all__ = ["RANDOM", "Trial"]

RANDOM = 10
"""Trials of a search that are drawn at random, before the first that learns from the others."""


@displayed
class Trial(NamedTuple):
    """One setting tried.

    fields: of the space alone. seeds, solved: how many models, and how many of them learned the task. solved_at, loss:
    medians, see `CellOutcome`. refusal: why nothing could be trained, most often because the values do not go together.
    computed: where, in words.
    """

    number: int
    fields: Mapping[str, Any]
    seeds: int = 0
    solved: int = 0
    solved_at: float | None = None
    loss: float | None = None
    broken: int = 0
    refusal: str = ""
    computed: str = ""

    @classmethod
    def of_cell(cls, number: int, cell: CellOutcome, computed: str) -> "Trial":
        """Sum a cell up."""
        found = (len(cell.members), cell.solved, cell.solved_at, cell.loss, cell.broken)
        return cls(number, cell.cell.fields, *found, computed=computed)

    @property
    def name(self) -> str:
        """Its values as a person would type them."""
        return " ".join(f"{name}={shown(value)}" for name, value in self.fields.items())

    @property
    def success(self) -> Interval | None:
        """The share of seeds that learned the task, and its 95 % interval (Wilson); None where nothing was trained."""
        return share_interval(self.solved, self.seeds) if self.seeds else None

    @property
    def score(self) -> float:
        """What is searched for: the share of seeds that learn the task; a smaller loss decides between equals.

        The loss moves it by less than one seed does: (solved + 1 / (2 + loss)) / seeds.
        """
        if not self.seeds:
            return float("-inf")
        return (self.solved + (0.0 if self.loss is None else 1 / (2 + max(0.0, self.loss)))) / self.seeds

    def to_json(self) -> dict[str, Any]:
        """Return what was found as plain values; number and fields are known to whoever asked for the trial."""
        return {name: value for name, value in self._asdict().items() if name not in ("number", "fields")}

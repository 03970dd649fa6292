"""A trained population with its report."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from attnlab.display import Card, displayed
from attnlab.experiments.population.members import TrainedMembers
from attnlab.experiments.population.report import make_report
from attnlab.experiments.report import Report


@displayed
@dataclass(frozen=True, eq=False)
class Population(TrainedMembers):
    """Many members of one experiment, trained together, and the report on them."""

    @cached_property
    def report(self) -> Report:
        """The report on the whole population: claims, sections, figures."""
        if self._report is not None:
            return self._report
        return make_report(self)

    @property
    def passed(self) -> bool | None:
        """True if every claim holds, False if one failed, else None: undecided."""
        return self.report.passed

    def html(self) -> str:
        """The whole report as one self-contained page."""
        return self.report.html()

    def to_mapping(self) -> dict[str, Any]:
        """Return the share of seeds that solved the problem, and when each did, as plain values."""
        share, low, high = self.success
        names = [self.name(index) for index in range(len(self))]
        return {
            "success": {"share": share, "low": low, "high": high},
            "solved_at": dict(zip(names, self.solved_at, strict=True)),
            "broken": self.faults,
        }

    def save(self, folder: Path | str) -> Path:
        """Write everything into a new folder, and return it.

        Raises:
            CouldNotRun: the folder holds something already, or cannot be written.
        """
        return self.report.save(folder)

    def _card(self) -> Card:
        faults = self.history.faults
        rows = [
            [self.name(index), "never" if step is None else step, faults[index] or ""]
            for index, step in enumerate(self.solved_at)
        ]
        return Card(
            str(self),
            [("folder", self.folder)] if self.folder else [],
            ("seed", "solved at step", "diverged"),
            rows,
        )

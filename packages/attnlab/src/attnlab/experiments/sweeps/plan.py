"""The plan of a sweep or a search: experiment, axes, fixed settings, seeds; all else follows."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

from attnlab.configs import Config, Fields
from attnlab.errors import CouldNotRun, WrongUsage, not_none, typed
from attnlab.experiments.experiment import ProblemDescription
from attnlab.experiments.folder import RunConfig, read_config
from attnlab.experiments.population.fit import checked_seeds
from attnlab.experiments.registry import find, learnable
from attnlab.experiments.report import begins_at, describe_run
from attnlab.experiments.run_config import ManyConfig, seeds_of_config
from attnlab.experiments.sweeps.axes import Axis, axis_of, option_of, read_axes
from attnlab.experiments.sweeps.cells import SweepCell, divide, make_grid
from attnlab.experiments.sweeps.unit import Unit
from attnlab.parts.linear import MatrixPath, matrix_path_in_use
from attnlab.train.config import LayoutName

PlanKind = Literal["sweep", "search"]

TRIALS_AT_ONCE = 5
"""The trials that a search proposes together: they share a population, or the processors."""


@dataclass(frozen=True)
class Plan:
    """A sweep or a search before it is computed.

    trials: of a search, how many settings are tried; None for a sweep, which tries them all.
    """

    experiment: str
    axes: list[Axis]
    fixed: Fields
    seeds: Sequence[int]
    layout: LayoutName
    matrix_path: MatrixPath
    stop_when_solved: bool = False
    trials: int | None = None

    @classmethod
    def read(
        cls,
        name: str,
        settings: Mapping[str, str],
        fields: Fields,
        seeds: Iterable[int],
        *,
        layout: LayoutName,
        stop_when_solved: bool = False,
        trials: int | None = None,
    ) -> "Plan":
        """Read the settings (texts) and fields (values), fixed ones and axes."""
        learnable(name)
        config_class = find(name).config_class
        axes, fixed_fields = read_axes(config_class, settings, is_search=trials is not None)
        fixed = dict(fixed_fields)
        for field, value in fields.items():
            option = option_of(config_class, field)
            if field in settings:
                raise WrongUsage(f"{field} was given twice; keep one of them.")
            if isinstance(value, list | tuple | range):
                axes.append(axis_of(option, value))
            else:
                fixed[field] = option.check(value)
            for axis in axes:
                fixed.pop(axis.name, None)
        return cls(
            name,
            axes,
            fixed,
            checked_seeds(seeds),
            layout,
            matrix_path_in_use(),
            stop_when_solved,
            trials,
        )

    @classmethod
    def of_config(cls, config: RunConfig) -> "Plan":
        """Read the plan back from a `config.json`.

        Raises:
            CouldNotRun: this attnlab has no such experiment, or not these settings.
        """
        kind: PlanKind = "sweep" if "sweep" in config else "search"
        try:
            described, axes = config[kind], []
            config_class = find(config["experiment"]).config_class
            ends = described.get("ends", {})
            for name, values in described["axes"].items():
                axes.append(axis_of(option_of(config_class, name), values, ends.get(name)))
            return cls(
                config["experiment"],
                axes,
                dict(config["settings"]),
                checked_seeds(seeds_of_config(described)),
                cast(LayoutName, config["layout"]),
                cast(MatrixPath, config["matrix_path"]),
                described.get("stop_when_solved", False),
                described.get("trials"),
            )
        except (WrongUsage, KeyError, TypeError, ValueError, AttributeError) as error:
            raise CouldNotRun(f"the {kind}'s config.json is not usable: {error}") from None

    @classmethod
    def in_folder(cls, kind: PlanKind, out: Path | str | None, name: str) -> "Plan":
        """Read the plan of a sweep or a search of an experiment that is to be resumed."""
        if out is None:
            raise WrongUsage(f"to resume a {kind}, name its folder: --out DIR --resume.")
        plan = cls.of_config(read_config_of(kind, Path(out)))
        if plan.experiment != name:
            raise WrongUsage(f"{out} holds a {kind} of {plan.experiment}, not of {name}.")
        return plan

    @property
    def kind(self) -> PlanKind:
        """What it is, in a word."""
        return "sweep" if self.trials is None else "search"

    @property
    def noun(self) -> str:
        """The noun of its settings."""
        return {"sweep": "cell", "search": "trial"}[self.kind]

    @property
    def config_class(self) -> type[Config]:
        """The experiment's own settings."""
        return find(self.experiment).config_class

    def grid(self) -> list[SweepCell]:
        """Make every cell of a sweep."""
        return make_grid(self.config_class, self.axes, self.fixed, len(self.seeds))

    def units(
        self, cells: Sequence[SweepCell], first_cell: int = 0, first_unit: int = 0
    ) -> list[Unit]:
        """Divide cells into units; of a search, those that were proposed together."""
        varying = learnable(self.experiment).VARYING
        at_once = len(cells) if self.trials is None else TRIALS_AT_ONCE
        units: list[Unit] = []
        for start in range(0, len(cells), at_once):
            together = cells[start : start + at_once]
            for indices, seeds in divide(together, self.seeds, varying):
                fields = [not_none(together[index].config).to_mapping() for index in indices]
                unit = Unit(
                    first_unit + len(units),
                    self.experiment,
                    [first_cell + start + index for index in indices],
                    fields,
                    seeds,
                    self.matrix_path,
                    self.layout,
                    self.stop_when_solved,
                )
                units.append(unit)
        return units

    def problems(self, cells: Iterable[SweepCell]) -> list[ProblemDescription]:
        """Describe the problems of cells, each once."""
        configs = [cell.config for cell in cells if cell.config is not None]
        return list(dict.fromkeys(map(learnable(self.experiment).describe_problem, configs)))

    def to_config(self) -> RunConfig:
        """Return the contents of `config.json`."""
        config = describe_run(
            self.experiment,
            self.seeds[0],
            self.fixed,
            begins_at(),
            None,
            threads=1,
            layout=self.layout,
        )
        config |= {"matrix_path": self.matrix_path, "model": {}}
        described: ManyConfig = {
            "axes": {axis.name: list(axis.values) for axis in self.axes},
            "seeds": list(self.seeds),
        }
        if self.trials is None:
            described["stop_when_solved"] = self.stop_when_solved
        else:
            described["trials"] = self.trials
            described["ends"] = {axis.name: list(axis.ends) for axis in self.axes if axis.ends}
        config[self.kind] = described
        return config


def read_config_of(kind: PlanKind, folder: Path) -> RunConfig:
    """Read the `config.json` of a sweep or a search.

    Raises:
        CouldNotRun: none is there.
    """
    config = read_config(folder)
    if config is None:
        command = {"sweep": "sweep", "search": "tune"}[kind]
        raise CouldNotRun(
            f"there is no {kind} in {folder}; make one with: attnlab {command} NAME --out {folder}"
        )
    if not isinstance(config.get(kind), dict):
        raise CouldNotRun(
            f"{folder} does not hold a {kind}; attnlab show {typed(folder)} shows what it holds."
        )
    return config

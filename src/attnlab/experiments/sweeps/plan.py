"""The plan of a sweep: experiment, axes, fixed settings, seeds; everything else follows from it."""

import datetime
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from attnlab.configs import Fields
from attnlab.errors import CouldNotRun, WrongUsage
from attnlab.experiments.experiment import ProblemDescription
from attnlab.experiments.population.fit import checked_seeds, learnable
from attnlab.experiments.registry import find
from attnlab.experiments.report import versions
from attnlab.experiments.sweeps.axes import Axis, axis_of, option_of, read_axes
from attnlab.experiments.sweeps.cells import Grid, make_grid, units_of
from attnlab.experiments.sweeps.unit import Unit
from attnlab.parts.linear import MatrixPath, matrix_path_in_use
from attnlab.train.config import LayoutName


@dataclass(frozen=True)
class Plan:
    """A sweep before it is computed."""

    experiment: str
    axes: list[Axis]
    fixed: Fields
    seeds: tuple[int, ...]
    layout: LayoutName
    matrix_path: MatrixPath
    stop_when_solved: bool

    @classmethod
    def read(
        cls,
        name: str,
        settings: Mapping[str, str],
        fields: Fields,
        seeds: Iterable[int],
        *,
        quick: bool,
        layout: LayoutName,
        stop_when_solved: bool,
    ) -> "Plan":
        """Read the settings (texts) and fields (values) of a sweep, fixed ones and axes."""
        learnable(name)
        config_class = find(name).config_class
        axes, fixed = read_axes(config_class, settings)
        for field, value in fields.items():
            option = option_of(config_class, field)
            if field in settings:
                raise WrongUsage(f"{field} was given twice; keep one of them.")
            if isinstance(value, list | tuple | range):
                axes.append(axis_of(option, value))
            else:
                fixed[field] = option.check(value)
        varied = {axis.name for axis in axes}
        small = {
            field: value
            for field, value in config_class.QUICK.items()
            if quick and field not in varied
        }
        matrix_path = matrix_path_in_use()
        return cls(
            name,
            axes,
            {**small, **fixed},
            checked_seeds(seeds),
            layout,
            matrix_path,
            stop_when_solved,
        )

    @classmethod
    def of_config(cls, config: Mapping[str, Any]) -> "Plan":
        """Read the plan back from a `config.json`.

        Raises:
            CouldNotRun: this attnlab has no such experiment, or not these settings.
        """
        try:
            described = config["sweep"]
            config_class = find(config["experiment"]).config_class
            axes = [
                axis_of(option_of(config_class, name), values)
                for name, values in described["axes"].items()
            ]
            return cls(
                config["experiment"],
                axes,
                dict(config["settings"]),
                checked_seeds(described["seeds"]),
                config["layout"],
                config["matrix_path"],
                described["stop_when_solved"],
            )
        except (WrongUsage, KeyError, TypeError, AttributeError) as error:
            raise CouldNotRun(f"the sweep's config.json is not usable: {error}") from None

    def grid(self) -> Grid:
        """Make every cell."""
        return make_grid(find(self.experiment).config_class, self.axes, self.fixed, self.seeds)

    def units(self, grid: Grid) -> list[Unit]:
        """Divide the grid into units, each trained as one population."""
        return units_of(
            self.experiment,
            grid,
            learnable(self.experiment).VARYING,
            layout=self.layout,
            matrix_path=self.matrix_path,
            stop_when_solved=self.stop_when_solved,
        )

    def problems(self, grid: Grid) -> list[ProblemDescription]:
        """Describe the problems of the cells, each once."""
        every = [
            learnable(self.experiment).describe_problem(cell.config)
            for cell in grid.cells
            if cell.config is not None
        ]
        return list(dict.fromkeys(every))

    def to_config(self) -> dict[str, Any]:
        """Return the contents of `config.json`."""
        described = {
            "axes": {axis.name: list(axis.values) for axis in self.axes},
            "seeds": list(self.seeds),
            "stop_when_solved": self.stop_when_solved,
        }
        return described_config(
            self.experiment,
            self.seeds[0],
            self.fixed,
            self.layout,
            self.matrix_path,
            sweep=described,
        )


def described_config(
    experiment: str,
    seed: int,
    fixed: Fields,
    layout: LayoutName,
    matrix_path: MatrixPath,
    **more: Any,
) -> dict[str, Any]:
    """Return the contents of `config.json` for a run that keeps no model."""
    return {
        "experiment": experiment,
        "seed": seed,
        "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "settings": dict(fixed),
        "versions": versions(),
        "threads": 1,
        "matrix_path": matrix_path,
        "layout": layout,
        "model": {},
        **more,
    }

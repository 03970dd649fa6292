"""The plan of a search: experiment, space, fixed settings, seeds, trials."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from attnlab.configs import Fields
from attnlab.errors import CouldNotRun, WrongUsage
from attnlab.experiments.population.fit import checked_seeds, learnable
from attnlab.experiments.registry import find
from attnlab.experiments.search.space import Dimension, dimension_of, read_space
from attnlab.experiments.sweeps.axes import option_of
from attnlab.experiments.sweeps.plan import described_config
from attnlab.parts.linear import MatrixPath, matrix_path_in_use
from attnlab.train.config import LayoutName

_MOST_TRIALS = 10_000


@dataclass(frozen=True)
class Plan:
    """A search before it is computed."""

    experiment: str
    dimensions: list[Dimension]
    fixed: Fields
    seeds: tuple[int, ...]
    trials: int
    layout: LayoutName
    matrix_path: MatrixPath

    @classmethod
    def read(
        cls,
        name: str,
        settings: Mapping[str, str],
        seeds: Iterable[int],
        trials: int,
        *,
        quick: bool,
        layout: LayoutName,
    ) -> "Plan":
        """Read the settings of a search, given as texts."""
        learnable(name)
        config_class = find(name).config_class
        dimensions, fixed = read_space(config_class, settings)
        if not dimensions:
            raise WrongUsage(
                "a search needs a setting to search, such as --set "
                "learning_rate=1e-4..1e-1 or norm_place=pre,post."
            )
        if (
            isinstance(trials, bool)
            or not isinstance(trials, int)
            or not 1 <= trials <= _MOST_TRIALS
        ):
            raise WrongUsage(
                f"trials must be an integer from 1 to {_MOST_TRIALS:,}; got {trials!r}."
            )
        searched = {each.name for each in dimensions}
        quick_values = config_class.QUICK if quick else {}
        small = {field: value for field, value in quick_values.items() if field not in searched}
        fixed = {**small, **fixed}
        config_class.from_mapping(fixed)  # refuses settings that are wrong in every trial
        return cls(
            name, dimensions, fixed, checked_seeds(seeds), trials, layout, matrix_path_in_use()
        )

    @classmethod
    def of_config(cls, config: Mapping[str, Any]) -> "Plan":
        """Read the plan back from a `config.json`.

        Raises:
            CouldNotRun: this attnlab has no such experiment, or not these settings.
        """
        try:
            described = config["search"]
            config_class = find(config["experiment"]).config_class
            return cls(
                config["experiment"],
                [
                    dimension_of(option_of(config_class, name), each)
                    for name, each in described["space"].items()
                ],
                dict(config["settings"]),
                checked_seeds(described["seeds"]),
                described["trials"],
                config["layout"],
                config["matrix_path"],
            )
        except (WrongUsage, KeyError, TypeError, AttributeError) as error:
            raise CouldNotRun(f"the search's config.json is not usable: {error}") from None

    def to_config(self) -> dict[str, Any]:
        """Return the contents of `config.json`."""
        described = {
            "space": {each.name: each.to_json() for each in self.dimensions},
            "seeds": list(self.seeds),
            "trials": self.trials,
        }
        return described_config(
            self.experiment,
            self.seeds[0],
            self.fixed,
            self.layout,
            self.matrix_path,
            search=described,
        )

"""The space of a search: `learning_rate=1e-4..1e-1`, `rank=1..6` or `positions=none,rotary`.

A range whose last number is ten times its first or more is searched on a logarithmic scale.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from attnlab.configs import Config, Option
from attnlab.errors import WrongUsage
from attnlab.experiments.sweeps.axes import axis_of, option_of, read_values, shown

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

_DECADE = 10


@dataclass(frozen=True)
class Dimension:
    """A field and its possible values: a range with both `ends`, or `choices`."""

    name: str
    comment: str
    ends: tuple[float, float] | None
    choices: tuple[Any, ...] = ()

    @property
    def is_log(self) -> bool:
        """Whether it spans decades."""
        return self.ends is not None and 0 < _DECADE * self.ends[0] <= self.ends[1]

    @property
    def words(self) -> str:
        """The range or the choices, in words."""
        if self.ends is None:
            return " or ".join(map(shown, self.choices))
        scale = ", on a logarithmic scale" if self.is_log else ""
        return f"{shown(self.ends[0])} to {shown(self.ends[1])}{scale}"

    def readable(self, value: Any) -> Any:
        """Return a proposed value, rounded to digits that a person would type."""
        if self.ends is None or not isinstance(value, float):
            return value
        return min(max(float(f"{value:.4g}"), self.ends[0]), self.ends[1])

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {"ends": self.ends and list(self.ends), "choices": list(self.choices)}

    def distribution(self) -> "BaseDistribution":
        """Return the same as a distribution of Optuna."""
        from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

        if self.ends is None:
            return CategoricalDistribution(self.choices)
        low, high = self.ends
        if isinstance(low, int) and isinstance(high, int):
            return IntDistribution(low, high, log=self.is_log)
        return FloatDistribution(low, high, log=self.is_log)


def read_space(
    config_class: type[Config], settings: Mapping[str, str]
) -> tuple[list[Dimension], dict[str, Any]]:
    """Read settings as texts: dimensions (a range or several values), and fixed fields (one value).

    Raises:
        WrongUsage: an unknown field, a value out of range, a malformed range.
    """
    dimensions, fixed = [], {}
    for name, text in settings.items():
        option = option_of(config_class, name)
        if option.kind in (int, float) and text.count("..") == 1 and "," not in text:
            first, last = (option.parse(part) for part in text.split(".."))
            dimensions.append(dimension_of(option, {"ends": [first, last], "choices": []}))
            continue
        values = read_values(option, text)
        if len(values) == 1:
            fixed[name] = values[0]
        else:
            dimensions.append(dimension_of(option, {"ends": None, "choices": values}))
    return dimensions, fixed


def dimension_of(option: Option, described: Mapping[str, Any]) -> Dimension:
    """Make a dimension from plain values, which must be valid for the field."""
    if described["ends"] is None:
        choices = axis_of(option, described["choices"]).values
        return Dimension(option.name, option.comment, None, choices)
    first, last = (option.check(end) for end in described["ends"])
    if first is None or last is None or first >= last:
        raise WrongUsage(
            f"a range to search goes upwards, such as {option.name}=LOW..HIGH; got {first} to "
            f"{last}."
        )
    return Dimension(option.name, option.comment, (first, last))

"""Axes of a grid, read from texts such as `rank=1..6`, `d_model=8..64..8` or `bias=true,false`.

A setting with one value is fixed; one with several is an axis. A range includes both ends. In a
search, `learning_rate=1e-4..1e-1` is an axis too: any value between its ends may be tried.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from attnlab.configs import Config, Fields, Option
from attnlab.errors import WrongUsage, did_you_mean

_MOST_VALUES = 1_000


@dataclass(frozen=True)
class Axis:
    """A field of a config and the values it takes, in order.

    ends: of a search, between which any value may be tried; there are no `values` then.
    """

    name: str
    values: tuple[Any, ...]
    comment: str
    ends: tuple[float, float] | None = None

    @property
    def is_numeric(self) -> bool:
        """Whether its values are numbers, so that a curve can run along them."""
        kinds = set(map(type, self.values))
        return kinds <= {int, float}

    def labels(self) -> list[str]:
        """Write its values as labels."""
        return list(map(typed_value, self.values))


def read_axes(
    config_class: type[Config], settings: Mapping[str, str], *, is_search: bool = False
) -> tuple[list[Axis], Fields]:
    """Read settings as texts: the axes (several values), and the fixed fields (one).

    Raises:
        WrongUsage: an unknown field, a value out of range, a value twice, a malformed range.

    >>> from attnlab.experiments.sorting.config import SortingConfig
    >>> axes, fixed = read_axes(SortingConfig, {"rank": "1..3", "steps": "200"})
    >>> axes[0].values, fixed
    ((1, 2, 3), {'steps': 200})
    """
    axes, fixed = [], {}
    for name, text in settings.items():
        option = option_of(config_class, name)
        is_number = option.kind in (int, float)
        if is_search and is_number and text.count("..") == 1 and "," not in text:
            ends = list(map(option.parse, text.split("..")))
            axes.append(axis_of(option, (), ends))
            continue
        values = _read_values(option, text)
        if len(values) == 1:
            fixed[name] = values[0]
        else:
            axes.append(axis_of(option, values))
    return axes, fixed


def axis_of(option: Option, values: Sequence[Any], ends: Sequence[Any] | None = None) -> Axis:
    """Make an axis of distinct values, or between two ends; all must be valid for the field."""
    if ends is not None:
        first, last = map(option.check, ends)
        if first is None or last is None or first >= last:
            raise WrongUsage(
                f"a range to search goes upwards, such as {option.name}=LOW..HIGH; got {first} to "
                f"{last}."
            )
        return Axis(option.name, (), option.comment, (first, last))
    if len(values) > _MOST_VALUES:
        raise _too_many(option)
    checked = tuple(map(option.check, values))
    if not checked:
        raise _no_axis(option, "it has no values")
    for index, value in enumerate(checked):
        if value in checked[:index]:
            raise _no_axis(option, f"{typed_value(value)} is given twice; keep one of them")
    return Axis(option.name, checked, option.comment)


def _no_axis(option: Option, why: str) -> WrongUsage:
    return WrongUsage(f"the values of {option.name} do not make an axis: {why}.")


def option_of(config_class: type[Config], name: str) -> Option:
    """Return the option of a field, or raise `WrongUsage` with a suggestion."""
    known = {option.name: option for option in config_class.options()}
    if name not in known:
        raise WrongUsage(f"there is no setting {name!r}; {did_you_mean(name, known)}")
    return known[name]


def typed_value(value: Any) -> str:
    """Write a value as a person would type it, with every digit that it has."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        short = f"{value:.10g}"
        if float(short) == value:
            return short
    return str(value)


def all_shown(values: Mapping[str, Any]) -> dict[str, str]:
    """Write every value of some settings as a person would type it."""
    return {name: typed_value(value) for name, value in values.items()}


def typed_fields(fields: Fields) -> str:
    """Write fields as a person would type them: `rank=2 temperature=0.3`."""
    return " ".join(f"{name}={typed_value(value)}" for name, value in fields.items())


def _read_values(option: Option, text: str) -> list[Any]:
    """Read values separated by commas; each may be a range."""
    values: list[Any] = []
    for part in text.split(","):
        if not part.strip():
            raise WrongUsage(
                f"{option.name}={text}: expected values between commas; got nothing before or "
                "after one."
            )
        if ".." in part and option.kind in (int, float):  # a path may hold two dots
            values += _range(option, part.strip())
        else:
            values.append(option.parse(part))
    return values


def _range(option: Option, text: str) -> list[Any]:
    """Read `first..last` (integers) or `first..last..step`, exactly: 0.1..0.3..0.1 holds 0.3."""
    numbers = _decimals(text)
    if len(numbers) not in (2, 3):
        raise _malformed(option, text)
    first, last, step = [*numbers, Decimal(1)][:3]
    if step <= 0 or last < first:
        raise _malformed(option, text)
    if len(numbers) == 2 and option.kind is float:
        tenth = f"{float(last - first or 1) / 10:.3g}"
        raise WrongUsage(
            f"{option.name}={text}: a range of real numbers needs a step, such as "
            f"{text}..{tenth}, or list the values with commas."
        )
    for end in (first, last):
        option.parse(str(end))  # an end out of range is the first thing to tell
    if last - first >= step * _MOST_VALUES:
        raise _too_many(option)
    count = math.floor((last - first) / step) + 1
    return [option.parse(str(first + index * step)) for index in range(count)]


def _decimals(text: str) -> list[Decimal]:
    """Read numbers between pairs of dots; return none if one is not finite, or too large."""
    try:
        numbers = [Decimal(part.strip()) for part in text.split("..")]
    except InvalidOperation:
        return []
    for number in numbers:
        if not number.is_finite() or number.adjusted() >= 30:
            return []
    return numbers


def _malformed(option: Option, text: str) -> WrongUsage:
    example = f"{option.name}=0.5..2..0.5"
    if option.kind is int:
        example = f"{option.name}=1..6 or {option.name}=1..9..2"
    return WrongUsage(
        f"a range goes upwards by steps above 0 and is written {example}; got {option.name}={text}."
    )


def _too_many(option: Option) -> WrongUsage:
    return WrongUsage(f"{option.name} has too many values: at most {_MOST_VALUES:,} are possible.")

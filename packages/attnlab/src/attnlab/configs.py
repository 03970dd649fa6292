"""Configs: frozen, validated values with a comment per field.

A config is a frozen dataclass derived from `Config`, its fields made with `option`. Nothing is
swallowed: an unknown key, a wrong type or a value out of range raises `WrongUsage` with what was
expected, what came and, for a misspelt key, what was probably meant. `with_settings` reads the
`key=value` texts of the command line.
"""

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import UnionType
from typing import Any, ClassVar, Literal, Self, Union, get_args, get_origin, get_type_hints

from attnlab.errors import WrongUsage, did_you_mean, is_integer

Fields = Mapping[str, Any]
"""Values of config fields, by name."""

_TRUTH = dict.fromkeys(("true", "yes", "on", "1"), True)
_TRUTH |= dict.fromkeys(("false", "no", "off", "0"), False)


@dataclass(frozen=True)
class Option:
    """One field of a config: name, type, default, comment and range, as tables and messages show
    it."""

    name: str
    kind: type
    is_optional: bool
    default: Any
    comment: str
    low: float | None
    high: float | None
    choices: tuple[str, ...] | None

    @property
    def expected(self) -> str:
        """Describe the allowed values in words."""
        if self.choices:
            words = "one of " + ", ".join(self.choices)
        elif self.kind is bool:
            words = "true or false"
        else:
            words = {int: "an integer", float: "a number", str: "a text"}[self.kind]
            if self.low is not None and self.high is not None:
                words += f" from {self.low:,.10g} to {self.high:,.10g}"
            elif self.low is not None:
                words += f" of at least {self.low:,.10g}"
        if self.is_optional:
            words += " or none"
        return words

    def check(self, value: Any) -> Any:
        """Return the value in the field's type, or raise."""
        if value is None and self.is_optional:
            return None
        original = value
        if self.kind is float and is_integer(value):
            try:
                value = float(value)
            except OverflowError:
                value = math.inf  # refused below, as infinity is
        if not (self._has_kind(value) and self._is_allowed(value)):
            raise WrongUsage(f"{self.name} must be {self.expected}; got {_shown(original)}.")
        return value

    def _has_kind(self, value: object) -> bool:
        if isinstance(value, bool):
            return self.kind is bool
        if isinstance(value, float) and not math.isfinite(value):
            return False
        return isinstance(value, self.kind)

    def _is_allowed(self, value: Any) -> bool:
        if self.low is not None and value < self.low:
            return False
        if self.high is not None and value > self.high:
            return False
        return not self.choices or value in self.choices

    def parse(self, text: str) -> Any:
        """Read a value from the command line's text."""
        word = text.strip()
        if self.is_optional and word.lower() in ("none", "null"):
            return None
        try:
            if self.kind is bool:
                return _TRUTH[word.lower()]
            if self.kind is int and "e" in word.lower() and float(word).is_integer():
                return self.check(int(float(word)))  # 1e4 is an integer to a person
            return self.check(self.kind(word))
        except (ValueError, KeyError, OverflowError) as error:
            if isinstance(error, WrongUsage):
                raise
            raise WrongUsage(f"{self.name} must be {self.expected}; got {_shown(text)}.") from None


def option(
    default: Any, comment: str, *, low: float | None = None, high: float | None = None
) -> Any:
    """Declare a config field: default, comment, and inclusive range; choices are its `Literal`
    type."""
    return field(default=default, metadata={"comment": comment, "low": low, "high": high})


@dataclass(frozen=True, kw_only=True)
class Config:
    """Base of all configs; children are frozen dataclasses whose fields are made with `option`.

    `FULL` holds the fields of a full run, which has more seeds, texts and steps than the defaults.
    """

    FULL: ClassVar[Fields] = {}

    def __post_init__(self) -> None:
        """Check every field, then the relations between fields."""
        for known in self.options():
            object.__setattr__(self, known.name, known.check(getattr(self, known.name)))
        self.validate()

    def validate(self) -> None:
        """Check relations between fields; children that have any override it."""

    def fields_of(self, other: type["Config"]) -> dict[str, Any]:
        """Return the values of the fields that another config has too."""
        names = {option.name for option in other.options()}
        return {name: value for name, value in self.to_mapping().items() if name in names}

    @classmethod
    def options(cls) -> list[Option]:
        """List the fields with all that is known of them."""
        hints = get_type_hints(cls)
        options = []
        for declared in dataclasses.fields(cls):
            members = (hints[declared.name],)
            if get_origin(members[0]) in (Union, UnionType):
                members = get_args(members[0])
            kind = next(member for member in members if member is not type(None))
            choices = None
            if get_origin(kind) is Literal:
                kind, choices = str, get_args(kind)
            known = Option(
                name=declared.name,
                kind=kind,
                is_optional=type(None) in members,
                default=declared.default,
                choices=choices,
                **declared.metadata,
            )
            options.append(known)
        return options

    @classmethod
    def from_mapping(cls, values: Fields) -> Self:
        """Build a config from names and values; an unknown name is an error with a suggestion."""
        cls._check_names(values)
        return cls(**values)

    def with_settings(self, settings: Mapping[str, str]) -> Self:
        """Return a copy with some fields read from text, as `--set key=value` gives them."""
        self._check_names(settings)
        known = {option.name: option for option in self.options()}
        values = {name: known[name].parse(text) for name, text in settings.items()}
        return dataclasses.replace(self, **values)

    def to_mapping(self) -> dict[str, Any]:
        """Return the fields as plain values for JSON."""
        return dataclasses.asdict(self)

    def to_json(self) -> str:
        """Write the fields as JSON, in their order."""
        return json.dumps(self.to_mapping(), indent=2)

    @classmethod
    def _check_names(cls, values: Fields) -> None:
        names = [option.name for option in cls.options()]
        for name in values:
            if name not in names:
                raise WrongUsage(f"there is no setting {name!r}; {did_you_mean(str(name), names)}")


def parse_settings(texts: Sequence[str]) -> dict[str, str]:
    """Split `key=value` texts; the same key twice, or no `=`, is an error.

    >>> parse_settings(["rank=2", "positions = none"])
    {'rank': '2', 'positions': 'none'}
    """
    settings: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip() or not value.strip():
            raise WrongUsage(f"a setting is written key=value; got {text!r}.")
        if name.strip() in settings:
            raise WrongUsage(f"the setting {name.strip()!r} was given twice; keep one of them.")
        settings[name.strip()] = value.strip()
    return settings


def _shown(value: Any) -> str:
    """Write a wrong value into a message: as Python does, but never longer than a line."""
    # Python refuses to write integers of thousands of digits
    if isinstance(value, int) and value.bit_length() > 200:
        return f"an integer of {value.bit_length():,} bits"
    text = repr(value)
    if len(text) > 80:
        text = text[:77] + "..."
    return text

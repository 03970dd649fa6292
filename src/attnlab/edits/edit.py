"""Edit: what every edit is, a small frozen value with a name, targets, and one rule.

An edit knows no model. `sites` says which of a model's sites it is for; `change` is the rule, a
pure function of the values at a site (see `Spot` for what it may ask about them). Copying, choosing
rows, heads and positions, and putting back what was not meant are not its business:
`attnlab.edits.application` does that, for all edits alike.
"""

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from torch import Tensor, nn

from attnlab.edits.json_values import live, plain, short
from attnlab.edits.sources import check_recorded, check_source, opened
from attnlab.edits.targets import (
    ALL,
    Target,
    atoms_of,
    counted_from_one,
    ends_of,
    has_names,
    is_all,
    normal,
    numbers,
)
from attnlab.edits.where import find_sites
from attnlab.errors import WrongUsage, did_you_mean

if TYPE_CHECKING:
    from attnlab.edits.edit_context import EditContext

__all__ = ["Edit", "edit_kinds", "edits_from_json", "edits_to_json"]

VERSION = 1
_VERSION_WITH_STEPS = 2  # in version 1 steps were counted from 0
_TARGETS = ("layer", "site", "head", "query", "key", "row", "step")
_KINDS: dict[str, type["Edit"]] = {}


def own_fields(kind: type["Edit"]) -> list[str]:
    """List an edit's own fields; required ones end in =, optional ones in [=]."""
    fields = [field for field in dataclasses.fields(kind) if field.name not in _TARGETS]
    return [f"{f.name}=" if _is_needed(f) else f"[{f.name}=]" for f in fields]


def edit_kinds() -> dict[str, type["Edit"]]:
    """Return every edit there is, by its name."""
    return dict(_KINDS)


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Edit:
    """Base of all edits: where.

    Every target is a number, a list, a span such as "2..5" (both ends are in it), or None for all,
    and negative numbers count from the end. Positions may also be tokens' names; for the others
    "all" says all.

    layer: blocks by number. On a model with several attentions in a layer, `site` says which. site:
    the path of a part, `decoder.layers.0.cross_attention`, its last words, `cross_attention`, or a
    pattern with
        `*`; for edits of any site the site's own name too, `layers.2.residual_after`,
        `residual_after`.
    head: heads that look, also where several share one key. query: positions that look, counted
    from the start of the text, whatever a key/value cache holds; on the residual
        stream simply positions.
    key: positions that are looked at. row: inputs of the batch. step: forward passes since the edit
    began, from 1; each stands for the positions first read in it.
    """

    layer: Target = None
    site: str | None = None
    head: Target = None
    query: Target = None
    key: Target = None
    row: Target = None
    step: Target = None

    AT: ClassVar[str] = ""
    """The site's own name; "" for any."""
    NARROWS: ClassVar[tuple[str, ...]] = ("head", "query", "row", "step")
    """Which targets make sense, besides layer and site."""
    NOTHING: ClassVar[str] = ""
    """Why it must have been a mistake that it changed no value at all; "" where that may be
    meant."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if not cls.__name__.startswith("_"):
            _KINDS[cls.__name__] = cls

    def __post_init__(self) -> None:
        """Check the targets, then what the edit itself needs."""
        if self.site is not None and not (isinstance(self.site, str) and self.site):
            raise WrongUsage(
                f"site= is a path or a pattern, such as 'layers.0.attention'; got {self.site!r}."
            )
        for name in _TARGETS:
            if name == "site":
                continue
            target = normal(name, getattr(self, name))
            object.__setattr__(self, name, target)
            if target is None:
                continue
            atoms = atoms_of(name, target, may_be_named=name in ("query", "key"))
            if name == "step" and any(end < 1 for atom in atoms for end in ends_of(atom)):
                raise WrongUsage(
                    "step= counts forward passes from 1, and which is the last shows too "
                    f"late; got {target!r}."
                )
            if name not in (*self.NARROWS, "layer"):
                raise WrongUsage(
                    f"{type(self).__name__} takes no {name}=; it takes "
                    f"{', '.join(('layer', 'site', *self.NARROWS))}."
                )
        check_source(getattr(self, "recording", None), type(self).__name__)
        self.check()

    @property
    def own(self) -> str:
        """The last part of the site's name; "" for any."""
        return self.AT

    @property
    def tells_apart(self) -> set[str]:
        """Does the edit differ between rows or heads, so that a shared mask must be split?"""
        named = any(not is_all(each) and has_names(each) for each in (self.query, self.key))
        is_by_row = named or not is_all(self.row)
        return ({"batch"} if is_by_row else set()) | (set() if is_all(self.head) else {"head"})

    def check(self) -> None:
        """Check the edit's own fields; subclasses with rules define it."""

    def check_model(self, model: nn.Module, sites: list[str]) -> None:
        """Check what can be known before any forward pass; children with other rules add them."""
        check_recorded(model, getattr(self, "recording", None), sites, repr(self))

    def opened(self) -> "Edit":
        """Return the edit with its recording open, where it names a folder."""
        recording = getattr(self, "recording", None)
        if not isinstance(recording, str):
            return self
        return type(self)(**{**self._told(), "recording": opened(recording)})

    def sites(self, model: nn.Module) -> list[str]:
        """List the full names of the sites it is for.

        Raises:
            WrongUsage: there are none in this model, or it is not said which.
        """
        return find_sites(model, own=self.own, site=self.site, layer=self.layer, who=repr(self))

    def heads_in(self, size: int, part: str) -> list[int]:
        """Return the numbers of its heads in a part that has so many."""
        return numbers("head", self.head, size, f"{self!r}: {part or 'this attention'}")

    def change(self, values: Tensor, context: "EditContext") -> Tensor:
        """Return the new values; those outside the targets are put back afterwards."""
        raise NotImplementedError

    def has_changed(self, before: Tensor, after: Tensor, chosen: Tensor | None) -> bool:
        """Did the edit change any chosen value (None: all)? Asked where `NOTHING` is an error."""
        return bool((before != after).any())

    def to_json(self, *, brief: bool = False) -> dict[str, Any]:
        """Return plain values for JSON; `brief` gives large tensors by shape and hash, not by
        numbers."""
        told = {name: plain(value, brief=brief) for name, value in self._told().items()}
        version = _VERSION_WITH_STEPS if "step" in told else VERSION
        return {"edit": type(self).__name__, "version": version, **told}

    @classmethod
    def from_json(cls, form: Any) -> Self:
        """Build an edit from what `to_json` returns; nothing unknown is passed over.

        Raises:
            WrongUsage: an unknown edit, version or field, with a suggestion.
        """
        if not isinstance(form, dict) or "edit" not in form:
            raise WrongUsage(
                f'an edit is an object such as {{"edit": "ZeroHead", "head": 1}}; got {form!r:.80}.'
            )
        told = dict(form)
        name, version = told.pop("edit"), told.pop("version", _VERSION_WITH_STEPS)
        kind = _KINDS.get(name) if isinstance(name, str) else None
        if kind is None or not issubclass(kind, cls):
            raise WrongUsage(f"there is no edit {name!r}; {did_you_mean(str(name), _KINDS)}")
        if version not in (VERSION, _VERSION_WITH_STEPS):
            raise WrongUsage(
                f"{name} is written in version {version!r}; this attnlab reads version {VERSION} "
                f"and {_VERSION_WITH_STEPS}."
            )
        if version == VERSION and "step" in told:
            told["step"] = counted_from_one(told["step"])  # version 1 counted from 0
        known = {field.name for field in dataclasses.fields(kind)}
        for field in told:
            if field not in known:
                raise WrongUsage(f"{name} takes no {field!r}; {did_you_mean(field, known)}")
        missing = [
            f"{f.name}=" for f in dataclasses.fields(kind) if _is_needed(f) and f.name not in told
        ]
        if missing:
            raise WrongUsage(f"{name} needs {' and '.join(missing)}; none was given.")
        try:
            return kind(**{field: live(value) for field, value in told.items()})
        except TypeError as error:
            raise WrongUsage(f"{name} cannot be made of this: {error}.") from None

    def __repr__(self) -> str:
        told = ", ".join(f"{name}={short(value)}" for name, value in self._told().items())
        return f"{type(self).__name__}({told})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Edit) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash((type(self), *(getattr(self, name) for name in _TARGETS)))

    def _told(self) -> dict[str, Any]:
        """Everything that is not as it would be anyway, the place first."""
        fields = {field.name: field.default for field in dataclasses.fields(self)}
        named = [*_TARGETS, *(name for name in fields if name not in _TARGETS)]
        told = {
            name: value
            for name in named
            if not _is_default(value := getattr(self, name), fields[name])
        }
        return {
            name: ALL if name in _TARGETS and value is None else value
            for name, value in told.items()
        }


def _is_needed(field: "dataclasses.Field[Any]") -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _is_default(value: Any, default: Any) -> bool:
    return value is default or (
        isinstance(value, str | int | float) and type(value) is type(default) and value == default
    )


def edits_to_json(edits: Sequence[Edit]) -> str:
    """Write edits as JSON, in their order.

    >>> from attnlab.edits import ZeroHead
    >>> edits_to_json([ZeroHead(layer=0, head=1)])
    '[{"edit": "ZeroHead", "version": 1, "layer": 0, "head": 1}]'
    """
    return json.dumps([edit.to_json() for edit in edits], allow_nan=False)


def edits_from_json(text: str | list[Any]) -> list[Edit]:
    """Read the edits that `edits_to_json` wrote, or a list of such objects."""
    if isinstance(text, str):
        try:
            text = json.loads(text, object_pairs_hook=_once)
        except (ValueError, RecursionError) as error:
            raise WrongUsage(
                f"edits are a JSON list of objects; this is no JSON: {error}."
            ) from None
    if not isinstance(text, list):
        raise WrongUsage(f"edits are a JSON list of objects; got a {type(text).__name__}.")
    return [Edit.from_json(form) for form in text]


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    form = dict(pairs)
    if len(form) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(
            f"{next(name for name in names if names.count(name) > 1)!r} is there twice"
        )
    return form

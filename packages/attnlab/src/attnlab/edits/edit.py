"""Edit: the base of all edits, small frozen values with a name, targets, and one rule.

An edit knows no model. `sites` selects a model's sites; `change` is the rule, a pure function of
the values at a site and their `EditContext`. The editor does the rest for all edits alike: it
copies values, chooses rows, heads and positions, and restores the values outside the targets.
"""

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any, ClassVar, Self, dataclass_transform

from torch import Tensor, nn

from attnlab.core.store import unique_keys
from attnlab.edits.edit_context import EditContext
from attnlab.edits.json_values import live, plain_value, short_repr
from attnlab.edits.sources import check_source, finite_tensor, require_finite
from attnlab.edits.targets import (
    ALL,
    EditTarget,
    Span,
    atoms_of,
    find_sites,
    head_example,
    normal,
    numbers,
)
from attnlab.errors import CouldNotRun, WrongUsage, did_you_mean, type_words
from attnlab.look import open_recording

VERSION = 2
_TARGETS = ("layer", "site", "head", "query", "key", "row", "step")
_SUCH_AS = {"head": "1, [0, 1] or 'all'", "site": "'layers.0.residual_after'"}
_KINDS: dict[str, type["Edit"]] = {}


def edit_kinds() -> dict[str, type["Edit"]]:
    """Return every edit by its name, those of other packages too.

    Another package lists its classes among its entry points:
    `[project.entry-points."attnlab.edits"]`, `negate-head = "my_package.edits:NegateHead"`.
    """
    for point in entry_points(group="attnlab.edits"):
        point.load()
    return dict(_KINDS)


@dataclass_transform(kw_only_default=True, frozen_default=True, eq_default=False)
@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Edit:
    """Base class of all edits, with their targets; subclass it to write your own.

    Annotate the settings, and define `change`, a function of the values at the site. The subclass
    becomes a frozen dataclass; positions, heads, certificate and JSON need no code.

    A target is a number, a list, a span such as "2..5" (both ends are in it), or None for all, and
    negative numbers count from the end. Positions may also be tokens' names; the other targets take
    "all", too.

    Attributes:
        layer: blocks by number. On a model with several attentions in a layer, `site` says which.
        site: the path of a part, `decoder.layers.0.cross_attention`, its last words,
            `cross_attention`, or a pattern with `*`; for edits of any site the site's own name too,
            `layers.2.residual_after`, `residual_after`.
        head: query heads, also where several share one key.
        query: positions of queries, counted from the start of the text, whatever a key/value cache
            holds; on the residual stream positions.
        key: positions of keys.
        row: inputs of the batch.
        step: forward passes since the edit began, from 1; a step stands for the positions first
            read in it.

    >>> import attnlab, torch
    >>> class Damp(attnlab.edits.Edit):
    ...     factor: float = 0.5
    ...
    ...     def change(self, values, context):
    ...         return values * self.factor
    >>> model = attnlab.Decoder(attnlab.DecoderConfig()).eval()
    >>> with attnlab.edit(model, Damp(site="layers.0.attention.heads", head=1)) as certificate:
    ...     logits = model(torch.tensor([[3, 1, 2, 0]]))
    >>> certificate.holds
    True
    """

    layer: EditTarget = None
    site: str | None = None
    head: EditTarget = None
    query: EditTarget = None
    key: EditTarget = None
    row: EditTarget = None
    step: EditTarget = None

    AT: ClassVar[str] = ""
    """The suffix of the edit's sites; "" for any."""
    NARROWS: ClassVar[tuple[str, ...]] = ("head", "query", "row", "step")
    """The targets it takes, besides layer and site."""
    NEEDS: ClassVar[str] = ""
    """The target that is required, because "all" is seldom meant; "" for none."""
    FITS: ClassVar[str] = ""
    """The field whose tensor must fit the site; "" for none."""
    NOTHING: ClassVar[str] = ""
    """The error where it changed no value at all; "" where that may be meant."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        dataclass(frozen=True, kw_only=True, repr=False, eq=False)(cls)
        if not cls.__name__.startswith("_"):
            _check_name_is_free(cls)
            _KINDS[cls.__name__] = cls

    def __new__(cls, *values: Any, **fields: Any) -> Self:
        """Check the names of the settings, and that none is missing."""
        known = {field.name: field for field in dataclasses.fields(cls)}
        if values:
            raise WrongUsage(
                f"{cls.__name__} takes its settings by name; got {values!r:.80}. "
                f"{head_example(values[0])}"
            )
        for field in fields:
            if field not in known:
                raise WrongUsage(f"{cls.__name__} takes no {field!r}; {did_you_mean(field, known)}")
        missing = [f"{name}=" for name in known if name not in fields and _is_needed(known[name])]
        if missing:
            raise WrongUsage(f"{cls.__name__} needs {' and '.join(missing)}.")
        return super().__new__(cls)

    def __getnewargs_ex__(self) -> tuple[tuple[()], dict[str, object]]:
        return (), vars(self)  # copies and pickles

    def __post_init__(self) -> None:
        """Check the targets, then what the edit itself needs."""
        kind = type(self).__name__
        if self.NEEDS and getattr(self, self.NEEDS) is None:
            raise WrongUsage(f"{kind} needs {self.NEEDS}=, such as {_SUCH_AS[self.NEEDS]}.")
        if self.site is not None and not (isinstance(self.site, str) and self.site):
            raise WrongUsage(f"site= is a path such as 'layers.*.attention'; got {self.site!r}.")
        for name in _TARGETS:
            if name != "site":
                self._normalize(name)
        for field in dataclasses.fields(self):
            self._check_type(field, getattr(self, field.name))
        self.check()

    def _check_type(self, field: "dataclasses.Field[object]", value: Any) -> None:
        if field.type is float:
            require_finite(field.name, value)
        elif field.type is Tensor:
            object.__setattr__(self, field.name, finite_tensor(field.name, value))
        elif field.type is bool and not isinstance(value, bool):
            raise WrongUsage(f"{field.name}= is True or False; got {value!r}.")
        elif field.name == "recording" and (value is not None or _is_needed(field)):
            check_source(value, type(self).__name__)

    def _normalize(self, name: str) -> None:
        target = normal(name, getattr(self, name))
        object.__setattr__(self, name, target)
        atoms = atoms_of(name, target)
        if name == "step" and any(min(atom.ends) < 1 for atom in atoms if isinstance(atom, Span)):
            raise WrongUsage(
                "step= counts forward passes from 1, and the last one is not known in time; got "
                f"{target!r}."
            )
        if atoms and name not in (*self.NARROWS, "layer"):
            raise WrongUsage(
                f"{type(self).__name__} takes no {name}=; it takes "
                f"{', '.join(('layer', 'site', *self.NARROWS))}."
            )

    @property
    def suffix(self) -> str:
        """The suffix of the edit's sites; "" for any."""
        return self.AT

    @property
    def _recording(self) -> Any:
        return getattr(self, "recording", None)

    @property
    def names_tokens(self) -> bool:
        """Are some targets tokens' names?"""
        atoms = atoms_of("query", self.query) + atoms_of("key", self.key)
        return any(isinstance(atom, str) for atom in atoms)

    @property
    def tells_apart(self) -> set[str]:
        """The axes along which its targets differ, so that a shared mask must be split."""
        axes = set()
        if self.head is not None:
            axes.add("head")
        if self.names_tokens or self.row is not None:
            axes.add("batch")
        return axes

    def check(self) -> None:
        """Raise `WrongUsage` where a setting is wrong; override it in a subclass."""

    def check_model(self, model: nn.Module, sites: list[str]) -> None:
        """Check the edit against a model before any forward pass."""
        if self._recording is not None:
            for site in sites:
                if site not in self._recording:
                    hint = did_you_mean(site, self._recording)
                    raise WrongUsage(f"{self!r}: the recording has no {site!r}; {hint}")

    def with_recording_read(self) -> "Edit":
        """Return the edit with its recording read, if it names a folder."""
        if not isinstance(self._recording, str):
            return self
        return type(self)(**self._told() | {"recording": open_recording(self._recording)})

    def sites(self, model: nn.Module) -> list[str]:
        """List the full names of its sites.

        Raises:
            WrongUsage: this model has none, or several and `site` does not say which.
        """
        return find_sites(
            model, suffix=self.suffix, site=self.site, layer=self.layer, who=repr(self)
        )

    def heads_in(self, size: int, part: str) -> list[int]:
        """Return the numbers of its heads in a part with `size` heads."""
        return numbers("head", self.head, size, f"{self!r}: {part or 'this attention'}")

    def channels_in(self, values: Tensor, site: str) -> Tensor | None:
        """Mark its channels along the last axis of a site's values; None for all."""
        return None

    def change(self, values: Tensor, context: EditContext) -> Tensor:
        """Return the new values, of the shape of the old: at `weights`, (batch, head, query, key).

        Values outside the targets are restored afterwards.

        Args:
            values: a copy of the values at the site, of the rows and heads that are meant.
            context: their positions, the allowed keys, the targets.
        """
        raise NotImplementedError

    def fitted(self, tensor: Tensor, context: EditContext) -> Tensor:
        """Select the part of the tensor in the field `FITS`, (batch, head, …), that belongs to this
        context."""
        return context.taken(tensor, f"{self!r}: {self.FITS}=")

    def has_changed(self, before: Tensor, after: Tensor, chosen: Tensor | None) -> bool:
        """Did the edit change any chosen value (None: all)?"""
        return bool((before != after).any())

    def to_json(self, *, brief: bool = False) -> dict[str, object]:
        """Return plain values for JSON, defaults too, so that a later default changes nothing.
        `brief` writes large tensors as shape and hash."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        form = {"edit": type(self).__name__, "version": VERSION}
        for name, value in (values | self._told()).items():
            if name not in _TARGETS or name in ("layer", "site", *self.NARROWS):
                form[name] = plain_value(value, brief=brief)
        return form

    @classmethod
    def from_json(cls, form: Any) -> Self:
        """Build an edit from the form that `to_json` returns; an unknown field is an error.

        Raises:
            WrongUsage: an unknown edit, version or field, with a suggestion.
        """
        if not isinstance(form, dict) or "edit" not in form:
            raise WrongUsage(f'an edit is an object, {{"edit": "ZeroHead"}}; got {form!r:.80}.')
        fields = dict(form)
        name, version = fields.pop("edit"), fields.pop("version", VERSION)
        known = _KINDS if name in list(_KINDS) else edit_kinds()
        kind = known.get(str(name))
        if not isinstance(name, str) or kind is None or not issubclass(kind, cls):
            raise WrongUsage(f"there is no edit {name!r}; {did_you_mean(str(name), known)}")
        if version != VERSION:
            raise WrongUsage(
                f"{name} is written in version {version!r}; this attnlab reads version {VERSION}."
            )
        try:
            return kind(**{field: live(value) for field, value in fields.items()})
        except (TypeError, RecursionError) as error:
            raise WrongUsage(f"{name} cannot be read: {error}.") from None

    def __repr__(self) -> str:
        arguments = ", ".join(f"{name}={short_repr(value)}" for name, value in self._told().items())
        return f"{type(self).__name__}({arguments})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Edit) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash((type(self), *(getattr(self, name) for name in _TARGETS)))

    def _told(self) -> dict[str, Any]:
        """Return the fields that differ from their defaults, the targets first."""
        fields = {}
        for field in dataclasses.fields(self):
            value, default = getattr(self, field.name), field.default
            is_plain = isinstance(value, str | int | float) and type(value) is type(default)
            if field.name == self.NEEDS and value is None:
                fields[field.name] = ALL
            elif value is not default and not (is_plain and value == default):
                fields[field.name] = value
        return fields


def _check_name_is_free(kind: type[Edit]) -> None:
    """Raise if another edit has this name in JSON or on the command line; a class that is defined
    again, as in a notebook, replaces itself."""

    def plain(name: str) -> str:
        return name.replace("_", "").lower()

    for name, other in _KINDS.items():
        is_itself = (other.__module__, other.__qualname__) == (kind.__module__, kind.__qualname__)
        if plain(name) == plain(kind.__name__) and not is_itself:
            raise WrongUsage(
                f"{kind.__name__} is already an edit of {other.__module__}, and JSON and the "
                "command line go by names; give this class another name."
            )


def field_words(kind: type[Edit]) -> list[str]:
    """List an edit's own fields; required ones end in =, optional ones in [=]."""
    fields = []
    for field in dataclasses.fields(kind):
        if field.name in _TARGETS:
            continue
        if _is_needed(field):
            fields.append(f"{field.name}=")
        else:
            fields.append(f"[{field.name}=]")
    return fields


def _is_needed(field: "dataclasses.Field[object]") -> bool:
    return field.default is dataclasses.MISSING


def edits_to_json(edits: Sequence[Edit]) -> str:
    """Write edits as JSON, in their order.

    Args:
        edits: any edits, those of other packages too.

    Returns:
        the text of a JSON list, an object for each edit.

    Raises:
        WrongUsage: an edit holds what JSON cannot, such as a recording.

    >>> from attnlab.edits import ScaleScores
    >>> edits_to_json([ScaleScores(head=1, factor=2.0)])[:68]
    '[{"edit": "ScaleScores", "version": 2, "layer": null, "site": null, '
    """
    return json.dumps([edit.to_json() for edit in edits], allow_nan=False)


def edits_from_json(text: str | list[Any]) -> list[Edit]:
    """Read edits that `edits_to_json` wrote, or a list of their forms.

    Args:
        text: what `edits_to_json` returned, or the list that it reads as.

    Returns:
        the edits, equal to those that were written, in their order.

    Raises:
        WrongUsage: it is no JSON list, there is no such edit, or a value does not fit.

    >>> from attnlab.edits import ZeroHead
    >>> edits_from_json(edits_to_json([ZeroHead(layer=0, head=1)]))
    [ZeroHead(layer=0, head=1)]
    """
    if isinstance(text, str):
        try:
            text = json.loads(text, object_pairs_hook=unique_keys)
        except (ValueError, RecursionError, CouldNotRun) as error:
            raise WrongUsage(f"edits are a JSON list; this is not JSON: {error}.") from None
    if not isinstance(text, list):
        raise WrongUsage(f"edits are a JSON list of objects; got {type_words(text)}.")
    return list(map(Edit.from_json, text))

"""Sites: the names under which everything inside a model can be seen and changed, and the door to them.

A site's full name is the path of the part that owns it plus the site's own name:
`layers.3.attention.weights`, `decoder.layers.0.cross_attention.scores`. Because parts are ordinary modules,
the path comes for free, in our models and in anybody's model built from our parts.

An *instrument* stands at the door: it says which sites it wants and is handed each value as it appears; what it
returns goes on through the model. Several may stand there, those that change before those that only look, so that a
recording shows what went on. A part without an instrument pays one attribute look-up. Recordings and edits (the floors
above) are instruments; this file knows neither.
"""

import fnmatch
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from attnlab.errors import WrongUsage, did_you_mean
from attnlab.shapes import shape_text

__all__ = [
    "SITES",
    "AttentionCall",
    "Instrument",
    "OutputPlace",
    "Reading",
    "SitedModule",
    "entrances",
    "installed",
    "instruments_of",
    "is_going_back",
    "matches",
    "set_aside",
    "site_names",
]

SITES: dict[str, str] = {
    "query": "(batch, head, query, head_width), positions applied",
    "key": "(batch, kv_head, key, head_width), positions applied",
    "value": "(batch, kv_head, key, value_width)",
    "mask": "what attention may look at: (..., query, key), boolean or added to the scores; absent when all may",
    "scores": "(batch, head, query, key), scaled, before the softmax, -inf where blocked",
    "weights": "(batch, head, query, key), after the softmax, before dropout",
    "heads": "(batch, head, query, value_width), each head's output before the output projection",
    "output": "(batch, length, d_model), what a sub-layer adds to the residual stream",
    "embedding": "(batch, length, d_model), tokens with their positions",
    "residual_before": "(batch, length, d_model), the residual stream as a block receives it",
    "residual_between": "(batch, length, d_model), after attention, before the feed-forward part",
    "residual_after_cross": "(batch, length, d_model), after cross-attention, in decoder blocks that have it",
    "residual_after": "(batch, length, d_model), as the block leaves it",
    "hidden": "(batch, length, d_ff), inside the feed-forward part, after its activation",
    "logits": "(batch, length, vocabulary) or (batch, classes)",
}


class OutputPlace:
    """Where whoever computes an attention's output on the way to something else leaves it, to the same bits.

    output: (batch, head, query, value_width); it is not computed again.
    """

    output: Tensor | None = None


class AttentionCall(NamedTuple):
    """One attention, about to be computed: all that its scores and weights can be made from.

    query (batch, head, query, head_width) · key (batch, kv_head, key, head_width) · value (batch, kv_head, key,
    value_width), with their positions · mask and scale as `attend` takes them, every bias in the mask · is_open: scores
    and weights are computed openly, because somebody may change them; whoever wants them is handed them at `visit` ·
    is_cross: keys and values are of something else than the queries · place: for the output, where it is to be
    computed without weights and dropout · is_whole: False where scores and weights are made from more than this, as
    in a foreign model with soft-capped scores or sinks.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | str | None
    scale: float | bool | None
    is_open: bool
    is_cross: bool = False
    place: OutputPlace | None = None
    is_whole: bool = True


class Reading(NamedTuple):
    """What a stack begins to read: ids (batch, length), or vectors (batch, length, width), from position `offset` on.

    real is (batch, length), False at padding; None where all are real, or where only a mask could tell. rows (batch,)
    are the rows of the pass before that these go on from under a cache; None for their own, -1 where nobody can tell.
    """

    tokens: Tensor
    offset: int
    real: Tensor | None
    rows: Tensor | None = None


class Instrument:
    """What may stand at the door; a child says what it wants and does. This one wants nothing.

    `changes` says whether it may return something else than it was given. Only then does wanting scores or weights make
    attention compute them openly instead of with the fused kernel; whoever only looks is told of the call by `watch`.
    `one_thread`: passes of two threads at once are refused, for whoever goes by their order; `reader` is the last one.
    """

    changes: bool = True
    one_thread: bool = False
    reader: threading.Thread | None = None

    def wants(self, site: str) -> bool:
        """Say whether the value at this full site name is asked for; the answer may change from call to call."""
        return False

    def visit(self, site: str, value: Tensor) -> Tensor:
        """Take the value at a site and return what the model shall go on with, of the same shape."""
        return value

    def watch(self, part: str, call: AttentionCall) -> None:
        """Learn what the attention at this path is about to compute, once for each of its calls."""

    def read(self, part: str, reading: Reading) -> None:
        """Learn what the stack at this path begins to read, once for each forward pass through it."""

    def supply(self, site: str) -> Tensor | None:
        """Return the value of a `heads` or `residual_after` site if it is known, so that it is not computed."""
        return None

    def describe(self) -> list[dict[str, Any]]:
        """Say what it changes, as plain values for JSON; a recording made under it writes that down."""
        return []


class _Standing(NamedTuple):
    """An instrument at a part's door, and the part's path in the model that the instrument was installed on."""

    path: str
    instrument: Instrument


class SitedModule(nn.Module):
    """A module that shows some of its intermediates at the door.

    `sites` lists their short names; a test holds them to the vocabulary `SITES`.
    """

    sites: tuple[str, ...] = ()

    def __init__(self) -> None:
        super().__init__()
        self._standing: tuple[_Standing, ...] = ()

    @property
    def is_watched(self) -> bool:
        """Whether anybody stands at the door."""
        return bool(self._standing)

    def wants(self, *sites: str, to_change: bool = False) -> bool:
        """Say whether an instrument asks for one of these sites of this part (`to_change`: one that may change it)."""
        return any(
            instrument.wants(_join(path, site))
            for path, instrument in self._standing
            if instrument.changes or not to_change
            for site in sites
        )

    def visit(self, site: str, value: Tensor) -> Tensor:
        """Hand a value to the instruments that want it, in order, and go on with what comes back."""
        for path, instrument in self._standing:
            name = _join(path, site)
            if instrument.wants(name):
                value = _checked(instrument.visit(name, value), value, name)
        return value

    def watch(self, call: AttentionCall) -> None:
        """Tell the instruments of an attention that is about to be computed."""
        for path, instrument in self._standing:
            instrument.watch(path, call)

    def announce(self, tokens: Tensor, offset: int = 0, real: Tensor | None = None, rows: Tensor | None = None) -> None:
        """Tell the instruments what this stack begins to read; not again where `backward()` computes it again."""
        for path, instrument in () if is_going_back() else self._standing:
            _check_thread(instrument)
            instrument.read(path, Reading(tokens, offset, real, rows))

    def supplied(self, site: str) -> Tensor | None:
        """Return the value of a site that an instrument knows already, or None: it has to be computed."""
        for path, instrument in self._standing:
            value = instrument.supply(_join(path, site))
            if value is not None:
                return value
        return None

    @property
    def entrance(self) -> nn.Module:
        """The module that is called when this one is; another one where this only stands for it."""
        return self

    def attended(self) -> AbstractContextManager[None]:
        """Do what must be done while somebody stands at the doors; for whoever brings in values from elsewhere."""
        return nullcontext()

    def apart(self) -> AbstractContextManager[None]:
        """Do what must be done while passes are nobody's: what is known of those before must not mix with them."""
        return nullcontext()

    def unhooked(self) -> AbstractContextManager[None]:
        """Let what is called run as it does when no hook of ours is in it."""
        return nullcontext()

    def __getstate__(self) -> dict[str, Any]:
        """Leave the instruments behind: a copy is another model."""
        return {**self.__dict__, "_standing": ()}


def site_names(model: nn.Module) -> list[str]:
    """List every site of a model in the order of its modules."""
    return [
        _join(path, site)
        for path, module in model.named_modules()
        if isinstance(module, SitedModule)
        for site in module.sites
    ]


def entrances(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """List the modules by which a model is entered, with the paths of what they stand for: itself, and its stacks."""
    return [
        (path, module.entrance if isinstance(module, SitedModule) else module)
        for path, module in model.named_modules()
        if not path or (isinstance(module, SitedModule) and "embedding" in module.sites)
    ]


def matches(pattern: str, model: nn.Module) -> list[str]:
    """List the sites a pattern names; a pattern that names none is an error, not a silent zero.

    `*` stands for anything, as in `layers.*.attention.weights`.
    """
    names = site_names(model)
    found = [name for name in names if fnmatch.fnmatchcase(name, pattern)]
    if not found:
        if not names:
            raise WrongUsage(
                f"{type(model).__name__} has no sites: none of its modules is a part of attnlab; "
                "attnlab.load(model) gives it doors."
            )
        raise WrongUsage(f"no site of this model matches {pattern!r}; {did_you_mean(pattern, names)}")
    return found


def instruments_of(model: nn.Module) -> list[Instrument]:
    """List the instruments that stand at the doors of a model, in their order."""
    parts = (part for part in model.modules() if isinstance(part, SitedModule))
    return list(dict.fromkeys(each.instrument for part in parts for each in part._standing))


@contextmanager
def installed(model: nn.Module, instrument: Instrument) -> Iterator[None]:
    """Put an instrument at every door of one model, and take it away again whatever happens.

    Other models, also copies of this one, are not touched. Several instruments may stand at one door: first those that
    change, in the order they came, then those that look.

    Raises:
        WrongUsage: this very instrument stands there already.
    """
    parts = [(path, part) for path, part in model.named_modules() if isinstance(part, SitedModule)]
    for path, part in parts:
        if any(each.instrument is instrument for each in part._standing):
            raise WrongUsage(
                f"this instrument is already installed at {path or type(model).__name__!r}; make another one."
            )
    try:
        for path, part in parts:
            standing = (*part._standing, _Standing(path, instrument))
            part._standing = tuple(sorted(standing, key=lambda each: not each.instrument.changes))
        with ExitStack() as stack:
            for _, part in parts:
                stack.enter_context(part.attended())
            yield
    finally:
        for _, part in parts:
            part._standing = tuple(each for each in part._standing if each.instrument is not instrument)


@contextmanager
def set_aside(model: nn.Module) -> Iterator[None]:
    """Take every instrument from the doors of one model, and put them back whatever happens."""
    parts = [(part, part._standing) for part in model.modules() if isinstance(part, SitedModule)]
    try:
        for part, _ in parts:
            part._standing = ()
        with ExitStack() as stack:
            for part, _ in parts:
                stack.enter_context(part.apart())
            yield
    finally:
        for part, standing in parts:
            part._standing = standing


def is_going_back() -> bool:
    """Say whether `backward()` is at work here."""
    return not torch.compiler.is_compiling() and torch._C._current_graph_task_id() != -1


def _check_thread(instrument: Instrument) -> None:
    """Raise where two threads run one model under one instrument: it could not tell their passes apart."""
    if not instrument.one_thread or torch.compiler.is_compiling():
        return
    here = threading.current_thread()
    if instrument.reader is not None and instrument.reader is not here and instrument.reader.is_alive():
        raise WrongUsage(
            f"the threads {instrument.reader.name} and {here.name} run one model under one recording or edit, which "
            "serves one thread at a time; give each a copy of the model (copy.deepcopy)."
        )
    instrument.reader = here


def _checked(found: Tensor, value: Tensor, name: str) -> Tensor:
    if found is value:
        return value
    if not isinstance(found, Tensor) or not _fits(found.shape, value.shape, name.rpartition(".")[2]):
        came = shape_text(found.shape) if isinstance(found, Tensor) else f"a {type(found).__name__}"
        raise WrongUsage(f"what goes on at {name} must have shape {shape_text(value.shape)}; got {came}.")
    return found


def _fits(found: Sequence[int], shape: Sequence[int], own: str) -> bool:
    """Say whether a shape may go on; what heads share may come back with one for each."""
    if own == "mask":
        return True
    if own in ("key", "value") and len(found) == len(shape) and found[-3] % shape[-3] == 0:
        return [*found[:-3], *found[-2:]] == [*shape[:-3], *shape[-2:]]
    return found == shape


def _join(path: str, site: str) -> str:
    return f"{path}.{site}" if path else site

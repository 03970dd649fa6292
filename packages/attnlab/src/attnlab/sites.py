"""Sites: the names of everything inside a model that can be seen and changed, and hooks on them.

A site's full name is the path of the module that owns it plus the site's own name:
`layers.3.attention.weights`, `decoder.layers.0.cross_attention.scores`.

A `Hook` says which sites it wants, is handed each value as the model computes it, and returns what
the model goes on with. Several hooks may be installed on one model: those that change values run
before those that only look, so a recording shows the edited values. A module without hooks pays one
attribute look-up. Recordings and edits, on the floors above, are hooks; this file knows neither.
"""

import difflib
import fnmatch
import re
import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from attnlab.errors import WrongUsage, did_you_mean, model_words, type_words
from attnlab.shapes import shape_text

SITES: dict[str, str] = {
    "query": "(batch, head, query, head_width), positions applied",
    "key": "(batch, kv_head, key, head_width), positions applied",
    "value": "(batch, kv_head, key, value_width)",
    "mask": "what attention may look at: (..., query, key), boolean or added to the scores; absent "
    "when all may",
    "scores": "(batch, head, query, key), scaled, before the softmax, -inf where blocked",
    "weights": "(batch, head, query, key), after the softmax, before dropout",
    "heads": "(batch, head, query, value_width), each head's output before the output projection",
    "output": "(batch, length, d_model), what a sub-layer adds to the residual stream",
    "embedding": "(batch, length, d_model), tokens with their positions",
    "residual_before": "(batch, length, d_model), the residual stream as a block receives it",
    "residual_between": "(batch, length, d_model), after attention, before the feed-forward part",
    "residual_after_cross": (
        "(batch, length, d_model), after cross-attention, in decoder blocks that have it"
    ),
    "residual_after": "(batch, length, d_model), as the block leaves it",
    "hidden": "(batch, length, d_ff), inside the feed-forward part, after its activation",
    "logits": "(batch, length, vocabulary) or (batch, classes)",
    "result": "(batch, length, width), what a module that is a site of a pretrained model returns",
}

_ELSEWHERE = {
    "attn": "attention",
    "attn_out": "attention.output",
    "attn_scores": "scores",
    "blocks": "layers",
    "embed": "embedding",
    "k": "key",
    "mlp": "feed_forward",
    "mlp_out": "feed_forward.output",
    "pattern": "weights",
    "post": "hidden",
    "q": "query",
    "resid_mid": "residual_between",
    "resid_post": "residual_after",
    "resid_pre": "residual_before",
    "self_attn": "attention",
    "v": "value",
    "z": "heads",
}
"""What other libraries call the pieces of a site's name."""


def site_suffix(site: str) -> str:
    """Return a site's name without the path of its part.

    >>> site_suffix("layers.0.attention.weights")
    'weights'
    """
    return site.rpartition(".")[2]


def in_our_words(site: str, known: Iterable[str]) -> str:
    """Replace the pieces of a site's name that no known site has, and other libraries do.

    >>> in_our_words("blocks.3.attn.hook_pattern", ["layers.3.attention.weights"])
    'layers.3.attention.weights'
    """
    ours = {piece for name in known for piece in name.split(".")}
    pieces = []
    for piece in site.split("."):
        pieces.append(
            piece if piece in ours else _ELSEWHERE.get(piece.removeprefix("hook_"), piece)
        )
    return ".".join(pieces)


def part_of(site: str) -> str:
    """Return the path of the part that a site belongs to."""
    return site.rpartition(".")[0]


def site_of(part: str, suffix: str) -> str:
    """Join a part's path and a site's suffix; the path of a model that is one part is empty."""
    return f"{part}.{suffix}" if part else suffix


class OutputSlot:
    """Holds an attention's output that a hook has computed with the same bits.

    output: (batch, head, query, value_width); attention does not compute it again.
    """

    output: Tensor | None = None


class AttentionCall(NamedTuple):
    """One call of attention, about to be computed, with the inputs of its scores and weights.

    query (batch, head, query, head_width) · key (batch, kv_head, key, head_width) · value (batch,
    kv_head, key, value_width), with their positions · mask and scale as `attend` takes them, every
    bias in the mask · is_explicit: scores and weights are computed explicitly, because a hook may
    change them, and hooks get them in `visit` · is_cross: keys and values are of another sequence
    than the queries · place: for the output, where it is to be computed without weights and dropout
    · is_whole: False where scores and weights are made from more than this, as in a foreign model
    with soft-capped scores or sinks.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | str | None
    scale: float | bool | None
    is_explicit: bool
    is_cross: bool = False
    place: OutputSlot | None = None
    is_whole: bool = True


class StackInput(NamedTuple):
    """The input of one forward pass of a stack, from position `offset` on.

    tokens are ids (batch, length) or vectors (batch, length, width). real is (batch, length), False
    at padding; None where all are real, or where only a mask could tell. rows (batch,) are the rows
    of the previous pass that these continue under a cache; None for the same rows, -1 if unknown.
    places (batch, length, 3) are the image, row and column that a position shows, -1 at text; None
    without images.
    """

    tokens: Tensor
    offset: int
    real: Tensor | None
    rows: Tensor | None = None
    places: Tensor | None = None


class Hook:
    """Base class of hooks: a subclass chooses its sites, and handles their values.

    `sites`: the only sites that it will ever want, watch or supply; None where that is not known. A
    foreign model is given hooks at these alone.

    `changes`: may the hook return another value than it was given? Only then does wanting scores or
    weights make attention compute them explicitly; a hook that only looks gets the fused kernel's
    inputs by `watch`. `one_thread`: refuse forward passes of two threads at once, for hooks that
    depend on the order of passes; `reader` is the last thread.
    """

    sites: Collection[str] | None = None
    changes: bool = True
    one_thread: bool = False
    reader: threading.Thread | None = None

    def wants(self, site: str) -> bool:
        """Does the hook want the value of this site? The answer may change between calls."""
        return False

    def visit(self, site: str, value: Tensor) -> Tensor:
        """Take a site's value and return the value to go on with, of the same shape."""
        return value

    def watch(self, part: str, call: AttentionCall) -> None:
        """Receive a call of the attention at this path before it is computed."""

    def read(self, part: str, reading: StackInput) -> None:
        """Receive the input of the stack at this path before each of its forward passes."""

    def supply(self, site: str) -> Tensor | None:
        """Return the value of a `heads` or `residual_after` site if it is already known."""
        return None

    def describe(self) -> list[dict[str, Any]]:
        """Return the hook's changes as plain values for JSON, for recordings made under it."""
        return []


class _Installed(NamedTuple):
    """A hook at a part's hook point, and the part's path in the model that the hook was
    installed on."""

    path: str
    hook: Hook


class SitedModule(nn.Module):
    """A module that shows some of its intermediates at the hook point.

    `sites` lists their short names; a test holds them to the vocabulary `SITES`. Of attention:
    `is_explicit`, scores and weights are computed explicitly, never by a fused kernel (see
    `explicit_attention`); `guard`, as in `attend`. `without_points`: children in which are none.
    """

    sites: tuple[str, ...] = ()
    without_points: Collection[str] = ()
    is_explicit = False
    guard = True

    def __init__(self) -> None:
        super().__init__()
        self._installed: tuple[_Installed, ...] = ()

    @property
    def is_hooked(self) -> bool:
        """Is a hook installed here?"""
        return bool(self._installed)

    def wants(self, *sites: str, to_change: bool = False) -> bool:
        """Does a hook want one of these sites (`to_change`: a hook that may change it)?"""
        for path, hook in self._installed:
            if to_change and not hook.changes:
                continue
            for site in sites:
                if hook.wants(site_of(path, site)):
                    return True
        return False

    def visit(self, site: str, value: Tensor) -> Tensor:
        """Hand a value to the hooks that want it, in order, and return the last result."""
        for path, hook in self._installed:
            name = site_of(path, site)
            if hook.wants(name):
                value = _checked(hook.visit(name, value), value, name)
        return value

    def watch(self, call: AttentionCall) -> None:
        """Tell the hooks that an attention is about to be computed."""
        for path, hook in self._installed:
            hook.watch(path, call)

    def announce(
        self,
        tokens: Tensor,
        offset: int = 0,
        real: Tensor | None = None,
        rows: Tensor | None = None,
        places: Tensor | None = None,
    ) -> None:
        """Give the hooks this stack's input; not again while `backward()` recomputes it."""
        if in_backward():
            return
        for path, hook in self._installed:
            if hook.one_thread and not torch.compiler.is_compiling():
                _check_thread(hook)
            hook.read(path, StackInput(tokens, offset, real, rows, places))

    def supplied(self, site: str) -> Tensor | None:
        """Return a site's value if a hook already knows it; None if it must be computed."""
        for path, hook in self._installed:
            value = hook.supply(site_of(path, site))
            if value is not None:
                return value
        return None

    @property
    def entrance(self) -> nn.Module:
        """The module whose call runs this one: itself, or the foreign module it represents."""
        return self

    def while_hooked(self) -> AbstractContextManager[None]:
        """Prepare the model while hooks are installed; for models that bring in foreign values."""
        return nullcontext()

    def apart(self) -> AbstractContextManager[None]:
        """Keep passes made while hooks are set aside apart from those before."""
        return nullcontext()

    def unhooked(self) -> AbstractContextManager[None]:
        """Run the model without any of our hooks in it."""
        return nullcontext()

    def advice(self, name: str) -> str:
        """Return advice on a name that is no site's, or "" for none."""
        return ""

    def __getstate__(self) -> dict[str, object]:
        """Leave the hooks behind: a copy is another model."""
        return {**self.__dict__, "_installed": ()}


def site_names(model: nn.Module) -> list[str]:
    """List every site of a model in the order of its modules."""
    return [site_of(path, site) for path, part in parts_of(model) for site in part.sites]


def require_model(model: object) -> None:
    """Raise unless this is a torch module."""
    if not isinstance(model, nn.Module):
        raise WrongUsage(
            f'expected a model, such as attnlab.load("runs/sorting"); got {model_words(model)}.'
        )


def parts_of(model: nn.Module) -> list[tuple[str, SitedModule]]:
    """List the modules of a model that have hook points, with their paths."""
    require_model(model)
    parts, seen, waiting = [], set(), [("", model)]
    while waiting:  # as named_modules, which takes four times as long
        path, module = waiting.pop()
        if module in seen:
            continue
        seen.add(module)
        without: Collection[str] = ()
        if isinstance(module, SitedModule):
            parts.append((path, module))
            without = module.without_points
        for name, child in reversed(module._modules.items()):
            if child is not None and name not in without:
                waiting.append((site_of(path, name), child))
    return parts


def entrances(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """List the modules whose calls enter the model or one of its stacks, with their paths."""
    modules = {"": model}
    for path, part in parts_of(model):
        if not path or "embedding" in part.sites:
            modules[path] = part.entrance
    return list(modules.items())


def matches(pattern: str, model: nn.Module, names: Sequence[str] | None = None) -> list[str]:
    """List the sites a pattern matches; a pattern that matches none is an error.

    `*` stands for anything, as in `layers.*.attention.weights`. names: of the sites, if known.
    """
    names = site_names(model) if names is None else names
    matching = [pattern]
    if pattern not in names:
        matching = [name for name in names if fnmatch.fnmatchcase(name, pattern)]
    if not matching:
        if not names:
            raise WrongUsage(
                f"{type(model).__name__} has no sites: none of its modules is a part of attnlab; "
                "attnlab.load(model) gives it hook points."
            )
        guess = advice_on(pattern, model) or _guess(in_our_words(pattern, names), names)
        raise WrongUsage(f"no site of this model matches {pattern!r}; {guess}")
    return matching


QUERY_ADVICE = (
    "write its attention with torch.nn.functional.scaled_dot_product_attention, whose queries and "
    "keys are seen"
)
"""How a hand-written softmax is made to show its queries and keys."""

STREAM_ADVICE = (
    "for its residual stream, write its attention with "
    "torch.nn.functional.scaled_dot_product_attention and each block as a class of blocks, from "
    "stream to stream, and open it with attnlab.load (see docs/build.md)"
)
"""How a hand-written model is made to show its residual stream."""


def _guess(pattern: str, names: Sequence[str]) -> str:
    """Name the closest site, or kind of site where a pattern names one, and list the others."""
    suffix = site_suffix(pattern.replace("*", ""))
    if suffix.startswith("residual_") and suffix in SITES.keys() - set(map(site_suffix, names)):
        return f"{STREAM_ADVICE}."
    if "*" in pattern:
        numbered = {re.sub(r"\b\d+\b", "*", name): None for name in names}
        if close := difflib.get_close_matches(pattern, numbered, n=1):
            return f"did you mean {close[0]!r}? Known: {', '.join(numbered)}"
    guess = did_you_mean(pattern, names)
    if guess.startswith("did you mean"):
        return guess
    kinds = [f"*.{name.rpartition('.')[2]}" for name in names if "." in name]
    close = difflib.get_close_matches(pattern, kinds, n=1)
    return f"did you mean {close[0]!r}? K{guess[1:]}" if close else guess


def advice_on(name: str, model: nn.Module) -> str:
    """Return a model's advice on a name that is no site's, or "" for none."""
    return model.advice(name) if isinstance(model, SitedModule) else ""


def hooks_of(model: nn.Module) -> list[Hook]:
    """List the hooks installed on a model, in their order."""
    hooks: dict[Hook, None] = {}
    for _, part in parts_of(model):
        for entry in part._installed:
            hooks[entry.hook] = None
    return list(hooks)


@contextmanager
def installed(model: nn.Module, hook: Hook) -> Iterator[None]:
    """Install a hook on every module of one model while the `with` lasts.

    Other models, also copies of this one, are not touched. Several hooks may be
    installed at one hook point: those that change run first, in the order they came, then those
    that look.

    Raises:
        WrongUsage: this hook is already installed.
    """
    parts = parts_of(model)
    for path, part in parts:
        if any(entry.hook is hook for entry in part._installed):
            raise WrongUsage(
                f"this hook is already installed at {path or type(model).__name__!r}; "
                "make another one."
            )
    try:
        for path, part in parts:
            standing = (*part._installed, _Installed(path, hook))
            part._installed = tuple(sorted(standing, key=lambda entry: not entry.hook.changes))
        with ExitStack() as stack:
            for _, part in parts:
                stack.enter_context(part.while_hooked())
            yield
    finally:
        for _, part in parts:
            part._installed = tuple(entry for entry in part._installed if entry.hook is not hook)


def kept_hooked(model: nn.Module) -> AbstractContextManager[None]:
    """Keep a model prepared for hooks while the `with` lasts, for several that come and go."""
    return model.while_hooked() if isinstance(model, SitedModule) else nullcontext()


def hooks_around(model: nn.Module, hook: Hook) -> tuple[list[Hook], list[Hook]]:
    """List the hooks that change values before a hook of this model does, and after it."""
    before: dict[Hook, None] = {}
    after: dict[Hook, None] = {}
    for _, part in parts_of(model):
        side = before
        for _, other in part._installed:
            if other is hook:
                side = after
            elif other.changes:
                side[other] = None
    return list(before), list(after)


@contextmanager
def set_aside(model: nn.Module, keep: Collection[Hook] = ()) -> Iterator[None]:
    """Remove every hook from one model while the `with` lasts, but for some to keep."""
    parts = [part for _, part in parts_of(model)]
    hooked = [(part, part._installed) for part in parts if part.is_hooked]
    try:
        for part, standing in hooked:
            part._installed = tuple(entry for entry in standing if entry.hook in keep)
        with ExitStack() as stack:
            for part in parts:
                stack.enter_context(part.apart())
            yield
    finally:
        for part, standing in hooked:
            part._installed = standing


@contextmanager
def explicit_attention(model: nn.Module, paths: Collection[str] | None = None) -> Iterator[None]:
    """Compute scores and weights explicitly, never by a fused kernel, in the parts of a model at
    these paths (None: all) while the `with` lasts."""
    parts = [part for path, part in parts_of(model) if paths is None or path in paths]
    before = [part.is_explicit for part in parts]
    try:
        for part in parts:
            part.is_explicit = True
        yield
    finally:
        for part, was_explicit in zip(parts, before, strict=True):
            part.is_explicit = was_explicit


def in_backward() -> bool:
    """Is `backward()` running in this thread?"""
    return not torch.compiler.is_compiling() and torch._C._current_graph_task_id() != -1


def _check_thread(hook: Hook) -> None:
    """Raise if two threads run one model under one hook, whose passes would mix."""
    here = threading.current_thread()
    if hook.reader is not None and hook.reader is not here and hook.reader.is_alive():
        raise WrongUsage(
            f"the threads {hook.reader.name} and {here.name} run one model under one "
            "recording or edit, which serves one thread at a time; give each a copy of the model "
            "(copy.deepcopy)."
        )
    hook.reader = here


def _checked(returned: Tensor, value: Tensor, name: str) -> Tensor:
    if returned is value:
        return value
    came = type_words(returned)
    if isinstance(returned, Tensor):
        if _fits(returned.shape, value.shape, name.rpartition(".")[2]):
            return returned
        came = shape_text(returned.shape)
    raise WrongUsage(
        f"what goes on at {name} must have shape {shape_text(value.shape)}; got {came}."
    )


def _fits(returned: Sequence[int], shape: Sequence[int], suffix: str) -> bool:
    """May a value of this shape go on? Shared heads may come back as one for each."""
    if suffix == "mask":
        return True
    if suffix in ("key", "value") and len(returned) == len(shape) and returned[-3] % shape[-3] == 0:
        return [*returned[:-3], *returned[-2:]] == [*shape[:-3], *shape[-2:]]
    return returned == shape

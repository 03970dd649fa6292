"""How a certificate compares outputs: the model is run again without the edits.

After each forward pass the module that was called runs once more, as it does without us, on the
same inputs, with the same random numbers and in the same gradient mode, with a key/value cache of
its own that no edit has touched. At the first pass it also runs with the edited attentions open,
and with the editor itself there, its edits giving back the values they are given; these two must
agree to the last bit. What torch computes on its fast path runs off it, too.

Inside another edit, all of these runs are under those that began before, and what is compared with
them is a run without those that began later: so each certificate speaks of its own change alone.
"""

import copy
import hashlib
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from attnlab.edits.certificate import Certificate, OutputChange, is_traced
from attnlab.edits.editor import Editor, tensors_in
from attnlab.edits.targets import own_name, part_of
from attnlab.parts.cache import Cache
from attnlab.pretrained.model_state import state_kept
from attnlab.pretrained.pass_state import ModuleHook, do_nothing
from attnlab.seeds import RandomState, random_state, random_state_restored, set_random_state
from attnlab.sites import (
    Hook,
    SitedModule,
    entrances,
    hooks_around,
    in_backward,
    installed,
    opened,
    set_aside,
)

_OPENED = ("mask", "scores", "weights")
_MOST_BYTES = 2**31
"""Weights larger than this are not opened only to be checked."""


Arguments: TypeAlias = tuple[Any, Any]
"""Arguments and keyword arguments of a call."""


@dataclass(frozen=True)
class _Call:
    """A call of an entrance that has begun: its path, and how it is repeated.

    given: for the run without the edits; None where the call is not compared · alone: for the run
    without later edits; None where the pass itself is without them · earlier: what changes values
    before the edits do.
    """

    path: str
    given: Arguments | None = None
    alone: Arguments | None = None
    earlier: tuple[Hook, ...] = ()
    random: Any = None


class _Repeating(threading.local):
    """Is a pass being repeated in this thread? No certificate counts such a pass."""

    is_on = False


_repeating = _Repeating()


_Twins: TypeAlias = weakref.WeakKeyDictionary[Any, Any]


class Checks:
    """Fills a certificate while edits are at work; left_out: passes that could not be compared."""

    def __init__(self, model: nn.Module, editor: Editor, certificate: Certificate) -> None:
        self.certificate = certificate
        self.left_out = 0
        self._model = model
        self._editor = editor
        self._call: _Call | None = None  # the outermost
        self._untouched: _Twins = weakref.WeakKeyDictionary()
        """For each key/value cache what it would hold had the edits not been."""
        self._alone: _Twins = weakref.WeakKeyDictionary()
        """For each cache that later edits have touched what it would hold had these not been."""

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Run every forward pass of the model once more without the edits, and compare."""
        before = _hash(self._model)
        with ExitStack() as stack:
            for path, module in entrances(self._model):
                options = {"with_kwargs": True}
                first = ModuleHook(partial(self._begin, path, module), do_nothing)
                stack.callback(module.register_forward_pre_hook(first, **options).remove)
                last = ModuleHook(partial(self._end, path, module), do_nothing)
                options["always_call"] = True
                stack.callback(module.register_forward_hook(last, **options).remove)
            try:
                yield
            finally:
                self.certificate.parameters = (before, _hash(self._model))

    def _begin(
        self, path: str, module: nn.Module, called: nn.Module, args: Any, kwargs: Any
    ) -> None:
        """Note how an entrance is called; only the outermost of the edited ones is compared."""
        # A copy takes the hooks along; and what backward() computes again is no pass of its own.
        if _repeating.is_on or called is not module or in_backward():
            return
        # no end is told of a call that was interrupted
        if self._call is not None and self._call.path != path:
            return
        self._call = _Call(path)
        if self._sites_in(path):
            self._editor.history.is_reordered = False
            if not is_traced():
                self._call = self._repeatable(path, (args, kwargs))
            self.left_out += self._call.given is None

    def _end(
        self, path: str, module: nn.Module, called: nn.Module, args: Any, kwargs: Any, output: Any
    ) -> None:
        call = self._call
        if _repeating.is_on or called is not module or call is None or call.path != path:
            return
        self._call = None
        if call.given is None or output is None:  # None: the pass broke off
            return
        if self._editor.history.is_reordered:  # the other cache's rows are still as they were
            for twins in (self._untouched, self._alone):
                twins.update(dict.fromkeys(twins))
            self.left_out += 1
            return
        _repeating.is_on = True
        try:
            self._compare(call, module, output)
        finally:
            _repeating.is_on = False

    def _sites_in(self, path: str) -> list[str]:
        return [site for site in self._editor.at if not path or site.startswith(f"{path}.")]

    def _compare(self, call: _Call, module: nn.Module, output: Any) -> None:
        """Run a module again without the edits, and write down how far what came out is from
        that."""
        assert call.given is not None

        def run(arguments: Arguments) -> list[Tensor]:
            args, kwargs = arguments
            keep_nothing = torch.autograd.graph.saved_tensors_hooks(_let_go, _let_go)
            with _random_again(call.random), _state_again(self._model), keep_nothing:
                return [tensor.detach() for tensor in tensors_in(module(*args, **kwargs))]

        is_first = call.path not in self.certificate.effects
        anew = _with_new_cache(call.given)  # the first run fills the caches
        effect = self.certificate.effects.setdefault(call.path, OutputChange())
        instead = {hook: hook.again() for hook in call.earlier}
        edited = tensors_in(output)
        if call.alone is not None:
            with set_aside(self._model, {**instead, self._editor: self._editor.again()}):
                edited = run(call.alone)
        with set_aside(self._model, instead):
            with ExitStack() as stack:  # as the model runs when no hook of ours is in it
                for part in self._model.modules():
                    if isinstance(part, SitedModule) and not instead:
                        stack.enter_context(part.unhooked())
                bare = run(call.given)
            effect.add(*_distance(bare[:1], edited[:1]))
            if is_first:
                self._compare_unchanging(call.path, bare, lambda: run(_with_new_cache(anew)))

    def _compare_unchanging(
        self, path: str, bare: list[Tensor], run: Callable[[], list[Tensor]]
    ) -> None:
        """Compare the run without us with one that is opened, and that with edits of nothing."""
        sites, effect = self._sites_in(path), self.certificate.effects[path]
        watched = bare
        if "multi-head" in self.certificate.backend:
            watched = run()
        effect.fast_path = _distance(bare, watched)[0] or None
        parts = [site for site in sites if own_name(site) in _OPENED]
        if parts and self._editor.largest_attention > _MOST_BYTES:
            self.certificate.not_checked.append(
                "that edits which change nothing change nothing: opening the attention for "
                f"it takes {self._editor.largest_attention:,} bytes"
            )
            return
        plain = watched
        with opened(self._model, set(map(part_of, parts))):
            if parts:
                plain = run()
            with installed(self._model, self._editor.unchanging()):
                same = run()
        effect.identity = _distance(plain, same)[0]
        if any(own_name(site) in ("scores", "weights") for site in sites):
            effect.kernel = _distance(watched, plain)[0]

    def _repeatable(self, path: str, arguments: Arguments) -> _Call:
        """Note how a call is repeated; without arguments where that cannot be known."""
        earlier, later = hooks_around(self._model, self._editor)
        without, alone = self._without_edits(arguments), None
        if later or any(cache in self._alone for cache in _caches_in(arguments)):
            alone = self._with_twins(arguments, self._alone)
            if alone is None:
                without = None
        return _Call(path, without, alone, tuple(earlier), random_state())

    def _without_edits(self, arguments: Arguments) -> Arguments | None:
        return self._with_twins(arguments, self._untouched)

    def _with_twins(self, arguments: Arguments, twins: _Twins) -> Arguments | None:
        """Return the same arguments with each cache's twin, which begins as empty as the cache did;
        None where one is unknown."""
        is_known = True

        def other(cache: Any) -> Any:
            nonlocal is_known
            length = _length(cache)
            if length is None:
                return cache
            if length == 0:
                twins[cache] = copy.deepcopy(cache)
            twin = twins.setdefault(cache, None)
            if isinstance(twin, Cache) and twin.lengths == cache.lengths:
                # which a model may do after the part that was run again
                twin.advance(length - twin.length)
            is_known = is_known and _length(twin) == length
            return twin

        mapped = _mapped(arguments, other)
        return mapped if is_known else None


def _let_go(_: Any) -> Any:
    """Keep nothing for gradients that are never asked for."""


def _distance(one: Sequence[Tensor], other: Sequence[Tensor]) -> tuple[float, float, int]:
    """Return the largest and mean difference of some tensors, and their number of values.

    What is equal, infinite too, is 0 apart.
    """
    largest, total, number = 0.0, 0.0, 0
    # an attention that is opened gives its weights beside its output
    for a, b in zip(one, other, strict=False):
        wide = torch.promote_types(a.dtype, torch.float32)
        equal = (a == b) | (a.isnan() & b.isnan())
        apart = torch.where(equal, 0.0, (a.to(wide) - b.detach().to(wide)).abs())
        if apart.numel():
            largest = max(largest, float(apart.nan_to_num(float("inf"), float("inf")).max()))
            total, number = total + float(apart.sum()), number + apart.numel()
    return largest, total / max(number, 1), number


def _with_new_cache(arguments: Any) -> Any:
    """The same arguments with another empty cache for each empty cache."""
    return _mapped(arguments, lambda value: copy.deepcopy(value) if _length(value) == 0 else value)


def _length(cache: Any) -> int | None:
    """How much a cache holds, ours or of transformers; None for what is no cache."""
    if isinstance(cache, Cache):
        return cache.length
    if callable(getattr(cache, "get_seq_length", None)):
        return int(cache.get_seq_length())
    return None


def _caches_in(arguments: Any) -> list[Any]:
    caches: list[Any] = []
    _mapped(arguments, lambda value: caches.append(value) if _length(value) is not None else None)
    return caches


def _mapped(values: Any, function: Callable[[Any], Any]) -> Any:
    if type(values) is dict:
        return {name: _mapped(value, function) for name, value in values.items()}
    if type(values) in (tuple, list):
        return type(values)(_mapped(value, function) for value in values)
    return function(values)


def backends_of(model: nn.Module) -> str:
    """Name the ways in which attention reaches the hook points of a model."""
    backends = [str(module.backend) for module in model.modules() if hasattr(module, "backend")]
    return " and ".join(dict.fromkeys(backends)) or "native"


@contextmanager
def _random_again(state: RandomState) -> Iterator[None]:
    """Draw the numbers that were drawn then, and go on afterwards as if nothing had been drawn."""
    with random_state_restored():
        set_random_state(state)
        yield


def _state_again(model: nn.Module) -> AbstractContextManager[None]:
    """Put back what a foreign model writes into itself while a pass is repeated: a counter counts
    the user's own passes."""
    foreign = getattr(model, "foreign", None)
    return nullcontext() if foreign is None else state_kept(foreign, weights=False)


def _hash(model: nn.Module) -> str:
    """Return the SHA-256 of all parameters, with their names; a model may write into buffers."""
    digest = hashlib.sha256()
    for name, tensor in model.named_parameters():
        if not tensor.is_meta:
            digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
            values = tensor.detach().cpu().contiguous().reshape(-1)
            digest.update(values.view(torch.uint8).numpy().data)
    return digest.hexdigest()

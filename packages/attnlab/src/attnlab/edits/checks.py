"""How a certificate compares outputs: the model is run again without the edits.

After each forward pass the module that was called runs once more, as it does without us, on the
same inputs, with the same random numbers and in the same gradient mode, with a key/value cache of
its own that no edit has touched. At the first pass it also runs with the edited attentions
explicit, and with the edits in place but neutral, giving back the values they are given; these two
must agree to the last bit. What torch computes on its fast path runs off it, too.

Inside another edit, all of these runs are under the edits that began before, and what is compared
with them is a run without those that began later: so each certificate speaks of its own change
alone.
"""

import hashlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from attnlab.core.sizes import stored_tensors
from attnlab.edits.cache_twins import Arguments, CacheTwins, has_filled_cache, with_new_caches
from attnlab.edits.certificate import OutputChange, is_traced
from attnlab.edits.editor import Editor
from attnlab.pretrained.model_state import state_kept
from attnlab.pretrained.pass_state import ModuleHook, do_nothing
from attnlab.seeds import RandomState, random_state, random_state_restored, set_random_state
from attnlab.sites import (
    Hook,
    SitedModule,
    entrances,
    explicit_attention,
    hooks_around,
    in_backward,
    part_of,
    set_aside,
    site_suffix,
)

_EXPLICIT = ("mask", "scores", "weights")
_MAX_EXPLICIT_BYTES = 2**31
"""Larger weights are not computed only to be checked."""


@dataclass(frozen=True)
class _Call:
    """A call of an entrance that has begun: its path, and how it is repeated.

    arguments: for the run without the edits; None where the call is not compared · alone: for the
    run without later edits; None where there are none · earlier: the hooks that change values
    before the edits do.
    """

    path: str
    arguments: Arguments | None = None
    alone: Arguments | None = None
    earlier: tuple[Hook, ...] = ()
    random: Any = None


class _Repeating(threading.local):
    """Is a pass being repeated in this thread? No certificate counts such a pass."""

    is_on = False


_repeating = _Repeating()


class Checks:
    """Fills the certificate of an editor while its edits are in force; left_out: passes that could
    not be compared."""

    def __init__(self, model: nn.Module, editor: Editor) -> None:
        self.left_out = 0
        self._model, self._editor = model, editor
        self._call: _Call | None = None  # the outermost
        self._twins = CacheTwins()

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
                self._editor.certificate.parameters = (before, _hash(self._model))

    def _begin(
        self, path: str, module: nn.Module, called: nn.Module, args: Any, kwargs: Any
    ) -> None:
        """Note how an entrance is called; only the outermost of the edited ones is compared."""
        # A copy takes the hooks along; and what backward() computes again is no pass of its own.
        if _repeating.is_on or called is not module or in_backward():
            return
        # an interrupted call never ends
        if self._call is not None and self._call.path != path:
            return
        self._call = _Call(path)
        if self._sites_in(path):
            self._editor.history.is_reordered = False
            earlier, later = hooks_around(self._model, self._editor)
            alone = with_new_caches((args, kwargs)) if later else None
            # a cache that holds something is not known without the later edits
            if not (is_traced() or (later and has_filled_cache((args, kwargs)))):
                arguments = self._twins.of((args, kwargs))
                self._call = _Call(path, arguments, alone, tuple(earlier), random_state())
            self.left_out += self._call.arguments is None

    def _end(
        self, path: str, module: nn.Module, called: nn.Module, args: Any, kwargs: Any, output: Any
    ) -> None:
        """Compare the pass that ends here."""
        call = self._call
        if _repeating.is_on or called is not module or call is None or call.path != path:
            return
        self._call = None
        if call.arguments is None or output is None:  # None: the pass broke off
            return
        if self._editor.history.is_reordered:  # the twin's rows are still as they were
            self._twins.forget()
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
        """Run a module again without the edits, and note how far its edited output is from that."""
        effects = self._editor.certificate.effects
        is_first = call.path not in effects
        effect = effects.setdefault(call.path, OutputChange())
        anew = with_new_caches(call.arguments)  # the first run fills the caches
        edited = _tensors_in(output)
        with ExitStack() as repeats:
            for hook in call.earlier:
                if isinstance(hook, Editor):
                    repeats.enter_context(hook.repeated())
            if call.alone is not None:
                with set_aside(self._model, (*call.earlier, self._editor)), self._editor.repeated():
                    edited = self._run(call, module, call.alone)
            with set_aside(self._model, call.earlier), ExitStack() as stack:
                for part in self._model.modules():
                    if isinstance(part, SitedModule) and not call.earlier:
                        stack.enter_context(part.unhooked())
                bare = self._run(call, module, call.arguments)
            effect.add(*_distance(bare[:1], edited[:1]))
            if is_first:
                run = partial(self._run, call, module)
                self._compare_neutral(call, bare, lambda: run(with_new_caches(anew)))

    def _run(self, call: _Call, module: nn.Module, arguments: Any) -> list[Tensor]:
        """Repeat a call with other arguments: its random numbers again, and nothing left behind."""
        args, kwargs = arguments
        keep_nothing = torch.autograd.graph.saved_tensors_hooks(_let_go, _let_go)
        with _random_again(call.random), _state_again(self._model), keep_nothing:
            return [tensor.detach() for tensor in _tensors_in(module(*args, **kwargs))]

    def _compare_neutral(
        self, call: _Call, bare: list[Tensor], run: Callable[[], list[Tensor]]
    ) -> None:
        """Compare the run without us with explicit attention, and that with neutral edits."""
        sites, certificate = self._sites_in(call.path), self._editor.certificate
        effect = certificate.effects[call.path]
        with set_aside(self._model, call.earlier):
            watched = run() if "multi-head" in certificate.backend else bare
        effect.fast_path = _distance(bare, watched)[0] or None
        parts = [part_of(site) for site in sites if site_suffix(site) in _EXPLICIT]
        if parts and self._editor.largest_attention > _MAX_EXPLICIT_BYTES:
            certificate.not_checked.append(
                "that neutral edits change nothing: explicit attention for this takes "
                f"{self._editor.largest_attention:,} bytes"
            )
            return
        with explicit_attention(self._model, set(parts)):
            with set_aside(self._model, call.earlier):
                plain = run() if parts else watched
            keep = (*call.earlier, self._editor)
            with set_aside(self._model, keep), self._editor.repeated(is_neutral=True):
                same = run()
        effect.identity = _distance(plain, same)[0]
        if any(site_suffix(site) in ("scores", "weights") for site in sites):
            effect.kernel = _distance(watched, plain)[0]


def _let_go(_: Any) -> Any:
    """Keep nothing for gradients that are never computed."""


def _tensors_in(output: Any) -> list[Tensor]:
    """List the tensors of a module's output: one, or several in tuples, lists or mappings."""
    if isinstance(output, Tensor):
        return [output]
    if isinstance(output, Mapping):
        output = list(output.values())
    tensors: list[Tensor] = []
    if isinstance(output, tuple | list):
        for value in output:
            tensors += _tensors_in(value)
    return tensors


def _distance(one: Sequence[Tensor], other: Sequence[Tensor]) -> tuple[float, float, int]:
    """Return the largest and mean difference of some tensors, and their number of values.

    Equal values, infinite ones too, differ by 0.
    """
    largest, total, number = 0.0, 0.0, 0
    # an explicit attention gives its weights beside its output
    for a, b in zip(one, other, strict=False):
        wide = torch.promote_types(a.dtype, torch.float32)
        equal = (a == b) | (a.isnan() & b.isnan())
        differences = torch.where(equal, 0.0, (a.to(wide) - b.detach().to(wide)).abs())
        if differences.numel():
            largest = max(largest, float(differences.nan_to_num(float("inf"), float("inf")).max()))
            total, number = total + float(differences.sum()), number + differences.numel()
    return largest, total / max(number, 1), number


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
            for part in stored_tensors(tensor):
                values = part.detach().cpu().contiguous().reshape(-1)
                digest.update(values.view(torch.uint8).numpy().data)
    return digest.hexdigest()

"""How a certificate is found: what edits did to each value, and the model run again without them.

After each forward pass the module that was called runs once more, as it does without us, on the
same inputs, with the same random numbers and in the same gradient mode, with a key/value cache of
its own that no edit has touched. At the first pass it also runs with the edited attentions open,
and with the editor itself there, its edits giving back the values they are given; these two must
agree to the last bit. What torch computes on its fast path runs off it, too.
"""

import copy
import hashlib
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from attnlab.edits.certificate import Certificate, Change, Effect, Rows
from attnlab.edits.coverage import Coverage
from attnlab.edits.editor import Editor, Numbers, Watcher
from attnlab.edits.where import own_name, part_of
from attnlab.parts.attend import explicit_attention
from attnlab.parts.cache import Cache
from attnlab.pretrained.ownership import ModuleHook, do_nothing
from attnlab.sites import SitedModule, entrances, installed, is_going_back, set_aside

__all__ = ["Checks"]

_OPENED = ("mask", "scores", "weights")
_MOST_BYTES = 2**31
"""Weights larger than this are not opened only to be checked."""


class Checks(Watcher):
    """Fills a certificate while edits are at work."""

    def __init__(self, model: nn.Module) -> None:
        self.certificate = Certificate(backend=_backends(model))
        self._model = model
        self._changes: dict[int, Change] = {}
        self._calls: list[
            tuple[str, Any]
        ] = []  # the entrances that are being passed, outermost first
        self._is_comparing = False
        self._left_out = 0  # passes that could not be compared
        self._untouched: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        """For each key/value cache what it would hold had the edits not been."""

    def applied(
        self, coverage: Coverage, site: str, before: Tensor, after: Tensor, chosen: Tensor | None
    ) -> None:
        """Count what one edit changed."""
        if _is_traced():
            return
        if id(coverage) not in self._changes:
            self._changes[id(coverage)] = Change(repr(coverage.edit), coverage.calls)
        change = self._changes[id(coverage)]
        after = after.detach().expand(before.shape)
        differs = _differs(before, after)
        meant = before.numel() if chosen is None else int(chosen.expand(before.shape).sum())
        change.values = (change.values or 0) + meant
        change.changed = (change.changed or 0) + int(differs.sum())
        change.largest = max(change.largest or 0.0, _largest(before, after))
        if own_name(site) == "weights" and bool((_is_off(after) & ~_is_off(before)).any()):
            rows = self.certificate.rows.setdefault(site, Rows())
            rows.because += [] if change.edit in rows.because else [change.edit]
        outside = 0 if chosen is None else int((differs & ~chosen).sum())
        if outside:
            self._wrong(f"{site}: {outside} values changed that {change.edit} did not mean")

    def left(
        self,
        site: str,
        before: Tensor,
        after: Tensor,
        asked: Sequence[tuple[Numbers, Numbers]],
        visible: Tensor | None,
    ) -> None:
        """Check that no other rows and heads changed, and how weights sum up."""
        if _is_traced():
            return
        axes = 2 if after.dim() == 4 else 1  # rows and heads, or rows alone
        meant = torch.zeros(after.shape[:axes], dtype=torch.bool)
        for rows, heads in asked:
            for row in range(after.shape[0]) if rows is None or after.shape[0] == 1 else rows:
                everywhere = axes == 1 or heads is None or after.shape[1] == 1
                meant[row, ... if everywhere else heads] = True
        off = (
            (_differs(before, after.detach()).flatten(axes).any(-1).cpu() & ~meant)
            .nonzero()
            .tolist()
        )
        for row, *head in off[:3]:
            what = f"head {head[0]} of row {row}" if head else f"row {row}"
            self._wrong(f"{site}: {what} changed, and no edit meant it")
        if own_name(site) == "weights":
            self.sums(site, after, visible)

    def sums(self, site: str, weights: Tensor, visible: Tensor | None) -> None:
        """Count the rows of weights that do not sum to one."""
        rows = self.certificate.rows.setdefault(site, Rows())
        sums = weights.detach().sum(-1)
        alive = (weights.detach() != 0).any(-1) if visible is None else visible.any(-1)
        off = alive & _is_off(weights)
        rows.rows += int(alive.sum())
        rows.dead += int((~alive).sum())
        if bool(off.any()):
            least, most = (float(each) for each in sums[off].aminmax())
            rows.least, rows.most = (
                min(rows.least, least),
                max(rows.most, most) if rows.off else most,
            )
            rows.off += int(off.sum())
            rows.first = rows.first or tuple(off.nonzero()[0].tolist())

    def concluded(
        self, coverages: Sequence[Coverage], *, is_checked: bool, is_due: bool = False
    ) -> None:
        """Write down what became of each edit; is_due: `backward()` would compute some again."""
        self.certificate.edits = [
            self._changes.get(id(each), Change(repr(each.edit), each.calls)) for each in coverages
        ]
        self.certificate.not_checked += [
            f"whether {name!r} stands where {each.edit!r} passed it by: of some positions, as "
            "those that a cache held when the edit began, it is unknown what was read"
            for each in coverages
            for name in sorted(each.unknown)
        ]
        if is_due:
            self.certificate.not_checked.append(
                "gradients: activation checkpointing computes edited blocks again in backward(), "
                "which is refused from now on"
            )
        if not is_checked:
            self.certificate.not_checked.append("all but that the edits landed; say certify=True")
        elif not self.certificate.effects and any(each.calls for each in coverages):
            self.certificate.not_checked.append(
                "what the edits did to the output: no forward pass came by that began without a "
                "past, was not compiled, and ended"
            )
        elif self._left_out:
            self.certificate.not_checked.append(
                f"what the edits did to the output of {self._left_out} more forward passes: they "
                "were compiled, or went on from keys and values that were there before, or whose "
                "rows were put in another order"
            )

    @contextmanager
    def watching(self, editor: Editor) -> Iterator[None]:
        """Run every forward pass of the model once more without the edits, and compare."""
        before = _hash(self._model)
        with ExitStack() as stack:
            for path, module in entrances(self._model):
                for handle in self._hooks(path, module, editor):
                    stack.callback(handle.remove)
            try:
                yield
            finally:
                self.certificate.parameters = (before, _hash(self._model))

    def _hooks(self, path: str, module: nn.Module, editor: Editor) -> list[Any]:
        """Note how the module is called, and what came out, for the outermost of the entrances."""
        sites = [site for site in editor.at if not path or site.startswith(f"{path}.")]

        def before(called: nn.Module, args: Any, kwargs: Any) -> None:
            # A copy takes the hooks along; and what backward() computes again is no pass of its
            # own.
            if self._is_comparing or called is not module or is_going_back():
                return
            self._forget(path)  # of a call that was interrupted no end is told
            state = None
            if sites and not self._calls:
                editor.passes.is_reordered = False
                given = None if _is_traced() else self._without_edits((args, kwargs))
                state = None if given is None else (*given, _random_state(module))
                self._left_out += state is None
            self._calls.append((path, state))

        def after(called: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            if self._is_comparing or called is not module:
                return
            state = self._forget(path)
            if state is not None and output is not None:  # None comes from a pass that broke off
                if editor.passes.is_reordered:  # the other cache's rows still stand as they did
                    self._untouched.clear()
                    self._left_out += 1
                    return
                self._is_comparing = True  # the runs to come are not watched
                try:
                    self._compare(path, module, editor, sites, state, output)
                finally:
                    self._is_comparing = False

        return [
            module.register_forward_pre_hook(ModuleHook(before, do_nothing), with_kwargs=True),
            module.register_forward_hook(
                ModuleHook(after, do_nothing), with_kwargs=True, always_call=True
            ),
        ]

    def _forget(self, path: str) -> Any:
        """Drop the noted call of a module and the calls inside it, and return what was noted."""
        paths = [each for each, _ in self._calls]
        if path not in paths:
            return None
        state = self._calls[paths.index(path)][1]
        del self._calls[paths.index(path) :]
        return state

    def _compare(
        self,
        path: str,
        module: nn.Module,
        editor: Editor,
        sites: Sequence[str],
        state: Any,
        output: Any,
    ) -> None:
        """Run a module again without the edits, and write down how far what came out is from
        that."""
        args, kwargs, random = state
        is_first = path not in self.certificate.effects
        # the first run fills what is in the others
        anew = _with_new_cache((args, kwargs)) if is_first else ((), {})

        def run(args: Any, kwargs: Any) -> list[Tensor]:
            with _random_again(random), torch.autograd.graph.saved_tensors_hooks(_let_go, _let_go):
                return [each.detach() for each in _tensors(module(*args, **kwargs))]

        parts = sorted({part_of(site) for site in sites if own_name(site) in _OPENED})
        too_large = bool(parts) and editor.largest_attention > _MOST_BYTES
        effect = self.certificate.effects.setdefault(path, Effect())
        with set_aside(self._model):
            with _unhooked(self._model):
                bare = run(args, kwargs)
            effect.add(*_distance(bare[:1], _tensors(output)[:1]))
            if not is_first:
                return
            watched = (
                run(*_with_new_cache(anew)) if "multi-head" in self.certificate.backend else bare
            )
            effect.fast_path = _distance(bare, watched)[0] or None
            if too_large:
                self.certificate.not_checked.append(
                    "that edits which change nothing change nothing: opening the attention for "
                    f"it takes {editor.largest_attention:,} bytes"
                )
            else:
                with _open(self._model, parts):
                    plain = run(*_with_new_cache(anew)) if parts else watched
                    with installed(self._model, editor.unchanging(path)):
                        same = run(*anew)
                effect.identity = _distance(plain, same)[0]
                is_opened = any(own_name(site) in ("scores", "weights") for site in sites)
                effect.kernel = _distance(watched, plain)[0] if is_opened else None

    def _without_edits(self, given: Any) -> Any:
        """The same arguments with, for each cache, one that no edit has touched; None where there
        is none."""
        is_known = True

        def other(cache: Any) -> Any:
            nonlocal is_known
            length = _length(cache)
            if length is None:
                return cache
            if length == 0:
                self._untouched[cache] = copy.deepcopy(cache)
            own = self._untouched.get(cache)
            if isinstance(own, Cache) and own.lengths == cache.lengths:
                # which a model may do after the part that was run again
                own.advance(length - own.length)
            is_known = is_known and _length(own) == length
            return own

        found = _mapped(given, other)
        return found if is_known else None

    def _wrong(self, what: str) -> None:
        if what not in self.certificate.off_target:
            self.certificate.off_target.append(what)


@contextmanager
def _unhooked(model: nn.Module) -> Iterator[None]:
    """Let a model run as it does when no hook of ours is in it."""
    with ExitStack() as stack:
        for part in model.modules():
            if isinstance(part, SitedModule):
                stack.enter_context(part.unhooked())
        yield


def _let_go(_: Any) -> Any:
    """Keep nothing for gradients that are never asked for."""


@contextmanager
def _open(model: nn.Module, parts: Sequence[str]) -> Iterator[None]:
    """Leave the fused kernel alone in some parts."""
    with ExitStack() as stack:
        for path in parts:
            part, opened = model.get_submodule(path), stack.enter_context(ExitStack())

            def begin(_: Any, __: Any, opened: ExitStack = opened) -> None:
                opened.enter_context(explicit_attention())

            def end(_: Any, __: Any, ___: Any, opened: ExitStack = opened) -> None:
                opened.close()

            stack.callback(part.register_forward_pre_hook(begin).remove)
            stack.callback(part.register_forward_hook(end).remove)
        yield


def _is_off(weights: Tensor) -> Tensor:
    """Say which rows do not sum to one, within rounding; NaN does not."""
    sums = weights.detach().sum(-1)
    return ~((sums - 1.0).abs() <= (1e-9 if sums.dtype == torch.float64 else 1e-4))


def _differs(before: Tensor, after: Tensor) -> Tensor:
    differs = before.detach() != after
    return differs & ~(before.isnan() & after.isnan()) if before.is_floating_point() else differs


def _largest(before: Tensor, after: Tensor) -> float:
    if not before.is_floating_point() or not before.numel():
        return 0.0
    apart = (after - before.detach()).abs()
    return float(torch.where(apart.isfinite(), apart, 0.0).max())


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
            is_unknown = bool(apart.isnan().any())
            largest = max(largest, float("inf") if is_unknown else float(apart.max()))
            total, number = total + float(apart.sum()), number + apart.numel()
    return largest, total / max(number, 1), number


def _tensors(output: Any) -> list[Tensor]:
    if isinstance(output, Tensor):
        return [output]
    if isinstance(output, dict):
        output = list(output.values())
    if not isinstance(output, tuple | list):
        return []
    return [tensor for each in output for tensor in _tensors(each)]


def _with_new_cache(given: Any) -> Any:
    """The same arguments with another empty cache for each empty cache."""
    return _mapped(given, lambda each: copy.deepcopy(each) if _length(each) == 0 else each)


def _length(given: Any) -> int | None:
    """How much a cache holds, ours or of transformers; None for what is no cache."""
    if isinstance(given, Cache):
        return given.length
    return int(given.get_seq_length()) if callable(getattr(given, "get_seq_length", None)) else None


def _backends(model: nn.Module) -> str:
    """How attention reaches the hook points of a model."""
    return (
        " and ".join(
            dict.fromkeys(str(each.backend) for each in model.modules() if hasattr(each, "backend"))
        )
        or "native"
    )


def _mapped(given: Any, function: Callable[[Any], Any]) -> Any:
    if type(given) is dict:
        return {name: _mapped(each, function) for name, each in given.items()}
    if type(given) in (tuple, list):
        return type(given)(_mapped(each, function) for each in given)
    return function(given)


def _devices(module: nn.Module) -> list[int]:
    found = {each.device for each in module.parameters() if each.device.type == "cuda"}
    return sorted(device.index or 0 for device in found)


def _random_state(module: nn.Module) -> Any:
    return torch.get_rng_state(), {
        index: torch.cuda.get_rng_state(index) for index in _devices(module)
    }


@contextmanager
def _random_again(state: Any) -> Iterator[None]:
    """Draw the numbers that were drawn then, and go on afterwards as if nothing had been drawn."""
    own, others = state
    with torch.random.fork_rng(list(others)):
        torch.set_rng_state(own)
        for index, other in others.items():
            torch.cuda.set_rng_state(other, index)
        yield


def _is_traced() -> bool:
    """Are the numbers out of reach now, in a transform of torch.func or a compiled graph?"""
    return torch._C._are_functorch_transforms_active() or torch.compiler.is_compiling()


def _hash(model: nn.Module) -> str:
    """Return the SHA-256 of all parameters and buffers, with their names."""
    found = hashlib.sha256()
    for name, tensor in model.state_dict(keep_vars=True).items():
        if isinstance(tensor, Tensor) and not tensor.is_meta:
            found.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
            found.update(
                tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data
            )
    return found.hexdigest()

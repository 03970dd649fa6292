"""The registry backend: Hugging Face's models look their attention function up in a registry, and
find ours while a hook is installed.

The entry in use ("sdpa", "eager" …) is replaced, not the model's config: masks, checks and all else
that reads the config stay as they are. Modules without a hook, also of other models and in other
threads, are passed on to the original entry; removing the last hook restores it.

`speed` chooses kernels: within `with attnlab.speed(model):` the model's products take the other of
torch's two CPU paths, and the same entry our own attention; outputs there are equal to the bit only
among themselves. The faster path depends on the processor (`attnlab.parts.linear`); it is never
turned on by itself.
"""

import copy
import sys
import threading
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from attnlab.display import displayed
from attnlab.errors import CouldNotRun, WrongUsage, type_words
from attnlab.parts.attend import uses_native_kernel
from attnlab.parts.fused import AttentionPath, native_output, use_attention_path
from attnlab.parts.heads import share_heads
from attnlab.parts.linear import MatrixPath, linear, matrix_path_probe, use_matrix_path
from attnlab.parts.masks import Mask, as_tensor
from attnlab.pretrained.attention_call import (
    AttentionPoint,
    ForeignAttention,
    blocking,
    foreign_causal,
)
from attnlab.pretrained.backends.functions import WrittenOut

Finder = Callable[[nn.Module], AttentionPoint | None]
"""Returns the hook point of a module's present attention."""

_EAGER = "eager_attention_forward"
_lock = threading.Lock()
_replaced: dict[str, int] = {}
_overrides: dict[str, Callable[..., Any]] = {}
"""Entries that others had put in the place of the registry's own."""
_watches = threading.local()
_finders: "weakref.WeakKeyDictionary[nn.Module, Finder]" = weakref.WeakKeyDictionary()
_native: "weakref.WeakKeyDictionary[nn.Module, int]" = weakref.WeakKeyDictionary()


@contextmanager
def attentions_hooked(modules: Mapping[nn.Module, Finder]) -> Iterator[None]:
    """Bring the attention of these modules to hook points within the `with`.

    Raises:
        CouldNotRun: they use a function whose masks are not tensors.
    """
    names = set(map(implementation, modules))
    for name in names:
        if name.startswith(("flash", "flex")):
            raise CouldNotRun(
                f"this model uses {name}, which takes no mask tensor; "
                "call set_attn_implementation('sdpa') on it first."
            )
    with _entries_replaced(names):
        with _lock:
            _finders.update(modules)
        try:
            yield
        finally:
            with _lock:
                for module in modules:
                    _finders.pop(module, None)


_in_use: list["Speed"] = []


@displayed
class Speed(ExitStack):
    """A choice of `speed`: it holds until `end`, or until the end of a `with`."""

    def end(self) -> None:
        """Go back to what was in use before; end several choices in the reverse order."""
        self.close()


def speed(
    model: nn.Module | None = None,
    *,
    matrix: MatrixPath | None = None,
    attention: AttentionPath | None = None,
) -> Speed:
    """Choose the kernels that compute on this processor, from now on or within a `with`.

    Results are the same but for rounding. A path that is given here wins over the environment's
    ATTNLAB_MATRIX_PATH and ATTNLAB_ATTENTION_PATH.

    Args:
        model: a foreign model whose large products and fused attention take the faster kernels, see
            `faster_products`.
        matrix: the path of large products: "onednn", "default" (torch's own), or "auto", the one
            that was faster when it was timed here.
        attention: the kernel of long attentions without weights: "native" (ours), "default"
            (torch's), or "auto".

    Returns:
        a `Speed`: as a context manager it restores the former choice at its end.

    Raises:
        WrongUsage: nothing was chosen, there is no such path, or `model` is not a torch module.
        CouldNotRun: there is no faster path for this model here.

    >>> with speed(matrix="default", attention="default"):
    ...     pass
    """
    if model is None and matrix is None and attention is None:
        raise WrongUsage("choose what to speed up: speed(model), speed(matrix=…, attention=…).")
    with Speed() as choices:
        if matrix is not None:
            choices.enter_context(use_matrix_path(matrix))
        if attention is not None:
            choices.enter_context(use_attention_path(attention))
        if model is not None:
            choices.enter_context(faster_products(model))
        held = choices.pop_all()
    _in_use.append(held)  # else a choice that is not kept would end at once
    held.callback(_in_use.remove, held)
    return held


@contextmanager
def faster_products(model: nn.Module) -> Iterator[None]:
    """Compute a model's large float32 products on a CPU by oneDNN, and its fused attention by our
    kernel where that is quicker, within the `with`.

    It applies to plain linear layers, and to those of transformers' GPT-2 with transposed weights,
    unless their `forward` was replaced; and to attention if every backend is the registry's and it
    depends on queries, keys, values, a mask and a scale alone (`attnlab.parts.fused` says when our
    kernel is taken). As with `use_matrix_path`, attnlab's own products in other threads take this
    path meanwhile.

    Raises:
        WrongUsage: `model` is not a torch module.
        CouldNotRun: this torch or this processor has no such path, or its results are wrong.
    """
    if not isinstance(model, nn.Module):
        raise WrongUsage(f"expected a model, a torch module; got {type_words(model)}.")
    probe = matrix_path_probe()
    if probe.ratio is None:
        raise CouldNotRun(
            f"there is no faster path for products here: {probe.reason}. "
            "Leave attnlab.speed(model) out."
        )
    with ExitStack() as stack:
        for module in model.modules():
            product = _product_of(module)
            if product is not None and "forward" not in vars(module):
                module.forward = partial(product, module)
                stack.callback(vars(module).pop, "forward", None)
        stack.enter_context(use_matrix_path("onednn"))
        modules = _attentions(model)
        if modules:
            stack.enter_context(_entries_replaced({"sdpa"}))
        with _lock:
            _native.update((module, _native.get(module, 0) + 1) for module in modules)
        try:
            yield
        finally:
            with _lock:
                for module in modules:
                    _native[module] -= 1


def _attentions(model: Any) -> list[nn.Module]:
    """List the modules whose attention depends on its arguments alone; none if another backend is
    in use."""
    if not hasattr(model, "foreign"):
        return []
    points = dict(model.attention_points())
    if any(point.backend != "registry" for point in points.values()):
        return []
    places = {
        structure.place.path
        for path, structure in model.structure.attentions
        if points[path].is_lazy
    }
    return list(map(model.foreign.get_submodule, places))


def _product_of(module: nn.Module) -> Callable[[nn.Module, Tensor], Tensor] | None:
    """Return the function that computes a linear layer's product; None for another layer."""
    if type(module) is nn.Linear:
        return lambda layer, input: linear(input, layer.weight, layer.bias)  # type: ignore[arg-type]
    turned = getattr(sys.modules.get("transformers.pytorch_utils"), "Conv1D", None)
    if turned is not None and type(module) is turned:
        return lambda layer, x: linear(x, layer.weight.t(), layer.bias)  # type: ignore[arg-type,operator]
    return None


@contextmanager
def _entries_replaced(names: Collection[str]) -> Iterator[None]:
    """Replace some attention functions in the registry; the last user restores them."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    with _lock:
        for name in names:
            if name not in _replaced and name in ALL_ATTENTION_FUNCTIONS._local_mapping:
                _overrides[name] = ALL_ATTENTION_FUNCTIONS._local_mapping[name]
            _replaced[name] = _replaced.get(name, 0) + 1
            ALL_ATTENTION_FUNCTIONS[name] = partial(_attention, name)
    try:
        yield
    finally:
        with _lock:
            for name in names:
                _replaced[name] -= 1
                if not _replaced[name]:
                    del _replaced[name], ALL_ATTENTION_FUNCTIONS[name]
                    if name in _overrides:
                        ALL_ATTENTION_FUNCTIONS[name] = _overrides.pop(name)


def is_replaced() -> bool:
    """Is any entry of the registry replaced now?"""
    return bool(_replaced) or bool(_finders)


def implementation(module: nn.Module) -> str:
    """Return the name of the attention function that a module uses."""
    name = getattr(getattr(module, "config", None), "_attn_implementation", None)
    return "eager" if name is None else str(name).removeprefix("paged|")


@dataclass(frozen=True)
class _Call:
    """One call of the attention function of a name; all but "eager" make a missing mask causal
    where the module says so."""

    name: str
    module: Any
    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | None
    options: dict[str, Any]

    @property
    def scale(self) -> float:
        scale = self.options.get("scaling")
        if scale is None:
            return float(self.query.shape[-1] ** -0.5)
        return float(scale)

    @property
    def registered(self) -> Callable[..., Any] | None:
        """The function that others registered under this name; None for transformers' own."""
        return registered_function(self.name)

    @property
    def is_native(self) -> bool:
        """May our kernel compute it?"""
        is_fused = self.name == "sdpa" and self.registered is None
        return is_fused and _native.get(self.module, 0) > 0 and not self.options.get("dropout")

    def run(self) -> tuple[Tensor, Tensor | None]:
        """Compute it as without us, but for our kernel where that applies and is quicker."""
        query, key, value = self.query, self.key, self.value
        if self.is_native:
            ours, scale, output = self.own_mask(), self.scale, None
            keys, values = share_heads(key, query.shape[1]), share_heads(value, query.shape[1])
            if uses_native_kernel(query, keys, values, ours, scale=scale):
                output = native_output(query, keys, values, ours, scale)
            if output is not None:
                return output.transpose(1, 2), None
        function = _function(self.name, self.module)
        return function(self.module, query, key, value, self.mask, **self.options)

    def own_mask(self) -> Mask:
        """Return its mask, joined with `is_causal` and position biases, as `attend` takes it."""
        bias: Tensor | None = self.options.get("position_bias")
        mask: Mask = self.mask
        if self.mask is None:
            is_causal = self.options.get("is_causal")
            if is_causal is None:
                is_causal = getattr(self.module, "is_causal", True)
            if self.name == "eager" or not is_causal or self.query.shape[-2] == 1:
                return bias
            mask = foreign_causal(self.query, self.key)
        elif self.mask.dtype != torch.bool:
            mask = blocking(self.mask)
        if bias is None:
            return mask
        added: Tensor = self._as_tensor(mask)
        if added.dtype == torch.bool:
            return torch.where(added, bias, float("-inf"))
        return added + bias

    def _as_tensor(self, mask: Mask) -> Any:
        return as_tensor(mask, self.query.shape[-2], self.key.shape[-2], self.query.device)

    @property
    def is_explicit(self) -> bool:
        """Is it a function of transformers that computes its softmax explicitly?"""
        return self.name == "eager" and self.registered is None

    def as_explicit(self) -> "_Call":
        """Return the call of the explicit function, whose mask is added to the scores; a function
        that others registered stays, since no other one computes the same."""
        if self.registered is not None:
            return self
        mask, dtype = self.mask, self.query.dtype
        if self.name != "eager":
            if mask is None:
                without = {**self.options, "position_bias": None}
                mask = self._as_tensor(replace(self, options=without).own_mask())
            if mask is not None and mask.dtype == torch.bool:
                least = mask.new_tensor(torch.finfo(dtype).min, dtype=dtype)
                mask = torch.where(mask, torch.zeros_like(least), least)
        return replace(self, name="eager", mask=mask)

    def edited(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> "_Call":
        """Return the call with edited tensors, and an edited mask that is not None."""
        module, call_mask, options = self.module, self.mask, self.options
        if (key.shape[1], value.shape[1]) != (self.key.shape[1], self.value.shape[1]):
            # An edit gave heads that shared a key or a value their own.
            module = copy.copy(module)
            module.num_key_value_groups = 1
            key, value = share_heads(key, query.shape[1]), share_heads(value, query.shape[1])
        if mask is not None:  # it holds causality and position biases already
            call_mask = self._edited_mask(mask)
            options = {**options, "is_causal": False}
            options.pop("position_bias", None)
        return _Call(self.name, module, query, key, value, call_mask, options)

    def _edited_mask(self, mask: Tensor) -> Tensor:
        """Return an edited mask as the function takes it: "eager" adds it to the scores.

        Padding that had no key, and still has none, keeps the foreign mask.
        """
        dtype, call_mask = self.query.dtype, self.mask
        if mask.dtype != torch.bool:
            mask = mask.to(dtype)
        elif self.name == "eager":
            mask = torch.zeros_like(mask, dtype=dtype).masked_fill(~mask, float("-inf"))
        if call_mask is None or call_mask.dtype != mask.dtype:
            return mask
        return torch.where(_has_no_key(call_mask) & _has_no_key(mask), call_mask, mask)


def _has_no_key(mask: Tensor) -> Tensor:
    """Return which queries may attend to no key, (..., query, 1)."""
    if mask.dtype == torch.bool:
        return ~mask.any(-1, keepdim=True)
    return (mask <= torch.finfo(mask.dtype).min / 2).all(-1, keepdim=True)


def _attention(
    name: str,
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None = None,
    **options: Any,
) -> tuple[Tensor, Tensor | None]:
    """Replace the attention function of this name; many models pass the mask by its name."""
    call = _Call(name, module, query, key, value, attention_mask, options)
    finder, watch = _finders.get(module), getattr(_watches, "watch", None)
    point = finder(module) if finder is not None else None
    if point is None:
        if watch is None:
            return call.run()
        result: tuple[Tensor, Tensor | None] = watch(module, query, key, call.run)
        return result
    is_other = call.registered is not point.function
    if is_other and point.wants("mask", "scores", "weights"):
        raise CouldNotRun(
            f"the attention function registered as {name!r} has changed since the model was "
            "loaded; load the model again."
        )
    weights: list[Tensor | None] = [None]

    def run(call: _Call, *edited: Any) -> Tensor:
        output, weights[0] = call.edited(*edited).run()
        return output.transpose(1, 2)

    def explicit(*edited: Any) -> Tensor:
        with nullcontext() if call.registered is None else WrittenOut():
            return run(call.as_explicit(), *edited)

    mask: Mask = None
    # How a registered function takes its mask is known only by its weights.
    if point.is_hooked and (point.is_lazy or point.function is None):
        mask = call.own_mask()
    attention = ForeignAttention(
        query,
        key,
        value,
        mask,
        call.scale,
        fused=explicit if call.is_explicit else partial(run, call),
        explicit=explicit,
        is_native=call.is_native,
    )
    heads: Tensor = point(attention)
    return heads.transpose(1, 2).contiguous(), weights[0]


def registered_function(name: str) -> Callable[..., Any] | None:
    """Return the attention function of this name if others than transformers registered it, or put
    it in the place of one of transformers' own; else None."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS, AttentionInterface

    if name in _replaced:
        function = _overrides.get(name)
    else:
        function = ALL_ATTENTION_FUNCTIONS._local_mapping.get(name)
    if function is None:
        function = AttentionInterface._global_mapping.get(name)
    written: Any = function
    while isinstance(written, partial):
        written = written.func
    package = str(getattr(written, "__module__", "transformers")).partition(".")[0]
    return None if function is None or package == "transformers" else function


def _function(name: str, module: nn.Module) -> Callable[..., tuple[Tensor, Tensor | None]]:
    """Return the function that a module would find under this name without us."""
    from transformers.modeling_utils import AttentionInterface

    function: Callable[..., Any]
    if name in _overrides:
        return _overrides[name]
    if name != "eager":
        function = AttentionInterface._global_mapping[name]
        return function
    for parent in type(module).__mro__:
        source: Any = sys.modules.get(parent.__module__)
        names = [name for name in vars(source or object) if name.endswith(_EAGER)]
        if len(names) > 1 and _EAGER in names:
            names = [_EAGER]
        if len(names) == 1:
            function = getattr(source, names[0])
            return function
    raise CouldNotRun(f"{type(module).__name__} defines no {_EAGER}, which could show its weights.")


@contextmanager
def calls_watched(
    watch: Callable[[nn.Module, Tensor, Tensor, Callable[[], Any]], Any],
) -> Iterator[None]:
    """Pass this thread's calls of attention functions through `watch(module, query, key, run)`.

    Within the `with`, and for modules without a hook.
    """
    from transformers.modeling_utils import AttentionInterface

    before = getattr(_watches, "watch", None)
    with _entries_replaced({"eager", *AttentionInterface._global_mapping}):
        _watches.watch = watch
        try:
            yield
        finally:
            _watches.watch = before

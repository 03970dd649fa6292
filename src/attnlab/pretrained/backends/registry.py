"""The registry backend: Hugging Face's models look their attention function up in a registry, and
find ours while a hook is installed.

The entry in use ("sdpa", "eager" …) is replaced, not the model's config: masks, checks and all else
that reads the config stay as they are. Modules without a hook, also of other models and in other
threads, are passed on to the original entry; removing the last hook restores it.

A beam search changes the order of the rows of a foreign cache between two passes, by the cache's
`reorder_cache`. While a hook is installed these calls are recorded, for caches of all classes.
"""

import sys
import threading
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import partial, wraps
from typing import Any

import torch
from torch import Tensor, nn

from attnlab.errors import CouldNotRun
from attnlab.parts.attend import goes_native
from attnlab.parts.fused import native_output
from attnlab.parts.heads import share_heads
from attnlab.parts.masks import Mask
from attnlab.pretrained.attention_call import AttentionPoint, ForeignAttention, MaskEdit

Finder = Callable[[nn.Module], AttentionPoint | None]
"""Returns the hook point of a module's present attention."""

Options = Mapping[str, Any]
"""The further arguments of an attention function."""

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
    names = {implementation(module) for module in modules}
    for name in sorted(names):
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


@contextmanager
def native_attention(modules: Collection[nn.Module]) -> Iterator[None]:
    """Compute the fused attention of these modules by our own kernel where that is quicker.

    It must depend on queries, keys, values, a mask and a scale alone.
    """
    with _entries_replaced({"sdpa"} if modules else ()):
        with _lock:
            _native.update((module, _native.get(module, 0) + 1) for module in modules)
        try:
            yield
        finally:
            with _lock:
                for module in modules:
                    _native[module] -= 1


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


def own_mask(
    name: str,
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    mask: Tensor | None,
    options: Options,
) -> Mask:
    """Return a foreign mask, joined with `is_causal` and position biases, as `attend` takes it.

    name: of the attention function; all but "eager" make a missing mask causal where the module
    says so.
    """
    num_queries, num_keys = query.shape[-2], key.shape[-2]
    found: Tensor | None = mask
    if mask is None:
        is_causal = options.get("is_causal")
        is_causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
        if name != "eager" and is_causal and num_queries > 1:
            if num_queries == num_keys and options.get("position_bias") is None:
                return "causal"
            found = torch.ones(num_queries, num_keys, dtype=torch.bool, device=query.device).tril()
    elif mask.dtype != torch.bool:
        found = mask.masked_fill(mask <= torch.finfo(mask.dtype).min / 2, float("-inf"))
    bias: Tensor | None = options.get("position_bias")
    if bias is None or found is None:
        return found if bias is None else bias
    return torch.where(found, bias, float("-inf")) if found.dtype == torch.bool else found + bias


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
    mask, finder, watch = attention_mask, _finders.get(module), getattr(_watches, "watch", None)
    point = None if finder is None else finder(module)
    if point is None:
        as_asked = partial(_function(name, module), module, query, key, value, mask, **options)
        found: tuple[Tensor, Tensor | None] = (
            as_asked() if watch is None else watch(module, query, key, as_asked)
        )
        return found
    weights: list[Tensor] = []
    # Numbers, not tensors: `run` is held by `asked`, and a cycle would keep every layer's tensors.
    num_kv_heads = key.shape[1], value.shape[1]

    def run(
        function_name: str, query: Tensor, key: Tensor, value: Tensor, changed: MaskEdit
    ) -> Tensor:
        caller: Any = module
        given, other = _mask_for(function_name, name, module, query, key, mask, options), options
        if changed.is_changed:
            given = _changed_for(function_name, changed.mask, query, given)
            other = _without_mask(options)
        if (key.shape[1], value.shape[1]) != num_kv_heads:
            # An edit gave heads that shared a key or a value their own.
            caller = _Ungrouped(module)
            key, value = share_heads(key, query.shape[1]), share_heads(value, query.shape[1])
        output, made = _function(function_name, module)(caller, query, key, value, given, **other)
        weights[:] = [] if made is None else [made]
        return output.transpose(1, 2)

    asked = ForeignAttention(
        query,
        key,
        value,
        own_mask(name, module, query, key, mask, options) if point.is_hooked else None,
        _scale(query, options),
        partial(run, name),
        partial(run, "eager"),
        is_native(name, module) and not options.get("dropout"),
    )
    heads: Tensor = point(asked)
    return heads.transpose(1, 2).contiguous(), weights[0] if weights else None


def _function(name: str, module: nn.Module) -> Callable[..., tuple[Tensor, Tensor | None]]:
    """Return the function that a module would find under this name without us."""
    from transformers.modeling_utils import AttentionInterface

    if name != "eager" or name in _overrides:
        found: Callable[..., Any] = _overrides.get(name) or AttentionInterface._global_mapping[name]
        return partial(_native_or, found) if is_native(name, module) else found
    for parent in type(module).__mro__:
        source: Any = sys.modules.get(parent.__module__)
        names = [each for each in vars(source or object) if each.endswith(_EAGER)]
        if len(names) == 1 or _EAGER in names:
            function: Callable[..., Any] = getattr(source, _EAGER if len(names) > 1 else names[0])
            return function
    raise CouldNotRun(
        f"the module of {type(module).__name__} defines no {_EAGER}; scores and weights cannot "
        "be shown."
    )


def is_native(name: str, module: nn.Module) -> bool:
    """Is a module's attention function of this name computed by our kernel?"""
    return name == "sdpa" and name not in _overrides and _native.get(module, 0) > 0


def _native_or(
    function: Callable[..., Any],
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Any,
    **options: Any,
) -> tuple[Tensor, Tensor | None]:
    """Compute attention by our kernel where it applies and is quicker, else by `function`."""
    scale, found = _scale(query, options), None
    if not options.get("dropout"):
        ours = own_mask("sdpa", module, query, key, mask, options)
        keys, values = share_heads(key, query.shape[1]), share_heads(value, query.shape[1])
        if goes_native(query, keys, values, ours, scale=scale):
            found = native_output(query, keys, values, ours, scale)
    if found is None:
        return function(module, query, key, value, mask, **options)  # type: ignore[no-any-return]
    return found.transpose(1, 2), None


def _scale(query: Tensor, options: Options) -> float:
    scale = options.get("scaling")
    return float(query.shape[-1] ** -0.5) if scale is None else float(scale)


def _mask_for(
    function: str,
    name: str,
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    mask: Tensor | None,
    options: Any,
) -> Tensor | None:
    """Return the foreign model's own mask as the function of this name takes it."""
    if function == name or function != "eager":
        return mask
    if mask is None:
        own = own_mask(name, module, query, key, None, {**options, "position_bias": None})
        if own is None:
            return None
        sizes = query.shape[-2], key.shape[-2]
        mask = torch.ones(*sizes, dtype=torch.bool, device=query.device).tril()
    if mask.dtype != torch.bool:
        return mask
    least = torch.tensor(torch.finfo(query.dtype).min, dtype=query.dtype, device=query.device)
    return torch.where(mask, torch.zeros_like(least), least)


def _changed_for(function: str, mask: Mask, query: Tensor, own: Tensor | None) -> Tensor | None:
    """Return a mask of ours as the function of this name takes it: "eager" adds it to the scores.

    own: the foreign model's. Padding that had no key, and still has none, keeps the foreign mask.
    """
    if not isinstance(mask, Tensor):
        return None
    if function == "eager" and mask.dtype == torch.bool:
        zeros = torch.zeros(mask.shape, dtype=query.dtype, device=query.device)
        made = zeros.masked_fill(~mask, float("-inf"))
    else:
        made = mask if mask.dtype == torch.bool else mask.to(query.dtype)
    if own is None or own.dtype != made.dtype:
        return made
    return torch.where(_has_no_key(own) & _has_no_key(made), own, made)


def _has_no_key(mask: Tensor) -> Tensor:
    """Return which queries may attend to no key, (..., query, 1)."""
    if mask.dtype == torch.bool:
        return ~mask.any(-1, keepdim=True)
    return (mask <= torch.finfo(mask.dtype).min / 2).all(-1, keepdim=True)


def _without_mask(options: Options) -> dict[str, Any]:
    """Return options without what the edited mask already holds: causality and position biases."""
    others = {name: each for name, each in options.items() if name != "position_bias"}
    return {**others, "is_causal": False}


class _Ungrouped:
    """A module whose query heads each have their own key and value."""

    num_key_value_groups = 1

    def __init__(self, module: nn.Module) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


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


_NAMES = ("reorder_cache", "batch_select_indices")
_cache_lock = threading.RLock()
_orders: "weakref.WeakKeyDictionary[Any, Tensor]" = weakref.WeakKeyDictionary()
_originals: list[tuple[type, str, Callable[..., Any]]] = []
_inside = threading.local()
_users: list[None] = []  # one for each open `reorders_recorded`


@contextmanager
def reorders_recorded() -> Iterator[None]:
    """Record within the `with` how caches are reordered."""
    with _cache_lock:
        _users.append(None)
        if len(_users) == 1:
            _wrap_caches()
    try:
        yield
    finally:
        with _cache_lock:
            _users.pop()
            if not _users:
                _unwrap_caches()


def order_of(cache: object) -> Tensor | None:
    """Return the former rows of a cache's present rows, (batch,), since the last call; None if
    unchanged."""
    with _cache_lock:
        return _orders.pop(cache, None)


def is_recording_reorders() -> bool:
    """Are methods of transformers' caches wrapped now?"""
    return bool(_originals)


def _wrap_caches() -> None:
    module = sys.modules.get("transformers.cache_utils")  # without it there is no such cache
    found = [] if module is None else [module.Cache]
    while found:
        kind = found.pop()
        found += kind.__subclasses__()
        for name in _NAMES:
            if name in vars(kind):
                _originals.append((kind, name, vars(kind)[name]))
                setattr(kind, name, _recording(vars(kind)[name]))


def _unwrap_caches() -> None:
    while _originals:
        kind, name, function = _originals.pop()
        setattr(kind, name, function)
    _orders.clear()


def _recording(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def recorded(cache: Any, rows: Tensor, *args: Any, **options: Any) -> Any:
        # A cache that calls another one, or its parent class, is recorded once.
        if getattr(_inside, "cache", None) is not None:
            return function(cache, rows, *args, **options)
        _inside.cache = cache
        try:
            found = function(cache, rows, *args, **options)
        finally:
            _inside.cache = None
        with _cache_lock:
            before, now = _orders.get(cache), rows.detach().cpu().to(torch.int64)
            _orders[cache] = now if before is None else before[now]
        return found

    return recorded

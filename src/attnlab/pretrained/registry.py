"""The registry seam: Hugging Face's models ask a table for their attention function, and find ours while one looks.

The entry that is in use ("sdpa", "eager" …) is covered, not the model's settings: masks, checks and everything that
goes by the setting's name stay as they are. Modules that nobody looks at, of other models and in other threads too, are
handed on to the entry that was covered; the last one to leave uncovers it.
"""

import sys
import threading
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from attnlab.errors import CouldNotRun
from attnlab.parts.attend import goes_native
from attnlab.parts.fused import native_output
from attnlab.parts.heads import share_heads
from attnlab.parts.masks import Mask
from attnlab.pretrained.doors import AttentionDoor
from attnlab.pretrained.passing import Changed, Foreign

__all__ = ["covered", "is_covered", "own_mask", "quickened"]

Finder = Callable[[nn.Module], AttentionDoor | None]
"""Says which door the present call of a module passes."""

_lock = threading.Lock()
_covers: dict[str, int] = {}
_put_there: dict[str, Callable[..., Any]] = {}  # by somebody else, in the place of an entry of the table's own
_watches = threading.local()
_finders: "weakref.WeakKeyDictionary[nn.Module, Finder]" = weakref.WeakKeyDictionary()
_quickened: "weakref.WeakKeyDictionary[nn.Module, int]" = weakref.WeakKeyDictionary()


@contextmanager
def covered(modules: Mapping[nn.Module, Finder]) -> Iterator[None]:
    """Bring the attention of these modules to doors, while the `with` lasts.

    Raises:
        CouldNotRun: they ask for a function whose masks are not written out.
    """
    names = {implementation(module) for module in modules}
    for name in sorted(names):
        if name.startswith(("flash", "flex")):
            raise CouldNotRun(
                f"this model asks for {name}, which does not say in a mask who may look at whom; call "
                "set_attn_implementation('sdpa') on it first."
            )
    with _table_covered(names):
        with _lock:
            _finders.update(modules)
        try:
            yield
        finally:
            with _lock:
                for module in modules:
                    _finders.pop(module, None)


@contextmanager
def quickened(modules: Collection[nn.Module]) -> Iterator[None]:
    """Compute the fused attention of these modules by our own kernel where that is quicker, while the `with` lasts.

    Theirs is to be told by queries, keys, values, a mask and a scale alone.
    """
    with _table_covered({"sdpa"} if modules else ()):
        with _lock:
            _quickened.update((module, _quickened.get(module, 0) + 1) for module in modules)
        try:
            yield
        finally:
            with _lock:
                for module in modules:
                    _quickened[module] -= 1


@contextmanager
def _table_covered(names: Collection[str]) -> Iterator[None]:
    """Take the place of some attention functions; the last to leave puts them back."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    with _lock:
        for name in names:
            if name not in _covers and name in ALL_ATTENTION_FUNCTIONS._local_mapping:
                _put_there[name] = ALL_ATTENTION_FUNCTIONS._local_mapping[name]
            _covers[name] = _covers.get(name, 0) + 1
            ALL_ATTENTION_FUNCTIONS[name] = partial(_attention, name)
    try:
        yield
    finally:
        with _lock:
            for name in names:
                _covers[name] -= 1
                if not _covers[name]:
                    del _covers[name], ALL_ATTENTION_FUNCTIONS[name]
                    if name in _put_there:
                        ALL_ATTENTION_FUNCTIONS[name] = _put_there.pop(name)


def is_covered() -> bool:
    """Say whether any entry of the table is covered now."""
    return bool(_covers) or bool(_finders)


def implementation(module: nn.Module) -> str:
    """Return the name of the attention function that a module asks for."""
    name = getattr(getattr(module, "config", None), "_attn_implementation", None)
    return "eager" if name is None else str(name).removeprefix("paged|")


def own_mask(
    name: str, module: nn.Module, query: Tensor, key: Tensor, mask: Tensor | None, options: Mapping[str, Any]
) -> Mask:
    """Write a foreign mask, with what else decides who may look at whom, as `attend` takes it.

    name: of the attention function; all but the open one make a missing mask causal where the module says so.
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
    """Take the place of the attention function of this name; many models give the mask by its name."""
    mask, finder, watch = attention_mask, _finders.get(module), getattr(_watches, "watch", None)
    door = None if finder is None else finder(module)
    if door is None:
        as_asked = partial(_function(name, module), module, query, key, value, mask, **options)
        found: tuple[Tensor, Tensor | None] = as_asked() if watch is None else watch(module, query, key, as_asked)
        return found
    weights: list[Tensor] = []
    # Numbers, not what they are of: a function that holds `asked`, which holds it, would keep every layer's tensors.
    num_kv_heads = key.shape[1], value.shape[1]

    def run(function_name: str, query: Tensor, key: Tensor, value: Tensor, changed: Changed) -> Tensor:
        asker: Any = module
        given, other = _mask_for(function_name, name, module, query, key, mask, options), options
        if changed.is_changed:
            given, other = _changed_for(function_name, changed.mask, query, given), _without_mask(options)
        if (key.shape[1], value.shape[1]) != num_kv_heads:
            # Heads that shared a key or a value were told apart at the door.
            asker = _Ungrouped(module)
            key, value = share_heads(key, query.shape[1]), share_heads(value, query.shape[1])
        output, made = _function(function_name, module)(asker, query, key, value, given, **other)
        weights[:] = [] if made is None else [made]
        return output.transpose(1, 2)

    asked = Foreign(
        query,
        key,
        value,
        own_mask(name, module, query, key, mask, options) if door.is_watched else None,
        _scale(query, options),
        partial(run, name),
        partial(run, "eager"),
        is_quick(name, module) and not options.get("dropout"),
    )
    heads: Tensor = door(asked)
    output = heads.transpose(1, 2)
    return output if output.is_contiguous() else output.contiguous(), weights[0] if weights else None


def _function(name: str, module: nn.Module) -> Callable[..., tuple[Tensor, Tensor | None]]:
    """Return the function that a module would have found under this name."""
    from transformers.modeling_utils import AttentionInterface

    if name != "eager" or name in _put_there:
        found: Callable[..., Any] = _put_there.get(name) or AttentionInterface._global_mapping[name]
        return partial(_quick, found) if is_quick(name, module) else found
    for parent in type(module).__mro__:
        written_in = sys.modules.get(parent.__module__)
        named = [each for each in vars(written_in or object) if each.endswith("eager_attention_forward")]
        if "eager_attention_forward" in named or len(named) == 1:
            return vars(written_in)["eager_attention_forward" if len(named) > 1 else named[0]]  # type: ignore[no-any-return]
    raise CouldNotRun(f"{type(module).__name__} has no open attention beside it; scores and weights cannot be seen.")


def is_quick(name: str, module: nn.Module) -> bool:
    """Say whether a module's attention function of this name gives way to our kernel."""
    return name == "sdpa" and name not in _put_there and _quickened.get(module, 0) > 0


def _quick(
    function: Callable[..., Any], module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Any, **options: Any
) -> tuple[Tensor, Tensor | None]:
    """Compute what `function` would by our kernel, where it can and is quicker."""
    scale, found = _scale(query, options), None
    if not options.get("dropout"):
        ours = own_mask("sdpa", module, query, key, mask, options)
        keys, values = share_heads(key, query.shape[1]), share_heads(value, query.shape[1])
        if goes_native(query, keys, values, ours, scale=scale):
            found = native_output(query, keys, values, ours, scale)
    if found is None:
        return function(module, query, key, value, mask, **options)  # type: ignore[no-any-return]
    return found.transpose(1, 2), None


def _scale(query: Tensor, options: Mapping[str, Any]) -> float:
    scale = options.get("scaling")
    return float(query.shape[-1] ** -0.5) if scale is None else float(scale)


def _mask_for(
    function: str, name: str, module: nn.Module, query: Tensor, key: Tensor, mask: Tensor | None, options: Any
) -> Tensor | None:
    """Return the foreign model's own mask, as the function of this name takes it."""
    if function == name or function != "eager":
        return mask
    if mask is None:
        own = own_mask(name, module, query, key, None, {**options, "position_bias": None})
        if own is None:
            return None
        mask = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool, device=query.device).tril()
    if mask.dtype != torch.bool:
        return mask
    least = torch.tensor(torch.finfo(query.dtype).min, dtype=query.dtype, device=query.device)
    return torch.where(mask, torch.zeros_like(least), least)


def _changed_for(function: str, mask: Mask, query: Tensor, own: Tensor | None) -> Tensor | None:
    """Return a mask of ours as the function of this name takes it: the open one adds it to the scores.

    own: the foreign model's. Padding that could look at nothing, and still can, is left to do what it does there.
    """
    if not isinstance(mask, Tensor):
        return None
    if function == "eager" and mask.dtype == torch.bool:
        made = torch.zeros(mask.shape, dtype=query.dtype, device=query.device).masked_fill(~mask, float("-inf"))
    else:
        made = mask if mask.dtype == torch.bool else mask.to(query.dtype)
    if own is None or own.dtype != made.dtype:
        return made
    return torch.where(_sees_nothing(own) & _sees_nothing(made), own, made)


def _sees_nothing(mask: Tensor) -> Tensor:
    """Say which queries may look at no key, (..., query, 1)."""
    if mask.dtype == torch.bool:
        return ~mask.any(-1, keepdim=True)
    return (mask <= torch.finfo(mask.dtype).min / 2).all(-1, keepdim=True)


def _without_mask(options: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what else would decide who may look at whom: it stands in the changed mask."""
    return {**{name: each for name, each in options.items() if name != "position_bias"}, "is_causal": False}


class _Ungrouped:
    """A module of which every query head has its own key and value."""

    num_key_value_groups = 1

    def __init__(self, module: nn.Module) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


@contextmanager
def watching(watch: Callable[[nn.Module, Tensor, Tensor, Callable[[], Any]], Any]) -> Iterator[None]:
    """Have the calls of attention functions in this thread go through `watch(module, query, key, run)`.

    While the `with` lasts, and where nobody looks at the module already.
    """
    from transformers.modeling_utils import AttentionInterface

    before = getattr(_watches, "watch", None)
    with _table_covered({"eager", *AttentionInterface._global_mapping}):
        _watches.watch = watch
        try:
            yield
        finally:
            _watches.watch = before

"""Tracing: one pass of a foreign model on a small input, with every module and every attention
recorded, from which its structure is read.

Nothing is known by name. Attentions are where the attention function is called, or where a softmax
is multiplied with values; what is called a block, an output projection or the inside of a
feed-forward part follows from which numbers come out of what, and is left out where that is
ambiguous.

Without an example the small input is made from the model's config.
"""

import inspect
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from attnlab import seeds
from attnlab.errors import WrongUsage
from attnlab.pretrained.attention_call import SOFTMAXES
from attnlab.pretrained.backends.functions import (
    SDPA,
    gathered_order,
    gathers,
    is_over_keys,
    made_of,
)
from attnlab.pretrained.backends.multi_head import MULTI_HEAD
from attnlab.pretrained.backends.registry import calls_watched

Inputs = Mapping[str, Any]
"""The inputs of a foreign model by their names."""


@dataclass
class TracedCall:
    """One call of a module: path, number (how often it was called before), its input and output.

    gives: "tensor", "one" (a tuple of one), or "other" · projects: the module multiplies with a
    matrix of its own.
    """

    path: str
    number: int
    given: Tensor | None
    begun: int
    ended: int = 0
    found: Tensor | None = None
    gives: str = "other"
    projects: bool = False


@dataclass
class FoundAttention:
    """One attention in the trace.

    backend: which one found it · path: the module that calls it · number: that call's · nth: its
    number among what this backend finds in that call, other softmaxes included · heads (batch,
    head, query, width): their output, None where it was not seen · is_cross: keys come from another
    tensor than queries, where that was seen · is_length_first: the calling module puts the length
    before the batch.
    """

    backend: str
    path: str
    number: int
    nth: int
    begun: int
    num_heads: int
    num_kv_heads: int
    num_queries: int
    num_keys: int
    batch: int = 1
    heads: Tensor | None = None
    is_cross: bool = False
    is_length_first: bool = False


@dataclass
class ModelTrace:
    """What happened in one pass, in order: calls of modules, attentions, and the model's output."""

    calls: list[TracedCall] = field(default_factory=list)
    attentions: list[FoundAttention] = field(default_factory=list)
    output: Any = None


@torch.no_grad()
def trace_model(model: nn.Module, inputs: Inputs) -> ModelTrace:
    """Run a model once and record its module calls and attentions."""
    batch = next((each.shape[0] for each in inputs.values() if _has_rows(each)), 1)
    tracer = _Tracer(model, batch)
    with ExitStack() as stack:
        tracer.install(stack)
        tracer.trace.output = model(**inputs)
    return tracer.trace


class _Tracer:
    """Records every module, every softmax, and the calls of attention functions in the registry."""

    def __init__(self, model: nn.Module, batch: int) -> None:
        self.trace = ModelTrace()
        self._batch = batch
        self._model = model
        self._paths = {module: path for path, module in model.named_modules()}
        self._open: list[TracedCall] = []
        self._numbers: dict[str, int] = {}
        self._nth: dict[tuple[str, str, int], int] = {}
        self._clock = 0
        self.is_inside = False

    def install(self, stack: ExitStack) -> None:
        """Install all hooks; closing the stack removes them."""
        for module in self._paths:
            stack.callback(module.register_forward_pre_hook(self._begin, with_kwargs=True).remove)
            stack.callback(module.register_forward_hook(self._end, with_kwargs=True).remove)
        if any(hasattr(module, "config") for module in self._paths):
            stack.enter_context(calls_watched(self.watch))
        stack.enter_context(_FunctionTracer(self))

    def add(
        self,
        backend: str,
        query: Tensor,
        key: Tensor,
        module: nn.Module | None = None,
        nth: int | None = None,
    ) -> FoundAttention:
        """Add an attention to the trace: query (batch, head, query, …), key (batch, kv_head, key,
        …)."""
        call = self._call_of(module)
        path, number = (call.path, call.number) if call is not None else ("", 0)
        nth = self.count(backend, module) if nth is None else nth
        self._clock += 1
        heads, lengths = (query.shape[1], key.shape[1]), (query.shape[-2], key.shape[-2])
        batch = query.shape[0]
        found = FoundAttention(backend, path, number, nth, self._clock, *heads, *lengths, batch)
        self.trace.attentions.append(found)
        return found

    def watch(self, module: nn.Module, query: Tensor, key: Tensor, run: Callable[[], Any]) -> Any:
        """Record a call of an attention function of transformers."""
        attention = self.add("registry", query, key, module)
        self.is_inside = True
        try:
            output = run()
        finally:
            self.is_inside = False
        attention.heads = _kept(output[0].transpose(1, 2))
        return output

    def unfolded(self, values: Tensor) -> Tensor:
        """Reshape (batch · head, length, width) to (batch, head, length, width)."""
        if values.dim() == 4:
            return values
        rows = self._batch if values.shape[0] % self._batch == 0 else 1
        return values.reshape(rows, -1, *values.shape[1:])

    def module(self) -> nn.Module:
        """Return the innermost running module."""
        return self._model.get_submodule(self._open[-1].path if self._open else "")

    def count(self, what: str, module: nn.Module | None = None) -> int:
        """Count the finds of one kind in the present call of a module, from 0."""
        call = self._call_of(module)
        place = (what, call.path, call.number) if call is not None else (what, "", 0)
        self._nth[place] = self._nth.get(place, -1) + 1
        return self._nth[place]

    def _call_of(self, module: nn.Module | None) -> TracedCall | None:
        if module is None:
            return self._open[-1] if self._open else None
        path = self._paths.get(module)
        return next((call for call in reversed(self._open) if call.path == path), None)

    def _begin(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        path = self._paths[module]
        number = self._numbers.get(path, 0)
        self._numbers[path] = number + 1
        self._clock += 1
        before, self.is_inside = self.is_inside, True  # operations of ours are not recorded
        given = next((each for each in (*args, *kwargs.values()) if isinstance(each, Tensor)), None)
        given = kwargs.get("hidden_states", given) if not args else given
        call = TracedCall(path, number, _kept(given), self._clock)
        weight = getattr(module, "weight", None)
        call.projects = isinstance(weight, Tensor) and weight.dim() == 2
        self.is_inside = before
        self._open.append(call)
        self.trace.calls.append(call)

    def _end(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        call = self._open.pop()
        self._clock += 1
        before, self.is_inside = self.is_inside, True
        call.ended, call.found = self._clock, _kept(first_tensor(output))
        if isinstance(output, Tensor):
            call.gives = "tensor"
        elif type(output) is tuple and len(output) == 1 and isinstance(output[0], Tensor):
            call.gives = "one"
        self.is_inside = before


class _FunctionTracer(TorchFunctionMode):
    """Finds calls of fused attention, and softmaxes whose weights are multiplied with values."""

    def __init__(self, tracer: _Tracer) -> None:
        super().__init__()
        self._tracer = tracer
        self._weights: list[tuple[Tensor, tuple[int, ...], int]] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        tracer = self._tracer
        if tracer.is_inside:
            return func(*args, **kwargs)
        if func is SDPA:
            given = [*args, *(kwargs[name] for name in ("query", "key", "value") if name in kwargs)]
            query, key = given[:2]
            if query.dim() in (3, 4):
                output = func(*args, **kwargs)
                query, key, heads = (tracer.unfolded(each) for each in (query, key, output))
                tracer.add("sdpa", query, key).heads = heads
                return output
        if func is MULTI_HEAD:
            return self._multi_head(func, args, kwargs)
        output = func(*args, **kwargs)
        if func in SOFTMAXES and isinstance(output, Tensor) and output.dim() in (3, 4):
            nth = tracer.count("softmax")
            if is_over_keys(output, args, kwargs):
                self._weights.append((output, tuple(output.shape), nth))
        elif self._weights and isinstance(output, Tensor):
            self._follow(func, args, output)
        return output

    def _multi_head(self, func: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        query, key, num_heads = args[0], args[1], args[4]
        batch = query.shape[1] if query.dim() == 3 else 1
        queries, keys = (each.new_empty(batch, num_heads, len(each), 0) for each in (query, key))
        found = self._tracer.add("multi-head", queries, keys)
        found.is_cross = key.shape != query.shape or not torch.equal(key, query)
        found.is_length_first = not getattr(self._tracer.module(), "batch_first", False)
        return func(*args, **kwargs)

    def _follow(self, func: Callable[..., Any], args: Any, output: Tensor) -> None:
        """Follow weights until they are multiplied with values."""
        weights, shape, nth = self._weights[-1]
        made = made_of(weights, func, args, output)
        if made == "moved" and output.is_floating_point():
            self._weights[-1] = (output, shape, nth)
        is_other = func is torch.einsum and not gathers(args[0])
        if made != "gathered" or is_other:
            return
        self._weights.clear()
        order = gathered_order(func, args)
        output = output if order is None else output.permute(order)
        found = self._tracer.unfolded(output.reshape(*shape[:-1], output.shape[-1]))
        keys = found.new_empty((*found.shape[:2], shape[-1], 0))
        self._tracer.add("softmax", found, keys, nth=nth).heads = found


def inside(output: Any) -> list[Any]:
    """List the values of a mapping, a tuple or a list; nothing for anything else."""
    if isinstance(output, Mapping):
        return list(output.values())
    return list(output) if isinstance(output, tuple | list) else []


def first_tensor(output: Any) -> Tensor | None:
    """Return a tensor, or the first of a tuple, a list or a mapping."""
    found = [output, *inside(output)]
    return next((each for each in found if isinstance(each, Tensor)), None)


def tensor_of(output: Any) -> Tensor:
    """Return the tensor that a module certainly returns."""
    found = first_tensor(output)
    assert found is not None
    return found


def _has_rows(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dim() > 1 and value.shape[0] > 0


def _kept(value: Any) -> Tensor | None:
    return value.detach().clone() if isinstance(value, Tensor) else None


_LENGTH, _TARGET_LENGTH = 11, 7  # two lengths, so that a cross-attention shows by its shape


def probe_inputs(model: nn.Module) -> dict[str, Any]:
    """Return inputs for `model(**inputs)`: token ids, and a picture, sound or a target if it takes
    them.

    Raises:
        WrongUsage: the config does not say what the model takes; give `example=`.
    """
    takes = inspect.signature(model.forward).parameters
    config = getattr(model, "config", None)
    source = seeds.generator(0, "pretrained", "probe")
    main = getattr(model, "main_input_name", "input_ids")
    inputs: dict[str, Any] = {}
    if main == "pixel_values" and config is not None:
        inputs[main] = _picture(config, source)
    elif main == "input_features" and config is not None:
        sizes = (
            _setting(config, "num_mel_bins", 80),
            2 * _setting(config, "max_source_positions", 16),
        )
        inputs[main] = torch.randn(1, *sizes, generator=source)
    elif main == "input_values":
        inputs[main] = torch.randn(1, 4000, generator=source)
    elif main in takes or "input_ids" in takes:
        inputs = _text_and_picture(model, config, takes, source)
    else:
        raise WrongUsage(
            f"{type(model).__name__} takes ({', '.join(takes)}), and its config does not say what "
            "these are; give an example of its inputs: attnlab.load(model, example={...})."
        )
    if getattr(config, "is_encoder_decoder", False) and "decoder_input_ids" in takes:
        inputs["decoder_input_ids"] = _ids(config, _TARGET_LENGTH, source)
    weights: list[Tensor] = [*model.parameters(), torch.empty(0)]
    floats = [each for each in weights if each.is_floating_point()]
    for name, value in inputs.items():
        dtype = floats[0].dtype if value.is_floating_point() else None
        inputs[name] = value.to(weights[0].device, dtype)
    if "use_cache" in takes:
        inputs["use_cache"] = False
    return inputs


def _text_and_picture(
    model: nn.Module, config: Any, takes: Collection[str], source: torch.Generator
) -> dict[str, Any]:
    """Return ids and, where text and picture have encoders of their own as in CLIP, a picture."""
    inputs = {"input_ids": _ids(config, _LENGTH, source)}
    is_dual = hasattr(model, "vision_model") and hasattr(model, "text_model")
    vision = getattr(config, "vision_config", None)
    if is_dual and vision is not None and "pixel_values" in takes:
        inputs["pixel_values"] = _picture(vision, source)
    return inputs


def _picture(config: Any, source: torch.Generator) -> Tensor:
    size = _setting(config, "image_size", 32)
    height, width = size if isinstance(size, list | tuple) else (size, size)
    return torch.randn(1, _setting(config, "num_channels", 3), height, width, generator=source)


def _ids(config: Any, length: int, source: torch.Generator) -> Tensor:
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    size = _setting(text, "vocab_size", 2)
    special: set[Any] = set()
    for name in ("pad", "bos", "eos"):  # several tokens may end a text, as in instruct models
        token = getattr(text, f"{name}_token_id", None)
        special.update(token if isinstance(token, list | tuple) else [token])
    size = min(size, 1000)
    usual = [token for token in range(size) if token not in special] or list(range(size))
    return torch.tensor(usual)[torch.randint(len(usual), (1, length), generator=source)]


def _setting(config: Any, name: str, otherwise: Any) -> Any:
    found = getattr(config, name, None)
    return otherwise if found is None else found

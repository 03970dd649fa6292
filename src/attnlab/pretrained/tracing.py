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
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from attnlab import seeds
from attnlab.errors import WrongUsage, present
from attnlab.pretrained.attention_call import SOFTMAXES, softmax_parts
from attnlab.pretrained.backends.functions import (
    SDPA,
    carries,
    gathered_order,
    is_over_keys,
    multiplied,
    operands_of,
)
from attnlab.pretrained.backends.multi_head import MULTI_HEAD
from attnlab.pretrained.backends.registry import calls_watched
from attnlab.pretrained.lineage import Lineage

Inputs = Mapping[str, Any]
"""The inputs of a foreign model by their names."""


class ModuleCall(NamedTuple):
    """A call of a module in one pass: its path in the foreign model, and how many calls of it came
    before."""

    path: str
    number: int = 0


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

    @property
    def place(self) -> ModuleCall:
        """The module, and which of its calls."""
        return ModuleCall(self.path, self.number)


@dataclass
class FoundAttention:
    """One attention in the trace.

    backend: which one found it · path: the module that calls it · number: that call's · nth: its
    number among what this backend finds in that call, other softmaxes included · heads (batch,
    head, query, width): their output, None where it was not seen · is_cross: keys come from another
    tensor than queries, where that was seen · is_length_first: the calling module puts the length
    before the batch · shows_product: the weights are changed between the softmax and the values.
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
    shows_product: bool = False

    @property
    def place(self) -> ModuleCall:
        """The module that calls it, and in which of its calls."""
        return ModuleCall(self.path, self.number)


@dataclass
class ModelTrace:
    """What happened in one pass, in order: calls of modules, attentions, and the model's output.

    set_aside: softmaxes that multiply something and are no attention over tokens: the module, why.
    """

    calls: list[TracedCall] = field(default_factory=list)
    attentions: list[FoundAttention] = field(default_factory=list)
    output: Any = None
    set_aside: list[tuple[str, str]] = field(default_factory=list)

    @property
    def why_set_aside(self) -> str:
        """A sentence about the softmaxes that are no attention, to end a message."""
        if not self.set_aside:
            return ""
        path, reason = self.set_aside[0]
        return f" The softmax in {path or 'the model'} {reason}."


@torch.no_grad()
def trace_model(model: nn.Module, inputs: Inputs) -> ModelTrace:
    """Run a model once and record its module calls and attentions."""
    batch = next((each.shape[0] for each in inputs.values() if has_rows(each)), 1)
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
        self.model = model
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
        place = self._place_of(module)
        if nth is None:
            nth = self.count(backend, module)
        self._clock += 1
        heads, lengths = (query.shape[1], key.shape[1]), (query.shape[-2], key.shape[-2])
        sizes = (*heads, *lengths, query.shape[0])
        found = FoundAttention(backend, *place, nth, self._clock, *sizes)
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

    def set_aside(self, reason: str) -> None:
        """Note a softmax in the running module that is no attention over tokens."""
        self.trace.set_aside.append((self._place_of(None).path, reason))

    def unfolded(self, values: Tensor) -> Tensor:
        """Reshape (batch · head, length, width) to (batch, head, length, width)."""
        if values.dim() == 4:
            return values
        rows = 1
        if values.shape[0] % self._batch == 0:
            rows = self._batch
        return values.reshape(rows, -1, *values.shape[1:])

    def module(self) -> nn.Module:
        """Return the innermost running module."""
        return self.model.get_submodule(self._place_of(None).path)

    def count(self, what: str, module: nn.Module | None = None) -> int:
        """Count the finds of one kind in the present call of a module, from 0."""
        place = (what, *self._place_of(module))
        self._nth[place] = self._nth.get(place, -1) + 1
        return self._nth[place]

    def _place_of(self, module: nn.Module | None) -> ModuleCall:
        """Return a module's running call; None for the innermost one."""
        for call in reversed(self._open):
            if module is None or call.path == self._paths.get(module):
                return call.place
        return ModuleCall("")

    def _begin(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        path = self._paths[module]
        number = self._numbers.get(path, 0)
        self._numbers[path] = number + 1
        self._clock += 1
        before, self.is_inside = self.is_inside, True  # operations of ours are not recorded
        given = first_tensor([*args, *kwargs.values()])
        if not args:
            given = kwargs.get("hidden_states", given)
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
        self._weights: list[_Weights] = []
        self._lineage = Lineage(tracer.model)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        tracer = self._tracer
        if tracer.is_inside:
            return func(*args, **kwargs)
        if func is SDPA:
            return self._fused(func, args, kwargs)
        if func is MULTI_HEAD:
            return self._multi_head(func, args, kwargs)
        output = func(*args, **kwargs)
        if not isinstance(output, Tensor):
            return output
        if func in SOFTMAXES and output.dim() in (3, 4):
            nth = tracer.count("softmax")
            if is_over_keys(output, args, kwargs):
                scores, shape = softmax_parts(func, args, kwargs)[0], tuple(output.shape)
                is_compared = self._lineage.is_product(scores)
                self._weights.append(_Weights(output.clone(), [output], shape, nth, is_compared))
            return output
        self._note(func, args, output)
        if self._weights:
            self._follow(func, args, output)
        return output

    def _fused(self, func: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        output = func(*args, **kwargs)
        named = [kwargs[name] for name in ("query", "key", "value") if name in kwargs]
        given: list[Tensor] = [*args, *named]
        if given[0].dim() in (3, 4):
            query, key, heads = map(self._tracer.unfolded, (given[0], given[1], output))
            self._tracer.add("sdpa", query, key).heads = heads
        return output

    def _multi_head(self, func: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        query, key, num_heads = args[0], args[1], args[4]
        batch = query.shape[1] if query.dim() == 3 else 1
        queries = query.new_empty(batch, num_heads, len(query), 0)
        keys = key.new_empty(batch, num_heads, len(key), 0)
        found = self._tracer.add("multi-head", queries, keys)
        found.is_cross = key.shape != query.shape or not torch.equal(key, query)
        found.is_length_first = not getattr(self._tracer.module(), "batch_first", False)
        return func(*args, **kwargs)

    def _follow(self, func: Callable[..., Any], args: Any, output: Tensor) -> None:
        """Follow weights until they are multiplied with values."""
        weights = self._weights[-1]
        operand = multiplied(weights.made, func, args)
        if operand is None:
            if carries(weights.made, args, output):
                weights.made.append(output)
            return
        self._weights.clear()
        shape, reason = weights.shape, self._reason_against(weights, operand, args)
        if reason is not None:
            self._tracer.set_aside(reason)
            return
        order = gathered_order(func, args)
        product = output if order is None else output.permute(order)
        found = self._tracer.unfolded(product.reshape(*shape[:-1], product.shape[-1]))
        keys = found.new_empty((*found.shape[:2], shape[-1], 0))
        attention = self._tracer.add("softmax", found, keys, nth=weights.nth)
        attention.heads, attention.shows_product = found, weights.differ_from(operand)
        if not weights.is_compared:
            self._lineage.mark(output, attention)

    def _reason_against(self, weights: "_Weights", operand: Tensor, args: Any) -> str | None:
        """Say why a product of a softmax's weights is no attention over tokens; None if it is."""
        if operand.shape[-2] < weights.shape[-2]:
            return "multiplies other values for each query, such as experts or windows"
        values = operands_of(args)[1]
        if weights.is_compared:
            return None
        if self._lineage.is_weight(values):
            return "mixes weights of the model's own, no tokens"
        if self._lineage.is_product(values):
            return "is one over features: what it multiplies is mixed over the tokens already"
        return None

    def _note(self, func: Callable[..., Any], args: Any, output: Tensor) -> None:
        """Follow products; what was taken for an attention over tokens is none if its output is
        multiplied with features."""
        trace = self._tracer.trace
        for source in self._lineage.note(func, operands_of(args), output):
            others = [each for each in trace.attentions if each is not source]
            if len(others) < len(trace.attentions):
                trace.attentions = others
                self._tracer.set_aside("is part of linear attention, without weights over tokens")


@dataclass
class _Weights:
    """A softmax in the trace: a copy of its weights, them and what was made of them, their shape,
    its number in its module, and whether its input compares queries with keys."""

    copied: Tensor
    made: list[Tensor]
    shape: tuple[int, ...]
    nth: int
    is_compared: bool

    def differ_from(self, operand: Tensor) -> bool:
        """Is something else multiplied with the values than this softmax's weights?"""
        if operand.numel() != self.copied.numel():
            return True
        return not torch.equal(
            operand.reshape(self.shape), self.copied.to(operand.dtype).reshape(self.shape)
        )


def inside(output: Any) -> list[Any]:
    """List the values of a mapping, a tuple or a list; nothing for anything else."""
    if isinstance(output, Mapping):
        return list(output.values())
    if isinstance(output, tuple | list):
        return list(output)
    return []


def first_tensor(output: Any) -> Tensor | None:
    """Return a tensor, or the first of a tuple, a list or a mapping."""
    for each in (output, *inside(output)):
        if isinstance(each, Tensor):
            return each
    return None


def tensor_of(output: Any) -> Tensor:
    """Return the tensor that a module certainly returns."""
    return present(first_tensor(output))


def has_rows(value: Any) -> bool:
    """Is a value a tensor with a batch of inputs?"""
    return isinstance(value, Tensor) and value.dim() > 1 and value.shape[0] > 0


def _kept(value: Any) -> Tensor | None:
    return value.detach().clone() if isinstance(value, Tensor) else None


_LENGTH, _TARGET_LENGTH = 11, 7  # two lengths, so that a cross-attention shows by its shape


def probe_inputs(model: nn.Module) -> Inputs:
    """Return inputs for `model(**inputs)`: token ids, and a picture, sound or a target if it takes
    them.

    Raises:
        WrongUsage: the config does not say what the model takes; give `example=`.
    """
    takes = inspect.signature(model.forward).parameters
    config = getattr(model, "config", None)
    source = seeds.generator(0, "pretrained", "probe")
    inputs = _first_inputs(model, takes, source)
    if getattr(config, "is_encoder_decoder", False) and "decoder_input_ids" in takes:
        inputs["decoder_input_ids"] = _ids(config, _TARGET_LENGTH, source)
    weights: list[Tensor] = [*model.parameters(), torch.empty(0)]
    dtype = next(each.dtype for each in weights if each.is_floating_point())
    for name, value in inputs.items():
        if value.is_floating_point():
            value = value.to(dtype)
        inputs[name] = value.to(weights[0].device)
    return {**inputs, "use_cache": False} if "use_cache" in takes else inputs


def _first_inputs(model: Any, takes: Collection[str], source: torch.Generator) -> dict[str, Tensor]:
    """Return the input that a model takes first, and what belongs to it."""
    config = getattr(model, "config", None)
    main = getattr(model, "main_input_name", "input_ids")
    if main == "pixel_values" and config is not None:
        return {main: _picture(config, source)}
    if main == "input_features" and config is not None:
        bins = _setting(config, "num_mel_bins", 80)
        length = 2 * _setting(config, "max_source_positions", 16)
        return {main: torch.randn(1, bins, length, generator=source)}
    if main == "input_values":
        return {main: torch.randn(1, 4000, generator=source)}
    if main not in takes and "input_ids" not in takes:
        raise WrongUsage(
            f"{type(model).__name__} takes ({', '.join(takes)}), and its config does not say what "
            "these are; give an example of its inputs: attnlab.load(model, example={...})."
        )
    inputs = {"input_ids": _ids(config, _LENGTH, source)}
    if _reads_pictures_too(model) and "pixel_values" in takes:
        inputs["pixel_values"] = _picture(model.config.vision_config, source)
    return inputs


def _reads_pictures_too(model: Any) -> bool:
    """Have text and picture encoders of their own, as in CLIP?"""
    vision = getattr(getattr(model, "config", None), "vision_config", None)
    return vision is not None and hasattr(model, "vision_model") and hasattr(model, "text_model")


def _picture(config: Any, source: torch.Generator) -> Tensor:
    size = _setting(config, "image_size", 32)
    if not isinstance(size, list | tuple):
        size = (size, size)
    height, width = size
    return torch.randn(1, _setting(config, "num_channels", 3), height, width, generator=source)


def _ids(config: Any, length: int, source: torch.Generator) -> Tensor:
    text = config
    if hasattr(config, "get_text_config"):
        text = config.get_text_config()
    special: set[Any] = set()
    for name in ("pad", "bos", "eos"):  # several tokens may end a text, as in instruct models
        token = getattr(text, f"{name}_token_id", None)
        if isinstance(token, list | tuple):
            special.update(token)
        else:
            special.add(token)
    known = range(min(_setting(text, "vocab_size", 2), 1000))
    usual = [token for token in known if token not in special] or list(known)
    return torch.tensor(usual)[torch.randint(len(usual), (1, length), generator=source)]


def _setting(config: Any, name: str, otherwise: Any) -> Any:
    found = getattr(config, name, None)
    return otherwise if found is None else found

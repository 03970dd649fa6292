"""Tracing: one pass of a foreign model on a small input, with every module and every attention
recorded, from which its structure is read.

Nothing is known by name. Attentions are where the attention function is called, or where a softmax
is multiplied with values; what is called a block, an output projection or the inside of a
feed-forward part follows from which numbers come out of what, and is left out where that is
ambiguous.
"""

import re
import sys
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakTensorKeyDictionary

from attnlab.errors import not_none
from attnlab.pretrained.attention_call import SOFTMAXES, softmax_parts
from attnlab.pretrained.backends.functions import SDPA, is_over_keys, version_of
from attnlab.pretrained.backends.multi_head import MULTI_HEAD
from attnlab.pretrained.backends.products import (
    PRODUCTS,
    WeightsProduct,
    carries,
    is_one_of,
    operands_of,
)
from attnlab.pretrained.backends.registry import calls_watched
from attnlab.pretrained.lineage import Lineage
from attnlab.pretrained.model_trace import ModelTrace, ModuleCall, TracedAttention, TracedCall
from attnlab.pretrained.origins import Marks, Origins
from attnlab.shapes import shape_text

Inputs = Mapping[str, Any]
"""The inputs of a foreign model by their names."""

_OVER_FEATURES = "mixes the features of a token (channels), not tokens"
_NO_SOFTMAX = ("exp", "exp_", "log_softmax", "sigmoid", "relu", "softmin", "_softmax")
_PENDING = 16  # softmaxes that are followed at once
_FLEX = "torch.nn.attention.flex_attention"


@torch.no_grad()
def trace_model(model: nn.Module, inputs: Inputs) -> ModelTrace:
    """Run a model once and record its module calls and attentions."""
    first = next((value for value in inputs.values() if has_rows(value)), torch.empty(1, 1))
    tracer = _Tracer(model, first.shape[0])
    trace = tracer.run(inputs)
    # How many of the rows (batch · head, …) are an input's follows from the axis of the inputs.
    is_plain = tracer.joins_heads and not hasattr(model, "config")
    if is_plain and _is_length_first(model, inputs, first, first_tensor(trace.output)):
        trace = _Tracer(model, first.shape[1], is_length_first=True).run(inputs)
    return trace


def _is_length_first(
    model: nn.Module, inputs: Inputs, first: Tensor, output: Tensor | None
) -> bool:
    """Is the second axis of the inputs that of the batch?

    Then a change of all inputs at its first index changes the output there alone.
    """
    if output is None or output.shape[:2] != first.shape[:2] or min(first.shape[:2]) < 2:
        return False
    changed = dict(inputs)
    for name, value in inputs.items():
        is_like_first = has_rows(value) and value.dim() == first.dim() and value.shape[1] > 1
        if is_like_first and value.dtype != torch.bool:  # no mask
            changed[name] = torch.cat((value[:, 1:2], value[:, 1:]), 1)
    after = not_none(first_tensor(model(**changed)))
    moved = (after != output).reshape(*first.shape[:2], -1).any(-1).any(0)
    return bool(moved[0]) and not bool(moved[1:].any())


class _Tracer:
    """Records every module, every softmax, and the calls of attention functions in the registry."""

    def __init__(self, model: nn.Module, batch: int, *, is_length_first: bool = False) -> None:
        self.trace = ModelTrace(is_length_first=is_length_first)
        self._batch = batch
        self.joins_heads = False  # with the batch, in some attention
        self.model = model
        self._paths = {module: path for path, module in model.named_modules()}
        self._open: list[TracedCall] = []
        self._numbers: dict[str, int] = {}
        self._nth: dict[tuple[str, str, int], int] = {}
        self._softmaxes: list[tuple[TracedCall, ...]] = []
        self._softmax_of: list[tuple[TracedAttention, int]] = []
        self._clock = 0
        self.is_inside = False
        self.origins = Origins()

    def run(self, inputs: Inputs) -> ModelTrace:
        """Run the model once, and return its trace."""
        with ExitStack() as stack:
            self.install(stack)
            for name, value in inputs.items():
                if isinstance(value, Tensor):
                    self.origins.mark(value, name)
            self.trace.output = self.model(**inputs)
        self.number_softmaxes()
        return self.trace

    def install(self, stack: ExitStack) -> None:
        """Install all hooks; closing the stack removes them."""
        for module in self._paths:
            stack.callback(module.register_forward_pre_hook(self._begin, with_kwargs=True).remove)
            stack.callback(module.register_forward_hook(self._end, with_kwargs=True).remove)
        if any(hasattr(module, "config") for module in self._paths):
            stack.enter_context(calls_watched(self.watch))
        functions = _FunctionTracer(self)
        stack.callback(functions.note_unread)
        stack.enter_context(functions)

    def add(
        self,
        backend: str,
        query: Tensor,
        key: Tensor,
        module: nn.Module | None = None,
        nth: int | None = None,
        calls: tuple[TracedCall, ...] | None = None,
    ) -> TracedAttention:
        """Add an attention to the trace: query (batch, head, query, …), key (batch, kv_head, key,
        …).

        calls: of the modules that were running at its softmax.
        """
        place = self._place_of(module)
        if calls is not None:  # the innermost module that holds both the softmax and the product
            shared = [call for call in calls if any(call is open_call for open_call in self._open)]
            place, nth = (shared[-1].place if shared else ModuleCall("")), 0
        elif nth is None:
            nth = self.count(backend, module)
        self._clock += 1
        heads, lengths = (query.shape[1], key.shape[1]), (query.shape[-2], key.shape[-2])
        sizes = (*heads, *lengths, query.shape[0])
        attention = TracedAttention(backend, *place, nth, self._clock, *sizes)
        attention.is_length_first = self.trace.is_length_first
        self.trace.attentions.append(attention)
        if calls is not None:
            number = next(i for i, softmax in enumerate(self._softmaxes) if softmax is calls)
            self._softmax_of.append((attention, number))
        return attention

    def note_softmax(self) -> tuple[TracedCall, ...]:
        """Note a softmax, and return the running calls of modules."""
        self._softmaxes.append(tuple(self._open))
        return self._softmaxes[-1]

    def number_softmaxes(self) -> None:
        """Number the softmaxes of attentions among all of the same call of a module.

        A softmax belongs to the innermost running call that holds an attention.
        """
        places = {attention.place for attention, _ in self._softmax_of}
        owners = []
        for calls in self._softmaxes:
            holding = [call.place for call in calls if call.place in places]
            owners.append(holding[-1] if holding else ModuleCall(""))
        for attention, number in self._softmax_of:
            attention.nth = owners[:number].count(attention.place)

    def watch(self, module: nn.Module, query: Tensor, key: Tensor, run: Callable[[], Any]) -> Any:
        """Record a call of an attention function of transformers."""
        attention = self.add("registry", query, key, module)
        self.is_inside = True
        try:
            output = run()
        finally:
            self.is_inside = False
        attention.heads = _kept(output[0].transpose(1, 2))
        attention.query_from, attention.key_from = self.origins.of(query), self.origins.of(key)
        self.origins.passed(None, [query, key], [output[0]])
        return output

    def set_aside(self, reason: str) -> None:
        """Note a softmax in the running module that is no attention over tokens."""
        self.trace.set_aside.append((self._place_of(None).path, reason))

    def unfolded(self, values: Tensor) -> Tensor:
        """Reshape (batch · head, length, width) to (batch, head, length, width)."""
        if values.dim() == 4:
            return values
        rows, self.joins_heads = 1, True
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
        stream = first_tensor([*args, *kwargs.values()])
        if not args:
            stream = kwargs.get("hidden_states", stream)
        call = TracedCall(path, number, _kept(stream), self._clock)
        if re.search(r"(^|\.)\d+$", path):  # it may be a block
            self.origins.mark(stream, call.begun)
        weight = getattr(module, "weight", None)
        call.projects = isinstance(weight, Tensor) and weight.dim() == 2
        self.is_inside = before
        self._open.append(call)
        self.trace.calls.append(call)

    def _end(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        call = self._open.pop()
        self._clock += 1
        before, self.is_inside = self.is_inside, True
        call.ended, call.output = self._clock, _kept(first_tensor(output))
        for made in (output, *inside(output)):
            if isinstance(made, Tensor) and not self.origins.of(made):  # as of a compiled module
                self.origins.passed(None, operands_of((*args, *kwargs.values())), [made])
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
        self._weights: deque[_Weights] = deque(maxlen=_PENDING)
        self._across: deque[Tensor] = deque(maxlen=_PENDING)
        self._made_of: Any = WeakTensorKeyDictionary()  # of a softmax's weights alone
        self._lineage = Lineage(tracer.model)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        tracer = self._tracer
        if tracer.is_inside or torch.compiler.is_compiling():
            return func(*args, **kwargs)
        if sys._getframe(1).f_globals.get("__name__") == _FLEX:
            self._note_unread("flex_attention, inside which no hook reaches")
        if torch._C._are_functorch_transforms_active():
            self._note_unread("operations under torch.vmap or another transform of functions")
            return func(*args, **kwargs)
        if func is SDPA:
            return self._fused(func, args, kwargs)
        if func is MULTI_HEAD:
            return self._multi_head(func, args, kwargs)
        output = func(*args, **kwargs)
        self._pass_on(func, args, kwargs, output)
        if not isinstance(output, Tensor):
            return output
        if func in SOFTMAXES:
            self._softmax(args, kwargs, output)
            return output
        self._note(func, args, output)
        self._count(func, args, kwargs, output)
        self._follow(func, args, kwargs, output)
        return output

    def note_unread(self) -> None:
        """Note the softmaxes that no product multiplied with values."""
        for weights in self._weights:
            self._note_unread(
                f"a softmax over the last axis of {shape_text(weights.shape)} without a product "
                "weights @ values, by matmul, bmm or einsum, for every input, head and query"
            )

    def _note_unread(self, words: str) -> None:
        self._tracer.trace.unread[words] = None

    def _pass_on(self, func: Callable[..., Any], args: Any, kwargs: Any, output: Any) -> None:
        """Follow what a function's results were made from."""
        made = [item for item in (output, *inside(output)) if isinstance(item, Tensor)]
        if func is torch.Tensor.__setitem__:
            made = [args[0]]
        self._tracer.origins.passed(func, operands_of((*args, *kwargs.values())), made)

    def _softmax(self, args: Any, kwargs: Any, output: Tensor) -> None:
        """Note a softmax, whose weights may be multiplied with values."""
        tracer, shape = self._tracer, tuple(output.shape)
        is_last = is_over_keys(output, args, kwargs)
        if output.dim() not in (3, 4) or not is_last:
            axis = "its last axis" if is_last else "another axis than the last"
            number = f"{output.dim()} axes, {shape_text(shape)}"
            self._note_unread(f"a softmax over {axis} of a tensor of {number}")
        if output.dim() not in (3, 4):
            return
        calls = tracer.note_softmax()
        scores = softmax_parts(None, args, kwargs)[0]
        if not is_last:
            self._across.append(scores)
        else:
            is_compared = self._lineage.is_product(scores)
            sides = tracer.origins.factors(scores)
            copied, version = output.clone(), version_of(output)
            weights = _Weights(copied, version, [output], shape, calls, is_compared, sides, scores)
            self._weights.append(weights)
            self._made_of[output] = weights

    def _fused(self, func: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        tracer = self._tracer
        output, nth = func(*args, **kwargs), self._tracer.count("sdpa")
        named = [kwargs[name] for name in ("query", "key", "value") if name in kwargs]
        tensors: list[Tensor] = [*args, *named]
        tracer.origins.passed(None, tensors[:3], [output])
        what = "scaled_dot_product_attention of "
        if tensors[0].is_nested:
            self._note_unread(what + "nested tensors")
        elif tensors[0].dim() not in (3, 4):
            number = {2: "two", 5: "five", 6: "six"}.get(tensors[0].dim(), str(tensors[0].dim()))
            self._note_unread(f"{what}{number} axes, {shape_text(tensors[0].shape)}")
        elif self._lineage.is_over_features([*tensors, *named][2], -2):
            tracer.set_aside(_OVER_FEATURES)
        else:
            query, key, heads = map(tracer.unfolded, (tensors[0], tensors[1], output))
            attention = tracer.add("sdpa", query, key, nth=nth)
            attention.heads = heads
            attention.query_from, attention.key_from = map(tracer.origins.of, tensors[:2])
        return output

    def _multi_head(self, func: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        query, key, num_heads = args[0], args[1], args[4]
        batch = query.shape[1] if query.dim() == 3 else 1
        queries = query.new_empty(batch, num_heads, len(query), 0)
        keys = key.new_empty(batch, num_heads, len(key), 0)
        attention = self._tracer.add("multi-head", queries, keys)
        attention.is_cross = key.shape != query.shape or not torch.equal(key, query)
        attention.is_length_first = not getattr(self._tracer.module(), "batch_first", False)
        output = func(*args, **kwargs)
        self._tracer.origins.passed(None, [query, key], [output[0]])
        return output

    def _count(self, func: Callable[..., Any], args: Any, kwargs: Any, output: Tensor) -> None:
        """Count the products of weights, or of what was made of them alone, with other values.

        Where there are several, as with relative positions beside the values, none of them is what
        a head gives.
        """
        operands = operands_of((*args, *kwargs.values()))
        known = [weights for weights in map(self._made_of.get, operands) if weights is not None]
        if not known:
            return
        is_alone, weights = len(known) == len(operands), known[0]
        if func in PRODUCTS and not is_alone:
            weights.products += 1
            if weights.products > 1 and weights.attention is not None:
                weights.attention.heads = None
        elif is_alone or output.numel() == weights.copied.numel():
            self._made_of[output] = weights

    def _follow(self, func: Callable[..., Any], args: Any, kwargs: Any, output: Tensor) -> None:
        """Follow weights until they are multiplied with values."""
        for weights in reversed(self._weights):
            product = WeightsProduct.of(weights.made, func, args, kwargs)
            if product is not None:
                self._weights.remove(weights)
                self._multiplied(weights, product, output)
                return
        for weights in self._weights:
            if carries(weights.made, args, output):
                weights.made.append(output)

    def _multiplied(self, weights: "_Weights", product: WeightsProduct, output: Tensor) -> None:
        """Note a product of weights with values."""
        shape, reason = product.shape(weights.shape[:-2]), self._reason_against(weights, product)
        if reason is None and shape is None:
            reason = "multiplies other values for each query, such as experts or windows"
        if reason is not None or shape is None:
            self._tracer.set_aside(str(reason))
            return
        heads = self._tracer.unfolded(product.heads(output, shape))
        keys = heads.new_empty((*heads.shape[:2], shape[-1], 0))
        attention = self._tracer.add("softmax", heads, keys, calls=weights.calls)
        attention.query_from, attention.key_from = weights.sides
        if weights.products < 2:
            attention.heads = heads
        weights.attention = attention
        attention.shows_product = weights.differ_from(product.matrix.reshape(shape))
        if not weights.is_compared:
            self._lineage.mark(output, attention)

    def _reason_against(self, weights: "_Weights", product: WeightsProduct) -> str | None:
        """Say why a product of a softmax's weights is no attention over tokens; None if it is."""
        if self._lineage.is_over_features(product.value, product.key_axis):
            return _OVER_FEATURES
        if weights.is_compared:
            return None
        if self._lineage.is_weight(product.value):
            return "mixes weights of the model, not tokens"
        if self._lineage.is_product(product.value):
            return "is one over features: what it multiplies is mixed over the tokens already"
        if is_one_of(weights.scores, self._across):
            return (
                "has scores with another softmax over their other axis, as in a soft mixture of "
                "experts, and mixes the outputs of slots, not tokens"
            )
        return None

    def _note(self, func: Callable[..., Any], args: Any, output: Tensor) -> None:
        """Follow products; what was taken for an attention over tokens is none if its output is
        multiplied with features."""
        trace, name = self._tracer.trace, str(getattr(func, "__name__", ""))
        operands = operands_of(args)
        if name in _NO_SOFTMAX and any(map(self._lineage.is_product, operands)):
            self._note_unread(f"{name} of a product of two activations")
        for source in self._lineage.note(func, operands, output):
            others = [attention for attention in trace.attentions if attention is not source]
            if len(others) < len(trace.attentions):
                trace.attentions = others
                self._tracer.set_aside("is part of linear attention, without weights over tokens")


@dataclass(eq=False)
class _Weights:
    """A softmax in the trace: a copy of its weights, their version, them and what was made of them,
    their shape, the running calls of modules, whether its input compares queries with keys, what
    both sides of its scores were made from, and the scores; then the attention that it is, and how
    often it was multiplied with other values."""

    copied: Tensor
    version: int
    made: list[Tensor]
    shape: tuple[int, ...]
    calls: tuple[TracedCall, ...]
    is_compared: bool
    sides: tuple[Marks, Marks]
    scores: Tensor
    attention: TracedAttention | None = None
    products: int = 0

    def differ_from(self, matrix: Tensor) -> bool:
        """Is something else multiplied with the values than this softmax's weights?"""
        if version_of(self.made[0]) != self.version:
            return True  # changed in place, if only for another mask
        copied = self.copied.reshape(self.shape).to(matrix.dtype)
        return matrix.shape != copied.shape or not torch.equal(matrix, copied)


def inside(output: Any) -> list[Any]:
    """List the values of a mapping, a tuple or a list; nothing for anything else."""
    if isinstance(output, Mapping):
        return list(output.values())
    if isinstance(output, tuple | list):
        return list(output)
    return []


def first_tensor(output: Any) -> Tensor | None:
    """Return a tensor, or the first of a tuple, a list or a mapping."""
    for item in (output, *inside(output)):
        if isinstance(item, Tensor):
            return item
    return None


def tensor_of(output: Any) -> Tensor:
    """Return the first tensor in a module's output, which must hold one."""
    return not_none(first_tensor(output))


def has_rows(value: Any) -> bool:
    """Is a value a tensor with a batch of inputs?"""
    return isinstance(value, Tensor) and value.dim() > 1 and value.shape[0] > 0


def _kept(value: Any) -> Tensor | None:
    return value.detach().clone() if isinstance(value, Tensor) else None

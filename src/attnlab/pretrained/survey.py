"""A survey: one pass of a foreign model on a small input, watched everywhere, and what it tells of how it is built.

Nothing is known by name. Attentions are where the attention function is called, or where a softmax is multiplied with
values; what is called a block, an output projection or the inside of a feed-forward part follows from which numbers
come out of what, and is left out where it cannot be told.
"""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from attnlab.pretrained.functions import PRODUCTS, SDPA, gathered_order, gathers, is_over_keys, operands_of
from attnlab.pretrained.multi_head import MULTI_HEAD
from attnlab.pretrained.passing import SOFTMAXES

__all__ = ["Attended", "Call", "Survey", "survey"]


@dataclass
class Call:
    """One call of a module: path, number (how often it was called before), what it was given and what came out.

    gives: "tensor", "one" (a tuple of one), or "other" · projects: the module multiplies with a matrix of its own.
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
class Attended:
    """One attention that was met.

    seam: what met it · path: the module that asked for it · number: of the module's call · nth: of what this seam met
    in that call, softmaxes that are no attention counted too · heads (batch, head, query, width): what was gathered,
    None where it was not seen · is_cross: keys are of something else than queries, where that was seen ·
    is_length_first: the module that asked puts the length before the batch.
    """

    seam: str
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
class Survey:
    """What was met, in order: calls of modules, attentions, and what the model put out."""

    calls: list[Call] = field(default_factory=list)
    attended: list[Attended] = field(default_factory=list)
    output: Any = None


@torch.no_grad()
def survey(model: nn.Module, inputs: Mapping[str, Any]) -> Survey:
    """Run a model once, and write down what happened."""
    found = _Surveyor(model, next((each.shape[0] for each in inputs.values() if _has_rows(each)), 1))
    with ExitStack() as stack:
        found.stand(stack)
        found.survey.output = model(**inputs)
    return found.survey


class _Surveyor:
    """Stands at every module, at every softmax, and at the table of attention functions."""

    def __init__(self, model: nn.Module, batch: int) -> None:
        self.survey = Survey()
        self._batch = batch
        self._model = model
        self._paths = {module: path for path, module in model.named_modules()}
        self._open: list[Call] = []
        self._numbers: dict[str, int] = {}
        self._nth: dict[tuple[str, str, int], int] = {}
        self._clock = 0
        self.is_inside = False

    def stand(self, stack: ExitStack) -> None:
        """Take up all posts, to leave them when the stack closes."""
        for module in self._paths:
            stack.callback(module.register_forward_pre_hook(self._begin, with_kwargs=True).remove)
            stack.callback(module.register_forward_hook(self._end, with_kwargs=True).remove)
        if any(hasattr(module, "config") for module in self._paths):
            stack.enter_context(_table_covered(self))
        stack.enter_context(_Meeter(self))

    def met(
        self, seam: str, query: Tensor, key: Tensor, module: nn.Module | None = None, nth: int | None = None
    ) -> Attended:
        """Write down an attention: query (batch, head, query, …), key (batch, kv_head, key, …)."""
        call = self._call_of(module)
        path, number = (call.path, call.number) if call is not None else ("", 0)
        nth = self.count(seam, module) if nth is None else nth
        self._clock += 1
        found = Attended(
            seam, path, number, nth, self._clock, query.shape[1], key.shape[1], query.shape[-2], key.shape[-2],
            query.shape[0],
        )  # fmt: skip
        self.survey.attended.append(found)
        return found

    def unfolded(self, values: Tensor) -> Tensor:
        """(batch · head, length, width) -> (batch, head, length, width); what has all its axes stays."""
        if values.dim() == 4:
            return values
        rows = self._batch if values.shape[0] % self._batch == 0 else 1
        return values.reshape(rows, -1, *values.shape[1:])

    def module(self) -> nn.Module:
        """Return the innermost module at work."""
        return self._model.get_submodule(self._open[-1].path if self._open else "")

    def count(self, what: str, module: nn.Module | None = None) -> int:
        """Count what is met in the present call of a module, from 0."""
        call = self._call_of(module)
        place = (what, call.path, call.number) if call is not None else (what, "", 0)
        self._nth[place] = self._nth.get(place, -1) + 1
        return self._nth[place]

    def _call_of(self, module: nn.Module | None) -> Call | None:
        if module is None:
            return self._open[-1] if self._open else None
        path = self._paths.get(module)
        return next((call for call in reversed(self._open) if call.path == path), None)

    def _begin(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        path = self._paths[module]
        number = self._numbers.get(path, 0)
        self._numbers[path] = number + 1
        self._clock += 1
        before, self.is_inside = self.is_inside, True  # what is done here is not the model's doing
        given = next((each for each in (*args, *kwargs.values()) if isinstance(each, Tensor)), None)
        given = kwargs.get("hidden_states", given) if not args else given
        call = Call(path, number, _kept(given), self._clock)
        call.projects = isinstance(weight := getattr(module, "weight", None), Tensor) and weight.dim() == 2
        self.is_inside = before
        self._open.append(call)
        self.survey.calls.append(call)

    def _end(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        call = self._open.pop()
        self._clock += 1
        before, self.is_inside = self.is_inside, True
        call.ended, call.found = self._clock, _kept(first_tensor(output))
        call.gives = "tensor" if isinstance(output, Tensor) else "one" if _is_one(output) else "other"
        self.is_inside = before


class _Meeter(TorchFunctionMode):
    """Meets fused attention, and softmaxes whose result is multiplied with something: weights with values."""

    def __init__(self, surveyor: _Surveyor) -> None:
        super().__init__()
        self._surveyor = surveyor
        self._weights: list[tuple[Tensor, tuple[int, ...], int, int]] = []

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        surveyor = self._surveyor
        if surveyor.is_inside:
            return func(*args, **kwargs)
        if func is SDPA:
            given = [*args, *(kwargs[name] for name in ("query", "key", "value") if name in kwargs)]
            query, key = given[:2]
            if query.dim() in (3, 4):
                output = func(*args, **kwargs)
                query, key, heads = (surveyor.unfolded(each) for each in (query, key, output))
                surveyor.met("sdpa", query, key).heads = heads
                return output
        if func is MULTI_HEAD:
            return self._multi_head(func, args, kwargs)
        output = func(*args, **kwargs)
        if func in SOFTMAXES and isinstance(output, Tensor) and output.dim() in (3, 4):
            nth = surveyor.count("softmax")
            if is_over_keys(output, args, kwargs):
                self._weights.append((output, tuple(output.shape), output.data_ptr(), nth))
        elif func in PRODUCTS and isinstance(output, Tensor):
            if func is torch.einsum and not gathers(args[0]):
                return output
            order = gathered_order(func, args)
            self._multiplied(args, output if order is None else output.permute(order))
        elif isinstance(output, Tensor):
            self._follow(args, output)
        return output

    def _multi_head(self, func: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        query, key, num_heads = args[0], args[1], args[4]
        length, batch, width = query.shape if query.dim() == 3 else (query.shape[0], 1, query.shape[1])
        shape = (batch, num_heads, length, width // num_heads)
        found = self._surveyor.met(
            "multi-head", query.new_empty(shape), key.new_empty((*shape[:2], key.shape[0], shape[3]))
        )
        found.is_cross = key is not query and not (key.shape == query.shape and torch.equal(key, query))
        found.is_length_first = not getattr(self._surveyor.module(), "batch_first", False)
        return func(*args, **kwargs)

    def _follow(self, args: Any, output: Tensor) -> None:
        """Go on knowing weights that were dropped out, converted or given another shape."""
        for weights, shape, _, nth in self._weights[-1:]:
            is_made_of_them = any(each is weights for each in operands_of(args))
            if is_made_of_them and output.numel() == weights.numel() and output.is_floating_point():
                self._weights[-1] = (output, shape, output.data_ptr(), nth)

    def _multiplied(self, args: Any, output: Tensor) -> None:
        if not self._weights:
            return
        weights, shape, place, nth = self._weights[-1]
        operands = operands_of(args)
        if not operands or operands[0].data_ptr() != place or operands[0].numel() != weights.numel():
            return
        self._weights.clear()
        found = self._surveyor.unfolded(output.reshape(*shape[:-1], output.shape[-1]))
        keys = found.new_empty((*found.shape[:2], shape[-1], 0))
        self._surveyor.met("softmax", found, keys, nth=nth).heads = found


def _table_covered(surveyor: _Surveyor) -> Any:
    """Watch the table of attention functions."""
    from attnlab.pretrained.registry import watching

    def watch(module: nn.Module, query: Tensor, key: Tensor, run: Callable[[], Any]) -> Any:
        attended = surveyor.met("registry", query, key, module)
        surveyor.is_inside = True
        try:
            output = run()
        finally:
            surveyor.is_inside = False
        attended.heads = _kept(output[0].transpose(1, 2))
        return output

    return watching(watch)


def first_tensor(output: Any) -> Tensor | None:
    """Return a tensor, or the first of a tuple or a mapping."""
    if isinstance(output, Tensor):
        return output
    inside = output.values() if isinstance(output, Mapping) else output if isinstance(output, tuple | list) else ()
    return next((each for each in inside if isinstance(each, Tensor)), None)


def _has_rows(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dim() > 1 and value.shape[0] > 0


def _is_one(output: Any) -> bool:
    return type(output) is tuple and len(output) == 1 and isinstance(output[0], Tensor)


def _kept(value: Any) -> Tensor | None:
    return value.detach().clone() if isinstance(value, Tensor) else None

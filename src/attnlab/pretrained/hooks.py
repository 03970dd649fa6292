"""Torch's hooks in a foreign model, and backends at its attention, that bring values to the hook
points and return what goes on through the model.

They are installed only while a hook of ours is; closing the exit stack removes them all.
"""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.overrides import _get_current_function_mode_stack

from attnlab.errors import CouldNotRun
from attnlab.pretrained.cache_order import reorders_recorded
from attnlab.pretrained.functions import Functions
from attnlab.pretrained.hook_points import AttentionPoint, BlockPoint, FeedForwardPoint
from attnlab.pretrained.multi_head import left_out
from attnlab.pretrained.ownership import ModuleHook, do_nothing, exclusive, uncompiled
from attnlab.pretrained.pass_state import PassState, StackReader
from attnlab.pretrained.registry import attentions_hooked
from attnlab.pretrained.structure import (
    AttentionStructure,
    BlockStructure,
    ModelStructure,
    ModuleCall,
    StackStructure,
)
from attnlab.pretrained.tracing import first_tensor
from attnlab.sites import SitedModule

__all__ = ["install_hooks"]


class HookedModel(Protocol):
    """The part of a pretrained model that this file needs."""

    foreign: nn.Module
    structure: ModelStructure

    @property
    def current_pass(self) -> PassState:
        """The state of this thread's pass."""
        ...

    def get_submodule(self, target: str) -> nn.Module:
        """Return a hook point by its path."""
        ...

    def wants(self, *sites: str, to_change: bool = False) -> bool:
        """Does a hook want a site of the model itself?"""
        ...

    def visit(self, site: str, value: Tensor) -> Tensor:
        """Show a value at a site of the model itself."""
        ...


def install_hooks(model: HookedModel, stack: ExitStack) -> None:
    """Install all hooks in a foreign model; closing the stack removes them.

    Raises:
        WrongUsage: hooks for other hook points are installed in it.
    """
    places = {each.place.path for _, each in model.structure.attentions}
    stack.enter_context(exclusive({model.foreign.get_submodule(path) for path in places}))
    stack.enter_context(uncompiled(model.foreign))
    installer = _Installer(model, stack)
    installer.root()
    for path, module in model.foreign.named_modules():
        if isinstance(module, nn.TransformerEncoder):
            installer.padding(path, module)
    for each in model.structure.stacks:
        installer.stack(each)
    finders: dict[nn.Module, Callable[[nn.Module], AttentionPoint | None]] = {}
    for path, attention in model.structure.attentions:
        place = attention.place.path
        if attention.backend == "registry":
            find = partial(installer.find, "registry", place)
            finders[model.foreign.get_submodule(place)] = find
        installer.attention(path, attention)
    installer.intercept_attentions()
    installer.finish()
    if finders:
        stack.enter_context(attentions_hooked(finders))
    stack.enter_context(reorders_recorded())


class _Installer:
    """Installs torch's hooks in a foreign model; closing the stack removes them."""

    def __init__(self, model: HookedModel, stack: ExitStack) -> None:
        self._model, self._stack = model, stack
        self._points: dict[tuple[str, ModuleCall, int], AttentionPoint] = {}
        self._most: dict[tuple[str, ModuleCall], int] = {}
        self._asked: dict[str, int] = {}
        self._first: dict[ModuleCall, list[Callable[..., Any]]] = {}
        self._last: dict[ModuleCall, list[Callable[..., Any]]] = {}
        self._functions = any(each.backend != "registry" for _, each in model.structure.attentions)
        self._shared: set[str] = set()  # paths of modules that one pass calls more than once
        for structure in model.structure.stacks:
            for block in structure.blocks:
                self._shared.update(each.path for each in block.places if each.number)

    def root(self) -> None:
        """Hook the beginning and the end of the model's forward pass."""
        model = self._model

        def before(module: nn.Module, args: Any, kwargs: Any) -> None:
            model.current_pass.begin()

        def after(module: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
            is_wanted = any(point.wants(*point.sites) for point in self._points.values())
            if is_wanted and not model.current_pass.hooked:
                raise CouldNotRun(
                    f"no attention of this {type(module).__name__} reached its hook point in this "
                    "pass: it is computed in another way than when the model was traced, as after "
                    "set_attn_implementation or with output_attentions=True. Leave that out, or "
                    "load the model again."
                )
            logits = output.get("logits") if isinstance(output, Mapping) else None
            if isinstance(logits, Tensor) and model.wants("logits"):
                found = model.visit("logits", logits)
                if found is not logits:
                    output["logits"] = found

        self._hook("", before, after)

    def stack(self, structure: StackStructure) -> None:
        """Hook the modules around a stack, and each of its blocks."""
        model, point = self._model, self._model.get_submodule(structure.name)
        assert isinstance(point, SitedModule)
        shared: set[str] = set()
        for other in model.structure.stacks:
            if other is not structure:
                shared.update(other.around)
        for path in structure.around:
            module = model.foreign.get_submodule(path)
            reader = StackReader(module, is_plain=not hasattr(model.foreign, "config"))

            def before(_: nn.Module, args: Any, kwargs: Any, reader: StackReader = reader) -> None:
                model.current_pass.read(structure.name, reader.inputs(args, kwargs))

            def after(_: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
                memory = first_tensor(output) if structure.name == "encoder" else None
                model.current_pass.returned(structure.name, output, memory)

            if path not in shared:
                self._hook(path, before, after)
            if self._functions:
                self._intercept(module)
        for index, block in enumerate(structure.blocks):
            path = ".".join(filter(None, (structure.name, f"layers.{index}")))
            self._block(structure.name, point, path, index, block)

    def padding(self, path: str, encoder: nn.TransformerEncoder) -> None:
        """Write the zeros at padding that an encoder of plain torch writes without hooks."""
        model = self._model

        def before(_: nn.Module, args: Any, kwargs: Any) -> None:
            modes = _get_current_function_mode_stack()  # type: ignore[no-untyped-call]
            others = [each for each in modes if not isinstance(each, Functions)]
            # With another function mode torch leaves its fast path by itself.
            model.current_pass.left_out = None if others else left_out(encoder, *args, **kwargs)

        def after(_: nn.Module, args: Any, kwargs: Any, output: Tensor) -> Tensor | None:
            lengths, model.current_pass.left_out = model.current_pass.left_out, None
            if lengths is None:
                return None
            places = torch.arange(output.shape[1], device=output.device)
            where = places >= places.new_tensor(lengths)[:, None]
            return output.masked_fill(where[..., None], 0.0)

        self._hook(path, before, do_nothing)
        self._hook(f"{path}.layers.{len(encoder.layers) - 1}".lstrip("."), do_nothing, after)

    def attention(self, path: str, structure: AttentionStructure) -> None:
        """Register an attention's hook point under the module call that computes it."""
        point = self._model.get_submodule(path)
        assert isinstance(point, AttentionPoint)
        backend, place, nth = structure.backend, structure.place, structure.nth
        self._points[backend, place, nth] = point
        self._most[backend, place] = max(self._most.get((backend, place), 0), nth + 1)
        self._asked[place.path] = max(self._asked.get(place.path, 0), place.number + 1)

    def find(self, backend: str, path: str, _: nn.Module) -> AttentionPoint | None:
        """Return the hook point of a module's next attention."""
        return self._point(backend, ModuleCall(path, self._model.current_pass.number(path)))

    def _point(self, backend: str, place: ModuleCall) -> AttentionPoint | None:
        """Return the hook point of the next attention in the present call of a module, counting it.

        A module that attended once when it was traced may attend more often, as for each of several
        pictures: all share one hook point.

        Raises:
            CouldNotRun: a call with several attentions has more than when it was traced.
        """
        number = self._model.current_pass.count(backend, place)
        most = self._most.get((backend, place), 0)
        if number >= most > 0 and backend != "softmax":  # other softmaxes are counted too
            points = [self._points[backend, place, each] for each in range(most)]
            if most > 1 and any(point.wants(*point.sites) for point in points):
                raise CouldNotRun(
                    f"{place.path} attends more than {most} times in one call, and did so {most} "
                    "times when the model was traced, so they cannot be told apart; load the "
                    "model with an example= like this input."
                )
            number = number % most
        point = self._points.get((backend, place, number))
        self._model.current_pass.hooked += point is not None
        return point

    def intercept_attentions(self) -> None:
        """Turn the backend at torch's functions on in attentions that run outside of their model.

        Gradient checkpointing does that: it computes a block once more in the backward pass.
        """
        for path in {place.path for backend, place, _ in self._points if backend != "registry"}:
            self._intercept(self._model.foreign.get_submodule(path))

    def finish(self) -> None:
        """Install the hooks at all module calls that were named."""
        calls = dict(self._asked)
        for place in (*self._first, *self._last):
            calls[place.path] = max(calls.get(place.path, 0), place.number + 1)
        for path in sorted(calls):
            self._number(path, calls[path])

    def _number(self, path: str, calls: int) -> None:
        """Count the calls of a module, and run the functions that are registered for each."""
        model = self._model

        def before(module: nn.Module, args: Any, kwargs: Any) -> Any:
            number = model.current_pass.call(path, calls)
            for each in self._first.get(ModuleCall(path, number), ()):
                args, kwargs = each(args, kwargs)
            return args, kwargs

        def after(module: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
            number = model.current_pass.end(path)
            if output is None:  # the call broke off
                return None
            for each in self._last.get(ModuleCall(path, number), ()):
                output = each(output)
            return output

        self._hook(path, before, after, always=True)

    def _block(
        self, stack: str, at: SitedModule, path: str, index: int, structure: BlockStructure
    ) -> None:
        model, point = self._model, self._model.get_submodule(path)
        assert isinstance(point, BlockPoint)
        if structure.place is None:
            return

        def enter(args: Any, kwargs: Any) -> Any:
            hidden, put = _hidden(args, kwargs)
            if index == 0:
                if stack == "decoder" and "encoder" in model.structure.names:
                    encoder = model.get_submodule("encoder")
                    assert isinstance(encoder, SitedModule)
                    model.current_pass.remind(stack, "encoder", encoder)
                is_turned = structure.stream == "length first" and not hasattr(
                    model.foreign, "config"
                )
                model.current_pass.announce(
                    stack, at, _turned(hidden, structure.stream), is_turned=is_turned
                )
                hidden = _seen(at, "embedding", hidden, structure.stream)
            hidden = _seen(point, "residual_before", hidden, structure.stream)
            model.current_pass.stream[path] = hidden
            return put(hidden)

        def leave(output: Any) -> Any:
            # Kept for all blocks, the streams of a long text would take most of the memory.
            model.current_pass.stream.pop(path, None)
            known = point.supplied("residual_after")
            found = first_tensor(output)
            assert found is not None
            shown = found if known is None else _turned_back(known, structure.stream)
            return _with(output, _seen(point, "residual_after", shown, structure.stream), found)

        self._before(structure.place, enter)
        if structure.end is not None:
            self._after(structure.end, leave)
        if structure.gives != "other":
            self._skip(structure.place, point, structure)
        for each in structure.attentions:
            self._stream(path, point, each, structure.stream)
        if "feed_forward" in dict(point.named_children()):
            self._feed_forward(point.get_submodule("feed_forward"), structure)

    def _stream(
        self, path: str, block: BlockPoint, structure: AttentionStructure, form: str
    ) -> None:
        """Hook the module whose output an attention adds to the residual stream, and the one that
        returns the sum."""
        model, point = self._model, block.get_submodule(structure.name)
        site = "residual_after_cross" if structure.name.startswith("cross") else "residual_between"
        assert isinstance(point, SitedModule)
        if structure.adds is None:
            return

        def added(output: Any) -> Any:
            found = first_tensor(output)
            assert found is not None
            new = _seen(point, "output", found, form)
            if structure.after == "sum" and block.is_hooked and path in model.current_pass.stream:
                total = model.current_pass.stream[path] + new
                shown = _seen(block, site, total, form)
                new = new if shown is total else new + (shown - total)
                model.current_pass.stream[path] = shown
            return _with(output, new, found)

        self._after(structure.adds, added)
        if isinstance(structure.after, ModuleCall):

            def normed(output: Any) -> Any:
                found = first_tensor(output)
                assert found is not None
                model.current_pass.stream[path] = _seen(block, site, found, form)
                return _with(output, model.current_pass.stream[path], found)

            self._after(structure.after, normed)

    def _feed_forward(self, point: nn.Module, structure: BlockStructure) -> None:
        assert isinstance(point, FeedForwardPoint)
        if structure.down is not None and "hidden" in point.sites:

            def inside(args: Any, kwargs: Any) -> Any:
                hidden, put = _hidden(args, kwargs)
                return put(_seen(point, "hidden", hidden, structure.stream))

            self._before(structure.down, inside)
        if structure.adds is not None and "output" in point.sites:

            def added(output: Any) -> Any:
                found = first_tensor(output)
                assert found is not None
                return _with(output, _seen(point, "output", found, structure.stream), found)

            self._after(structure.adds, added)

    def _skip(self, place: ModuleCall, point: BlockPoint, structure: BlockStructure) -> None:
        """Skip the inside of a block whose result a hook supplies.

        Layers that share a module are never skipped: its calls are told apart by counting them.
        """
        module = self._model.foreign.get_submodule(place.path)
        if "forward" in vars(module) or any(each.path in self._shared for each in structure.places):
            return
        forward, model = module.forward, self._model

        def known_or_run(*args: Any, **kwargs: Any) -> Any:
            known = point.supplied("residual_after") if point.is_hooked else None
            if known is None:
                return forward(*args, **kwargs)
            model.current_pass.hooked += 1
            known = _turned_back(known, structure.stream)
            return (known,) if structure.gives == "one" else known

        module.forward = ModuleHook(known_or_run, forward)
        self._stack.callback(vars(module).pop, "forward", None)

    def _intercept(self, module: nn.Module) -> None:
        """Turn the backend at torch's functions on while a module runs."""
        own, forward, model = vars(module).get("forward"), module.forward, self._model

        def intercepted(*args: Any, **kwargs: Any) -> Any:
            with model.current_pass.within(lambda: Functions(self._find_here)):
                return forward(*args, **kwargs)

        module.forward = ModuleHook(intercepted, forward)
        if own is None:
            self._stack.callback(vars(module).pop, "forward")
        else:
            self._stack.callback(setattr, module, "forward", own)

    def _find_here(self, backend: str) -> AttentionPoint | None:
        """Return the hook point of the next attention in the innermost running module."""
        place = self._model.current_pass.innermost
        if place is None or place.path not in self._asked:
            return None
        return self._point(backend, place)

    def _before(self, place: ModuleCall, what: Callable[[Any, Any], Any]) -> None:
        self._first.setdefault(place, []).append(what)

    def _after(self, place: ModuleCall, what: Callable[[Any], Any]) -> None:
        self._last.setdefault(place, []).append(what)

    def _hook(
        self,
        path: str,
        before: Callable[..., Any],
        after: Callable[..., Any],
        *,
        always: bool = False,
    ) -> None:
        module = self._model.foreign.get_submodule(path)
        hooks = (
            module.register_forward_pre_hook(ModuleHook(before, do_nothing), with_kwargs=True),
            module.register_forward_hook(
                ModuleHook(after, do_nothing), with_kwargs=True, always_call=always
            ),
        )
        for each in hooks:
            self._stack.callback(each.remove)


def _seen(part: SitedModule, site: str, value: Tensor, form: str) -> Tensor:
    """Show a value at a site as (batch, length, width); return the result in the value's own
    form."""
    given = _turned(value, form)
    found = part.visit(site, given)
    return value if found is given else _turned_back(found, form)


def _turned(value: Tensor, form: str) -> Tensor:
    """Reshape the stream of plain torch to (batch, length, width)."""
    if form == "length first":
        return value.transpose(0, 1)
    return value[None] if form == "one input" else value


def _turned_back(value: Tensor, form: str) -> Tensor:
    if form == "length first":
        return value.transpose(0, 1)
    return value[0] if form == "one input" else value


def _hidden(args: Any, kwargs: dict[str, Any]) -> tuple[Tensor, Callable[[Tensor], Any]]:
    """Return the stream among a module's arguments, and a function that replaces it."""
    index = next((place for place, each in enumerate(args) if isinstance(each, Tensor)), None)
    if index is not None:
        return args[index], lambda new: ((*args[:index], new, *args[index + 1 :]), kwargs)
    name = "hidden_states"
    if name not in kwargs:
        name = next(name for name, each in kwargs.items() if isinstance(each, Tensor))
    return kwargs[name], lambda new: (args, {**kwargs, name: new})


def _with(output: Any, new: Tensor, found: Tensor) -> Any:
    """Replace the tensor `found` in a module's output."""
    if new is found:
        return output
    if isinstance(output, Tensor):
        return new
    if isinstance(output, tuple | list):
        index = next(place for place, each in enumerate(output) if each is found)
        changed = (*output[:index], new, *output[index + 1 :])
        return changed if isinstance(output, tuple) else list(changed)
    name = next(name for name, each in output.items() if each is found)
    output[name] = new
    return output

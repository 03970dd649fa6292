"""Torch's hooks in a foreign model, and backends at its attention, that bring values to the hook
points and return what goes on through the model.

They are installed only while a hook of ours is, and only where it asks for a site: one head needs
its own attention, and what says which tokens are read. Closing the exit stack removes them all.
"""

import inspect
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import _get_current_function_mode_stack

from attnlab.errors import CouldNotRun
from attnlab.pretrained.attention_call import (
    AttentionPoint,
    BlockPoint,
    stream_of,
    to_batch_first,
    to_stream_axes,
    visit_stream,
    with_value,
)
from attnlab.pretrained.backends.caches import reorders_recorded
from attnlab.pretrained.backends.functions import Functions
from attnlab.pretrained.backends.multi_head import left_out
from attnlab.pretrained.backends.registry import Finder, attentions_hooked
from attnlab.pretrained.model_trace import ModuleCall
from attnlab.pretrained.module_sites import ModulePoint, module_points
from attnlab.pretrained.pass_state import (
    ForeignModel,
    ModuleHook,
    StackInputs,
    do_nothing,
    exclusive,
    hooks_hidden,
    stack_inputs,
    uncompiled,
)
from attnlab.pretrained.structure import AttentionStructure, BlockStructure, StackStructure
from attnlab.pretrained.tracing import first_tensor, tensor_of

_HOW_ELSE = ", as after set_attn_implementation or with output_attentions=True"
_STREAMS = ("residual_between", "residual_after_cross")
_Functions = dict[ModuleCall, list[Callable[..., Any]]]
_Points = dict[tuple[str, ModuleCall], dict[int, AttentionPoint]]


class ForeignHooks:
    """Torch's hooks in a foreign model; closing the exit stack removes them.

    Raises:
        WrongUsage: hooks for other hook points are installed in the model.
    """

    def __init__(self, model: ForeignModel, stack: ExitStack) -> None:
        self._model, self._stack = model, stack
        self._asked: set[str] | None = set()  # sites, and the parts that own them; None: all
        self._points: _Points = {}  # by backend, module call and number in it
        for path, attention in model.structure.attentions:
            points = self._points.setdefault((attention.backend, attention.place), {})
            points[attention.nth] = model.point(path)
        self._calls: dict[str, int] = {}  # how often each module is called in one pass
        blocks = chain.from_iterable(stack.blocks for stack in model.structure.stacks)
        for place in chain.from_iterable(block.places for block in blocks):
            self._calls[place.path] = max(self._calls.get(place.path, 0), place.number + 1)
        self._attentions: set[str] = set()  # modules whose attention is asked for
        self._numbered: set[str] = set()
        self._module_sites: set[str] = (
            set()
        )  # hook points of modules that are sites that have a hook
        self._intercepted: set[str] = set()
        self._unread: set[str] = set()  # stacks without a hooked block, read at their end
        self._first: _Functions = {}
        self._last: _Functions = {}
        self._now = self._first, self._last
        self._shared = {path for path, calls in self._calls.items() if calls > 1}
        self._places = {place.path for _, place in self._points}
        stack.enter_context(exclusive(set(map(model.foreign.get_submodule, self._places))))
        stack.enter_context(uncompiled())
        self._hook("", lambda *_: model.current_pass.begin(), self._finish)
        for path, module in model.foreign.named_modules():
            if isinstance(module, nn.TransformerEncoder):
                self._padding(path, module)
        for structure in model.structure.stacks:
            self._around(structure)
        stack.enter_context(reorders_recorded())

    def install(self, sites: Collection[str] | None) -> None:
        """Install what these sites need beside what is installed already; None for all sites."""
        for path, point in module_points(self._model):
            if path not in self._module_sites and (sites is None or f"{path}.result" in sites):
                self._module_sites.add(path)
                self._hook(point.place, do_nothing, partial(self._show_result, point))
        if self._asked is None or (sites is not None and self._asked.issuperset({*sites, ""})):
            return
        if sites is None:
            self._asked = None
        else:
            self._asked |= {"", *sites, *(site.rpartition(".")[0] for site in sites)}
        self._first, self._last, self._unread = {}, {}, set()
        for structure in self._model.structure.stacks:
            self._blocks(structure)
        self._hook_attentions()
        self._now = self._first, self._last  # in one step: another thread may be in a pass
        for path in sorted(self._counted() - self._numbered):
            self._number(path)

    def _show_result(self, point: ModulePoint, module: nn.Module, *call: Any) -> Any:
        """Show the output of a module that is a site."""
        return point.show(self._model.current_pass, call[-1])

    def _hook_attentions(self) -> None:
        """Bring the attentions that are asked for to their hook points."""
        finders: dict[nn.Module, Finder] = {}
        for path, attention in self._model.structure.attentions:
            place = attention.place.path
            if place in self._attentions or not self._asks(path):
                continue
            self._attentions.add(place)
            if attention.backend == "registry":
                module = self._model.foreign.get_submodule(place)
                finders[module] = partial(self._find_in_registry, place)
            else:
                # Gradient checkpointing runs an attention once more outside of its model.
                self._intercept(place)
        if finders:
            self._stack.enter_context(attentions_hooked(finders))

    def _counted(self) -> set[str]:
        """Return the paths of the modules whose calls must be counted."""
        counted = self._attentions | {place.path for place in (*self._first, *self._last)}
        for backend, place in self._points:
            if backend != "registry" and place.path in self._attentions:
                # Softmaxes in the modules inside belong to these, and are counted apart.
                prefix = f"{place.path}." if place.path else ""
                counted |= {path for path in self._calls if path.startswith(prefix)}
        return counted

    def _asks(self, part: str, *sites: str) -> bool:
        """Is one of a part's sites asked for; any at all, where none is named?"""
        if self._asked is None:
            return True
        if not sites:
            return part in self._asked
        return any(f"{part}.{site}".lstrip(".") in self._asked for site in sites)

    def _finish(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        """End a forward pass of the model: show its logits.

        Raises:
            CouldNotRun: no attention that a hook asks for reached its hook point.
        """
        model, state = self._model, self._model.current_pass
        if state.ran and not state.hooked and any(map(_is_wanted, self._points.values())):
            raise CouldNotRun(
                f"no attention of this {type(module).__name__} reached its hook point in this "
                "pass: it is computed in another way than when the model was traced"
                f"{_HOW_ELSE if hasattr(model.foreign, 'config') else ''}. Turn that off, or "
                "load the model again."
            )
        logits = output.get("logits") if isinstance(output, Mapping) else None
        if isinstance(logits, Tensor) and model.wants("logits"):
            edited = model.visit("logits", logits)
            if edited is not logits:
                output["logits"] = edited

    def _around(self, structure: StackStructure) -> None:
        """Hook the modules around a stack, whose arguments say what it reads."""
        model = self._model
        shared: set[str] = set()
        for other in model.structure.stacks:
            if other is not structure:
                shared.update(other.around)
        innermost = structure.module_in(model.foreign)
        for path in structure.around:
            module = model.foreign.get_submodule(path)
            if path in shared or isinstance(module, nn.ModuleList | nn.ModuleDict):
                continue
            is_plain = not hasattr(model.foreign, "config")
            inputs = partial(stack_inputs, inspect.signature(module.forward), is_plain=is_plain)
            note_output = partial(self._note_output, structure, module is innermost)
            self._hook(path, partial(self._note_inputs, structure.name, inputs), note_output)
        if any(attention.backend != "registry" for _, attention in structure.attentions):
            # Also where no attention is asked for: it keeps torch's modules off their fast path.
            for path in structure.around:
                self._intercept(path)

    def _note_inputs(
        self, stack: str, inputs: Callable[..., StackInputs], module: nn.Module, *call: Any
    ) -> None:
        """Note the inputs of a module around a stack."""
        self._model.current_pass.read(stack, inputs(*call))

    def _note_output(self, structure: StackStructure, is_innermost: bool, *call: Any) -> None:
        """Note the output of a module around a stack."""
        output = call[-1]
        tensor = first_tensor(output)
        if structure.name in self._unread and is_innermost and tensor is not None:
            self._announce(structure, tensor)
        memory = tensor if structure.name == "encoder" else None
        self._model.current_pass.returned(structure.name, output, memory)

    def _announce(self, structure: StackStructure, hidden: Tensor) -> None:
        """Tell the hooks what a stack reads, and first what the encoder before it has read."""
        model, form = self._model, structure.blocks[0].stream
        if structure.name == "decoder" and "encoder" in model.structure.names:
            model.current_pass.remind(structure.name, "encoder", model.point("encoder"))
        is_turned = form == "length first" and not hasattr(model.foreign, "config")
        point, stream = model.point(structure.name), to_batch_first(hidden, form)
        config = getattr(model.foreign, "config", None)
        model.current_pass.announce(
            structure.name, point, stream, config=config, is_turned=is_turned
        )

    def _padding(self, path: str, encoder: nn.TransformerEncoder) -> None:
        """Write the zeros at padding that an encoder of plain torch writes without hooks."""
        model = self._model

        def before(_: nn.Module, args: Any, kwargs: Any) -> None:
            modes = _get_current_function_mode_stack()  # type: ignore[no-untyped-call]
            # With another function mode torch leaves its fast path by itself.
            model.current_pass.left_out = None
            if all(isinstance(mode, Functions) for mode in modes):
                with hooks_hidden(encoder):
                    model.current_pass.left_out = left_out(encoder, *args, **kwargs)

        def after(_: nn.Module, args: Any, kwargs: Any, output: Tensor) -> Tensor | None:
            lengths, model.current_pass.left_out = model.current_pass.left_out, None
            if lengths is None:
                return None
            places = torch.arange(output.shape[1], device=output.device)
            where = places >= places.new_tensor(lengths)[:, None]
            return output.masked_fill(where[..., None], 0.0)

        self._hook(path, before, do_nothing)
        self._hook(f"{path}.layers.{len(encoder.layers) - 1}".lstrip("."), do_nothing, after)

    def _find_in_registry(self, path: str, _: nn.Module) -> AttentionPoint | None:
        """Return the hook point of a module's next attention in the registry."""
        return self._point("registry", ModuleCall(path, self._model.current_pass.number(path)))

    def _find_here(self, backend: str) -> AttentionPoint | None:
        """Return the hook point of the next attention in the innermost running module."""
        place = self._model.current_pass.innermost
        if place is None or place.path not in self._places:
            return None
        return self._point(backend, place)

    def _point(self, backend: str, place: ModuleCall) -> AttentionPoint | None:
        """Return the hook point of the next attention in the present call of a module, counting it.

        A module that attended once when it was traced may attend more often, as for each of several
        pictures: all share one hook point.

        Raises:
            CouldNotRun: a call with several attentions has more than when it was traced.
        """
        state, points = self._model.current_pass, self._points.get((backend, place), {})
        number, most = state.count(backend, place), max(points, default=-1) + 1
        if number >= most > 0 and backend != "softmax":  # other softmaxes are counted too
            if most > 1 and _is_wanted(points):
                raise CouldNotRun(
                    f"{place.path} attends more than {most} times in one call, and did so {most} "
                    "times when the model was traced, so they cannot be told apart; load the "
                    "model with an example= like this input."
                )
            number = number % most
        state.hooked += number in points
        return points.get(number)

    def _number(self, path: str) -> None:
        """Count the calls of a module, and run the functions that are registered for each."""
        model, calls = self._model, self._calls[path]
        self._numbered.add(path)

        def before(module: nn.Module, args: Any, kwargs: Any) -> Any:
            state = model.current_pass
            number = state.call(path, calls)
            state.ran += path in self._attentions
            for hook in self._now[0].get(ModuleCall(path, number), ()):
                args, kwargs = hook(args, kwargs)
            return args, kwargs

        def after(module: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
            number = model.current_pass.end(path)
            if output is None:  # the call broke off
                return None
            for hook in self._now[1].get(ModuleCall(path, number), ()):
                output = hook(output)
            return output

        self._hook(path, before, after, always=True)

    def _blocks(self, structure: StackStructure) -> None:
        """Register the functions at all blocks of a stack that are asked for.

        The first of them tells what the stack reads. If there is none, the other half of an
        encoder–decoder is read at its end, another stack at its first block.
        """
        wanted = []
        for index, (path, block) in enumerate(zip(structure.paths, structure.blocks, strict=True)):
            if any(map(self._asks, (path, *(f"{path}.{name}" for name in block.parts)))):
                wanted.append(index)
        has_end = structure.module_in(self._model.foreign) is not None
        has_module_sites = any(
            path.startswith(f"{structure.name}.module.") for path in self._module_sites
        )
        if (
            not wanted
            and has_end
            and structure.name in ("encoder", "decoder")
            and not has_module_sites
        ):
            self._unread.add(structure.name)
            return
        reader = 0
        if wanted and not self._asks(structure.name, "embedding"):
            reader = wanted[0]
        for index in {reader, *wanted}:
            self._block(structure, index, reads=index == reader)

    def _read(self, stack: StackStructure, index: int, args: Any, kwargs: Any) -> Any:
        """Tell what a stack reads where its first hooked block begins, and show the embedding."""
        hidden, put = stream_of(args, kwargs)
        self._announce(stack, hidden)
        if index > 0 or not self._asks(stack.name, "embedding"):
            return args, kwargs
        point = self._model.point(stack.name)
        return put(visit_stream(point, "embedding", hidden, stack.blocks[0].stream))

    def _block(self, stack: StackStructure, index: int, *, reads: bool) -> None:
        """Register the functions at one block's modules that are asked for."""
        path, structure = stack.paths[index], stack.blocks[index]
        if structure.place is None:
            return
        has_streams, is_left = self._asks(path, *_STREAMS), self._asks(path, "residual_after")
        has_feed_forward, point = self._asks(f"{path}.feed_forward"), self._model.point(path)
        block = _BlockHooks(self._model, path, point, structure.stream, has_streams)
        self._before(structure.place, partial(self._read, stack, index), reads)
        enters = has_streams or self._asks(path, "residual_before")
        self._before(structure.place, block.enter, enters)
        self._after(structure.end, block.leave, has_streams or is_left)
        if is_left:
            self._skip(structure.place, point, structure)
        for attention in structure.attentions:
            is_shown = has_streams or self._asks(f"{path}.{attention.name}", "output")
            self._after(attention.adds, partial(block.attention_added, attention), is_shown)
            if attention.adds is not None and isinstance(attention.after, ModuleCall):
                self._after(attention.after, partial(block.normed, attention), has_streams)
        self._before(structure.down, block.hidden, has_feed_forward)
        self._after(structure.adds, block.feed_forward_added, has_feed_forward)

    def _skip(self, place: ModuleCall, point: BlockPoint, structure: BlockStructure) -> None:
        """Skip the inside of a block whose result a hook supplies.

        Layers that share a module are never skipped: its calls are told apart by counting them.
        """
        module = self._model.foreign.get_submodule(place.path)
        is_shared = any(place.path in self._shared for place in structure.places)
        if structure.gives == "other" or "forward" in vars(module) or is_shared:
            return
        forward, model = module.forward, self._model

        def known_or_run(*args: Any, **kwargs: Any) -> Any:
            known = point.supplied("residual_after")
            if known is None:
                return forward(*args, **kwargs)
            model.current_pass.hooked += 1
            known = to_stream_axes(known, structure.stream)
            return (known,) if structure.gives == "one" else known

        module.forward = ModuleHook(known_or_run, forward)
        self._stack.callback(vars(module).pop, "forward", None)

    def _intercept(self, path: str) -> None:
        """Turn the backend at torch's functions on while a module runs."""
        if path in self._intercepted:
            return
        self._intercepted.add(path)
        module = self._model.foreign.get_submodule(path)
        own_forward, forward, model = vars(module).get("forward"), module.forward, self._model

        def intercepted(*args: Any, **kwargs: Any) -> Any:
            with model.current_pass.within(lambda: Functions(self._find_here)):
                return forward(*args, **kwargs)

        module.forward = ModuleHook(intercepted, forward)
        if own_forward is None:
            self._stack.callback(vars(module).pop, "forward")
        else:
            self._stack.callback(setattr, module, "forward", own_forward)

    def _before(self, place: ModuleCall | None, what: Callable[..., Any], is_wanted: bool) -> None:
        if is_wanted and place is not None:
            self._first.setdefault(place, []).append(what)

    def _after(self, place: ModuleCall | None, what: Callable[..., Any], is_wanted: bool) -> None:
        if is_wanted and place is not None:
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
        first, last = ModuleHook(before, do_nothing), ModuleHook(after, do_nothing)
        for handle in (
            module.register_forward_pre_hook(first, with_kwargs=True),
            module.register_forward_hook(last, with_kwargs=True, always_call=always),
        ):
            self._stack.callback(handle.remove)


def _is_wanted(points: Mapping[int, AttentionPoint]) -> bool:
    """Does a hook want any site of these attentions?"""
    return any(point.wants(*point.sites) for point in points.values())


@dataclass(frozen=True)
class _BlockHooks:
    """What is shown of one block where its modules are called; form: that of its stream."""

    model: ForeignModel
    path: str
    point: BlockPoint
    form: str
    has_streams: bool

    def enter(self, args: Any, kwargs: Any) -> Any:
        """Show the residual stream that the block reads."""
        hidden, put = stream_of(args, kwargs)
        hidden = visit_stream(self.point, "residual_before", hidden, self.form)
        if self.has_streams:
            self.model.current_pass.stream[self.path] = hidden
        return put(hidden)

    def leave(self, output: Any) -> Any:
        """Show the residual stream that the block returns."""
        # Kept for all blocks, the streams of a long text would take most of the memory.
        self.model.current_pass.stream.pop(self.path, None)
        stream = shown = tensor_of(output)
        known = self.point.supplied("residual_after")
        if known is not None:
            shown = to_stream_axes(known, self.form)
        return with_value(
            output, visit_stream(self.point, "residual_after", shown, self.form), stream
        )

    def attention_added(self, attention: AttentionStructure, output: Any) -> Any:
        """Show what an attention adds to the stream and, where no module returns it, the sum."""
        added, stream = tensor_of(output), self.model.current_pass.stream
        new = self._seen(f".{attention.name}", "output", added)
        if attention.after == "sum" and self.path in stream and self.point.is_hooked:
            total = stream[self.path] + new
            # The model adds up by itself; a difference of zero brings the sum's gradient here.
            before = total.view_as(total) if total.requires_grad else total
            shown = self._seen("", _stream_after(attention), before)
            if shown is not total:
                new = new + (shown - total)
            stream[self.path] = shown
        return with_value(output, new, added)

    def normed(self, attention: AttentionStructure, output: Any) -> Any:
        """Show the stream after an attention where a module returns it."""
        normed = tensor_of(output)
        shown = self._seen("", _stream_after(attention), normed)
        self.model.current_pass.stream[self.path] = shown
        return with_value(output, shown, normed)

    def hidden(self, args: Any, kwargs: Any) -> Any:
        """Show the hidden layer of the feed-forward part."""
        hidden, put = stream_of(args, kwargs)
        return put(self._seen(".feed_forward", "hidden", hidden))

    def feed_forward_added(self, output: Any) -> Any:
        """Show what the feed-forward part adds to the stream."""
        added = tensor_of(output)
        return with_value(output, self._seen(".feed_forward", "output", added), added)

    def _seen(self, part: str, site: str, value: Tensor) -> Tensor:
        return visit_stream(self.model.point(self.path + part), site, value, self.form)


def _stream_after(attention: AttentionStructure) -> str:
    """Return the site of the stream after an attention."""
    if attention.name.startswith("cross"):
        return "residual_after_cross"
    return "residual_between"

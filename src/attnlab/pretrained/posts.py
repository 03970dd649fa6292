"""Posts: hooks in a foreign model, and seams at its attention, that bring values to the doors and take them back.

They stand only while somebody looks; each is taken out when the stack of what was put in is closed.
"""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any, Protocol

from torch import Tensor, nn
from torch.overrides import _get_current_function_mode_stack

from attnlab.errors import CouldNotRun
from attnlab.pretrained.caching import orders_noted
from attnlab.pretrained.doors import AttentionDoor, BlockDoor, FeedForwardDoor
from attnlab.pretrained.functions import Functions
from attnlab.pretrained.multi_head import left_out
from attnlab.pretrained.plan import AttentionPlan, BlockPlan, Place, Plan, StackPlan
from attnlab.pretrained.registry import covered
from attnlab.pretrained.running import Reads, Run
from attnlab.pretrained.standing import Post, alone, nothing, uncompiled
from attnlab.pretrained.survey import first_tensor
from attnlab.sites import SitedModule

__all__ = ["stand"]


class Doored(Protocol):
    """A model with doors, as far as posts know it."""

    foreign: nn.Module
    plan: Plan

    @property
    def run(self) -> Run:
        """What is known of this thread's pass."""
        ...

    def get_submodule(self, target: str) -> nn.Module:
        """Return a door by its path."""
        ...

    def wants(self, *sites: str, to_change: bool = False) -> bool:
        """Say whether anybody asks for a site of the model itself."""
        ...

    def visit(self, site: str, value: Tensor) -> Tensor:
        """Show a value at a site of the model itself."""
        ...


def stand(model: Doored, stack: ExitStack) -> None:
    """Take up all posts in a model, to leave them when the stack closes.

    Raises:
        WrongUsage: posts of other doors stand in it.
    """
    stack.enter_context(alone({model.foreign.get_submodule(each.place.path) for _, each in model.plan.attentions}))
    stack.enter_context(uncompiled(model.foreign))
    posts = _Posts(model, stack)
    posts.root()
    for path, module in model.foreign.named_modules():
        if isinstance(module, nn.TransformerEncoder):
            posts.padding(path, module)
    for each in model.plan.stacks:
        posts.stack(each)
    asks: dict[nn.Module, Callable[[nn.Module], AttentionDoor | None]] = {}
    for path, attention in model.plan.attentions:
        place = attention.place.path
        if attention.seam == "registry":
            asks[model.foreign.get_submodule(place)] = partial(posts.find, "registry", place)
        posts.attention(path, attention)
    posts.meet_attentions()
    posts.finish()
    if asks:
        stack.enter_context(covered(asks))
    stack.enter_context(orders_noted())


class _Posts:
    """Puts hooks into a foreign model, each to be taken out when the stack closes."""

    def __init__(self, model: Doored, stack: ExitStack) -> None:
        self._model, self._stack = model, stack
        self._doors: dict[tuple[str, Place, int], AttentionDoor] = {}
        self._most: dict[tuple[str, Place], int] = {}
        self._asked: dict[str, int] = {}
        self._first: dict[Place, list[Callable[..., Any]]] = {}
        self._last: dict[Place, list[Callable[..., Any]]] = {}
        self._functions = any(each.seam != "registry" for _, each in model.plan.attentions)
        places = [each for plan in model.plan.stacks for block in plan.blocks for each in block.places]
        self._shared = {each.path for each in places if each.number}  # called more than once in a pass

    def root(self) -> None:
        """Stand at the model's own entrance and exit."""
        model = self._model

        def before(module: nn.Module, args: Any, kwargs: Any) -> None:
            model.run.begin()

        def after(module: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
            if not model.run.met and any(door.wants(*door.sites) for door in self._doors.values()):
                raise CouldNotRun(
                    f"none of the attentions of this {type(module).__name__} was met in this pass: it attends in "
                    "another way than when it was given doors, as after set_attn_implementation or with "
                    "output_attentions=True. Leave that out, or load the model again."
                )
            if isinstance(output, Mapping) and isinstance(output.get("logits"), Tensor) and model.wants("logits"):
                found = model.visit("logits", output["logits"])
                if found is not output["logits"]:
                    output["logits"] = found  # type: ignore[index]
            return None

        self._hook("", before, after)

    def stack(self, plan: StackPlan) -> None:
        """Stand around a stack, and at each of its blocks."""
        model, door = self._model, self._model.get_submodule(plan.name)
        assert isinstance(door, SitedModule)
        shared = {path for each in model.plan.stacks if each is not plan for path in each.around}
        for path in plan.around:
            is_own = path not in shared
            module = model.foreign.get_submodule(path)
            reads = Reads(module, is_plain=not hasattr(model.foreign, "config"))

            def before(_: nn.Module, args: Any, kwargs: Any, reads: Reads = reads) -> None:
                model.run.read(plan.name, reads.of(args, kwargs))

            def after(_: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
                memory = first_tensor(output) if plan.name == "encoder" else None
                model.run.gave(plan.name, output, memory)

            if is_own:
                self._hook(path, before, after)
            if self._functions:
                self._meet(module)
        for index, block in enumerate(plan.blocks):
            self._block(plan.name, door, ".".join(filter(None, (plan.name, f"layers.{index}"))), index, block)

    def padding(self, path: str, encoder: nn.TransformerEncoder) -> None:
        """Put zeros where an encoder of plain torch does when nobody looks."""

        def before(_: nn.Module, args: Any, kwargs: Any) -> None:
            modes = _get_current_function_mode_stack()  # type: ignore[no-untyped-call]
            others = [each for each in modes if not isinstance(each, Functions)]
            # With another mode at work torch leaves its fast path by itself.
            self._model.run.left_out = None if others else left_out(encoder, *args, **kwargs)

        def after(_: nn.Module, args: Any, kwargs: Any, output: Tensor) -> Tensor | None:
            where, self._model.run.left_out = self._model.run.left_out, None
            return None if where is None else output.masked_fill(where, 0.0)

        self._hook(path, before, nothing)
        self._hook(f"{path}.layers.{len(encoder.layers) - 1}".lstrip("."), nothing, after)

    def attention(self, path: str, plan: AttentionPlan) -> None:
        """Make an attention's door be found from the place where it is met."""
        door = self._model.get_submodule(path)
        assert isinstance(door, AttentionDoor)
        self._doors[plan.seam, plan.place, plan.nth] = door
        self._most[plan.seam, plan.place] = max(self._most.get((plan.seam, plan.place), 0), plan.nth + 1)
        self._asked[plan.place.path] = max(self._asked.get(plan.place.path, 0), plan.place.number + 1)

    def find(self, seam: str, path: str, _: nn.Module) -> AttentionDoor | None:
        """Return the door that the next attention of a module passes."""
        return self._door(seam, Place(path, self._model.run.number(path, self._asked[path])))

    def _door(self, seam: str, place: Place) -> AttentionDoor | None:
        """Return the door of what a seam is meeting in the present call of a module, counting it.

        What attends once in the survey may do so more often, as for each of several pictures: that is all one door's.

        Raises:
            CouldNotRun: of several attentions in one call there are more than in the survey.
        """
        number, most = self._model.run.count(seam, place), self._most.get((seam, place), 0)
        if number >= most > 0 and seam != "softmax":  # other softmaxes are counted too
            doors = [self._doors[seam, place, each] for each in range(most)]
            if most > 1 and any(door.wants(*door.sites) for door in doors):
                raise CouldNotRun(
                    f"{place.path} attends more than {most} times in one call, and did so {most} times when it was "
                    "surveyed, so that nobody knows which is which; load the model with an example= like this input."
                )
            number = number % most
        door = self._doors.get((seam, place, number))
        self._model.run.met += door is not None
        return door

    def meet_attentions(self) -> None:
        """Turn the seam at torch's functions on in attentions that run by themselves, as where one goes back over them.

        So does gradient checkpointing, which computes a block once more, outside of its model.
        """
        for path in {place.path for seam, place, _ in self._doors if seam != "registry"}:
            self._meet(self._model.foreign.get_submodule(path))

    def finish(self) -> None:
        """Put in the hooks of all that was asked for."""
        calls = dict(self._asked)
        for place in (*self._first, *self._last):
            calls[place.path] = max(calls.get(place.path, 0), place.number + 1)
        for path in sorted(calls):
            self._number(path, calls[path])

    def _number(self, path: str, calls: int) -> None:
        """Count the calls of a module, and do at each what is to be done there."""
        model = self._model

        def before(module: nn.Module, args: Any, kwargs: Any) -> Any:
            number = model.run.call(path, calls)
            for each in self._first.get(Place(path, number), ()):
                args, kwargs = each(args, kwargs)
            return args, kwargs

        def after(module: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
            number = model.run.end(path)
            if output is None:  # the call broke off
                return None
            for each in self._last.get(Place(path, number), ()):
                output = each(output)
            return output

        self._hook(path, before, after, always=True)

    def _block(self, stack: str, at: SitedModule, path: str, index: int, plan: BlockPlan) -> None:
        model, door = self._model, self._model.get_submodule(path)
        assert isinstance(door, BlockDoor)
        if plan.place is None:
            return

        def enter(args: Any, kwargs: Any) -> Any:
            hidden, put = _hidden(args, kwargs)
            if index == 0:
                if stack == "decoder" and "encoder" in model.plan.names:
                    encoder = model.get_submodule("encoder")
                    assert isinstance(encoder, SitedModule)
                    model.run.remind(stack, "encoder", encoder)
                is_turned = plan.stream == "length first" and not hasattr(model.foreign, "config")
                model.run.announce(stack, at, _turned(hidden, plan.stream), is_turned=is_turned)
                hidden = _seen(at, "embedding", hidden, plan.stream)
            hidden = _seen(door, "residual_before", hidden, plan.stream)
            model.run.stream[path] = hidden
            return put(hidden)

        def leave(output: Any) -> Any:
            model.run.stream.pop(path, None)  # of a long text, those of all blocks would be more than all else
            known = door.supplied("residual_after")
            found = first_tensor(output)
            assert found is not None
            shown = found if known is None else _turned_back(known, plan.stream)
            return _with(output, _seen(door, "residual_after", shown, plan.stream), found)

        self._before(plan.place, enter)
        if plan.end is not None:
            self._after(plan.end, leave)
        if plan.gives != "other":
            self._skip(plan.place, door, plan)
        for each in plan.attentions:
            self._stream(path, door, each, plan.stream)
        if "feed_forward" in dict(door.named_children()):
            self._feed_forward(door.get_submodule("feed_forward"), plan)

    def _stream(self, path: str, block: BlockDoor, plan: AttentionPlan, form: str) -> None:
        """Stand where an attention adds to the residual stream, and where the stream can be seen then."""
        model, door = self._model, block.get_submodule(plan.name)
        site = "residual_after_cross" if plan.name.startswith("cross") else "residual_between"
        assert isinstance(door, SitedModule)
        if plan.adds is None:
            return

        def added(output: Any) -> Any:
            found = first_tensor(output)
            assert found is not None
            new = _seen(door, "output", found, form)
            if plan.after == "sum" and block.is_watched and path in model.run.stream:
                total = model.run.stream[path] + new
                shown = _seen(block, site, total, form)
                new = new if shown is total else new + (shown - total)
                model.run.stream[path] = shown
            return _with(output, new, found)

        self._after(plan.adds, added)
        if isinstance(plan.after, Place):

            def normed(output: Any) -> Any:
                found = first_tensor(output)
                assert found is not None
                model.run.stream[path] = _seen(block, site, found, form)
                return _with(output, model.run.stream[path], found)

            self._after(plan.after, normed)

    def _feed_forward(self, door: nn.Module, plan: BlockPlan) -> None:
        assert isinstance(door, FeedForwardDoor)
        if plan.down is not None and "hidden" in door.sites:

            def inside(args: Any, kwargs: Any) -> Any:
                hidden, put = _hidden(args, kwargs)
                return put(_seen(door, "hidden", hidden, plan.stream))

            self._before(plan.down, inside)
        if plan.adds is not None and "output" in door.sites:

            def added(output: Any) -> Any:
                found = first_tensor(output)
                assert found is not None
                return _with(output, _seen(door, "output", found, plan.stream), found)

            self._after(plan.adds, added)

    def _skip(self, place: Place, door: BlockDoor, plan: BlockPlan) -> None:
        """Leave out the inside of a block whose result an instrument knows.

        Not where layers share a module: its calls are told apart by counting them, so that none may be left out.
        """
        module = self._model.foreign.get_submodule(place.path)
        if "forward" in vars(module) or any(each.path in self._shared for each in plan.places):
            return
        forward, model = module.forward, self._model

        def known_or_run(*args: Any, **kwargs: Any) -> Any:
            known = door.supplied("residual_after") if door.is_watched else None
            if known is None:
                return forward(*args, **kwargs)
            model.run.met += 1
            known = _turned_back(known, plan.stream)
            return (known,) if plan.gives == "one" else known

        module.forward = Post(known_or_run, forward)
        self._stack.callback(vars(module).pop, "forward", None)

    def _meet(self, module: nn.Module) -> None:
        """Turn the seam at torch's functions on while a module runs, whatever ends it."""
        own, forward, model = vars(module).get("forward"), module.forward, self._model

        def met(*args: Any, **kwargs: Any) -> Any:
            with model.run.within(lambda: Functions(self._find_here)):
                return forward(*args, **kwargs)

        module.forward = Post(met, forward)
        put_back = partial(vars(module).pop, "forward") if own is None else partial(setattr, module, "forward", own)
        self._stack.callback(put_back)

    def _find_here(self, seam: str) -> AttentionDoor | None:
        """Return the door of the attention that the innermost module at work is about to compute."""
        place = self._model.run.innermost
        if place is None or place.path not in self._asked:
            return None
        return self._door(seam, place)

    def _before(self, place: Place, what: Callable[[Any, Any], Any]) -> None:
        self._first.setdefault(place, []).append(what)

    def _after(self, place: Place, what: Callable[[Any], Any]) -> None:
        self._last.setdefault(place, []).append(what)

    def _hook(self, path: str, before: Callable[..., Any], after: Callable[..., Any], *, always: bool = False) -> None:
        module = self._model.foreign.get_submodule(path)
        hooks = (
            module.register_forward_pre_hook(Post(before, nothing), with_kwargs=True),
            module.register_forward_hook(Post(after, nothing), with_kwargs=True, always_call=always),
        )
        for each in hooks:
            self._stack.callback(each.remove)


def _seen(part: SitedModule, site: str, value: Tensor, form: str) -> Tensor:
    """Show a value at a site, (batch, length, width) there, and return what to go on with, in its own form."""
    given = _turned(value, form)
    found = part.visit(site, given)
    return value if found is given else _turned_back(found, form)


def _turned(value: Tensor, form: str) -> Tensor:
    """Write the stream of plain torch as (batch, length, width)."""
    return value.transpose(0, 1) if form == "length first" else value[None] if form == "one input" else value


def _turned_back(value: Tensor, form: str) -> Tensor:
    return value.transpose(0, 1) if form == "length first" else value[0] if form == "one input" else value


def _hidden(args: Any, kwargs: dict[str, Any]) -> tuple[Tensor, Callable[[Tensor], Any]]:
    """Return the stream that a module is given, and what puts another in its place."""
    index = next((place for place, each in enumerate(args) if isinstance(each, Tensor)), None)
    if index is not None:
        return args[index], lambda new: ((*args[:index], new, *args[index + 1 :]), kwargs)
    name = "hidden_states"
    if name not in kwargs:
        name = next(name for name, each in kwargs.items() if isinstance(each, Tensor))
    return kwargs[name], lambda new: (args, {**kwargs, name: new})


def _with(output: Any, new: Tensor, found: Tensor) -> Any:
    """Put a tensor in the place of the first of an output."""
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

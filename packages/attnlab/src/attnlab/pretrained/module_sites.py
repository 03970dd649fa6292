"""Sites by module path: the output of any module of a foreign model.

    model.expose("model.layers[3].mlp.down_proj")  # "module.model.layers.3.mlp.down_proj.result"

Their hook points are a tree below the stack that the module is in, so that positions are counted in
the text which that stack reads. A module is tried out when it is exposed: it must return a tensor,
once in a pass, and not before its stack is known to read.
"""

import re
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from attnlab.errors import CouldNotRun, WrongUsage, did_you_mean
from attnlab.pretrained.attention_call import visit_stream, with_value
from attnlab.pretrained.model_state import state_kept
from attnlab.pretrained.pass_state import ForeignModel, PassState
from attnlab.pretrained.tracing import Inputs, first_tensor
from attnlab.sites import Hook, SitedModule, StackInput, hooks_of, in_backward, installed, site_of


class ModulePoint(SitedModule):
    """The hook point of the module at the path `place`, or without a site, a step to others."""

    place = stack = ""
    stream = "batch first"

    def show(self, state: PassState, output: Any) -> Any:
        """Show a module's output, or the first tensor in it.

        Raises:
            CouldNotRun: it is the module's second output in this pass.
        """
        value = first_tensor(output)
        if value is None or not self.wants("result"):
            return output
        if not in_backward():  # activation checkpointing calls it again
            if self.place in state.results.setdefault(self.stack, set()):
                raise CouldNotRun(
                    f"{self.place} is called several times in one pass, and one site cannot tell "
                    "its outputs apart; expose modules that are called once."
                )
            state.results[self.stack].add(self.place)
        has_form = value.dim() == (2 if self.stream == "one input" else 3)
        form = self.stream if has_form else "batch first"
        return with_value(output, visit_stream(self, "result", value, form), value)


def module_points(model: ForeignModel) -> Iterator[tuple[str, ModulePoint]]:
    """List the hook points of the exposed modules with their paths."""
    for path, point in model.named_modules():
        if isinstance(point, ModulePoint) and point.sites:
            yield path, point


def module_path(model: ForeignModel, path: str) -> str | None:
    """Return the path of a module of the foreign model, with dots for brackets, or None."""
    dotted = re.sub(r"\[(\d+)\]", r".\1", path)
    return dotted if dotted and dotted in _modules(model) else None


def expose(model: ForeignModel, path: str, example: Inputs) -> str:
    """Make the output of a module a site, and return the site's name; see `Pretrained.expose`."""
    place = module_path(model, path) if isinstance(path, str) else None
    if place is None:
        raise WrongUsage(
            f"{type(model.foreign).__name__} has no module {path!r}; "
            f"{did_you_mean(str(path), _modules(model))}"
        )
    stack, stream = _stack_of(model, place)
    point = model.point(stack)
    for name in ("module", *place.split(".")):
        if name not in dict(point.named_children()):
            point.add_module(name, ModulePoint())
        point = point.get_submodule(name)
    site = site_of(stack, f"module.{place}.result")
    if point.sites:
        return site
    if hooks_of(model):
        raise WrongUsage(f"expose {place!r} before a recording or an edit of this model begins.")
    point.sites, point.place, point.stack, point.stream = ("result",), place, stack, stream
    try:
        _try_out(model, point, site, example)
    except BaseException:
        point.sites = ()
        raise
    return site


def _modules(model: ForeignModel) -> list[str]:
    named = model.foreign.named_modules(remove_duplicate=False)
    return [path for path, _ in named if path]


def _stack_of(model: ForeignModel, place: str) -> tuple[str, str]:
    """Return the name of the stack that a module is in, and the order of its stream's axes."""
    for stack in model.structure.stacks:
        paths = {block.place.path for block in stack.blocks if block.place is not None}
        paths.update(stack.around)
        for other in model.structure.stacks:
            if other is not stack:
                paths.difference_update(other.around)
        if stack.module_in(model.foreign) is not None:
            paths.discard("")
        if any(not path or f"{place}.".startswith(f"{path}.") for path in paths):
            return stack.name, stack.blocks[0].stream
    return "", "batch first"


class _Trial(Hook):
    """Keeps the outputs of a module, and whether its stack was told its tokens before them."""

    changes = False

    def __init__(self, site: str, stack: str) -> None:
        self.sites: frozenset[str] = frozenset({site})
        self.values: list[Tensor] = []
        self.is_read = self.is_early = False
        self._stack = stack

    def wants(self, site: str) -> bool:
        return site in self.sites

    def visit(self, site: str, value: Tensor) -> Tensor:
        self.values.append(value)
        self.is_early |= not self.is_read
        return value

    def read(self, part: str, reading: StackInput) -> None:
        self.is_read |= part == self._stack


def _try_out(model: ForeignModel, point: ModulePoint, site: str, example: Inputs) -> None:
    """Run the model on its example.

    Raises:
        WrongUsage: the module does not return a tensor once, or returns it too early.
    """
    place, trial = point.place, _Trial(site, point.stack)
    device = next((weight.device for weight in model.foreign.parameters()), None)
    inputs = {
        name: value.to(device) if isinstance(value, Tensor) else value
        for name, value in example.items()
    }
    with state_kept(model.foreign, inputs, weights=False), torch.no_grad():
        model.foreign.eval()
        with installed(model, trial):
            model.foreign(**inputs)
    if not trial.values or trial.values[0].dim() < 2:
        raise WrongUsage(
            f"{place} returns no tensor (batch, …) when the model runs on its example: it is a "
            "container, or is not called, or returns something else. If other inputs call it, "
            "load the model with them as example=."
        )
    if len(trial.values) > 1:
        raise WrongUsage(
            f"{place} is called {len(trial.values)} times in one pass, and one site cannot tell "
            "its outputs apart; expose modules that are called once."
        )
    if trial.is_early and trial.is_read:
        raise WrongUsage(
            f"{place} runs before the first block, when its tokens and positions are not known "
            "yet; what enters the first block is the site "
            f"{site_of(point.stack, 'embedding')!r}."
        )

"""Sites by module path: the output of any module of a foreign model.

    model.add_site("model.layers[3].mlp.down_proj")  # "module.model.layers.3.mlp.down_proj.result"
    model.add_site("model.layers[*].mlp.down_proj")  # of every layer

Their hook points are a tree below the stack that the module is in, so that positions are counted in
the text which that stack reads. A module is tried out when it becomes a site: it must return a
tensor, once in a pass, and not before its stack is known to read.
"""

import fnmatch
import re
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from attnlab.display import count_words
from attnlab.errors import CouldNotRun, WrongUsage, did_you_mean
from attnlab.pretrained.attention_call import visit_stream, with_value
from attnlab.pretrained.model_state import state_kept
from attnlab.pretrained.pass_state import ForeignModel, PassState
from attnlab.pretrained.tracing import Inputs, first_tensor
from attnlab.sites import (
    Hook,
    SitedModule,
    StackInput,
    hooks_of,
    in_backward,
    installed,
    parts_of,
    site_of,
)


class ModulePoint(SitedModule):
    """The hook point of the module at the path `place`, or without a site, a step to others."""

    place = stack = ""
    stream = "batch first"
    is_tried = False

    @property
    def site(self) -> str:
        """The name of its site."""
        return site_of(self.stack, f"module.{self.place}.result")

    def show(self, state: PassState, output: Any) -> Any:
        """Show a module's output, or the first tensor in it.

        Raises:
            CouldNotRun: it is the module's second output in this pass.
        """
        value = first_tensor(output)
        if value is None or not self.wants("result"):
            return output
        if not in_backward():  # activation checkpointing calls it again
            if self.is_tried and self.place in state.results.setdefault(self.stack, set()):
                raise CouldNotRun(
                    f"{self.place} is called several times in one pass, and one site cannot tell "
                    "its outputs apart; name modules that are called once."
                )
            state.results.setdefault(self.stack, set()).add(self.place)
        has_form = value.dim() == (2 if self.stream == "one input" else 3)
        form = self.stream if has_form else "batch first"
        return with_value(output, visit_stream(self, "result", value, form), value)


def module_points(model: ForeignModel) -> Iterator[tuple[str, ModulePoint]]:
    """List the hook points of the modules that are sites with their paths."""
    for path, point in parts_of(model):
        if isinstance(point, ModulePoint) and point.sites:
            yield path, point


class AddedSites(str):
    """The pattern of the sites of all modules that a pattern matches, which says how many they are.

    names: of the sites · refused: why other modules are none, by their paths.
    """

    names: tuple[str, ...]
    refused: Mapping[str, str]

    def __repr__(self) -> str:
        words = f"{str(self)!r}: {count_words(len(self.names), 'site')}"
        if not self.refused:
            return words
        reason = next(iter(self.refused.values()))
        return f"{words}; {count_words(len(self.refused), 'other module')} refused, as {reason}"


def module_path(model: ForeignModel, path: str) -> str | None:
    """Return the path of a module of the foreign model, with dots for brackets, or None."""
    dotted = _dotted(path)
    return dotted if dotted and dotted in _modules(model) else None


def _dotted(path: str) -> str:
    return re.sub(r"\[(\d+|\*)\]", r".\1", path)


def add_site(model: ForeignModel, path: str, example: Inputs) -> str:
    """Make the output of a module a site, and return the site's name; see `Pretrained.add_site`."""
    place = module_path(model, path) if isinstance(path, str) else None
    if place is None:
        raise WrongUsage(
            f"{type(model.foreign).__name__} has no module {path!r}; "
            f"{did_you_mean(str(path), _modules(model))}"
        )
    sites, refused = _add_sites(model, [place], example)
    if refused:
        raise WrongUsage(refused[place])
    return sites[0]


def add_matching_sites(model: ForeignModel, pattern: str, example: Inputs) -> AddedSites:
    """Make the outputs of all modules that a pattern matches sites, but for those that cannot be
    one; see `Pretrained.add_site`."""
    known, dotted = _modules(model), _dotted(pattern)
    places = fnmatch.filter(known, dotted)
    if not places:
        raise WrongUsage(
            f"no module of {type(model.foreign).__name__} matches {pattern!r}; "
            f"{did_you_mean(pattern, known)}"
        )
    names, refused = _add_sites(model, places, example)
    if not names:
        raise WrongUsage(next(iter(refused.values())))
    stacks = {_stack_of(model, place)[0] for place in places if place not in refused}
    start = stacks.pop() if len(stacks) == 1 else "*"
    added = AddedSites(site_of(start, f"module.{dotted}.result"))
    added.names, added.refused = tuple(names), refused
    return added


def _add_sites(
    model: ForeignModel, places: list[str], example: Inputs
) -> tuple[list[str], dict[str, str]]:
    """Make modules sites; return the sites' names, and by path the reasons why others are none."""
    points = {place: _point_of(model, place) for place in places}
    fresh = {place: point for place, point in points.items() if not point.sites}
    refused: dict[str, str] = {}
    if fresh and hooks_of(model):
        first = next(iter(fresh))
        raise WrongUsage(
            f"make {first!r} a site before a recording or an edit of this model begins."
        )
    try:
        for point in fresh.values():
            point.sites = ("result",)
        refused = _refusals(model, list(fresh.values()), example)
    except BaseException:
        refused = dict.fromkeys(fresh, "")
        raise
    finally:
        for place, point in fresh.items():
            point.is_tried = place not in refused
            point.sites = ("result",) if point.is_tried else ()
    return [point.site for place, point in points.items() if place not in refused], refused


def _point_of(model: ForeignModel, place: str) -> ModulePoint:
    """Return the hook point of a module, made if there is none."""
    stack, stream = _stack_of(model, place)
    point: Any = model.point(stack)
    for name in ("module", *place.split(".")):
        if name not in dict(point.named_children()):
            point.add_module(name, ModulePoint())
        point = point.get_submodule(name)
    assert isinstance(point, ModulePoint)
    point.place, point.stack, point.stream = place, stack, stream
    return point


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
    """Keeps the outputs of modules, and which came before their stack was told its tokens."""

    changes = False

    def __init__(self, points: list[ModulePoint]) -> None:
        self._stacks = {point.site: point.stack for point in points}
        self.sites: frozenset[str] = frozenset(self._stacks)
        self.values: dict[str, list[Tensor]] = {site: [] for site in self._stacks}
        self.read_stacks: set[str] = set()
        self.early: set[str] = set()

    def wants(self, site: str) -> bool:
        return site in self.sites

    def visit(self, site: str, value: Tensor) -> Tensor:
        self.values[site].append(value)
        if self._stacks[site] not in self.read_stacks:
            self.early.add(site)
        return value

    def read(self, part: str, reading: StackInput) -> None:
        self.read_stacks.add(part)


def _refusals(model: ForeignModel, points: list[ModulePoint], example: Inputs) -> dict[str, str]:
    """Run the model on its example; return by path why some modules cannot be sites."""
    trial = _Trial(points)
    device = next((weight.device for weight in model.foreign.parameters()), None)
    inputs = {
        name: value.to(device) if isinstance(value, Tensor) else value
        for name, value in example.items()
    }
    with state_kept(model.foreign, inputs, weights=False), torch.no_grad():
        model.foreign.eval()
        with installed(model, trial):
            model.foreign(**inputs)
    reasons = ((point.place, _refusal(trial, point)) for point in points)
    return {place: reason for place, reason in reasons if reason}


def _refusal(trial: _Trial, point: ModulePoint) -> str:
    """Say why a module does not return a tensor once, or returns it too early; "" if it does."""
    values, place = trial.values[point.site], point.place
    if not values or values[0].dim() < 2:
        return (
            f"{place} returns no tensor (batch, …) when the model runs on its example: it is a "
            "container, or is not called, or returns something else. If other inputs call it, "
            "load the model with them as example=."
        )
    if len(values) > 1:
        return (
            f"{place} is called several times in one pass, and one site cannot tell its "
            "outputs apart; name modules that are called once."
        )
    if point.site in trial.early and point.stack in trial.read_stacks:
        return (
            f"{place} runs before the first block, when its tokens and positions are not known "
            f"yet; what enters the first block is the site {site_of(point.stack, 'embedding')!r}."
        )
    return ""

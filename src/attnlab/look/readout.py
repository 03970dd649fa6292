"""How the stream of a foreign model becomes its logits, part by part.

A head writes to the stream through the output projection and perhaps a norm, each block adds one
more part, and after the last block come norms and matrices, the output embedding last. All of that
is linear if the scales of norms are held fixed (`lens.py`), so a logit is a sum. The tanh that caps
logits, and the activation in the head of a masked language model, are held fixed likewise, by their
ratio for each number. Anything else on the way is an error that names it.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from attnlab.errors import CouldNotRun
from attnlab.look.anatomy import (
    Anatomy,
    Function,
    HeadsStep,
    NormStep,
    PartStep,
    anatomy_of,
    are_close,
    cap_of,
    device_of,
    reader_of,
)  # fmt: skip
from attnlab.look.inputs import Call
from attnlab.look.recording import Recording, record
from attnlab.pretrained.model import Pretrained
from attnlab.pretrained.tracing import first_tensor
from attnlab.sites import Hook, installed, set_aside

__all__ = ["ForeignParts", "foreign_parts", "foreign_stages"]


class ForeignParts(NamedTuple):
    """The parts of the stream where it is read, and the module that reads it.

    writers: (part, head or None) · written (writer, row, d_model) · read: linear, to (…, row,
    vocabulary) · bias (row, vocabulary) · reader: the module's name · logits (row, vocabulary).
    """

    writers: list[tuple[str, int | None]]
    written: Tensor
    read: Callable[[Tensor], Tensor]
    bias: Tensor
    reader: str
    logits: Tensor


@torch.no_grad()
def foreign_stages(
    model: Pretrained, call: Call, chosen: Callable[[Tensor], Tensor]
) -> tuple[list[str], list[Tensor]]:
    """Read out the stream of every stage by putting it in the place of the last one: sites, and
    `chosen` of the logits."""
    reader_of(model)
    stack = model.structure.stacks[-1]
    prefix = f"{stack.name}." if stack.name else ""
    sites = [f"{prefix}layers.{index}.residual_after" for index in range(len(stack.blocks))]
    _require(model, [f"{prefix}embedding", *sites])
    every = [name for name in _all_sites(model) if name.endswith("residual_after")]
    with record(model, [f"{prefix}embedding", *every], keep_on=device_of(model)) as recording:
        call(model)
    known = {site: recording[site] for site in every}
    stages, found = [f"{prefix}embedding", *sites], []
    for site in stages:
        with installed(model, _Supplier({**known, sites[-1]: recording[site]})):
            found.append(chosen(call(model)))
    return stages, found


@torch.no_grad()
def foreign_parts(
    model: Pretrained, call: Call, places_of: Callable[[Tensor], Tensor]
) -> ForeignParts:
    """Decompose the stream at one position of each row, which `places_of` finds from the logits."""
    anatomy = anatomy_of(model)
    stack = model.structure.stacks[-1]
    start = f"{stack.name}.embedding" if stack.name else "embedding"
    heads = [f"{step.point}.heads" for step in anatomy.steps if isinstance(step, HeadsStep)]
    _require(model, [start, *heads])
    parts = [step for step in anatomy.steps if isinstance(step, PartStep)]
    with (
        _OutputRecorder(model, parts) as kept,
        record(model, [start, *heads], keep_on=device_of(model)) as recording,
    ):
        logits = call(model)
    with set_aside(model):  # its modules are called by themselves, outside of any pass
        return _decomposed(model, anatomy, start, recording, kept.found, logits, places_of(logits))


def _decomposed(
    model: Pretrained,
    anatomy: Anatomy,
    start: str,
    recording: Recording,
    kept: dict[PartStep, Tensor],
    logits: Tensor,
    places: Tensor,
) -> ForeignParts:
    rows, module_at = torch.arange(len(logits), device=logits.device), model.foreign.get_submodule

    def at(value: Tensor) -> Tensor:
        """Take each row's position: (row · position, d_model), in one axis or two -> (row, 1,
        d_model)."""
        return value.reshape(len(logits), -1, value.shape[-1])[rows, places].unsqueeze(1)

    writers: list[tuple[str, int | None]] = [(start, None)]
    written = at(recording[start]).unsqueeze(0)
    for step in anatomy.steps:
        if isinstance(step, NormStep):
            written = _through(model, step.path, module_at(step.path), written, writers)
            continue
        who: list[tuple[str, int | None]]
        if isinstance(step, HeadsStep):
            here = recording[f"{step.point}.heads"][rows, :, places].unsqueeze(2)
            who = [(step.point, head) for head in range(here.shape[1])]
            added = _through(model, step.point, module_at(step.projection), _alone(here), who)
            for norm in step.norms:
                added = _through(model, norm, module_at(norm), added, who)
        else:
            who, added = [(step.name, None)], at(kept[step]).unsqueeze(0)
        writers += who
        written = torch.cat([written, step.factor * added])
    for path, function in anatomy.behind:
        written = _through(model, path, function, written, writers)
    written = anatomy.factor * written.squeeze(2)
    module, at_zero = module_at(anatomy.reader), torch.zeros_like(written[0])
    bias, logits = module(at_zero), logits[rows, places]
    plain = module(written.sum(0))
    ratio = torch.full_like(plain, 1.0 if anatomy.scale is None else anatomy.scale)
    if anatomy.scale is None:  # capped: the tanh's ratio for each logit is held fixed, too
        cap = cap_of(model)
        ratio = torch.where(plain == 0, ratio, cap * torch.tanh(plain / cap) / plain)
    constant = bias * ratio if anatomy.bias is None else bias * ratio + anatomy.bias
    return ForeignParts(
        writers,
        written,
        lambda x: (module(x) - module(at_zero)) * ratio,
        constant,
        anatomy.reader,
        logits,
    )


def _alone(heads: Tensor) -> Tensor:
    """Join heads (row, head, position, width) with all but one zeroed: (head, row, position, head ·
    width)."""
    num_heads = heads.shape[1]
    alone = heads.new_zeros((num_heads, heads.shape[0], heads.shape[2], num_heads, heads.shape[3]))
    for head in range(num_heads):
        alone[head, :, :, head] = heads[:, head]
    return alone.flatten(-2)


def _through(
    model: Pretrained,
    name: str,
    function: Function,
    written: Tensor,
    writers: list[tuple[str, int | None]],
) -> Tensor:
    """Apply a linear function, or one that is linear with its scale held fixed, to every part; its
    bias is one more writer.

    Raises:
        CouldNotRun: the function is neither.
    """
    whole = written.sum(0)
    bias = function(torch.zeros_like(whole))
    found, wanted = torch.stack([function(each) for each in written]) - bias, function(whole) - bias
    if not are_close(found.sum(0), wanted):
        scaled = _held(function, written, wanted, bias)
        if scaled is None:
            raise CouldNotRun(
                f"{model.name} cannot be taken apart: {name}, through which the stream is read, "
                "is neither a matrix nor a norm nor an activation, so a logit is no sum of "
                "parts. logit_lens reads the stream all the same."
            )
        found = scaled
    if bool((bias != 0).any()):
        writers.append((f"{name} bias", None))
        found = torch.cat([found, bias.unsqueeze(0)])
    return found


def _held(function: Function, written: Tensor, wanted: Tensor, bias: Tensor) -> Tensor | None:
    """Apply a norm or an activation to each part, with the scale that their sum has; None if it is
    neither."""
    probe = torch.ones_like(bias)
    probe[..., 1::2] = -1.0
    if probe.shape[-1] % 2:  # still of mean 0 and power 1
        probe[..., -3:] = probe.new_tensor((2**0.5, -(0.5**0.5), -(0.5**0.5)))
    if bias.shape != written.shape[1:]:
        return None
    weight = (function(probe) - bias) / probe
    for is_centred in (False, True):
        parts = written - written.mean(-1, keepdim=True) if is_centred else written
        scaled = weight * parts.sum(0)
        scale = (scaled * wanted).sum(-1, keepdim=True) / scaled.square().sum(-1, keepdim=True)
        if are_close(scale * scaled, wanted):
            return scale * weight * parts
    whole, middle = written.sum(0), written.shape[-1] // 2
    half = torch.cat((torch.zeros_like(whole[..., :middle]), whole[..., middle:]), -1)
    if not are_close((function(half) - bias)[..., middle:], wanted[..., middle:]):
        return None  # its result for one number depends on the others
    return torch.where(whole == 0, 0.0, wanted / whole) * written


def _require(model: Pretrained, sites: Sequence[str]) -> None:
    known = set(_all_sites(model))
    lacking = [site for site in sites if site not in known]
    if lacking:
        raise CouldNotRun(f"{model.name} cannot be read half-way: it has no site {lacking[0]}.")


def _all_sites(model: Pretrained) -> list[str]:
    return [
        f"{path}.{site}" if path else site
        for path, point in model.named_modules()
        for site in getattr(point, "sites", ())
    ]


class _Supplier(Hook):
    """Supplies the outputs of blocks."""

    def __init__(self, known: dict[str, Tensor]) -> None:
        self._known = known

    def supply(self, site: str) -> Tensor | None:
        return self._known.get(site)


class _OutputRecorder:
    """Records the outputs of some module calls within a `with`."""

    def __init__(self, model: Pretrained, parts: Sequence[PartStep]) -> None:
        self.found: dict[PartStep, Tensor] = {}
        self._model, self._stack = model, ExitStack()
        self._at = {(part.path, part.number): part for part in parts}

    def __enter__(self) -> "_OutputRecorder":
        for path in {path for path, _ in self._at}:
            module = self._model.foreign.get_submodule(path)
            handle = module.register_forward_hook(self._recorder(path))
            self._stack.callback(handle.remove)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _recorder(self, path: str) -> Callable[..., None]:
        calls = 0

        def keep(module: nn.Module, args: Any, output: Any) -> None:
            nonlocal calls
            value, part = first_tensor(output), self._at.get((path, calls))
            calls += 1
            if value is not None and part is not None:
                self.found[part] = value.clone()  # falcon adds to it in place

        return keep

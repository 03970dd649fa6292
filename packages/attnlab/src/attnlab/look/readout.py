"""The decomposition of logits: the contribution of every part of the residual stream.

A head writes to the stream through the output projection and perhaps a norm, each block adds one
more part, and after the last block come norms and matrices, the output embedding last. All of that
is linear if the scales of norms are held fixed (`lens.py`), so a logit is a sum. The tanh that caps
logits, and the activation in the head of a masked language model, are held fixed likewise, by their
ratio for each number. Anything else on the way is an error that names it.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn

from attnlab.errors import CouldNotRun, WrongUsage, not_none
from attnlab.look.anatomy import (
    AnatomyStep,
    Function,
    HeadsStep,
    NormStep,
    PartStep,
    anatomy_of,
    are_close,
    cap_of,
    lens_stack,
    not_a_sum,
)  # fmt: skip
from attnlab.look.heads import head_name
from attnlab.look.inputs import Call, foreign_of, places_of
from attnlab.look.recording import Recording, record
from attnlab.models.encoder import Encoder
from attnlab.parts.dropout import drops_out
from attnlab.pretrained.model import Pretrained
from attnlab.pretrained.text import device_of
from attnlab.pretrained.tracing import first_tensor
from attnlab.sites import Hook, installed, set_aside, site_names

_AT_ONCE = 2**22
"""Logits that are read at once: one part at a time takes as long, all take too much memory."""


@dataclass(frozen=True)
class StreamWriter:
    """A writer to the stream: a part by its path, the number of its head if it is a head, and the
    key if it is what a head takes from one."""

    part: str
    head: int | None = None
    key: int | None = None

    def __str__(self) -> str:
        if self.head is None:
            return self.part
        name = f"head {head_name(self.part, self.head)}"
        return name if self.key is None else f"{name} from key {self.key}"


@dataclass(frozen=True)
class HeadPieces:
    """A head of one input whose output at one position is a sum: pieces (key, value_width)."""

    part: str
    head: int
    pieces: Tensor

    def writers(self, heads: int) -> list[StreamWriter]:
        """List the writers of its attention: the keys of this head, the other heads whole."""
        keys = [StreamWriter(self.part, self.head, key) for key in range(len(self.pieces))]
        others = [StreamWriter(self.part, head) for head in range(heads)]
        return [*others[: self.head], *keys, *others[self.head + 1 :]]

    def apart(self, alone: Tensor) -> Tensor:
        """Put the pieces in the place of their head: heads (head, 1, 1, head · width), all but one
        zeroed, -> (writer, 1, 1, head · width)."""
        width = self.pieces.shape[1]
        there = alone.new_zeros((len(self.pieces), *alone.shape[1:]))
        there[:, 0, 0, self.head * width : (self.head + 1) * width] = self.pieces
        return torch.cat([alone[: self.head], there, alone[self.head + 1 :]])


@dataclass(frozen=True)
class StreamParts:
    """The parts of the stream where it is read, and the function that reads it.

    written (writer, row, d_model) · read: linear, to (…, row, vocabulary) · bias (row, vocabulary)
    · reader: the function's name · logits (row, vocabulary).
    """

    writers: list[StreamWriter]
    written: Tensor
    read: Function
    bias: Tensor
    reader: str
    logits: Tensor

    def shares(self, written: Tensor, of: Function) -> Tensor:
        """Read what parts wrote, some parts at a time, and keep what `of` makes of their logits
        (part, row, vocabulary): (part, …)."""
        at_once = max(1, _AT_ONCE // self.logits.numel())
        return torch.cat([of(self.read(some)) for some in torch.split(written, at_once)])


@torch.no_grad()
def read_stages(model: nn.Module, call: Call, position: int | Tensor) -> dict[str, Tensor]:
    """Read out the stream of every stage by putting it in the place of the last one: logits (row,
    vocabulary) by their sites."""
    prefix, num_blocks = lens_stack(model)
    _check(model, position)
    stages = [f"{prefix}layers.{index}.residual_after" for index in range(num_blocks)]
    stages.insert(0, f"{prefix}embedding")
    _require(model, stages)
    # Stacks that are read by this one need not be computed again either.
    blocks = [site for site in site_names(model) if site.endswith("residual_after")]
    with record(model, [stages[0], *blocks], keep_on=device_of(model)) as recording:
        call(model)
    known = {site: recording[site] for site in blocks}
    logits_by_site = {}
    with set_aside(model):  # the recorded streams are as edited
        for site in stages:
            with installed(model, _Supplier({**known, stages[-1]: recording[site]})):
                logits = call(model)
            places = _places(model, call, position, logits)
            if places is not None:
                logits = logits[torch.arange(len(logits), device=logits.device), places]
            logits_by_site[site] = logits
    return logits_by_site


@torch.no_grad()
def parts_of_stream(
    model: nn.Module, call: Call, position: int | Tensor, apart: HeadPieces | None = None
) -> StreamParts:
    """Decompose the stream at one position of each row, and check that its parts sum to the logits.

    apart: a head that is written as its pieces.

    Raises:
        WrongUsage: they do not, because an edit changes the stream.
        CouldNotRun: a foreign model whose logits are no sum of parts.
    """
    prefix, _ = lens_stack(model)
    _check(model, position)
    anatomy = anatomy_of(model)
    start = f"{prefix}embedding"
    _require(model, [start, *heads_of(anatomy.steps)])
    with recorded_steps(model, anatomy.steps, [start]) as (recording, kept):
        logits = call(model)
    real = cast(Tensor | None, call.options.get("real"))
    place = Place(logits, _places(model, call, position, logits), real)
    with set_aside(model):  # its modules are called by themselves, outside of any pass
        began = [StreamWriter(start)], place.of(recording[start]).unsqueeze(0)
        writers, written = written_by(model, anatomy.steps, began, recording, kept, place, apart)
        for path, function in anatomy.behind:
            written = _through(path, function, written, writers)
        written = anatomy.factor * place.mean(written)
        plain, bias = anatomy.read(written.sum(0)), anatomy.read(torch.zeros_like(written[0]))
    ratio: float | Tensor = 1.0
    if anatomy.scale is not None:
        ratio = anatomy.scale
    elif isinstance(model, Pretrained):  # capped: the tanh's ratio for each logit is held fixed
        cap = cap_of(model)
        ratio = torch.where(plain == 0, 1.0, cap * torch.tanh(plain / cap) / plain)
    constant = bias * ratio
    if anatomy.bias is not None:
        constant = constant + anatomy.bias
    if place.places is not None:
        logits = logits[place.rows, place.places]
    total, size = (plain - bias) * ratio + constant, max(1.0, float(logits.abs().amax()))
    if float((total - logits).abs().amax()) > torch.finfo(total.dtype).eps ** 0.5 * size:
        raise WrongUsage(
            "the parts do not sum to the logits: something else changes the stream. Leave edits of "
            "outputs and of the stream first (those of heads may stay)."
        )
    linear = lambda x: (anatomy.read(x) - bias) * ratio  # noqa: E731
    return StreamParts(writers, written, linear, constant, anatomy.reader, logits)


@dataclass(frozen=True)
class Place:
    """Where the stream is read: at `places`, (row,) or (row, position), or in the mean over all
    `real` positions.

    logits: any tensor with a row for each input.
    """

    logits: Tensor
    places: Tensor | None
    real: Tensor | None

    @property
    def rows(self) -> Tensor:
        """Number the rows, (row,)."""
        return torch.arange(len(self.logits), device=self.logits.device)

    def of(self, value: Tensor) -> Tensor:
        """Take what is read: (row · position, d_model), in one axis or two -> (row, position,
        d_model)."""
        value = value.reshape(len(self.logits), -1, value.shape[-1])
        if self.places is None:
            return value
        return value[self._index]

    def of_heads(self, heads: Tensor) -> Tensor:
        """Take what is read: (row, head, position, width), with fewer positions."""
        if self.places is None:
            return heads
        return heads.transpose(1, 2)[self._index].transpose(1, 2)

    @property
    def _index(self) -> tuple[Tensor, Tensor]:
        """Rows (row, 1) and their positions, (row, position)."""
        places = not_none(self.places)
        return self.rows.unsqueeze(1), places if places.dim() > 1 else places.unsqueeze(1)

    def mean(self, x: Tensor) -> Tensor:
        """Bring (…, row, position, d_model) to (…, row, d_model), as the model reads it."""
        if self.places is not None or self.real is None:
            return x.mean(-2)
        kept = x.masked_fill(~self.real.unsqueeze(-1), 0.0)
        return kept.sum(-2) / self.real.sum(-1, keepdim=True).clamp(min=1)


def written_by(
    model: nn.Module,
    steps: Iterable[AnatomyStep],
    began: tuple[list[StreamWriter], Tensor],
    recording: Recording,
    kept: dict[PartStep, Tensor],
    place: Place,
    apart: HeadPieces | None = None,
) -> tuple[list[StreamWriter], Tensor]:
    """Return the writers of these steps, and what each wrote at a place, (writer, row, position,
    d_model).

    began: the writers before the first step, and what they wrote · apart: see `parts_of_stream`.
    """
    modules = dict(foreign_of(model).named_modules(remove_duplicate=False))
    writers, written = list(began[0]), began[1]
    for step in steps:
        if isinstance(step, NormStep):
            written = _through(step.path, modules[step.path], written, writers)
            continue
        if isinstance(step, PartStep):
            writer, added = [StreamWriter(step.name)], place.of(kept[step]).unsqueeze(0)
        else:
            heads = place.of_heads(recording[f"{step.point}.heads"])
            writer = [StreamWriter(step.point, head) for head in range(heads.shape[1])]
            alone = _alone(heads)
            if apart is not None and apart.part == step.point:
                writer, alone = apart.writers(heads.shape[1]), apart.apart(alone)
            added = _through(step.point, modules[step.projection], alone, writer)
            for norm in step.norms:
                added = _through(norm, modules[norm], added, writer)
        writers += writer
        written = torch.cat([written, step.factor * added])
    return writers, written


def _alone(heads: Tensor) -> Tensor:
    """Join heads (row, head, position, width) with all but one zeroed: (head, row, position, head ·
    width)."""
    return torch.diag_embed(heads.movedim(1, -1), dim1=0, dim2=3).flatten(-2)


def _through(name: str, function: Function, written: Tensor, writers: list[StreamWriter]) -> Tensor:
    """Apply a linear function, or one that is linear with its scale held fixed, to every part; its
    bias is one more writer.

    Raises:
        CouldNotRun: the function is neither.
    """
    if is_norm(function):
        norm = FrozenNorm.of(function, written.sum(0))
        if norm is not None:
            return _with_bias(name, norm.linear(written), norm.bias, writers)
    whole = written.sum(0).unsqueeze(0)
    every = torch.cat([torch.zeros_like(whole), whole, written])
    made = function(every.flatten(0, 1))
    made = made.reshape(*every.shape[:2], *made.shape[1:])
    bias, wanted, parts = made[0], made[1] - made[0], made[2:] - made[0]
    if not are_close(parts.sum(0), wanted):
        scaled = _held(function, written, wanted, bias)
        if scaled is None:
            raise not_a_sum(
                f"{name}, between the stream and the logits, is neither matrix, norm nor activation"
            )
        parts = scaled
    return _with_bias(name, parts, bias, writers)


def _with_bias(name: str, parts: Tensor, bias: Tensor, writers: list[StreamWriter]) -> Tensor:
    """Add the bias of a function to what parts make of it, as one more writer, if it has one."""
    if bool((bias != 0).any()):
        writers.append(StreamWriter(f"{name} bias"))
        parts = torch.cat([parts, bias.unsqueeze(0)])
    return parts


def is_norm(function: Function) -> bool:
    """Is a function a module that is a norm by its type's name?"""
    if not isinstance(function, nn.Module) or "norm" not in type(function).__name__.lower():
        return False
    return not any(function.children())


@dataclass(frozen=True)
class FrozenNorm:
    """A norm with its scale held at that of one input: `x -> scale · weight · (x, less its mean) +
    bias`; scale (…, 1) of each position, weight (…, width).
    """

    weight: Tensor
    scale: Tensor
    bias: Tensor
    takes_mean: bool

    @classmethod
    @torch.no_grad()
    def of_module(cls, module: nn.Module, x: Tensor, output: Tensor) -> "FrozenNorm | None":
        """Hold the norm that a module is, at an input; None if it is no norm."""
        return cls.of(module.forward, x.detach(), output.detach())

    @classmethod
    def of(cls, function: Function, x: Tensor, output: Tensor | None = None) -> "FrozenNorm | None":
        """Hold a norm at an input (row, …, width), whose output may be known; None if the function
        is no norm."""
        if x.shape[-1] < 2 or (output is not None and output.shape != x.shape):
            return None
        probe = torch.ones_like(x)
        probe[..., 1::2] = -1.0
        if probe.shape[-1] % 2:  # still of mean 0 and power 1
            probe[..., -3:] = probe.new_tensor((2**0.5, -(0.5**0.5), -(0.5**0.5)))
        inputs = torch.cat([torch.zeros_like(x), probe, probe + 1.0, x])
        outputs = function(inputs)
        if outputs.shape != inputs.shape:
            return None
        bias, probed, shifted, made = outputs.chunk(4)
        output = made if output is None else output
        weight = (probed - bias) / probe
        takes_mean = are_close(shifted, probed)
        norm = cls(weight, weight.new_ones(()), bias, takes_mean)
        scaled, wanted = norm.linear(x), output - bias
        power = scaled.square().sum(-1, keepdim=True).clamp(min=torch.finfo(x.dtype).tiny)
        scale = (scaled * wanted).sum(-1, keepdim=True) / power
        return replace(norm, scale=scale) if are_close(scale * scaled, wanted) else None

    def at_unit_scale(self) -> "FrozenNorm":
        """Return the norm with its scale held at 1, whatever the input."""
        return replace(self, scale=torch.ones_like(self.scale))

    def linear(self, x: Tensor) -> Tensor:
        """Return what it makes of x without the bias, (…, width)."""
        if self.takes_mean:
            x = x - x.mean(-1, keepdim=True)
        return self.scale * self.weight * x

    def __call__(self, x: Tensor) -> Tensor:
        """(…, width) -> the same."""
        return self.linear(x) + self.bias


def _held(function: Function, written: Tensor, wanted: Tensor, bias: Tensor) -> Tensor | None:
    """Apply a norm or an activation to each part, with the scale that their sum has; None if it is
    neither."""
    if bias.shape != written.shape[1:]:
        return None
    norm = FrozenNorm.of(function, written.sum(0), wanted + bias)
    if norm is not None:
        return norm(written) - bias
    whole, middle = written.sum(0), written.shape[-1] // 2
    half = torch.cat((torch.zeros_like(whole[..., :middle]), whole[..., middle:]), -1)
    if not are_close((function(half) - bias)[..., middle:], wanted[..., middle:]):
        return None  # its result for one number depends on the others
    return torch.where(whole == 0, 0.0, wanted / whole) * written


def _check(model: nn.Module, position: int | Tensor) -> None:
    """Raise if a lens would be random, or would ignore a position."""
    if drops_out(model):
        raise WrongUsage("the model has random dropout; call model.eval() first.")
    if reads_mean(model) and not (isinstance(position, int) and position == -1):
        raise WrongUsage(
            f"an encoder reads out the mean over its positions; leave position={position!r} out."
        )


def reads_mean(model: nn.Module) -> bool:
    """Is the mean over the positions read out, rather than each position?"""
    return isinstance(model, Encoder) and not model.config.per_token


def _places(model: nn.Module, call: Call, position: int | Tensor, logits: Tensor) -> Tensor | None:
    """Return the place in each row where the stream is read, (row,); None for the mean of all."""
    if reads_mean(model):
        return None
    return places_of(position, logits.shape[0], logits.shape[1], call.real).to(logits.device)


def _require(model: nn.Module, sites: Sequence[str]) -> None:
    lacking = set(sites) - set(site_names(model))
    if lacking:
        first = min(lacking, key=sites.index)
        raise CouldNotRun(f"{type(foreign_of(model)).__name__} cannot be read: no site {first}.")


class _Supplier(Hook):
    """Supplies the outputs of blocks."""

    def __init__(self, known: dict[str, Tensor]) -> None:
        self._known, self.sites = known, frozenset(known)

    def supply(self, site: str) -> Tensor | None:
        return self._known.get(site)


def heads_of(steps: Iterable[AnatomyStep]) -> list[str]:
    """List the sites of the heads that write in these steps."""
    return [f"{step.point}.heads" for step in steps if isinstance(step, HeadsStep)]


@contextmanager
def recorded_steps(
    model: nn.Module, steps: Iterable[AnatomyStep], sites: Iterable[str]
) -> Iterator[tuple[Recording, dict[PartStep, Tensor]]]:
    """Record within the `with` what is written in these steps: the heads, beside other sites, and
    the outputs of the other parts."""
    steps = list(steps)
    parts = [step for step in steps if isinstance(step, PartStep)]
    wanted = [*sites, *heads_of(steps)]
    with (
        _outputs_of(foreign_of(model), parts) as outputs,
        record(model, wanted, keep_on=device_of(model)) as recording,
    ):
        yield recording, outputs


@contextmanager
def _outputs_of(model: nn.Module, parts: Sequence[PartStep]) -> Iterator[dict[PartStep, Tensor]]:
    """Record the outputs of some module calls within the `with`."""
    outputs: dict[PartStep, Tensor] = {}
    wanted = {(part.path, part.number): part for part in parts}
    calls: Counter[str] = Counter()

    def keep(path: str, module: nn.Module, args: Any, output: Any) -> None:
        value, part = first_tensor(output), wanted.get((path, calls[path]))
        calls[path] += 1
        if value is not None and part is not None:
            outputs[part] = value.clone()  # falcon adds to it in place

    with ExitStack() as stack:
        for path in {path for path, _ in wanted}:
            handle = model.get_submodule(path).register_forward_hook(partial(keep, path))
            stack.callback(handle.remove)
        yield outputs

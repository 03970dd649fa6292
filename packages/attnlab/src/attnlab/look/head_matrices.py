"""The matrices of heads, between streams: queries, keys and values of one, and the output to one.

They are found without knowing the family. In one pass every stream that an attention reads is a
leaf of random numbers, and every norm has the scale 1: its gain and its mean stay, and its scale,
which depends on the input, is left out. The gradient from the query, key or value of the first
position to the leaf is then the matrix between them, with all that the model does there. A second
pass, with zeros in the place of streams, gives the biases, and so shows whether it is one.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from attnlab.errors import CouldNotRun, one_line
from attnlab.look.anatomy import Function, are_close, example_of
from attnlab.look.heads import number_of_heads
from attnlab.look.inputs import Call, foreign_of
from attnlab.look.readout import FrozenNorm, is_norm
from attnlab.look.streams import Streams, heads_step, streams_of
from attnlab.models.encoder_decoder import EncoderDecoder
from attnlab.parts.attend import scale_factor
from attnlab.parts.heads import share_heads
from attnlab.pretrained.model import Pretrained
from attnlab.pretrained.text import device_of
from attnlab.sites import AttentionCall, Hook, installed, set_aside, site_names, site_of

_MOST_GRADIENTS = 2**24  # numbers made at once: of a long text, a few rows of a matrix
_ROUNDINGS = 8  # by which a matrix may be off


@dataclass(frozen=True)
class LayerMatrices:
    """The matrices of all heads of one attention, from and to its streams.

    heads: their numbers · query, key (head, head_width, d_model), the query's times the scale of
    the scores · value, output (head, value_width, d_model), double; keys and values that heads
    share are repeated for each of them · precision: see `FactoredMatrix`.
    """

    part: str
    heads: list[int]
    streams: Streams
    query: Tensor
    key: Tensor
    value: Tensor
    output: Tensor
    precision: float

    def only(self, heads: Sequence[int]) -> "LayerMatrices":
        """Return some of the heads."""
        index = list(heads)
        return replace(
            self, heads=index, query=self.query[index], key=self.key[index],
            value=self.value[index], output=self.output[index],
        )  # fmt: skip


def head_matrices(model: nn.Module, parts: Sequence[str]) -> list[LayerMatrices]:
    """Find the matrices of some attentions of a model.

    Raises:
        CouldNotRun: queries, keys or values are not seen, or are no matrix times the stream.
    """
    streams = {part: streams_of(model, part) for part in parts}
    lacking = {f"{part}.value" for part in parts} - set(site_names(model))
    if lacking:
        kind = type(foreign_of(model)).__name__
        raise CouldNotRun(f"heads of this {kind} have no matrices to read: no site {min(lacking)}.")
    source = torch.Generator().manual_seed(0)

    def random_leaf(value: Tensor) -> Tensor:
        return torch.randn(value.shape, generator=source).to(value).requires_grad_()

    filled = _FilledStreams(streams, random_leaf)
    zeros, example = _FilledStreams(streams, torch.zeros_like), _example(model)
    with set_aside(model), _unit_norms(foreign_of(model)):
        with torch.enable_grad():
            filled.run(model, example)
        with torch.no_grad():
            zeros.run(model, example)
    layers = []
    for part in parts:
        call = filled.calls[part]
        query, key, value = (
            _matrix(part, name, streams[part], filled, zeros) for name in ("query", "key", "value")
        )
        with torch.no_grad(), set_aside(model):
            output = _output(model, part, value)
        heads = len(query)
        query = query * scale_factor(call.scale, query.shape[1])
        layers.append(
            LayerMatrices(
                part,
                list(range(heads)),
                streams[part],
                query,
                share_heads(key, heads),
                share_heads(value, heads),
                output.double(),
                _ROUNDINGS * torch.finfo(call.query.dtype).eps,
            )
        )
    return layers


def _matrix(
    part: str, name: str, streams: Streams, filled: "_FilledStreams", zeros: "_FilledStreams"
) -> Tensor:
    """Return the matrices (head, width, d_model) to the queries, keys or values of an attention, in
    double precision."""
    stream = streams.query if name == "query" else streams.key
    vectors, biases = (getattr(run.calls[part], name)[0, :, 0] for run in (filled, zeros))
    leaf = filled.leaves[stream.site]
    try:
        gradients = _matrix_to(vectors.flatten(), leaf)
    except RuntimeError as error:  # by weights of 4 bits, for one
        raise CouldNotRun(
            f"a {name} of {part} has no gradient, so it has no matrix: {one_line(error, 100)}"
        ) from None
    if gradients is None:
        raise CouldNotRun(f"a {name} of {part} is made of several positions; it has no matrix.")
    matrices = gradients.double().reshape(*vectors.shape, -1)
    made: Tensor = matrices @ leaf.detach()[0, 0].double()
    if not are_close(made, (vectors.detach() - biases).double(), vectors.dtype):
        raise CouldNotRun(
            f"a {name} of {part} is not a matrix times the stream plus a bias, so the head has no "
            "such circuit."
        )
    return matrices


def _matrix_to(vector: Tensor, leaf: Tensor) -> Tensor | None:
    """Return the matrix (width, d_model) from the first position of a leaf (row, length, d_model)
    to a vector (width,); None if other positions come in."""
    ones = torch.eye(len(vector), device=leaf.device, dtype=leaf.dtype)
    rows = []
    for some in torch.split(ones, max(1, _MOST_GRADIENTS // leaf.numel())):
        gradients: Tensor = torch.autograd.grad(
            vector, leaf, some, retain_graph=True, is_grads_batched=True, materialize_grads=True
        )[0]
        rows.append(gradients[:, 0, 0].clone())
        gradients[:, 0, 0] = 0.0
        if bool((gradients != 0).any()):
            return None
    return torch.cat(rows)


def _output(model: nn.Module, part: str, value: Tensor) -> Tensor:
    """Return what the head of each value writes, (head, value_width, d_model)."""
    step, foreign = heads_step(model, part), foreign_of(model)
    project = foreign.get_submodule(step.projection)
    heads = number_of_heads(model, part)
    like = next(project.parameters())
    ones = torch.eye(heads * value.shape[1]).to(like).unsqueeze(0)
    rows = project(ones) - project(torch.zeros_like(ones))
    rows = step.factor * through_norms(foreign, step.norms, rows[0])
    return rows.reshape(heads, value.shape[1], -1)


def through_norms(model: nn.Module, paths: Iterable[str], rows: Tensor) -> Tensor:
    """Bring vectors (…, d_model) through norms at the scale 1, without their biases.

    Raises:
        CouldNotRun: a module is no norm.
    """
    like = next(model.parameters())
    for path in paths:
        function: Function = model.get_submodule(path)
        probe = rows.to(like.dtype)
        norm = FrozenNorm.of(function, probe, function(probe))
        if norm is None:
            raise CouldNotRun(f"{path} is no norm, so no matrix leads through it.")
        rows = norm.at_unit_scale().linear(rows)
    return rows


class _FilledStreams(Hook):
    """Fills the streams of attentions by a function of their values, and notes the calls of these.

    streams: by the attention's path · leaves: what fills them, by their sites · calls: by path.
    """

    def __init__(self, streams: Mapping[str, Streams], fill: Callable[[Tensor], Tensor]) -> None:
        self._parts, self._fill = set(streams), fill
        self._streams = {stream.site for pair in streams.values() for stream in pair}
        self.sites = {*self._streams, *(site_of(part, "query") for part in streams)}
        self.leaves: dict[str, Tensor] = {}
        self.calls: dict[str, AttentionCall] = {}

    def run(self, model: nn.Module, call: Call) -> None:
        """Run the model.

        Raises:
            CouldNotRun: it did not get to one of the attentions.
        """
        with installed(model, self):
            call(model)
        lacking = self._parts - set(self.calls)
        if lacking:
            raise CouldNotRun(f"the model ran without {min(lacking)}.")

    def wants(self, site: str) -> bool:
        """Say whether a site is a stream."""
        return site in self._streams

    def visit(self, site: str, value: Tensor) -> Tensor:
        """Fill a stream."""
        self.leaves[site] = self._fill(value)
        return self.leaves[site]

    def watch(self, part: str, call: AttentionCall) -> None:
        """Note a call."""
        if part in self._parts:
            self.calls[part] = call


def _example(model: nn.Module) -> Call:
    """Return an input of a model."""
    if isinstance(model, Pretrained):
        return Call((), example_of(model), 1)
    ids = torch.zeros(1, 2, dtype=torch.int64, device=device_of(model))
    return Call((ids, ids) if isinstance(model, EncoderDecoder) else (ids,), {}, 1)


@contextmanager
def _unit_norms(model: nn.Module) -> Iterator[None]:
    """Give modules that are norms by their type's name the scale 1 within the `with`."""

    def scale_one(module: nn.Module, args: Any, output: Any) -> Tensor | None:
        if not args or not isinstance(output, Tensor):
            return None
        norm = FrozenNorm.of_module(module, args[0], output)
        return None if norm is None else norm.at_unit_scale()(args[0])

    with ExitStack() as stack:
        for module in model.modules():
            if is_norm(module):
                stack.callback(module.register_forward_hook(scale_one).remove)
        yield

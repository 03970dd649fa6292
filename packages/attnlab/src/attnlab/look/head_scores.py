"""The scores of one head on one input, as linear functions of what was written to the stream.

The query and the key are linear in the stream at their positions once the scales of norms are held
at those of this input: `HeldNorms` replaces every norm, `Leaves` puts a leaf in the place of the
stream, and the gradient from query or key to leaf is the matrix between them, whatever the model
does there: projections, norms of queries and keys, rotary positions. A second pass, with zeros in
the stream's place, gives the biases.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, takewhile
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn

from attnlab.errors import CouldNotRun, WrongUsage, present
from attnlab.look.anatomy import (
    HeadsStep,
    NormStep,
    PartStep,
    Step,
    are_close,
    block_steps,
    device_of,
)
from attnlab.look.embedding_parts import EmbeddingParts, embedding_parts
from attnlab.look.inputs import Call, foreign_of
from attnlab.look.readout import HeldNorm, Place, Writer, outputs_of, written_by
from attnlab.look.recording import Recording, record
from attnlab.look.recording.kept_call import KeptMask
from attnlab.parts.attend import scale_factor
from attnlab.pretrained.model import Pretrained
from attnlab.sites import AttentionCall, Hook, installed, part_of, set_aside, site_names, site_of

_MOST_GRADIENTS = 2**24  # numbers made at once: of a long text, a few rows of the matrix
_FEED_FORWARD = re.compile(r"(?:(encoder|decoder)\.)?layers\.(\d+)\.feed_forward")


class _Stream(NamedTuple):
    """A stream that queries or keys are made of: its site, its first site, and the steps that wrote
    to it."""

    site: str
    start: str
    steps: tuple[Step, ...]


class _Streams(NamedTuple):
    """The streams of queries and of keys, which differ in cross-attention alone."""

    query: _Stream
    key: _Stream


class Cell(NamedTuple):
    """One score: its terms (query's part, key's part), what a bias by position adds, their sum."""

    terms: Tensor
    position: float
    score: float

    def less(self, other: "Cell") -> "Cell":
        """Return the difference from another cell of the same query."""
        return Cell(
            self.terms - other.terms, self.position - other.position, self.score - other.score
        )


def stack_of_part(model: nn.Module, part: str) -> str:
    """Return the name of the stack that an attention is in; "" in a model of one."""
    block = part_of(part)
    if isinstance(model, Pretrained):
        return next(stack.name for stack in model.structure.stacks if block in stack.paths)
    return block.rpartition("layers")[0].rstrip(".")


def _streams_of(model: nn.Module, part: str) -> _Streams:
    """Find the streams that an attention reads.

    Raises:
        CouldNotRun: its queries, its keys or its stream are not seen.
    """
    stack = stack_of_part(model, part)
    blocks = block_steps(model, stack)
    before = tuple(
        takewhile(
            lambda step: not (isinstance(step, HeadsStep) and step.point == part),
            chain.from_iterable(blocks),
        )
    )
    is_cross = part.endswith("cross_attention")
    site = site_of(part_of(part), "residual_between" if is_cross else "residual_before")
    query = key = _Stream(site, site_of(stack, "embedding"), before)
    if is_cross:
        steps = block_steps(model, "encoder")
        last = f"encoder.layers.{len(steps) - 1}.residual_after"
        key = _Stream(last, "encoder.embedding", tuple(chain.from_iterable(steps)))
    wanted = {query.site, query.start, key.site, key.start, f"{part}.query", f"{part}.key"}
    lacking = wanted - set(site_names(model))
    if lacking:
        kind = type(foreign_of(model)).__name__
        raise CouldNotRun(f"scores of this {kind} cannot be decomposed: no site {min(lacking)}.")
    return _Streams(query, key)


def _blocks_before(part: str, streams: _Streams) -> list[str]:
    """List the streams after the blocks before an attention, but for those that it reads itself."""
    blocks = [
        part_of(step.point if isinstance(step, HeadsStep) else step.name)
        for step in {*streams.query.steps, *streams.key.steps}
        if not isinstance(step, NormStep)
    ]
    sites = {site_of(block, "residual_after") for block in blocks if block != part_of(part)}
    return sorted(sites - {stream.site for stream in streams})


@dataclass(frozen=True)
class _Seen:
    """What one plain pass shows: a recording, and the outputs of other parts."""

    model: nn.Module
    recording: Recording
    kept: dict[PartStep, Tensor]
    embedded: EmbeddingParts

    @classmethod
    def of(cls, model: nn.Module, call: Call, part: str, streams: _Streams) -> "_Seen":
        """Run the model."""
        steps = {*streams.query.steps, *streams.key.steps}
        heads = [site_of(step.point, "heads") for step in steps if isinstance(step, HeadsStep)]
        cells = [site_of(part, name) for name in ("scores", "weights")]
        sites = {stream.site for stream in streams} | {stream.start for stream in streams}
        blocks = _blocks_before(part, streams)
        others = [step for step in steps if isinstance(step, PartStep)]
        with (
            torch.no_grad(),
            outputs_of(foreign_of(model), others) as kept,
            embedding_parts(model) as embedded,
            record(model, [*sites, *heads, *cells, *blocks], keep_on=device_of(model)) as recording,
        ):
            call(model)
        return cls(model, recording, kept, embedded)

    def named(self, words: Mapping[str, Sequence[str]]) -> Recording:
        """Return the recording, with better names of its tokens if there are any."""
        return self.recording.named(words) if words else self.recording

    def written(self, stream: _Stream, position: int) -> tuple[list[Writer], Tensor]:
        """Return what each part wrote to a stream at one position, (writer, d_model)."""
        whole = self.recording[stream.site]
        place = Place(whole, torch.tensor([position], device=whole.device), None)
        with torch.no_grad(), set_aside(self.model):
            embedding = self.recording[stream.start]
            began, first = self.embedded.split(stream.start, embedding, position)
            writers, written = written_by(
                self.model,
                stream.steps,
                (began, first[:, None, None]),
                self.recording,
                self.kept,
                place,
            )
        parts = written[:, 0, 0]
        if not are_close(parts.sum(0), whole[0, position]):
            raise WrongUsage(
                f"what was written does not sum to {stream.site}: something else changes the "
                "stream. Leave edits of outputs and of the stream first."
            )
        return writers, parts


class HeadScores:
    """The scores of one head on one input, as functions of the streams."""

    def __init__(self, model: nn.Module, call: Call, part: str, head: int) -> None:
        self._model, self._part, self._head = model, part, head
        self.streams = _streams_of(model, part)
        self.seen = _Seen.of(model, call, part, self.streams)
        known = {site: self.seen.recording[site] for site in _blocks_before(part, self.streams)}
        with _HeldNorms(foreign_of(model)) as norms, set_aside(model):
            self._leaves = _Leaves(part, self.streams, known, _leaf)
            with torch.enable_grad():
                self._call = self._leaves.run(model, call)
            norms.begin_again()
            zeros = _Leaves(part, self.streams, known, torch.zeros_like)
            with torch.no_grad():
                self._bias = zeros.run(model, call)
        self.query_parts: list[str] = []
        self.key_parts: list[str] = []

    def cell(self, query: int, key: int) -> Cell:
        """Decompose one score."""
        self.query_parts, queries = self._side(self.streams.query, "query", query)
        self.key_parts, keys = self._side(self.streams.key, "key", key)
        scale = scale_factor(self._call.scale, queries.shape[-1])
        terms = scale * (queries @ keys.T).double()
        score, position = self._tile("scores", query, key), self._position(query, key)
        cap = _cap_of(self._model)
        if cap:  # the tanh's ratio is held fixed
            total = terms.sum()
            terms = terms * (cap * torch.tanh(total / cap) / total)
        return Cell(terms, position, score)

    @property
    def rounding(self) -> float:
        """One rounding of the numbers that the model computes with, relative."""
        return torch.finfo(self._call.query.dtype).eps

    def weight(self, query: int, key: int) -> float:
        """Return the weight of one key."""
        return self._tile("weights", query, key)

    def _tile(self, name: str, query: int, key: int) -> float:
        site, queries, keys = (
            site_of(self._part, name),
            slice(query, query + 1),
            slice(key, key + 1),
        )
        tile = self.seen.recording.tile(site, head=self._head, queries=queries, keys=keys)
        return float(tile)

    def _position(self, query: int, key: int) -> float:
        """Return what a mask of numbers adds to one score.

        Raises:
            WrongUsage: the key is masked.
        """
        call = self._call
        mask = KeptMask(call.mask, call.query.shape[2], call.key.shape[2], call.query.device)
        part = mask.part(0, self._head, slice(query, query + 1))
        if self._tile("scores", query, key) == -torch.inf:
            raise WrongUsage(f"key {key} is masked for query {query}: its score is −inf.")
        if part is None or not part.is_floating_point():
            return 0.0
        return float(part[0, 0, 0, key].detach())

    def _side(self, stream: _Stream, name: str, position: int) -> tuple[list[str], Tensor]:
        """Return the parts of a stream at a position, and the query or key that each makes, (part,
        head_width)."""
        vector, bias = (
            self._vector(self._call, name, position),
            self._vector(self._bias, name, position),
        )
        matrix = self._matrix(vector, self._leaves.leaves[stream.site], position)
        if matrix is None:
            raise CouldNotRun(
                f"the {name} at a position of {self._part} is made of other positions too, so its "
                "score is no sum over parts of one."
            )
        writers, parts = self.seen.written(stream, position)
        vectors = parts.double() @ matrix.double().T
        return [*map(part_name, writers), "bias"], torch.cat([vectors, bias.double().unsqueeze(0)])

    def _matrix(self, vector: Tensor, leaf: Tensor, position: int) -> Tensor | None:
        """Return the matrix (head_width, d_model) from a stream at a position to a query or key
        there; None if other positions come in."""
        rows = []
        ones = torch.eye(len(vector), device=vector.device, dtype=vector.dtype)
        step = max(1, _MOST_GRADIENTS // leaf.numel())
        for first in range(0, len(vector), step):
            (gradients,) = torch.autograd.grad(
                vector, leaf, ones[first : first + step], retain_graph=True, is_grads_batched=True
            )
            rows.append(gradients[:, 0, position].clone())
            gradients[:, 0, position] = 0.0
            if bool((gradients != 0).any()):
                return None
        return torch.cat(rows)

    def _vector(self, call: AttentionCall, name: str, position: int) -> Tensor:
        """Return the query or key of the head at a position, (head_width,)."""
        head, value = self._head, call.query
        if name == "key":
            head, value = head * call.key.shape[1] // call.query.shape[1], call.key
        return value[0, head, position]


def part_name(writer: Writer) -> str:
    """Name a writer in few letters: "feed-forward 3" for "layers.3.feed_forward"."""
    fed = _FEED_FORWARD.fullmatch(str(writer))
    return " ".join(filter(None, (fed[1], "feed-forward", fed[2]))) if fed else str(writer)


def _cap_of(model: nn.Module) -> float:
    """Return the cap of a model's scores; 0 if they have none."""
    config: Any = getattr(foreign_of(model), "config", None)
    if not hasattr(config, "get_text_config"):
        return 0.0
    return getattr(config.get_text_config(), "attn_logit_softcapping", None) or 0.0


def _leaf(value: Tensor) -> Tensor:
    return value.detach().clone().requires_grad_()


class _Reached(BaseException):
    """Raised where the attention is reached, to skip the rest of the model."""


class _Leaves(Hook):
    """Puts something in the place of streams, and stops where an attention gets its queries and
    keys.

    known: streams that need not be computed · put: what stands in a stream's place, made of it.
    """

    def __init__(
        self,
        part: str,
        streams: _Streams,
        known: Mapping[str, Tensor],
        put: Callable[[Tensor], Tensor],
    ) -> None:
        self._part, self._known, self._put = part, known, put
        self._wanted = {stream.site for stream in streams}
        self.sites = {*self._wanted, *known, site_of(part, "query")}
        self.leaves: dict[str, Tensor] = {}
        self._call: AttentionCall | None = None

    def run(self, model: nn.Module, call: Call) -> AttentionCall:
        """Run the model up to the attention, and return its call."""
        try:
            with installed(model, self):
                call(model)
        except _Reached:
            return present(self._call)
        raise CouldNotRun(f"the model ran without {self._part}.")

    def wants(self, site: str) -> bool:
        return site in self._wanted

    def visit(self, site: str, value: Tensor) -> Tensor:
        self.leaves[site] = self._put(value)
        return self.leaves[site]

    def supply(self, site: str) -> Tensor | None:
        return self._known.get(site)

    def watch(self, part: str, call: AttentionCall) -> None:
        if part == self._part:
            self._call = call
            raise _Reached


class _HeldNorms:
    """Holds every norm of a model at the scale that it has in the first pass, in the second one
    too."""

    def __init__(self, model: nn.Module) -> None:
        self._modules = [
            module
            for module in model.modules()
            if "norm" in type(module).__name__.lower() and not list(module.children())
        ]
        self._held: list[HeldNorm | None] = []
        self._next: Iterator[HeldNorm | None] | None = None

    def __enter__(self) -> Self:
        self._handles = [module.register_forward_hook(self._hold) for module in self._modules]
        return self

    def __exit__(self, *error: object) -> None:
        for handle in self._handles:
            handle.remove()

    def begin_again(self) -> None:
        """Use the scales that were held from here on."""
        self._next = iter(self._held)

    def _hold(self, module: nn.Module, args: Any, output: Any) -> Tensor | None:
        """Replace the output of a norm by the same with its scale held; leave other modules."""
        if not args or not isinstance(output, Tensor):
            return None
        if self._next is not None:
            norm = next(self._next)
        else:
            with torch.no_grad():
                norm = HeldNorm.of(module.forward, args[0].detach(), output.detach())
            self._held.append(norm)
        return None if norm is None else norm(args[0])

"""The scores of one head on one input, as linear functions of what was written to the stream.

The query and the key are linear in the stream at their positions once the scales of norms are held
at those of this input. One pass shows what was written, the score and the weight: it has a leaf in
the place of the stream, the gradient of each norm is that of the held one, and it ends after the
attention. The gradient from query or key to leaf is the matrix between them, whatever the model
does there: projections, norms of queries and keys, rotary positions. A second pass, with zeros in
the stream's place, gives the biases.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from attnlab.errors import CouldNotRun, WrongUsage
from attnlab.look.anatomy import PartStep, are_close
from attnlab.look.embedding_parts import EmbeddingParts, embedding_parts
from attnlab.look.head_matrices import FilledStreams, matrices_to, norms_as
from attnlab.look.inputs import Call, foreign_of
from attnlab.look.readout import HeldNorm, Place, Writer, recorded_steps, written_by
from attnlab.look.recording import Recording
from attnlab.look.recording.kept_call import KeptMask
from attnlab.look.streams import Stream, Streams, blocks_before, streams_of
from attnlab.parts.attend import scale_factor
from attnlab.pretrained.text import text_config
from attnlab.sites import AttentionCall, hooks_of, installed, set_aside, site_of

_EMBEDDINGS = {
    "positions": "position|^wpe$",
    "token types": "token_type|segment",
    "tokens": "word_emb|^wte$|embed_tokens|tok_emb|token_emb",
}
"""The embeddings of foreign models, by the ends of their paths."""
_FEED_FORWARD = re.compile(r"(?:(encoder|decoder)\.)?layers\.(\d+)\.feed_forward")


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


@dataclass(frozen=True)
class _Seen:
    """What one plain pass shows: a recording, and the outputs of other parts."""

    model: nn.Module
    recording: Recording
    kept: dict[PartStep, Tensor]
    embedded: EmbeddingParts

    @classmethod
    def of(
        cls, model: nn.Module, call: Call, part: str, streams: Streams, leaves: "_Leaves"
    ) -> "_Seen":
        """Run the model up to the attention, with leaves in its streams."""
        steps = {*streams.query.steps, *streams.key.steps}
        sites = {stream.site for stream in streams} | {stream.start for stream in streams}
        sites |= {site_of(part, "scores"), site_of(part, "weights")}
        sites.update(blocks_before(part, streams))
        with (
            embedding_parts(model) as embedded,
            recorded_steps(model, steps, sites) as (recording, kept),
        ):
            leaves.run(model, call)
        return cls(model, recording, kept, embedded)

    def named(self, words: Mapping[str, Sequence[str]]) -> Recording:
        """Return the recording, with better names of its tokens if there are any."""
        return self.recording.named(words) if words else self.recording

    def written(self, stream: Stream, positions: Sequence[int]) -> tuple[list[Writer], Tensor]:
        """Return what each part wrote to a stream at some positions, (writer, position,
        d_model)."""
        whole = self.recording[stream.site]
        places = torch.tensor(positions, device=whole.device)
        with torch.no_grad(), set_aside(self.model):
            embedding = self.recording[stream.start]
            began, first = self.embedded.split(stream.start, embedding, places)
            writers, written = written_by(
                self.model,
                stream.steps,
                (began, first.unsqueeze(1)),
                self.recording,
                self.kept,
                Place(whole, places.unsqueeze(0), None),
            )
        parts = written[:, 0]
        if not are_close(parts.sum(0), whole[0, places]):
            raise WrongUsage(
                f"what was written does not sum to {stream.site}: something else changes the "
                "stream. Leave edits of outputs and of the stream first."
            )
        return writers, parts


class _Side(NamedTuple):
    """Queries or keys of a head at some positions: the parts of the stream, and the vectors that
    each makes, (position, part, head_width)."""

    parts: list[str]
    vectors: Tensor


class HeadScores:
    """The scores of one head on one input, as functions of the streams.

    It takes two passes: one shows everything up to the attention and has leaves in its streams,
    the other has zeros there.
    """

    def __init__(self, model: nn.Module, call: Call, part: str, head: int) -> None:
        self._model, self._part, self._head = model, part, head
        self.streams = streams_of(model, part)
        norms = _HeldNorms()
        with norms_as(foreign_of(model), norms.hold):
            self._leaves = _Leaves(part, self.streams, norms, stops=not hooks_of(model))
            self.seen = _Seen.of(model, call, part, self.streams, self._leaves)
            blocks = blocks_before(part, self.streams)
            known = {site: self.seen.recording[site] for site in blocks}
            zeros = _Leaves(part, self.streams, norms, known)
            with set_aside(model):
                zeros.run(model, call)
        self._call, self._bias = self._leaves.calls[part], zeros.calls[part]
        self.query_parts: list[str] = []
        self.key_parts: list[str] = []

    def cells(self, query: int, keys: Sequence[int]) -> list[Cell]:
        """Decompose the scores of one query and some keys."""
        of_query, of_keys = self._sides(query, keys)
        self.query_parts, self.key_parts = of_query.parts, of_keys.parts
        scale, cap = scale_factor(self._call.scale, of_keys.vectors.shape[-1]), _cap_of(self._model)
        cells = []
        for key, vectors in zip(keys, of_keys.vectors, strict=True):
            terms = scale * (of_query.vectors[0] @ vectors.T).double()
            score, position = self._tile("scores", query, key), self._position(query, key)
            if cap:  # the tanh's ratio is held fixed
                total = terms.sum()
                terms = terms * (cap * torch.tanh(total / cap) / total)
            cells.append(Cell(terms, position, score))
        return cells

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

    def _sides(self, query: int, keys: Sequence[int]) -> tuple[_Side, _Side]:
        """Return the parts of the streams of a query and of some keys, and what each makes."""
        streams, names = self.streams, ["key"] * len(keys)
        if streams.query != streams.key:
            of_query = self._side(streams.query, ["query"], [query])
            return of_query, self._side(streams.key, names, keys)
        both = self._side(streams.query, ["query", *names], [query, *keys])
        return both._replace(vectors=both.vectors[:1]), both._replace(vectors=both.vectors[1:])

    def _side(self, stream: Stream, names: Sequence[str], places: Sequence[int]) -> _Side:
        """Return the parts of a stream at some positions, and the query or key that each makes."""
        vectors, biases = (
            list(map(partial(self._vector, call), names, places))
            for call in (self._call, self._bias)
        )
        matrices = matrices_to(vectors, self._leaves.leaves[stream.site], places)
        if matrices is None:
            raise CouldNotRun(
                f"a query or key of {self._part} is made of other positions too, so its score is "
                "no sum over parts of one."
            )
        writers, parts = self.seen.written(stream, places)
        made = torch.einsum("ipd,pwd->piw", parts.double(), matrices.double())
        both = torch.cat([made, torch.stack(biases).double().unsqueeze(1)], 1)
        return _Side([*part_names(writers), "bias"], both)

    def _vector(self, call: AttentionCall, name: str, position: int) -> Tensor:
        """Return the query or key of the head at a position, (head_width,)."""
        head, value = self._head, call.query
        if name == "key":
            head, value = head * call.key.shape[1] // call.query.shape[1], call.key
        return value[0, head, position]


def part_names(writers: Sequence[Writer]) -> list[str]:
    """Name writers in few letters; modules of a foreign model that would share a name keep theirs.

    >>> part_names([Writer("layers.3.feed_forward"), Writer("embeddings.word_embeddings")])
    ['feed-forward 3', 'tokens']
    >>> part_names([Writer("encoder.layer.0.attention.output.LayerNorm bias")])
    ['attention norm bias 0']
    """
    names = [_short_name(str(writer)) for writer in writers]
    return [
        name if names.count(name) == 1 else str(writer)
        for name, writer in zip(names, writers, strict=True)
    ]


def _short_name(name: str) -> str:
    fed = _FEED_FORWARD.fullmatch(name)
    if fed:
        return " ".join(filter(None, (fed[1], "feed-forward", fed[2])))
    path, _, bias = name.partition(" ")
    last = path.rpartition(".")[2].lower()
    numbers = re.findall(r"\d+", path)
    if bias == "bias" and numbers:
        kind = "cross-attention" if re.search("encoder_attn|cross", path.lower()) else "attention"
        parts = [kind] if re.search("attn|attention", path.lower()) else []
        parts += ["norm"] if re.search("norm|ln", last) else []
        return " ".join([*parts, "bias", numbers[0]]) if parts else name
    return next((words for words, known in _EMBEDDINGS.items() if re.search(known, last)), name)


def _cap_of(model: nn.Module) -> float:
    """Return the cap of a model's scores; 0 if they have none."""
    return getattr(text_config(foreign_of(model)), "attn_logit_softcapping", None) or 0.0


class _Reached(BaseException):
    """Raised after the attention, to skip the rest of the model."""


class _Leaves(FilledStreams):
    """Puts leaves, or zeros, in the place of streams, and holds norms from there to an attention.

    known: for zeros, the results of blocks that need not be computed again · stops: the pass ends
    after the attention.
    """

    def __init__(
        self,
        part: str,
        streams: Streams,
        norms: "_HeldNorms",
        known: Mapping[str, Tensor] | None = None,
        *,
        stops: bool = True,
    ) -> None:
        super().__init__({part: streams}, _leaf if known is None else torch.zeros_like)
        self._norms, self._known, self._stops = norms, known or {}, stops
        self._end = site_of(part, "heads")
        self.sites = {*self._streams, *self._known, self._end}

    def run(self, model: nn.Module, call: Call) -> None:
        """Run the model up to the attention."""
        with installed(model, self), torch.no_grad(), suppress(_Reached):
            call(model)
        self._norms.end()
        self.check_calls()

    def wants(self, site: str) -> bool:
        return super().wants(site) or site == self._end

    def visit(self, site: str, value: Tensor) -> Tensor:
        if site != self._end:
            if not self.leaves:
                self._norms.begin()
            return super().visit(site, value)
        torch.set_grad_enabled(False)
        self._norms.end()
        if self._stops:
            raise _Reached
        return value

    def supply(self, site: str) -> Tensor | None:
        return self._known.get(site)


def _leaf(value: Tensor) -> Tensor:
    torch.set_grad_enabled(True)  # until the attention
    return value.detach().clone().requires_grad_()


class _HeldNorms:
    """Holds the norms of a model between `begin` and `end` at their scales in the first pass.

    The first pass gets the model's own numbers, with the gradient of a norm that is held; a later
    pass gets the norms that are held.
    """

    def __init__(self) -> None:
        self._held: list[HeldNorm | None] = []
        self._passes, self._is_on = 0, False
        self._next: Iterator[HeldNorm | None] = iter(())

    def begin(self) -> None:
        """Hold the norms of a pass from here on."""
        self._passes += 1
        self._is_on = True
        self._next = iter(self._held)

    def end(self) -> None:
        """Hold no more norms of this pass."""
        self._is_on = False

    def hold(self, module: nn.Module, x: Tensor, output: Tensor) -> Tensor | None:
        """Hold the scale of a norm; leave other modules."""
        if not self._is_on:
            return None
        if self._passes > 1:
            norm = next(self._next)
            return None if norm is None else norm(x)
        norm = HeldNorm.of_module(module, x, output)
        self._held.append(norm)
        if norm is None:
            return None
        held = norm(x)
        return output.detach() + (held - held.detach())

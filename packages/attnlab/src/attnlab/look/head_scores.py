"""The scores of one head on one input, as linear functions of what was written to the stream.

The query and the key are linear in the stream at their positions once the scales of norms are held
at those of this input. One pass ends at the attention, and shows what was written, the score and
the weight. A second begins at the stream, with zeros there (see `partial_pass.py`): it gives the
biases, and the gradient from query or key to the zeros is the matrix between them, whatever the
model does there: projections, norms of queries and keys, rotary positions.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from attnlab.errors import WrongUsage
from attnlab.look.anatomy import PartStep, are_close
from attnlab.look.embedding_parts import EmbeddingParts, embedding_parts
from attnlab.look.inputs import Call, foreign_of
from attnlab.look.partial_pass import HeadVector, ModuleNotes, PlainPass, ZeroPass
from attnlab.look.readout import Place, StreamWriter, recorded_steps, written_by
from attnlab.look.recording import Recording
from attnlab.look.recording.kept_call import KeptMask
from attnlab.look.streams import Stream, Streams, block_module, blocks_before
from attnlab.parts.attend import scale_factor
from attnlab.pretrained.text import text_config
from attnlab.sites import hooks_of, set_aside, site_of

_EMBEDDINGS = {
    "positions": "position|^wpe$",
    "token types": "token_type|segment",
    "tokens": "word_emb|^wte$|embed_tokens|tok_emb|token_emb",
}
"""The embeddings of foreign models, by the ends of their paths."""
_FEED_FORWARD = re.compile(r"(?:(encoder|decoder)\.)?layers\.(\d+)\.feed_forward")


class DecomposedScore(NamedTuple):
    """One score: its terms (query's part, key's part), what a bias by position adds, their sum."""

    terms: Tensor
    position: float
    score: float

    def less(self, other: "DecomposedScore") -> "DecomposedScore":
        """Return the difference from another cell of the same query."""
        return DecomposedScore(
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
        cls, model: nn.Module, call: Call, part: str, streams: Streams, plain: PlainPass
    ) -> "_Seen":
        """Run the model up to the attention."""
        steps = {*streams.query.steps, *streams.key.steps}
        sites = {stream.site for stream in streams} | {stream.start for stream in streams}
        sites |= {site_of(part, "scores"), site_of(part, "weights")}
        with (
            embedding_parts(model) as embedded,
            recorded_steps(model, steps, sites) as (recording, kept),
        ):
            plain.run(model, call)
        return cls(model, recording, kept, embedded)

    def named(self, words: Mapping[str, Sequence[str]]) -> Recording:
        """Return the recording, with better names of its tokens if there are any."""
        return self.recording.named(words) if words else self.recording

    def written(
        self, stream: Stream, positions: Sequence[int]
    ) -> tuple[list[StreamWriter], Tensor]:
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
    """The scores of one head on one input, as functions of the streams."""

    def __init__(
        self, model: nn.Module, call: Call, streams: Streams, part: str, head: int
    ) -> None:
        self._model, self._input, self._part, self._head = model, call, part, head
        self.streams = streams
        self._sites = {stream.site for stream in self.streams}
        self._notes = ModuleNotes(foreign_of(model), block_module(model, part))
        plain = PlainPass(part, self._sites, self._notes, stops=not hooks_of(model))
        self.seen = _Seen.of(model, call, part, self.streams, plain)
        self._call = plain.call
        self.query_parts: list[str] = []
        self.key_parts: list[str] = []

    def cells(self, query: int, keys: Sequence[int]) -> list[DecomposedScore]:
        """Decompose the scores of one query and some keys.

        Raises:
            WrongUsage: a key is masked.
        """
        of_query, of_keys = self._sides(query, keys)
        self.query_parts, self.key_parts = of_query.parts, of_keys.parts
        scale, cap = scale_factor(self._call.scale, of_keys.vectors.shape[-1]), _cap_of(self._model)
        cells = []
        for key, vectors in zip(keys, of_keys.vectors, strict=True):
            terms = scale * (of_query.vectors[0] @ vectors.T).double()
            score = self._tile("scores", query, key)
            if score == -torch.inf:
                raise WrongUsage(f"key {key} is masked for query {query}: its score is −inf.")
            if cap:  # the tanh's ratio is held fixed
                total = terms.sum()
                terms = terms * (cap * torch.tanh(total / cap) / total)
            cells.append(DecomposedScore(terms, self._position(query, key), score))
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
        """Return what a mask of numbers adds to one score."""
        call = self._call
        mask = KeptMask(call.mask, call.query.shape[2], call.key.shape[2], call.query.device)
        part = mask.part(0, self._head, slice(query, query + 1))
        if part is None or not part.is_floating_point():
            return 0.0
        return float(part[0, 0, 0, key].detach())

    def _sides(self, query: int, keys: Sequence[int]) -> tuple[_Side, _Side]:
        """Return the parts of the streams of a query and of some keys, and what each makes."""
        streams, names, zeros = self.streams, ["key"] * len(keys), self._zeros([query, *keys])
        if streams.query != streams.key:
            of_query = self._side(zeros, streams.query, ["query"], [query])
            return of_query, self._side(zeros, streams.key, names, keys)
        both = self._side(zeros, streams.query, ["query", *names], [query, *keys])
        return both._replace(vectors=both.vectors[:1]), both._replace(vectors=both.vectors[1:])

    def _zeros(self, rows: Sequence[int]) -> ZeroPass:
        """Run the model from zeros in the streams."""
        known = {}
        for stream in self.streams:  # of earlier blocks any value does: the stream is replaced
            for site in blocks_before(self._part, stream):
                known[site] = self.seen.recording[stream.site]
        zeros = ZeroPass(self._part, self._sites, self._notes, known, sorted({*rows}))
        with set_aside(self._model):
            zeros.run(self._model, self._input)
        return zeros

    def _side(
        self, zeros: ZeroPass, stream: Stream, names: Sequence[str], places: Sequence[int]
    ) -> _Side:
        """Return the parts of a stream at some positions, and the query or key that each makes."""
        shared = zeros.call.query.shape[1] // zeros.call.key.shape[1]
        heads = {"query": self._head, "key": self._head // shared}
        vectors = [
            HeadVector(name, heads[name], place) for name, place in zip(names, places, strict=True)
        ]
        matrices = zeros.matrices(stream.site, vectors)
        writers, parts = self.seen.written(stream, places)
        made = torch.einsum("ipd,pwd->piw", parts.double(), matrices.double())
        biases = torch.stack(list(map(zeros.bias, vectors))).double()
        both = torch.cat([made, biases.unsqueeze(1)], 1)
        return _Side([*part_names(writers), "bias"], both)


def part_names(writers: Sequence[StreamWriter]) -> list[str]:
    """Name writers in few letters; modules of a foreign model that would share a name keep theirs.

    >>> part_names([StreamWriter("layers.3.feed_forward")])
    ['feed-forward 3']
    >>> part_names([StreamWriter("embeddings.word_embeddings")])
    ['tokens']
    >>> part_names([StreamWriter("encoder.layer.0.attention.output.LayerNorm bias")])
    ['attention norm bias 0']
    """
    names = [_short_name(str(writer)) for writer in writers]
    counts = Counter(names)
    return [
        name if counts[name] == 1 else str(writer)
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

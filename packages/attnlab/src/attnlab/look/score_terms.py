"""Why does this query look at this key? One score, taken apart into the parts of the stream.

    terms = why(model, "When John and Mary went", head="9.6", query=-1, key=" Mary")
    print(terms)                                 # the largest terms: query's part · key's part
    terms.of_query, terms.of_key                 # what each part of one side adds, over the other's

A score is a scaled product of a query and a key. Each is a linear function of the stream at its
position, if the scales of norms are held fixed (as in `lens.py`), and the stream is the sum of
what the embedding, heads and other parts wrote to it. So the score is a sum over pairs of parts,
beside what a bias by position adds (Elhage et al. 2021, "A Mathematical Framework for Transformer
Circuits"). A rotary position turns the query and the key of each part, and is in every term; a cap
of the scores is held fixed, by its ratio.

The softmax only compares scores: what adds the same to all keys moves no weight. `against=` gives
the terms of the difference from the score of another key, which is free of that.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, takewhile
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn

from attnlab.display import Card, NumberTable, card_text, count_words, displayed
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
from attnlab.look.heads import attentions, head_name, heads_named, number_of_heads
from attnlab.look.inputs import Call, Inputs, foreign_of
from attnlab.look.readout import HeldNorm, Place, Writer, outputs_of, written_by
from attnlab.look.recording import Recording, record
from attnlab.look.recording.kept_call import KeptMask
from attnlab.look.recording.recorder import passage_of
from attnlab.parts.attend import scale_factor
from attnlab.parts.dropout import drops_out
from attnlab.pretrained.model import Pretrained
from attnlab.sites import AttentionCall, Hook, installed, part_of, set_aside, site_names, site_of

_MOST_LINES = 10
_MOST_SUMS, _MOST_PAIRS = 5, 400  # parts of a side that are shown, where there are more pairs
_MOST_ROWS = 12  # of a table of terms
_FEED_FORWARD = re.compile(r"(?:(encoder|decoder)\.)?layers\.(\d+)\.feed_forward")
_CLOSE = 1e-4  # how far the terms may be from the score, relative to the largest


@displayed
@dataclass(frozen=True)
class ScoreTerms:
    """A score, decomposed: terms (query's part, key's part) and `position` sum to it.

    head: its name · query, key: the positions, and their tokens · query_parts, key_parts: the parts
    of the stream, the bias last · position: what a bias by position adds · weight: of this key ·
    against: the other key, if the score is less that of another.
    """

    head: str
    query: tuple[int, str]
    key: tuple[int, str]
    query_parts: list[str]
    key_parts: list[str]
    terms: Tensor
    position: float
    score: float
    weight: float
    against: tuple[int, str] | None = None

    @property
    def of_query(self) -> Tensor:
        """What each part of the query's stream adds to the score, (part,)."""
        return self.terms.sum(1)

    @property
    def of_key(self) -> Tensor:
        """What each part of the key's stream adds to the score, (part,)."""
        return self.terms.sum(0)

    @property
    def error(self) -> float:
        """The difference of the sum of all terms from the score that the model computes."""
        return abs(float(self.terms.double().sum()) + self.position - self.score)

    def top(self, count: int = _MOST_LINES) -> list[tuple[str, str, float]]:
        """Return the terms that are largest in size: query's part, key's part, what they add."""
        order = self.terms.abs().flatten().argsort(descending=True, stable=True)[:count].tolist()
        pairs = [divmod(index, len(self.key_parts)) for index in order]
        return [
            (self.query_parts[row], self.key_parts[column], float(self.terms[row, column]))
            for row, column in pairs
        ]

    def to_mapping(self) -> dict[str, object]:
        """Return everything as plain values, for JSON."""
        return {
            "head": self.head,
            "query": list(self.query),
            "key": list(self.key),
            "against": None if self.against is None else list(self.against),
            "score": self.score,
            "weight": self.weight,
            "position": self.position,
            "query_parts": self.query_parts,
            "key_parts": self.key_parts,
            "terms": self.terms.tolist(),
        }

    def number_tables(self) -> list[NumberTable]:
        """Return the terms of the largest parts as a table to draw, query's by key's."""
        rows = _largest(self.of_query, self.terms.abs().amax(1))
        columns = _largest(self.of_key, self.terms.abs().amax(0))
        shown = self.terms[rows][:, columns]
        query_parts = [self.query_parts[row] for row in rows]
        key_parts = [self.key_parts[column] for column in columns]
        return [
            NumberTable(
                f"Terms of the score of {self._cell}", "term", query_parts, key_parts,
                "part of the query's stream", "part of the key's stream", shown.tolist(),
            )
        ]  # fmt: skip

    @property
    def _cell(self) -> str:
        words = f"head {self.head}, query {_named(self.query)}, key {_named(self.key)}"
        if self.against is not None:
            words += f" less key {_named(self.against)}"
        return words

    def _card(self) -> Card:
        rows: list[Sequence[Any]] = []
        if self.terms.numel() > _MOST_PAIRS:  # too many pairs to read: the sides first
            for size, part in _top_sums(self.query_parts, self.of_query):
                rows.append((size, part, "·", "the key's whole stream"))
            for size, part in _top_sums(self.key_parts, self.of_key):
                rows.append((size, "the query's whole stream", "·", part))
        pairs = self.top()
        for query_part, key_part, term in pairs:
            rows.append((f"{term:+.3f}", query_part, "·", key_part))
        lines = []
        number = self.terms.numel() - len(pairs)
        if number > 0:
            rest = float(self.terms.sum()) - sum(term for _, _, term in pairs)
            lines.append(f"  {rest:+.3f}  {count_words(number, 'other term')} together")
        if self.position:
            lines.append(f"  {self.position:+.3f}  a bias by position")
        title = f"{self._cell}: score {self.score:.3f}, weight {self.weight:.3f}"
        return Card(title, rows=rows, lines=lines)

    def __str__(self) -> str:
        return card_text(self._card())


def _top_sums(parts: Sequence[str], sums: Tensor) -> Iterator[tuple[str, str]]:
    """Yield the largest sums of one side, and their parts."""
    for index in sums.abs().argsort(descending=True, stable=True)[:_MOST_SUMS].tolist():
        yield f"{float(sums[index]):+.3f}", parts[index]


def _named(place: tuple[int, str]) -> str:
    return f"{place[0]} {place[1]!r}" if place[1] else str(place[0])


def _largest(sums: Tensor, terms: Tensor) -> list[int]:
    """Return the parts with the largest sums or terms, in their order."""
    size = torch.maximum(sums.abs(), terms)
    return sorted(size.argsort(descending=True, stable=True)[:_MOST_ROWS].tolist())


def why(
    model: nn.Module,
    inputs: Inputs,
    *,
    head: str,
    query: int | str = -1,
    key: int | str,
    against: int | str | None = None,
) -> ScoreTerms:
    """Decompose the score of one query and one key of a head into the parts of the stream.

    Args:
        model: one of attnlab's or a pretrained one, in evaluation mode.
        inputs: one input: a text, or what the model reads.
        head: its name, such as "9.6", "encoder 0.1" or "cross 2.3".
        query, key: positions, negative ones from the end, or the name of a token that is there
            once.
        against: another key, whose score is subtracted.

    Raises:
        WrongUsage: no such head or position, several inputs, or an edit that changes the stream.
        CouldNotRun: a model whose queries and keys are not seen, or are no linear function of a
            stream that is a sum.
    """
    model, (call, words) = passage_of(inputs, model)
    return score_terms(model, call, words, head=head, query=query, key=key, against=against)


def score_terms(
    model: nn.Module,
    call: Call,
    words: Mapping[str, Sequence[str]],
    *,
    head: str,
    query: int | str,
    key: int | str,
    against: int | str | None = None,
) -> ScoreTerms:
    """Decompose a score of one call of a model, as `why` does; `words` are the tokens of each
    stack, if there are better names than those of its ids."""
    part, number = _head(model, head)
    if call.num_rows != 1:
        raise WrongUsage(f"why takes one input; got {call.num_rows}. Ask for each by itself.")
    if drops_out(model):
        raise WrongUsage("the model has random dropout; call model.eval() first.")
    score = _Score(model, call, part, number)
    names = score.seen.named(words).tokens(site_of(part, "weights"))
    at_query, at_key = _place("query", query, names.query), _place("key", key, names.key)
    cell, other = score.cell(at_query, at_key), None
    if against is not None:
        other = _place("against", against, names.key)
        cell = cell.less(score.cell(at_query, other))
    terms = ScoreTerms(
        head=head_name(part, number),
        query=(at_query, names.query[at_query]),
        key=(at_key, names.key[at_key]),
        query_parts=score.query_parts,
        key_parts=score.key_parts,
        terms=cell.terms,
        position=cell.position,
        score=cell.score,
        weight=score.weight(at_query, at_key),
        against=None if other is None else (other, names.key[other]),
    )
    if terms.error > _CLOSE * max(1.0, abs(terms.score), float(terms.terms.abs().max())):
        raise CouldNotRun(
            f"the terms of head {terms.head} miss its score, {terms.score:.6g}, by "
            f"{terms.error:.2g}: it is made of something that is no part of the stream."
        )
    return terms


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


class _Cell(NamedTuple):
    """One score: its terms (query's part, key's part), what a bias by position adds, their sum."""

    terms: Tensor
    position: float
    score: float

    def less(self, other: "_Cell") -> "_Cell":
        """Return the difference from another cell of the same query."""
        return _Cell(*(one - two for one, two in zip(self, other, strict=True)))


def _head(model: nn.Module, head: str) -> tuple[str, int]:
    """Return the part and the number of a head."""
    sizes = {part: number_of_heads(model, part) for part in attentions(model)}
    chosen = [
        (part, number) for part, heads in heads_named([head], sizes).items() for number in heads
    ]
    if len(chosen) != 1:
        raise WrongUsage(f"head= names one head, such as {head}.0; got {head!r}, a layer.")
    return chosen[0]


def stack_of_part(model: nn.Module, part: str) -> str:
    """Return the name of the stack that an attention is in; "" in a model of one."""
    block = part_of(part)
    if isinstance(model, Pretrained):
        return next(stack.name for stack in model.structure.stacks if block in stack.paths)
    return block.rpartition("layers")[0].rstrip(".")


def _place(what: str, place: int | str, names: Sequence[str]) -> int:
    """Return a position, given as a number or as the name of a token that is there once."""
    if isinstance(place, str):
        there = [index for index, name in enumerate(names) if name == place]
        there = there or [index for index, name in enumerate(names) if _bare(name) == _bare(place)]
        if len(there) != 1:
            are = f"it is there {len(there)} times, at {there}" if there else "it is not there"
            raise WrongUsage(f"{what}={place!r} names one token of {list(names)!r:.300}; {are}.")
        return there[0]
    size = len(names)
    if isinstance(place, bool) or not isinstance(place, int) or not -size <= place < size:
        raise WrongUsage(f"{what}= is a position from {-size} to {size - 1}; got {place!r}.")
    return place % size


def _bare(name: str) -> str:
    return name.strip(" ␣▁Ġ")


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
        own = [site_of(part, name) for name in ("scores", "weights")]
        sites = {stream.site for stream in streams} | {stream.start for stream in streams}
        blocks = _blocks_before(part, streams)
        others = [step for step in steps if isinstance(step, PartStep)]
        with (
            torch.no_grad(),
            outputs_of(foreign_of(model), others) as kept,
            embedding_parts(model) as embedded,
            record(model, [*sites, *heads, *own, *blocks], keep_on=device_of(model)) as recording,
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


class _Score:
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

    def cell(self, query: int, key: int) -> _Cell:
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
        return _Cell(terms, position, score)

    def weight(self, query: int, key: int) -> float:
        """Return the weight of one key."""
        return self._tile("weights", query, key)

    def _tile(self, name: str, query: int, key: int) -> float:
        one = {"queries": slice(query, query + 1), "keys": slice(key, key + 1)}
        site = site_of(self._part, name)
        return float(self.seen.recording.tile(site, head=self._head, **one))

    def _position(self, query: int, key: int) -> float:
        """Return what a mask of numbers adds to one score.

        Raises:
            WrongUsage: the key is masked.
        """
        call = self._call
        mask = KeptMask(call.mask, call.query.shape[2], call.key.shape[2], call.query.device)
        part = mask.part(0, self._head, slice(query, query + 1))
        added = 0.0
        if part is not None:
            value = part[0, 0, 0, key].detach()
            added = float(value) if value.is_floating_point() else 0.0 if value else -torch.inf
        if added == -torch.inf or self._tile("scores", query, key) == -torch.inf:
            raise WrongUsage(f"key {key} is masked for query {query}: its score is −inf.")
        return added

    def _side(self, stream: _Stream, name: str, position: int) -> tuple[list[str], Tensor]:
        """Return the parts of a stream at a position, and the query or key that each makes, (part,
        head_width)."""
        vector, bias = (
            self._vector(self._call, name, position),
            self._vector(self._bias, name, position),
        )
        leaf = self._leaves.leaves[stream.site]
        (jacobian,) = torch.autograd.grad(
            vector, leaf, torch.eye(len(vector), device=vector.device, dtype=vector.dtype),
            retain_graph=True, is_grads_batched=True,
        )  # fmt: skip
        here = jacobian[:, 0, position].clone()
        jacobian[:, 0, position] = 0.0
        if bool((jacobian != 0).any()):
            raise CouldNotRun(
                f"the {name} at a position of {self._part} is made of other positions too, so its "
                "score is no sum over parts of one."
            )
        writers, parts = self.seen.written(stream, position)
        vectors = parts.double() @ here.double().T
        return [*map(_part_name, writers), "bias"], torch.cat([vectors, bias.double().unsqueeze(0)])

    def _vector(self, call: AttentionCall, name: str, position: int) -> Tensor:
        """Return the query or key of the head at a position, (head_width,)."""
        head, value = self._head, call.query
        if name == "key":
            head, value = head * call.key.shape[1] // call.query.shape[1], call.key
        return value[0, head, position]


def _part_name(writer: Writer) -> str:
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
        if self._next is not None:
            norm = next(self._next)
        else:
            with torch.no_grad():
                norm = HeldNorm.of(module.forward, args[0].detach(), output.detach())
            self._held.append(norm)
        return None if norm is None else norm(args[0])

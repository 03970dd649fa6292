"""Why does this query look at this key? One score, taken apart into the parts of the stream.

    terms = why(model, "When John and Mary went", head="9.6", query=-1, key=" Mary")
    print(terms)                                 # the largest terms: query's part · key's part
    terms.of_query, terms.of_key                 # what each part of one side adds, over the other's
    why(model, "When John and Mary went", head="9.6")  # without a key: see `head_sources.py`

A score is a scaled product of a query and a key. Each is a linear function of the stream at its
position, if the scales of norms are held fixed (as in `lens.py`), and the stream is the sum of
what the embedding, heads and other parts wrote to it. So the score is a sum over pairs of parts,
beside what a bias by position adds (Elhage et al. 2021, "A Mathematical Framework for Transformer
Circuits"). A rotary position turns the query and the key of each part, and is in every term; a cap
of the scores is held fixed, by its ratio.

The softmax only compares scores: what adds the same to all keys moves no weight. `against=` gives
the terms of the difference from the score of another key, which is free of that.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload

import torch
from torch import Tensor, nn

from attnlab.display import Card, NumberTable, card_text, count_words, displayed, plain
from attnlab.errors import CouldNotRun, WrongUsage
from attnlab.look.head_scores import HeadScores
from attnlab.look.head_sources import HeadSources, head_of_one_input, sources_of
from attnlab.look.heads import head_name
from attnlab.look.inputs import Call, Inputs
from attnlab.look.position_names import position_at
from attnlab.look.recording.recorder import pass_of
from attnlab.look.streams import streams_of
from attnlab.look.target_ids import target_ids
from attnlab.sites import kept_hooked, site_of

_MOST_LINES = 10
_MOST_SUMS, _MOST_PAIRS = 5, 400  # parts of a side that are shown, where there are more pairs
_MOST_ROWS = 12  # of a table of terms
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

    def to_mapping(self) -> Any:
        """Return everything as plain values, for JSON."""
        return plain(self)

    def number_tables(self) -> list[NumberTable]:
        """Return the terms of the largest parts as a table to draw, query's by key's."""
        rows = _largest(self.of_query, self.terms.abs().amax(1))
        columns = _largest(self.of_key, self.terms.abs().amax(0))
        shown = self.terms[rows][:, columns]
        query_parts = [self.query_parts[row] for row in rows]
        key_parts = [self.key_parts[column] for column in columns]
        return [
            NumberTable(
                f"Terms of the score of {self._cell}", "Why this key", query_parts, key_parts,
                "query: part", "key: part", shown.tolist(),
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
            rows.append(("", "pairs, which add up:", "", ""))
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
        return Card(
            title, columns=("term", "query's part", "", "key's part"), rows=rows, lines=lines
        )

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


@overload
def why(
    model: nn.Module,
    inputs: Inputs,
    *,
    head: str,
    query: int | str = -1,
    key: int | str,
    against: int | str | None = None,
) -> ScoreTerms: ...


@overload
def why(
    model: nn.Module,
    inputs: Inputs,
    *,
    head: str,
    query: int | str = -1,
    target: int | str | None = None,
) -> HeadSources: ...


def why(
    model: nn.Module,
    inputs: Inputs,
    *,
    head: str,
    query: int | str = -1,
    key: int | str | None = None,
    against: int | str | None = None,
    target: int | str | None = None,
) -> ScoreTerms | HeadSources:
    """Decompose what a head does at one query: the score of a key into the parts of the stream, or
    without a key what the head writes into what it takes from each key.

    Args:
        model: one of attnlab's or a pretrained one, in evaluation mode.
        inputs: one input: a text, or what the model reads, such as ids (1, length).
        head: its name, such as "9.6", "encoder 0.1" or "cross 2.3".
        query, key: positions, negative ones from the end, or the name of a token that is there
            once.
        against: another key, whose score is subtracted.
        target: without a key, a token's text or id whose logit is taken apart too.

    Returns:
        with a key the terms of its score, `ScoreTerms`; without one what each key adds to the
        head's output, `HeadSources`.

    Raises:
        WrongUsage: no such head, position or token, several inputs, or an edit that changes the
            stream or the heads.
        CouldNotRun: a model whose queries and keys are not seen, or are no linear function of a
            stream that is a sum; without a key, whose values are not seen.

    >>> import attnlab, torch
    >>> _ = torch.manual_seed(0)
    >>> model = attnlab.Decoder(attnlab.DecoderConfig()).eval()
    >>> tokens = torch.tensor([[3, 1, 2, 0]])
    >>> terms = why(model, tokens, head="0.1", query=-1, key=1)
    >>> terms.error < 1e-5  # the terms sum to the score
    True
    >>> why(model, tokens, head="0.1").norms.shape  # (key,)
    torch.Size([4])
    """
    ids = target_ids(target, model, inputs)
    model, (call, words) = pass_of(inputs, model)
    places = {"query": query, "key": key, "against": against}
    return why_of(model, call, words, head=head, **places, target=ids)


def why_of(
    model: nn.Module,
    call: Call,
    words: Mapping[str, Sequence[str]],
    *,
    head: str,
    query: int | str | None,
    key: int | str | None,
    against: int | str | None,
    target: Tensor | None,
) -> ScoreTerms | HeadSources:
    """Decompose what a head does in one call of a model, as `why` does.

    words: the tokens of each stack, if there are better names than those of its ids · target: an
    id, () or (1,).
    """
    if (against is not None and key is None) or (target is not None and key is not None):
        raise WrongUsage("against= goes with a key=, and target= without one.")
    if key is None:
        return sources_of(model, call, words, head=head, query=query, target=target)
    part, number = head_of_one_input(model, call, head)
    streams = streams_of(model, part)  # which may trace the model, without hooks
    with kept_hooked(model):
        score = HeadScores(model, call, streams, part, number)
        names = score.seen.named(words).tokens(site_of(part, "weights"))
        at_query = position_at("query", query, names.query)
        at_key = position_at("key", key, names.key)
        other = None if against is None else position_at("against", against, names.key)
        cell, *others = score.cells(at_query, [at_key] if other is None else [at_key, other])
    for one in others:
        cell = cell.less(one)
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
    size = max(1.0, abs(terms.score), float(terms.terms.abs().max()))
    if terms.error > max(_CLOSE, 16 * score.rounding) * size:
        raise CouldNotRun(
            f"the terms of head {terms.head} miss its score, {terms.score:.6g}, by "
            f"{terms.error:.2g}: it is made of something that is no part of the stream there."
        )
    return terms

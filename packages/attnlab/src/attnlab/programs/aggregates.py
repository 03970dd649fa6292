"""Aggregates and widths as heads, with gains that follow from the tolerance.

One key that scores c above w others weighs 1 / (1 + w e^-c), so an error of e asks for
c = ln(w (1 - e) / e). Where a query may select nothing, BOS holds the default: it scores
b = ln(n (1 - e) / e), and a selected key ln((1 - e) / e) above it and the others. A width is read
from BOS, which scores as the selected keys do: it weighs 1 / (width + 1).
"""

import math
import operator
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import compress
from typing import Any

import numpy as np

from attnlab.programs.blueprint import (
    Matrix,
    ProgramHead,
    View,
    attention_slot,
    constant_view,
    stacked_views,
    whole,
)
from attnlab.programs.conjunctions import Conjunction, as_one
from attnlab.programs.hidden_units import read_off
from attnlab.programs.interpreter import ranks_of
from attnlab.programs.language import (
    Aggregate,
    Best,
    Compared,
    Constant,
    Indices,
    JoinedSelector,
    Selector,
    Width,
)
from attnlab.programs.lines import ProgramError
from attnlab.programs.values import are_numbers, mean_of_one
from attnlab.programs.views import TooCoarse, ViewForm, Views, min_gap, one_hot_rows

_LEAK = 0.1  # weight of all keys that are not selected, relative to a selected one, in a width
_MAX_SPREAD = 0.1  # of the scores of selected keys, in an aggregate
_MAX_TERMS = 64  # heads for a total
_WAYS = (
    "of pairs of values, since one head does no `|`",
    "the rank of the score added",
    "BOS holds the default",
)


@dataclass(frozen=True)
class _Scores:
    """Queries and keys; BOS's score; the share of the weight that may fall on wrong keys; how the
    scores come about."""

    queries: View
    keys: View
    bos_score: float | None
    leak: float
    way: str


@dataclass(frozen=True)
class _Channels:
    """Queries and keys that score `gain` for each part that holds; a key that fails one part
    scores `floor`."""

    queries: View
    keys: View
    floor: float
    gain: float


def gather(views: Views, node: Aggregate, form: ViewForm) -> View:
    """Make the head of an aggregate."""
    shown = views.domains.values(node)
    means = list(map(mean_of_one, views.domains.values(node.values)))
    values = views.view(node.values, form)
    if form == "one-hot":
        values = values.through(one_hot_rows(views.places(node, means), len(shown)).T)
        default, diameter = np.zeros(len(shown)), 1.0
        default[views.places(node, views.domains.default(node))] = 1.0
    else:
        gathered = list(map(float, means))
        default = np.array([gathered[0]])  # which BOS may add to a mean
        for value in map(float, views.domains.default(node)):
            default[0] = value
            gathered.append(value)
        diameter = max(gathered) - min(gathered)
    scores = _scores(views, node, min(views.allowed / max(diameter, 1e-300), 0.2))
    slot = attention_slot(scores.queries, scores.keys, values)
    block = views.blueprint.block(f"{node.line}  ({form})", slot, default)
    way = f"{scores.way}; wrong keys weigh {scores.leak:.1g} at most"
    views.blueprint.heads.append(
        ProgramHead(
            scores.queries, scores.keys, values, block, scores.bos_score, str(node.line), way
        )
    )
    return whole(block, values.error + scores.leak * diameter)


def _scores(views: Views, node: Aggregate, share: float) -> _Scores:
    """Return scores with which at most this share of the weight falls on wrong keys."""
    selector: Any = node.selector
    is_open = views.domains.may_be_empty(selector)
    odds = (1 - share) / share
    rivals = float(max(views.longest - 1 + views.has_bos, 1))
    if not is_open and _is_nearest(views, selector):
        # Two neighbors at most; a third for BOS and all that are farther.
        if isinstance(selector.keys, Indices):
            rivals = min(rivals, 3.0)
        return _nearest(views, selector, math.log(rivals * odds), share)
    inner, ranked, top, noise = selector, None, 0.0, 0.0
    if isinstance(selector, Best):
        inner = selector.selector
        ranked, top = _ranked(views, selector, math.log(rivals * odds) + 2 * _MAX_SPREAD)
        top, noise = top + _MAX_SPREAD, ranked.error
        if noise > _MAX_SPREAD:
            raise TooCoarse
    bos = 0.0
    if is_open:  # BOS outweighs all keys, and a selected key outweighs BOS
        bos = math.log(views.longest * odds)
        rivals = views.longest - 1 + views.longest * odds
    joined = as_one(inner, views.domains)
    cases = views.cases(joined)
    gain = math.log(rivals * odds) + top
    channels = _Channels(constant_view([0.0]), constant_view([0.0]), 0.0, gain)  # of no key
    if cases:
        channels = _channels(views, cases[0], gain, _MAX_SPREAD)
    queries, keys = channels.queries, channels.keys
    leak = share
    if ranked is not None:
        queries, keys = (
            stacked_views([queries, constant_view([1.0])]),
            stacked_views([keys, ranked]),
        )
        leak *= 1 + (cases != [[]])  # on keys not selected, and on keys not the best
    if not views.domains.at_most_one(selector):
        # Both factors of a score may be off, and a share moves by twice what two scores do.
        leak += 4 * (channels.queries.error + gain * channels.keys.error + noise)
    bos_score = None
    if views.has_bos:
        bos_score = channels.floor + top + bos
    applies = (joined is not inner, ranked is not None, is_open)
    way = "; ".join([*map(_way, cases[:1]), *compress(_WAYS, applies), f"gain {gain:.3g}"])
    return _Scores(queries, keys, bos_score, leak, way)


def _way(case: Conjunction) -> str:
    """Describe the scores of a conjunction."""
    if not case:
        return "all keys alike"
    if len(case) == 1:
        return "one comparison"
    return f"{len(case)} comparisons added up, for `&`"


def _ranked(views: Views, selector: Best, step: float) -> tuple[View, float]:
    """Return the view that adds the ranks of scores to a key's score, and its largest addition."""
    ranks = ranks_of(selector, views.domains.values(selector.scores))
    row = step * np.array([ranks], dtype=np.float64)
    return views.one_hot(selector.scores).through(row), float(row.max())


def _channels(views: Views, case: Conjunction, gain: float, spread: float) -> _Channels:
    """Write a conjunction as queries and keys; selected keys' scores differ by at most `spread`."""
    if not case:  # selects everything
        return _Channels(constant_view([gain]), constant_view([1.0]), 0.0, gain)
    queries, keys = [], []
    for part in case:
        by_query, by_key = _factors(part.table)
        queries.append(views.one_hot(part.queries).through(by_query))
        keys.append(views.one_hot(part.keys).through(by_key))
    error = sum(view.error for view in (*queries, *keys))
    if 4 * error * gain > spread:
        raise TooCoarse
    gain /= 1 - 2 * error
    query = stacked_views(queries)
    query = query.through(gain * np.eye(len(query.constant)))
    return _Channels(query, stacked_views(keys), gain * (len(case) - 1), gain)


def _factors(table: Any) -> tuple[Matrix, Matrix]:
    """Write a relation as few channels: (channel, query value) and (channel, key value)."""
    rows, row_of = np.unique(table, axis=0, return_inverse=True)
    columns, column_of = np.unique(table, axis=1, return_inverse=True)
    if len(rows) <= columns.shape[1]:
        kept = rows.any(1)
        return one_hot_rows(row_of.ravel(), len(rows)).T[kept], rows[kept].astype(np.float64)
    kept = columns.any(0)
    by_key = one_hot_rows(column_of.ravel(), columns.shape[1]).T[kept]
    return columns.T[kept].astype(np.float64), by_key


def _is_nearest(views: Views, selector: Selector) -> bool:
    """Is it an equality of numbers whose query would take hidden units to be one-hot?"""
    if not isinstance(selector, Compared) or selector.holds is not operator.eq:
        return False
    if views.is_linear(selector.queries) or not views.is_linear(selector.keys):
        return False
    values = views.domains.values
    return are_numbers(values(selector.keys) + values(selector.queries))


def _nearest(views: Views, selector: Compared, gain: float, share: float) -> _Scores:
    """Score keys by -(key - query)², without the part that all keys share: two dimensions."""
    query = views.number(selector.queries)
    wanted = list(map(float, views.domains.values(selector.queries)))
    values = list(map(float, views.domains.values(selector.keys)))
    gap = min((abs(one - two) for one in wanted for two in values if one != two), default=1.0)
    if query.error > gap / 100:
        raise TooCoarse
    largest = max(map(abs, (*wanted, *values)))
    if 100 * views.spacing * largest**2 > gap**2:
        reason = f"{selector!r} compares numbers too large for this dtype; take smaller ones."
        raise ProgramError(selector.line, reason)
    gain = gain / gap**2 / (1 - 2 * query.error / gap)
    queries = stacked_views([query.through(np.array([[2 * gain]])), constant_view([-gain])])
    keys = views.one_hot(selector.keys).through(np.array([values, np.square(values)]))
    bos_score = None
    if views.has_bos:
        bos_score = -gain * gap**2
    way = f"the nearest number, -(key - query)², in two channels; gain {gain:.3g}"
    return _Scores(queries, keys, bos_score, share, way)


def is_single(views: Views, node: Width) -> bool:
    """Is a width counted by one head?"""
    return node.values is None and len(views.cases(node.selector)) == 1


def add_up(views: Views, node: Width) -> View:
    """Add the widths of the selector's cases, each times the value that is added up."""
    total = constant_view([0.0])
    counts = np.arange(views.longest + 1, dtype=np.float64)
    for selector, times in _terms(views, node):
        cases = views.cases(selector)
        for number, case in enumerate(cases, start=1):
            of = f"case {number} of {len(cases)}: " if len(cases) > 1 else ""
            view = weight_of_bos(views, case, node, of)
            numbers = (1 / (1 + counts)).tolist()
            count = read_off(views, view, numbers, counts[:, None], node, "number")
            total = total.plus(count, times)
    return total


def _terms(views: Views, node: Width) -> Iterator[tuple[Selector, float]]:
    if node.values is None:
        yield node.selector, 1.0
        return
    values = list(filter(None, views.domains.values(node.values)))
    if len(values) > _MAX_TERMS:
        raise ProgramError(
            node.line,
            f"a total takes a head for each value, at most {_MAX_TERMS}; {node.values!r} has "
            f"{len(values):,}. Use a mean and a width.",
        )
    for value in values:
        holds = Compared(node.values, Constant(value), "==", operator.eq)
        joined = JoinedSelector("&", (node.selector, holds))
        joined.line = node.line
        yield joined, float(value)


def weight_of_bos(views: Views, case: Conjunction, node: Width, of: str = "") -> View:
    """Make the head that attends to BOS and the selected keys: BOS weighs 1 / (width + 1).

    of: which case of the selector this is, where there are several.
    """
    channels = _channels(views, case, math.log(views.longest / _LEAK), 0.05 / views.longest)
    slot = attention_slot(channels.queries, channels.keys)
    block = views.blueprint.block(f"{node.line}  (1/(1 + width))", slot, np.ones(1))
    values, score = constant_view([0.0]), channels.floor + channels.gain
    way = f"{of}{_way(case)}; counted by the weight of BOS; gain {channels.gain:.3g}"
    views.blueprint.heads.append(
        ProgramHead(channels.queries, channels.keys, values, block, score, str(node.line), way)
    )
    # The leak moves a weight by less than a fifth of the way to the next one.
    return whole(block, min_gap([1 / (1 + count) for count in range(views.longest + 1)]) / 5)

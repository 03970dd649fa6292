"""Maps as hidden units: of one number that is read off, or of several sequences together."""

from collections import Counter
from collections.abc import Sequence as Items
from itertools import pairwise

import numpy as np

from attnlab.programs.blueprint import (
    HiddenUnits,
    Matrix,
    View,
    constant_view,
    feed_forward_slot,
    stacked_views,
    whole,
)
from attnlab.programs.language import Map, Sequence
from attnlab.programs.lines import ProgramError
from attnlab.programs.values import Value, are_numbers
from attnlab.programs.views import TooCoarse, ViewForm, Views, min_gap, one_hot_rows

SURE = 0.9  # the share of the permitted error that is used
_SUMS = 2  # roundings of a hidden unit's input that its neighbor does not share
_MAX_ROUNDING = 2e-3  # of what is read off


def read_off(
    views: Views, view: View, numbers: Items[float], rows: Matrix, node: Sequence, form: ViewForm
) -> View:
    """Read a number off as one of the rows: two hidden units wherever the row changes.

    relu(s (t - x)) - relu(s (t - x) - 1) falls from 1 to 0 within the middle half of the gap
    between two numbers, where s is 2 / gap and t three quarters on the way.
    """
    order = np.argsort(numbers)
    inner, bias, outer, rounding = [], [], [], 0.0
    least = min(numbers)
    for low, high in pairwise(order):
        change = rows[low] - rows[high]
        if not change.any():
            continue
        gap = numbers[high] - numbers[low]
        if view.error > SURE * gap / 4:
            raise TooCoarse
        top, slope = numbers[high] - gap / 4, 2.0 / gap
        size = slope * max(abs(top), abs(top - least)) * float(np.abs(change).max())
        rounding += _SUMS * views.spacing * size
        inner += [[-slope], [-slope]]
        bias += [slope * top, slope * top - 1.0]
        outer += [change, -change]
    if rounding > _MAX_ROUNDING:
        raise ProgramError(
            node.line,
            f"{node!r} is read off {len(numbers):,} numbers that lie too close together for this "
            "dtype; take float64, or fewer values.",
        )
    units = view.through(np.reshape(inner, (-1, 1)), np.array(bias))
    return add_units(
        views, units, np.reshape(outer, (-1, rows.shape[1])).T, rows[order[-1]], node, form
    )


def join(views: Views, node: Map, form: ViewForm) -> View:
    """Compute a map of several sequences: a hidden unit, or two, for each combination."""
    variables, combinations, results = views.domains.combinations(node)
    rows = views.rows(node, results, form)
    if not all(map(views.is_cheap, variables)):
        return _join_numbers(views, variables, combinations, rows, node, form)
    usual = rows[results.index(Counter(results).most_common(1)[0][0])]
    changes = rows - usual
    kept = changes.any(1)
    view = stacked_views(list(map(views.one_hot, variables)))
    picks = []
    for argument, values in zip(variables, zip(*combinations, strict=True), strict=True):
        size = len(views.domains.values(argument))
        picks.append(one_hot_rows(views.places(argument, values), size))
    pick = np.concatenate(picks, axis=1)[kept]
    number = len(variables)
    if not view.error:
        units = view.through(pick, 1.0 - number)
        return add_units(views, units, changes[kept].T, usual, node, form)
    if number * view.error > SURE / 4:
        raise TooCoarse
    sharp = view.through(2 * pick, 1.5 - 2 * number)
    units = stacked_views([sharp, sharp.through(np.eye(len(pick)), -1.0)])
    outer = np.concatenate([changes[kept], -changes[kept]]).T
    return add_units(views, units, outer, usual, node, form)


def _join_numbers(
    views: Views,
    variables: Items[Sequence],
    combinations: Items[tuple[Value, ...]],
    rows: Matrix,
    node: Sequence,
    form: ViewForm,
) -> View:
    """Write the arguments as digits of one number, and read that off."""
    view, numbers, scale = constant_view([0.0]), np.zeros(len(combinations)), 1.0
    for argument, values in zip(variables, zip(*combinations, strict=True), strict=True):
        digit, digits = _digits(views, argument)
        least, span = digits.min(), digits.max() - digits.min()
        # The gap between two values of this digit holds all that the digits before span.
        times = scale / min_gap(digits.tolist())
        view = view.plus(digit.through(np.eye(1), -least), times)
        numbers += times * (digits[views.places(argument, values)] - least)
        scale += times * span
    return read_off(views, view, numbers.tolist(), rows, node, form)


def _digits(views: Views, node: Sequence) -> tuple[View, Matrix]:
    values = views.domains.values(node)
    if are_numbers(values) and not views.is_cheap(node):
        return views.number(node), np.array(list(map(float, values)))
    places = np.arange(len(values), dtype=np.float64)
    return views.one_hot(node).through(places[None]), places


def add_units(
    views: Views, inner: View, outer: Matrix, constant: Matrix, node: Sequence, form: ViewForm
) -> View:
    """Put hidden units into the first feed-forward part that can read their inputs."""
    if not outer.shape[1]:
        return constant_view(constant)
    slot = feed_forward_slot(inner)
    block = views.blueprint.block(f"{node.line}  ({form})", slot, constant)
    views.blueprint.units.append(HiddenUnits(inner, outer, block))
    return whole(block)

"""The mistakes in designed weights: each is named by its repair.

A design makes a mistake if it is right as soon as one thing in it is put right: louder queries,
other values, another order of keys.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from attnlab.tasks.vectors import VectorTask
from attnlab_course.exercise import Mistake, read_mistakes
from attnlab_course.material.weights import TOLERANCE, DesignedHead, Floats, HeadTrial

_MOST = 1e6  # how much louder the queries of a design are made to see whether that is all it lacks

Repair = tuple[str, Callable[[DesignedHead], DesignedHead | None]]
"""A mistake, and the change that would mend a design that makes it and no other.

The change may return None where it does not apply.
"""

Right = Callable[..., bool]
"""Whether a head is right on all inputs, or on those of the lengths that follow it."""


def diagnosis(
    is_right: Right,
    short: Sequence[int],
    values: Floats,
    repairs: Sequence[Repair],
    look: Callable[[DesignedHead], str | None] = lambda head: None,
) -> Callable[[DesignedHead], str | None]:
    """Return a function that names the one thing that is wrong with a head; None if not known.

    Args:
        is_right: judges the head.
        short: the lengths of short inputs.
        values: the right Vm of the letters.
        repairs: further mistakes.
        look: names a mistake that is seen in the matrices; asked first.
    """
    known: dict[object, str | None] = {}

    def diagnose(head: DesignedHead) -> str | None:
        if head.key not in known:
            known[head.key] = None
            if head.is_finite and not is_right(head):
                mistake = look(head) or gain_mistake(head, is_right, short)
                mistake = mistake or value_mistake(head, values, is_right)
                known[head.key] = mistake or _repaired_mistake(head, repairs, is_right)
        return known[head.key]

    return diagnose


def _repaired_mistake(head: DesignedHead, repairs: Sequence[Repair], is_right: Right) -> str | None:
    """Return the mistake of the first repair that makes a design right; None without any."""
    for mistake, change in repairs:
        changed = change(head)
        if changed is not None and is_right(changed):
            return mistake
    return None


def missing_factor(head: DesignedHead, is_right: Right) -> float | None:
    """Return by how much the queries must grow until a design is right; None if that is not all.

    Found by bisection, to a thousandth.
    """
    if not is_right(head.louder(_MOST)):
        return None
    low, high = 1.0, _MOST
    while high / low > 1.001:
        middle = math.sqrt(low * high)
        if is_right(head.louder(middle)):
            high = middle
        else:
            low = middle
    return high


def louder_words(head: DesignedHead, is_right: Right) -> str:
    """Say how far the gain of a design is from what is needed; nothing where that is not all."""
    factor = missing_factor(head, is_right)
    if factor is None or factor < 1.01:
        return ""
    return f"; with Qm {factor:.2f} times as large it would be right"


def is_near(task: VectorTask, head: DesignedHead, lengths: Sequence[int] | None = None) -> bool:
    """Whether every output on inputs of these lengths is near enough to its target."""
    return HeadTrial(head, task).worst(lengths).error <= TOLERANCE


def near(task: VectorTask, lengths: Sequence[int]) -> Callable[[DesignedHead], str | None]:
    """Return the criterion that outputs on inputs of these lengths are near their targets."""

    def criterion(head: DesignedHead) -> str | None:
        worst = HeadTrial(head, task).worst(lengths)
        if worst.error <= TOLERANCE:
            return None
        return worst.words(TOLERANCE) + louder_words(head, partial(is_near, task))

    return criterion


def gain_mistake(head: DesignedHead, is_right: Right, short: Sequence[int]) -> str | None:
    """Name what is wrong with a design that lacks nothing but larger queries; None for others.

    "short inputs only", "root forgotten" (the gain is what the gap should be), "gain too low".
    """
    factor = missing_factor(head, is_right)
    if factor is None or is_right(head):
        return None
    if is_right(head, short):
        return "short inputs only"
    if factor <= 1.001 * head.root <= 1.06 * factor:
        return "root forgotten"
    return "gain too low"


_GAIN_MISTAKES = """
## gain too low: It looks at the right tokens, but not firmly enough: too much weight is left for
the others. The gain is too low.
- gain = {gain}
+ gain = {low}
## root forgotten: The scores would be large enough before the division by √qk_dim, but that
division makes them too small.
- gain = {gain}
+ gain = {root}
## short inputs only: It holds for short inputs only: in a longer one more wrong keys share the
weight, so the right one must stand out further.
- gain = {gain}
+ gain = {short}
"""


def gain_mistakes(gain: float, low: float, root: float, short: float) -> tuple[Mistake, ...]:
    """Return the mistakes that `gain_mistake` names, each with its gain in place of the right."""
    return read_mistakes(_GAIN_MISTAKES.format(gain=gain, low=low, root=root, short=short))


def value_mistake(head: DesignedHead, right_values: Floats, is_right: Right) -> str | None:
    """Name what is wrong with a design that lacks nothing but the right Vm; None for others.

    "positions leak" or "wrong values".
    """
    letters = len(right_values)
    mended, silent = np.zeros_like(head.Vm), head.Vm.copy()
    mended[:letters] = right_values
    silent[letters:] = 0.0
    if not is_right(replace(head, Vm=mended)):
        return None
    return "positions leak" if is_right(replace(head, Vm=silent)) else "wrong values"


def add_scores(head: DesignedHead, task: VectorTask, table: Floats) -> DesignedHead:
    """Return the head with numbers added to its scaled scores.

    Args:
        head: with positions.
        task: says how many tokens there are.
        table: (features of the query, features of the key), a feature being a token or a place.
    """
    places, tokens = task.row_length, task.input_dim
    pos = head.pos if head.pos is not None else np.zeros((places, 0))
    shown = np.zeros((len(head.Km) + places, tokens + places))
    shown[:tokens, :tokens] = np.eye(tokens)
    shown[len(head.Km) :, tokens:] = np.eye(places)
    below = np.zeros((places, head.Km.shape[1]))
    root = math.sqrt(head.Km.shape[1] + tokens + places)
    return DesignedHead(
        Km=np.hstack([np.vstack([head.Km, below]), shown]),
        Qm=root * np.hstack([np.vstack([head.Qm, below]) / head.root, shown @ table]),
        Vm=np.vstack([head.Vm, np.zeros((places, head.Vm.shape[1]))]),
        pos=np.hstack([pos[:places], np.eye(places)]),
    )

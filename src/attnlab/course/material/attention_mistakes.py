"""The mistakes that people make in attention, as they write them; several exercises share them.

They are read off questions, bug reports and homework: a mask read as PyTorch's own modules read it,
numbers in place of −∞, a score of 0 taken for a masked one, a softmax over another axis, a division
by another root. Each is a piece of a solution that is replaced; an exercise gives the pieces.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

from attnlab.course.exercise import Mistake

Pair = tuple[str, str]
"""What masks the scores, and what is done to the weights afterwards; empty for nothing."""

_NAN = "torch.nan_to_num(weights)"


def _fill(where: str, number: str) -> str:
    return f"scores.masked_fill({where}, {number})"


def _zero(where: str) -> str:
    return f"weights.masked_fill({where}, 0.0)"


_INVERTED: Sequence[Pair] = (
    (_fill("mask", "-math.inf"), _zero("mask")),
    (_fill("mask", "-math.inf"), ""),
    (_fill("mask", "-math.inf"), _NAN),
    (_fill("mask", "-math.inf"), _zero("~mask")),
    (_fill("mask", "-1e9"), ""),
    (_fill("mask", "-1e9"), _zero("mask")),
    (_fill("mask", "-1e4"), ""),
    (_fill("mask", "torch.finfo(scores.dtype).min"), ""),
    ("scores + mask * -1e9", ""),
    ("scores + mask * -1e4", ""),
    ("scores + mask * torch.finfo(scores.dtype).min", ""),
)
_ZERO_SCORES = "scores.masked_fill(scores * mask == 0, -math.inf)"
_SHARED: Sequence[tuple[str, Sequence[Pair], str]] = (
    (
        "inverted mask",
        _INVERTED,
        "The mask is read the wrong way round: here True means that a query may attend to a key.",
    ),
    ("mask left out", (("", ""),), "The mask has no effect: the weights are those without one."),
    (
        "mask added",
        (("scores + mask", ""), ("scores - ~mask * 1.0", "")),
        "The mask is added to the scores as zeros and ones. A masked key needs a score of −∞.",
    ),
    (
        "scores times mask",
        (("scores * mask", ""), ("scores * mask", _NAN)),
        "Masked scores are set to 0, and the exponential of 0 is 1: these keys still get weight.",
    ),
    (
        "zero taken for masked",
        (
            (_ZERO_SCORES, ""),
            (_ZERO_SCORES, _NAN),
            (_ZERO_SCORES, _zero("~mask")),
            ("scores.masked_fill(scores * mask == 0, -1e9)", ""),
            ("scores.masked_fill(scores * mask == 0, -1e9)", _zero("~mask")),
        ),
        "A score of exactly 0 is taken for a masked one, since what is masked is read off the "
        "scores. 0 is a score like any other; the mask alone says which keys are masked.",
    ),
    (
        "mask after the softmax",
        (("", "weights * mask"),),
        "Masked keys are removed after the softmax, so the weights that are left sum to less "
        "than 1. They must be out before the softmax shares out its 1.",
    ),
    (
        "mask after the softmax, rescaled",
        (
            ("", "weights * mask / (weights * mask).sum(dim=-1, keepdim=True)"),
            ("", "torch.nan_to_num(weights * mask / (weights * mask).sum(dim=-1, keepdim=True))"),
            ("", "weights * mask / ((weights * mask).sum(dim=-1, keepdim=True) + 1e-9)"),
        ),
        "Masked keys are removed after the softmax and the rest is divided by its sum. Where a "
        "masked key has by far the largest score, nothing is left to divide.",
    ),
    (
        "filled with −10",
        (
            (_fill("~mask", "-10.0"), ""),
            (_fill("~mask", "-10.0"), _zero("~mask")),
            ("scores + ~mask * -10.0", ""),
            ("scores - ~mask * 10.0", _zero("~mask")),
        ),
        "Masked scores are set to a small number such as −10, or lowered by it. e^−10 is 0.00005 "
        "and no 0: masked keys keep some of the weight. They need a score of −∞.",
    ),
    (
        "NaN in dead rows",
        ((_fill("~mask", "-math.inf"), ""),),
        "A query that may attend to no key gives NaN: the softmax of −∞ alone is 0/0.",
    ),
)


def mask_mistakes(
    old: str,
    write: Callable[[str, str], str],
    *,
    has_dead_rows: bool = True,
    lowest: float = 0.0,
    leave_out: Iterable[str] = (),
) -> tuple[Mistake, ...]:
    """Return the mistakes that are made with a mask.

    Args:
        old: the lines of the solution from the unmasked `scores` to the finished `weights`.
        write: writes these lines with other expressions: what becomes of `scores` and, after the
            softmax, of `weights`, in terms of these and of `mask`; empty for nothing.
        has_dead_rows: whether there is a case in which a query has no key.
        lowest: how far below 0 all the scores of a query are in some case; below it a finite
            number is as good as −∞.
        leave_out: names of further mistakes that cannot be made in an exercise, or have another
            name in it.
    """
    every = [*_SHARED, *_fills(has_dead_rows, lowest)]
    mistakes = []
    for name, pairs, says in every:
        if name in leave_out or not pairs:
            continue
        if name == "NaN in dead rows" and not has_dead_rows:
            continue
        first, *others = [write(before, after) for before, after in pairs]
        mistakes.append(Mistake(name, old, first, says, tuple(dict.fromkeys(others))))
    return tuple(mistakes)


def _fills(has_dead_rows: bool, lowest: float) -> Iterator[tuple[str, Sequence[Pair], str]]:
    """Yield the mistakes of a large negative number in place of −∞."""
    low: list[Pair] = []
    dead: list[Pair] = []
    for number in (1e4, 1e9):
        plain: list[Pair] = [
            (_fill("~mask", f"-{number:g}"), ""),
            (f"scores + ~mask * -{number:g}", ""),
        ]
        if lowest > number:
            low.append((_fill("~mask", f"-{number:g}"), _zero("~mask")))
        if has_dead_rows and (number == 1e9 or lowest <= number):
            dead += plain
        elif lowest > number:
            low += plain
    if has_dead_rows and lowest > 1e4:
        low += [("scores + ~mask * -1e3", ""), ("scores + ~mask * -100.0", "")]
    smallest: Pair = (_fill("~mask", "torch.finfo(scores.dtype).min"), "")
    can_tell_smallest = lowest > 1e9
    if has_dead_rows and not can_tell_smallest:
        dead.append(smallest)
    yield (
        "filled with −10⁴",
        low,
        "Masked scores are set to a number such as −10⁴, or lowered by it. That is no −∞: where "
        "all scores lie lower, the masked keys get the weight.",
    )
    yield (
        "filled with −10⁹",
        dead,
        "Masked scores are set to a number such as −10⁹, or lowered by it. A query that may attend "
        "to no key then gives its weight to masked keys; it should have weights of 0.",
    )
    yield (
        "even dead rows",
        [smallest] if has_dead_rows and can_tell_smallest else [],
        "A query that may attend to no key spreads its weight evenly over masked keys; it should "
        "have weights of 0.",
    )


def root_mistakes(
    old: str, width: str, queries: str, keys: str = "", root: str = "math.sqrt"
) -> tuple[Mistake, ...]:
    """Return the mistakes that are made where scores are divided by the root of a width.

    Args:
        old: the division in the solution, from its sign on, such as `/ math.sqrt(size)`.
        width: the expression of the width.
        queries: that of the number of queries.
        keys: that of the number of keys; empty where it is the same.
        root: the function that takes roots.
    """
    counts = {"queries": queries, "keys": keys}
    return (
        Mistake(
            "no scaling",
            old,
            "",
            "The scores are not divided by √width, so they grow with the width.",
        ),
        Mistake(
            "scaled by the width",
            old,
            f"/ {width}",
            "The scores are divided by the width itself, not by its root: the weights are too "
            "even.",
        ),
        Mistake(
            "multiplied by the root",
            old,
            f"* {root}({width})",
            "The scores are multiplied by √width where they should be divided by it.",
        ),
        *(
            Mistake(
                f"scaled by the number of {name}",
                old,
                f"/ {root}({count})",
                f"The scores are divided by the root of the number of {name}. What makes them grow "
                "is how many products are summed in each: the width.",
            )
            for name, count in counts.items()
            if count
        ),
        power_mistake(old, width),
    )


def power_mistake(old: str, value: str, before: str = "/ ") -> Mistake:
    """Return the mistake of a power that is meant as a root and read as a fraction.

    Args:
        old: the root in the solution, from `before` on.
        value: the expression whose root is taken.
        before: what stands before the root.
    """
    return Mistake(
        "half in place of a root",
        old,
        f"{before}{value} ** 1 / 2",
        "`x ** 1 / 2` is half of x, since Python takes the power first; the root is `x ** 0.5`.",
        also=(f"{before}({value} ** 1 / 2)",),
    )


def plus_one_mistake(old: str, new: str, *also: str | tuple[str, str]) -> Mistake:
    """Return the mistake of a softmax whose sum has a 1 added to it."""
    return Mistake(
        "one more in the sum",
        old,
        new,
        "A 1 is added to the sum of the exponentials, so the weights sum to less than 1.",
        also,
    )


def swapped_mistake(
    old: str, new: str, words: str = "the output comes first, then the weights"
) -> Mistake:
    """Return the mistake of an answer whose parts stand in another order."""
    return Mistake(
        "parts swapped", old, new, f"The parts of the answer are in the wrong order: {words}."
    )

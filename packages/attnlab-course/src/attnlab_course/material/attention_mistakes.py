"""The mistakes that people make in attention, as they write them; several exercises share them.

They are read off homework and the trackers of minGPT, TinyTorch and Transformers: a mask read as
PyTorch's own modules read it, numbers in place of −∞, a score of 0 taken for a masked one, a
softmax over another axis, a division by another root. Each is a piece of a solution that is
replaced; an exercise gives the pieces.
"""

import textwrap

from attnlab_course.exercise import Mistake

_NAN = "torch.nan_to_num(weights)"
_ZEROS = "scores.masked_fill(scores * mask == 0, {})"

_MASK_MISTAKES: dict[str, tuple[tuple[tuple[str, str], ...], str]] = {
    "inverted mask": (
        (
            ("scores.masked_fill(mask, -math.inf)", "weights.masked_fill(mask, 0.0)"),
            ("scores.masked_fill(mask, -math.inf)", "weights.masked_fill(~mask, 0.0)"),
            ("scores.masked_fill(mask, -math.inf)", ""),
            ("scores.masked_fill(mask, -math.inf)", _NAN),
            ("scores.masked_fill(mask, -1e9)", ""),
            ("scores + mask * -1e9", ""),
        ),
        "The mask is read the wrong way round: here True means that a query may attend to a key.",
    ),
    "zero taken for masked": (
        (
            (_ZEROS.format("-math.inf"), ""),
            (_ZEROS.format("-math.inf"), _NAN),
            (_ZEROS.format("-1e9"), ""),
        ),
        "A score of exactly 0 is taken for a masked one, since what is masked is read off the "
        "scores. 0 is a score like any other; the mask alone says which keys are masked.",
    ),
    "mask multiplied": (
        (("scores * mask", ""),),
        "Masked scores are set to 0, as by a product with the mask. 0 is a score like any other, "
        "and e^0 is 1: masked keys need a score of −∞.",
    ),
    "mask after the softmax": (
        (("", "weights * mask"),),
        "Masked keys are removed after the softmax, so the weights that are left sum to less "
        "than 1. They must be out before the softmax shares out its 1.",
    ),
    "filled with −10": (
        (("scores.masked_fill(~mask, -10.0)", ""), ("scores + ~mask * -10.0", "")),
        "Masked scores are set to a small number such as −10, or lowered by it. e^−10 is 0.00005 "
        "and no 0: masked keys keep some of the weight. They need a score of −∞.",
    ),
    "filled with −10⁹": (
        (
            ("scores.masked_fill(~mask, -1e9)", ""),
            ("scores + ~mask * -1e9", ""),
            ("scores.masked_fill(~mask, -1e4)", ""),
        ),
        "Masked scores are set to a number such as −10⁹, or lowered by it. That is no −∞: where "
        "all scores lie lower, or no key is allowed, the masked keys get the weight.",
    ),
    "NaN in dead rows": (
        (("scores.masked_fill(~mask, -math.inf)", ""),),
        "A query that may attend to no key gives NaN: the softmax of −∞ alone is 0/0.",
    ),
}


def mask_mistakes(
    old: str, *names: str, guard: str = "", make: str = "", end: str = ""
) -> tuple[Mistake, ...]:
    """Return mistakes that are made with a mask.

    Args:
        old: the lines of the solution from the unmasked `scores` to the finished `weights`.
        names: the mistakes, out of the table above; all of them where none is named.
        guard: the condition under which there is a mask; empty if there always is one.
        make: a line that makes `mask`.
        end: a line after the weights.
    """
    indent = old[: len(old) - len(old.lstrip())]
    mistakes = []
    for name in names or _MASK_MISTAKES:
        pairs, says = _MASK_MISTAKES[name]
        spellings = []
        for scores, weights in pairs:
            lines = _guarded(guard, make, scores and f"scores = {scores}")
            lines.append("weights = torch.softmax(scores, dim=-1)")
            lines += [*_guarded(guard, weights and f"weights = {weights}"), *filter(None, [end])]
            spellings.append(textwrap.indent("\n".join(lines) + "\n", indent))
        first, *others = spellings
        mistakes.append(Mistake(name, old, first, says, tuple(others)))
    return tuple(mistakes)


def _guarded(guard: str, *lines: str) -> list[str]:
    """Return the lines that are not empty, under an `if` where there is a guard."""
    kept = list(filter(None, lines))
    if guard and kept:
        return [f"if {guard}:", *(f"    {line}" for line in kept)]
    return kept


def axis_mistake(old: str) -> Mistake:
    """Return the mistake of a softmax, over the last axis in `old`, that runs over another one."""
    return Mistake(
        "softmax over queries",
        old,
        old.replace("dim=-1", "dim=-2"),
        "The softmax runs over another axis than the keys, such as the queries. The weights of "
        "each query must sum to 1, not those of each key.",
        (old.replace("dim=-1", "dim=0"),),
    )


def root_mistakes(
    old: str, width: str, queries: str, *others: str, root: str = "math.sqrt"
) -> tuple[Mistake, ...]:
    """Return the mistakes that are made where scores are divided by the root of a width.

    Args:
        old: the division in the solution, from its sign on, such as `/ math.sqrt(size)`.
        width: the expression of the width.
        queries: that of the number of queries.
        others: those of other numbers that are taken for the width.
        root: the function that takes roots.
    """
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
            "scaled by the number of queries",
            old,
            f"/ {root}({queries})",
            "The scores are divided by the root of another number, such as the number of queries "
            "or of keys. They grow with the number of products that are summed in each: the width.",
            tuple(f"/ {root}({other})" for other in others),
        ),
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


def heads_mistakes(
    split: tuple[str, str], merge: tuple[str, str], root: tuple[str, str]
) -> tuple[Mistake, ...]:
    """Return the mistakes that are made with several heads; each pair is right, then wrong.

    Args:
        split: cuts the columns into heads; the wrong one by a reshape alone.
        merge: puts the heads side by side; the wrong one by a reshape alone.
        root: divides by the root of a head's width; the wrong one by that of the whole.
    """
    return (
        Mistake(
            "split without turning",
            *split,
            "The heads are cut out by a reshape alone, which mixes positions: a head gets pieces "
            "of one position where it should get one piece of each.",
        ),
        Mistake(
            "merged without turning",
            *merge,
            "The heads' results are put together by a reshape alone, which mixes positions. Turn "
            "the axes back first.",
        ),
        Mistake(
            "scaled by the whole width",
            *root,
            "The scores are divided by the root of the whole width. A head's scores sum over its "
            "own columns only.",
        ),
    )


def eps_mistakes(number: str, eps: str) -> tuple[Mistake, ...]:
    """Return the mistakes that are made with the eps of a normalization, √(number + eps)."""
    old = f"torch.sqrt({number} + {eps})"
    return (
        Mistake(
            "eps as a floor",
            old,
            f"torch.sqrt({number}.clamp(min={eps}))",
            "eps is only the least that is divided by. It is added inside the root.",
            (f"torch.sqrt({number}).clamp(min={eps})",),
        ),
        Mistake(
            "eps outside",
            old,
            f"(torch.sqrt({number}) + {eps})",
            "eps is added to the root. It belongs inside it.",
        ),
    )


def dropout_mistakes(numbers: str) -> tuple[Mistake, ...]:
    """Return the mistakes that are made where a module drops some numbers."""
    old = f"self.dropout({numbers})"
    return (
        Mistake(
            "always dropped",
            old,
            f"nn.functional.dropout({numbers}, self.dropout.p)",
            "Numbers are dropped in evaluation as well: a function does not know the mode unless "
            "it is told.",
        ),
        Mistake(
            "not made larger",
            old,
            f"{numbers} * (torch.rand_like({numbers}) >= self.dropout.p) "
            f"if self.training else {numbers}",
            "The numbers that stay are not divided by 1 − chance, so training sees smaller sums "
            "than evaluation.",
        ),
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

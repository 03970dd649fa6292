"""The mistakes that people make in attention, as they write them; several exercises share them.

They are read off homework and the trackers of minGPT, TinyTorch and Transformers: a mask read as
PyTorch's own modules read it, numbers in place of −∞, a score of 0 taken for a masked one, a
softmax over another axis, a division by another root. Each is a piece of a solution that is
replaced; an exercise gives the pieces.
"""

import textwrap

from attnlab_course.exercise import Mistake, read_mistakes

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
    "mask unused": (
        (("", ""),),
        "The mask changes nothing. `scores.masked_fill(…)` returns other scores and leaves `scores`"
        " as they are: what it returns must be kept.",
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
            ("scores + ~mask * -100.0", ""),
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


def axis_mistake(old: str) -> tuple[Mistake, ...]:
    """Return the mistake of a softmax, over the last axis in `old`, that runs over another one."""
    return _filled(_AXIS, old=old, second=old.replace("-1", "-2"), first=old.replace("-1", "0"))


_AXIS = """
## softmax over queries: The softmax runs over another axis than the keys, such as the queries. The
weights of each query must sum to 1, not those of each key.
- {old}
+ {second}
or
+ {first}
"""


def root_mistakes(
    old: str, width: str, *others: str, root: str = "math.sqrt"
) -> tuple[Mistake, ...]:
    """Return the mistakes that are made where scores are divided by the root of a width.

    Args:
        old: the division in the solution, from its sign on, such as `/ math.sqrt(size)`.
        width: the expression of the width.
        others: those of other numbers that are taken for the width, such as that of the queries.
        root: the function that takes roots.
    """
    divisions = "\nor\n".join(f"+ / {root}({other})" for other in others)
    return _filled(_ROOT, old=old, width=width, divisions=divisions)


_ROOT = """
## no scaling: The scores are not divided by √width, so they grow with the width.
- {old}
## scaled by the width: The scores are divided by the width itself, not by its root: the weights
are too even.
- {old}
+ / {width}
## scaled by the number of queries: The scores are divided by the root of another number, such as
the number of queries or of keys. They grow with the number of products that are summed in each:
the width.
- {old}
{divisions}
"""


def power_mistake(old: str, value: str) -> tuple[Mistake, ...]:
    """Return the mistake of a power that is meant as a root and read as a fraction.

    Args:
        old: the root in the solution, from the sign before it on.
        value: the expression whose root is taken.
    """
    return _filled(_POWER, old=old, sign=old[0], value=value)


_POWER = """
## half in place of a root: `x ** 1 / 2` is half of x, since Python takes the power first; the root
is `x ** 0.5`.
- {old}
+ {sign} {value} ** 1 / 2
or
+ {sign} ({value} ** 1 / 2)
"""


def heads_mistakes(
    split: tuple[str, str], merge: tuple[str, str], root: tuple[str, str]
) -> tuple[Mistake, ...]:
    """Return the mistakes that are made with several heads; each pair is right, then wrong.

    Args:
        split: cuts the columns into heads; the wrong one by a reshape alone.
        merge: puts the heads side by side; the wrong one by a reshape alone.
        root: divides by the root of a head's width; the wrong one by that of the whole.
    """
    return _filled(_HEADS, split=split, merge=merge, root=root)


_HEADS = """
## split without turning: The heads are cut out by a reshape alone, which mixes positions: a head
gets pieces of one position where it should get one piece of each.
- {split[0]}
+ {split[1]}
## merged without turning: The heads' results are put together by a reshape alone, which mixes
positions. Turn the axes back first.
- {merge[0]}
+ {merge[1]}
## only reshaped: The heads are cut out and put together by reshapes alone, which mixes positions.
The heads' axis must change places with the length after the one, and back before the other.
- {split[0]}
- …
- {merge[0]}
+ {split[1]}
+ …
+ {merge[1]}
## scaled by the whole width: The scores are divided by the root of the whole width. A head's scores
sum over its own columns only.
- {root[0]}
+ {root[1]}
"""


def eps_mistakes(number: str, eps: str) -> tuple[Mistake, ...]:
    """Return the mistakes that are made with the eps of a normalization, √(number + eps)."""
    return _filled(_EPS, number=number, eps=eps)


_EPS = """
## eps as a floor: eps is only the least that is divided by. It is added inside the root.
- torch.sqrt({number} + {eps})
+ torch.sqrt({number}.clamp(min={eps}))
or
+ torch.sqrt({number}).clamp(min={eps})
## eps outside: eps is added to the root. It belongs inside it.
- torch.sqrt({number} + {eps})
+ (torch.sqrt({number}) + {eps})
"""


def dropout_mistakes(numbers: str) -> tuple[Mistake, ...]:
    """Return the mistakes that are made where a module drops some numbers."""
    return _filled(_DROPOUT, x=numbers)


_DROPOUT = """
## always dropped: Numbers are dropped in evaluation as well: a function does not know the mode
unless it is told.
- self.dropout({x})
+ nn.functional.dropout({x}, self.dropout.p)
## not made larger: The numbers that stay are not divided by 1 − chance, so training sees smaller
sums than evaluation.
- self.dropout({x})
+ {x} * (torch.rand_like({x}) >= self.dropout.p) if self.training else {x}
"""


def _filled(patches: str, **pieces: object) -> tuple[Mistake, ...]:
    return read_mistakes(patches.format(**pieces))

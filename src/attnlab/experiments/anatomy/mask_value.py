"""`mask_value`: a large negative number in place of -inf, and what it costs.

`scores.masked_fill(~mask, -100)` looks harmless, since e⁻¹⁰⁰ is almost 0, as long as the true
scores are ordinary. But weights depend on differences: once the true scores are below the number,
the masked keys take all the weight. And in a row whose keys are all masked, -inf gives NaN and a
finite number attends to masked keys. `attend` does neither.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from attnlab import seeds
from attnlab.draw.sections import Lines, Section, Series, Table
from attnlab.experiments.anatomy.config import NAME, AnatomyConfig
from attnlab.experiments.anatomy.result import PartResult, least, most, number_text
from attnlab.experiments.claims import Claim
from attnlab.experiments.experiment import Run
from attnlab.look.statistics import blocked_weight
from attnlab.parts.attend import attend

_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_VALUES = {-100.0: "-100", -1e4: "-1e4", -1e9: "-1e9"}
_LEVELS = (
    1.0,
    3.0,
    10.0,
    30.0,
    60.0,
    80.0,
    90.0,
    95.0,
    100.0,
    105.0,
    110.0,
    150.0,
    300.0,
    1e3,
    3e3,
    9e3,
    1e4,
    1.1e4,
    3e4,
    1e5,
    1e6,
    1e7,
    1e8,
    9e8,
    1e9,
    1.1e9,
    1e10,
)
_ORDINARY, _DEEP = 10.0, 150.0
_ALLOWED = torch.tensor([True, True, True, True, False, False, False, False])

Leaks = dict[tuple[torch.dtype, float], list[float | None]]


class DeadRow(NamedTuple):
    """The numbers of a row whose keys are all masked, in one dtype."""

    attend_output: float
    attend_gradient: float
    naive_output: float
    naive_gradient: float
    on_blocked: float


def show(config: AnatomyConfig, context: Run) -> PartResult:
    """Measure the weight on masked keys in each dtype, as the true scores fall."""
    noise = torch.randn(
        config.draws,
        len(_ALLOWED),
        generator=seeds.generator(context.seed, NAME, "mask_value"),
        dtype=torch.float64,
    )
    leaks: Leaks = {
        (dtype, value): [_leak(noise - level, dtype, value) for level in _LEVELS]
        for dtype in _DTYPES
        for value in _VALUES
    }
    ours = [
        _own_leak(noise - level, dtype)
        for dtype in _DTYPES
        for level in _LEVELS
        if _fits(noise - level, dtype)
    ]
    dead = {dtype: _dead_row(dtype, context.seed) for dtype in _DTYPES}
    context.step(1, 1)
    ordinary, deep = (
        _at(leaks, torch.float32, -100.0, level, level)[0] for level in (_ORDINARY, _DEEP)
    )
    summary = (
        f"Mask value. In float32, -100 in place of -inf lets {ordinary:.0e} of the weight leak to "
        f"blocked keys when the true scores are around -10, and {deep:.4f} of it when they are "
        f"around -150. A boolean mask lets {most(ours):g} leak."
    )
    return PartResult(summary, _claims(leaks, ours, dead), _sections(leaks, dead, config.draws))


def filled_weights(scores: Tensor, value: float) -> Tensor:
    """Return softmax weights with a number in place of masked scores, as it is often written."""
    return scores.masked_fill(~_ALLOWED, torch.tensor(value, dtype=scores.dtype)).softmax(-1)


def refuses(dtype: torch.dtype, value: float) -> bool:
    """Does `masked_fill` raise for the number, because it is beyond the dtype's range?"""
    try:
        torch.zeros(1, dtype=dtype).masked_fill(torch.tensor([True]), value)
    except RuntimeError as error:
        if "overflow" not in str(error):
            raise
        return True
    return False


def _fits(scores: Tensor, dtype: torch.dtype) -> bool:
    return bool(torch.isfinite(scores.to(dtype)).all())


def _leak(scores: Tensor, dtype: torch.dtype, value: float) -> float | None:
    """Return the mean weight on masked keys; None if the true scores themselves overflow."""
    if not _fits(scores, dtype):
        return None
    return float(blocked_weight(filled_weights(scores.to(dtype), value).double(), _ALLOWED).mean())


def _own_leak(scores: Tensor, dtype: torch.dtype) -> float:
    """Return the largest weight that `attend` gives a masked key for the same scores."""
    key = scores.to(dtype).unsqueeze(-1)  # a query of 1, unscaled, makes each key its own score
    weights = attend(torch.ones(1, 1, dtype=dtype), key, key, _ALLOWED, scale=False).weights
    assert weights is not None
    return float(blocked_weight(weights, _ALLOWED).max())


def _dead_row(dtype: torch.dtype, seed: int) -> DeadRow:
    """Attend with a first query whose keys are all masked, with `attend` and as often written."""
    mask = torch.ones(4, 4, dtype=torch.bool)
    mask[0] = False

    def tensors() -> list[Tensor]:
        generator = seeds.generator(seed, NAME, "dead row")
        return [torch.randn(4, 8, generator=generator).to(dtype).requires_grad_() for _ in range(3)]

    query, key, value = tensors()
    output = attend(query, key, value, mask).output
    output.float().sum().backward()  # type: ignore[no-untyped-call]
    assert query.grad is not None
    is_finite = all(
        bool(torch.isfinite(each.grad).all())
        for each in (query, key, value)
        if each.grad is not None
    )
    naive_query, naive_key, naive_value = tensors()
    scores = naive_query @ naive_key.T / math.sqrt(8)
    naive = scores.masked_fill(~mask, -math.inf).softmax(-1) @ naive_value
    naive.float().sum().backward()  # type: ignore[no-untyped-call]
    naive_gradients = [
        each.grad for each in (naive_query, naive_key, naive_value) if each.grad is not None
    ]
    # Not masked_fill(-1e9): in float16 that raises, where a tensor of -1e9 becomes -inf.
    filled = torch.where(mask, scores.detach(), torch.tensor(-1e9, dtype=dtype)).softmax(-1)
    return DeadRow(
        attend_output=float(output[0].detach().abs().max()),
        attend_gradient=float(query.grad[0].abs().max()) if is_finite else math.nan,
        naive_output=float(naive[0].detach().abs().max()),
        naive_gradient=float(torch.cat(naive_gradients).abs().max()),
        on_blocked=float(blocked_weight(filled, mask)[0]),
    )


def _at(leaks: Leaks, dtype: torch.dtype, value: float, low: float, high: float) -> list[float]:
    """Return the leaks at the levels from `low` to `high`, where the scores fit the dtype."""
    pairs = zip(_LEVELS, leaks[dtype, value], strict=True)
    return [leak for level, leak in pairs if low <= level <= high and leak is not None]


def _claims(leaks: Leaks, ours: list[float], dead: dict[torch.dtype, DeadRow]) -> list[Claim]:
    ordinary = most(leak for dtype in _DTYPES for leak in _at(leaks, dtype, -100.0, 0.0, _ORDINARY))
    deep = least(leak for dtype in _DTYPES for leak in _at(leaks, dtype, -100.0, _DEEP, _DEEP))
    leaked = most(ours)
    rows = dead.values()
    zeros = most([most((each.attend_output, each.attend_gradient)) for each in rows])
    naive = sum(math.isnan(each.naive_output + each.naive_gradient) for each in rows)
    return [
        Claim(
            "boolean_masks_leak_nothing",
            "with a boolean mask the weight on a masked key is exactly 0, in each dtype, "
            "however low the true scores",
            f"largest {leaked:g}, over {len(ours)} pairs of dtype and level",
            "exactly 0",
            leaked == 0.0,
        ),
        Claim(
            "minus_100_gives_way",
            "-100 in place of -inf leaks almost nothing at ordinary scores (around -10 and "
            "above), and all the weight when the true scores are around -150, in each dtype",
            f"at -10 at most {ordinary:.0e}; at -150 at least {deep:.6f}",
            "at -10 at most 1e-30; at -150 at least 0.999",
            ordinary <= 1e-30 and deep >= 0.999,
        ),
        _minus_1e9_claim(leaks, dead),
        Claim(
            "blocked_rows_are_zeros",
            "a query whose keys are all masked gets zeros from attend, forward and in its "
            "gradient, in each dtype; the usual softmax of -inf gives NaN in both",
            f"attend: largest number {number_text(zeros)}; usual softmax: NaN in {naive} of "
            f"{len(dead)} dtypes",
            f"attend: exactly 0; usual softmax: NaN in {len(dead)} of {len(dead)}",
            zeros == 0.0 and naive == len(dead),
        ),
    ]


def _minus_1e9_claim(leaks: Leaks, dead: dict[torch.dtype, DeadRow]) -> Claim:
    wide = _DTYPES[1:]
    before = most(leak for dtype in wide for leak in _at(leaks, dtype, -1e9, 0.0, 1e8))
    after = least(leak for dtype in wide for leak in _at(leaks, dtype, -1e9, 1e10, 1e10))
    masked = least(dead[dtype].on_blocked for dtype in wide)
    half, in_half = float(torch.tensor(-1e9, dtype=torch.float16)), dead[torch.float16].on_blocked
    refused = refuses(torch.float16, -1e9) and not any(refuses(dtype, -1e9) for dtype in wide)
    holds_wide = before == 0.0 and after >= 0.999 and masked >= 0.99
    holds_half = refused and half == -math.inf and math.isnan(in_half)
    return Claim(
        "minus_1e9_depends_on_the_dtype",
        "-1e9 works down to scores of -1e8 and fails below itself, and a row whose keys are all "
        "masked attends to them; in float16 masked_fill refuses it, a tensor of it is -inf, and "
        "such a row is NaN",
        f"leaks {before:g} at -1e8, {after:g} at -1e10, {masked:g} in a masked row; "
        f"float16: {'refused' if refused else 'taken'}, {half:g}, {number_text(in_half)}",
        "0 at -1e8, 1 at -1e10, 1 in a masked row; float16: refused, -inf, NaN",
        holds_wide and holds_half,
    )


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _gives_way(leaks: Leaks, dtype: torch.dtype, value: float) -> str:
    """Name the last level with a leak up to 0.1, and the first with a leak of 0.9 or more."""
    known = [
        (level, leak)
        for level, leak in zip(_LEVELS, leaks[dtype, value], strict=True)
        if leak is not None
    ]
    holds = [level for level, leak in known if leak <= 0.1]
    gone = [level for level, leak in known if leak >= 0.9]
    return f"{-holds[-1]:,.0f} to {-gone[0]:,.0f}" if holds and gone else "never"


def _sections(leaks: Leaks, dead: dict[torch.dtype, DeadRow], draws: int) -> list[Section]:
    return [
        Lines(
            figure="mask-value",
            title="Mask value: attention weight on masked keys",
            caption="Eight keys, four of them masked by a number in place of -inf. The true scores "
            "are normal around the given level. As soon as they are below the number, the "
            "masked keys take all the weight. In float16, -1e9 (as a tensor, since "
            "masked_fill refuses it) is -inf and works, up to float16's range (65,504). "
            f"bfloat16 has float32's range with coarser steps. Means over {draws:,} draws.",
            x_label="distance of the true scores below zero",
            y_label="attention weight on masked keys",
            x_log=True,
            series=[
                Series(
                    name=f"{_VALUES[value]} in {_name(dtype)}",
                    x=list(_LEVELS),
                    y=leaks[dtype, value],
                )
                for dtype, value in [
                    *((torch.float32, value) for value in _VALUES),
                    (torch.bfloat16, -1e9),
                    (torch.float16, -1e9),
                ]
            ],
        ),
        Table.of_records(
            title="Mask value in numbers",
            caption=f"Attention weight on masked keys, means over {draws:,} draws, for true scores "
            "around three levels; and the levels between which it rises from under 0.1 to over "
            "0.9. Where masked_fill(mask, number) raises, because the number overflows, a "
            "tensor of the number was used. With a boolean mask the weight is always 0.",
            records=[
                {
                    "dtype": _name(dtype),
                    "number": name,
                    "masked_fill": "raises" if refuses(dtype, value) else "works",
                    "a tensor of it": f"{float(torch.tensor(value, dtype=dtype)):g}",
                    "scores at -10": f"{leaks[dtype, value][_LEVELS.index(10.0)]:.3g}",
                    "at -90": f"{leaks[dtype, value][_LEVELS.index(90.0)]:.3g}",
                    "at -150": f"{leaks[dtype, value][_LEVELS.index(150.0)]:.3g}",
                    "gives way": _gives_way(leaks, dtype, value),
                }
                for dtype in _DTYPES
                for value, name in _VALUES.items()
            ],
        ),
        Table(
            title="Mask value: a query whose keys are all masked",
            caption="The largest number in its output and in its gradient, by attend and by "
            "softmax(-inf …).",
            columns=[
                "dtype",
                "attend",
                "its gradient",
                "softmax of -inf",
                "its gradient",
                "-1e9: weight on masked keys",
            ],
            rows=[[_name(dtype), *map(number_text, found)] for dtype, found in dead.items()],
        ),
    ]

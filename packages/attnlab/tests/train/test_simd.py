"""The compiled lanes learn what plain PyTorch learns, lane by lane."""

import re

import pytest
import torch

from attnlab import seeds
from attnlab.native import compiler
from attnlab.simd import build, emit, rows
from attnlab.train.layouts import simd
from attnlab.train.layouts.layout import NotExpressible
from attnlab.train.layouts.simd import Simd
from tests.sampling import sampled

from .cases import (
    CASES,
    Case,
    Tables,
    compared,
    configs_of,
    decoder,
    drawn,
    many_operations_batch,
    next_token,
    tokens,
    vectors,
)


@pytest.fixture(autouse=True)
def _needs_a_compiler():
    if compiler.compiler_name() is None:
        pytest.skip("there is no C++ compiler here")


@pytest.mark.parametrize("name", sampled(CASES, 1))
def test_lanes_take_pytorch_s_steps_with_all_work_on_rows_in_one_loop(name, monkeypatch):
    seen = []
    monkeypatch.setattr(
        simd, "by_rows", lambda stages: seen.append(rows.by_rows(stages)) or seen[0]
    )
    held, _, apart = compared(Simd, CASES[name], 3)
    assert max(apart) < 1e-12
    assert held.name == "simd"
    assert [part.rows for part in seen[0]] == [1, CASES[name].rows, 1]


@pytest.mark.parametrize("divisor", sampled([1e-310, 0.0], 1))
def test_a_divisor_whose_reciprocal_is_infinite_divides(divisor):
    def loss(model, row, *_):
        _, out = model(row)
        small = out * divisor if divisor else out * 0 + 1
        return (small / torch.full((3,), divisor, dtype=out.dtype)[None]).tanh().mean()

    case = Case(Tables, loss, many_operations_batch)
    held, alone, _ = compared(Simd, case, 1)
    for ours, theirs in zip(held.parameters().values(), alone.parameters().values(), strict=True):
        torch.testing.assert_close(ours, theirs, equal_nan=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("dtype", "bound"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
def test_three_hundred_steps_of_every_model_end_where_pytorch_ends(name, dtype, bound):
    case = CASES[name]
    if name == "single head":
        case = case._replace(batch=lambda g: tuple(part.to(dtype) for part in vectors(g)))
    _, _, apart = compared(Simd, case, 300, dtype=dtype)
    assert apart[0] < bound
    assert apart[2] < bound


@pytest.mark.parametrize("num", sampled([17, 1], 1))
def test_any_number_of_members_fits(num):
    assert max(compared(Simd, CASES["single head"], 2, num=num)[2]) < 1e-12


REFUSALS = {
    "the loss needs aten.sort": (decoder(), lambda model, row: model(row).sort(-1).values.sum()),
    "the loss draws random numbers": (decoder(dropout=0.1), next_token),
    "looks at numbers to decide": (
        decoder(),
        lambda model, row: next_token(model, row) if row.sum() > 3 else None,
    ),
    "cannot be recorded (AttributeError": (
        decoder(),
        lambda model, row: model.no_such_part(row).sum(),
    ),
    "cannot be recorded": (
        decoder(),
        lambda model, row: torch.tensor(float(model(row).detach().numpy().sum())),
    ),
    "float32 or float64 on the CPU; got torch.float16": (lambda: decoder()().half(), next_token),
}


@pytest.mark.parametrize("said", REFUSALS)
def test_what_cannot_be_compiled_is_refused(said):
    make, loss = REFUSALS[said]
    batch = (tokens(seeds.generator(0, "data")),)
    with pytest.raises(NotExpressible, match=re.escape(said)):
        Simd([make(), make()], configs_of(2), loss, batch)


# Planted faults: each mistake is one that the comparison with PyTorch must see.

FAULTS = {
    "clipped by the norm of another lane": (
        "V factor = most / (norm",
        "V factor = most / (norm[0]",
    ),
    "no clipping": ("factor = factor > R(1) ? splat(1) : factor;", "factor = splat(1);"),
    "the wrong bias correction": (
        "correction(0.999, block->updates)",
        "correction(0.9, block->updates)",
    ),
    "the second moment not kept": ("second[i] = choose(alive, v, second[i]);", ""),
    "updates not counted": ("block->updates[i] += alive[i] != 0;", "block->updates[i] = 1;"),
    "decay tied to the gradient": ("P[i] * keep - size", "P[i] - size"),
    "a lane reads its neighbour": ("V m = first[i]", "V m = first[i > 0 ? i - 1 : 0]"),
    "exp of few terms": (
        "series = series * r + FACTORIALS[k]",
        "series = series * r + (k > 2 ? R(0) : FACTORIALS[k])",
    ),
}


@pytest.mark.parametrize("name", sampled(FAULTS, 1))
def test_a_planted_fault_shows(name, monkeypatch):
    right, wrong = FAULTS[name]

    def planted(head, function):
        source = build.source_of(head, function)
        assert source.count(right) >= 1
        return source.replace(right, wrong)

    monkeypatch.setattr(simd, "source_of", planted)
    assert max(compared(Simd, CASES["single head"], 3)[2]) > 1e-6


@pytest.mark.slow
def test_a_member_that_broke_and_goes_on_would_show(monkeypatch):
    fault = ("alive &= is_finite(loss) & is_finite(norm);", "")
    monkeypatch.setattr(
        simd, "source_of", lambda head, function: build.source_of(head, function).replace(*fault)
    )
    case = CASES["single head"]
    data = drawn(case.batch, 4)
    data[1][0][2] = float("nan")
    held, _, _ = compared(Simd, case, 4, data=data)
    assert held.state()["steps"].tolist() == [4, 4, 4]
    assert not bool(held.parameters()["query.weight"][1].isfinite().all())


def test_rows_that_forget_the_rows_before_them_would_show(monkeypatch):
    def forgetful(stages):
        parts = rows.by_rows(stages)
        for part in parts:
            for stage in part.stages:
                stage.is_sum = stage.is_sum and part.rows == 1
        return parts

    monkeypatch.setattr(simd, "by_rows", forgetful)
    assert max(compared(Simd, CASES["single head"], 1)[2]) > 1e-6


@pytest.mark.slow
def test_memory_that_two_values_share_too_early_would_show(monkeypatch):
    monkeypatch.setattr(emit, "_extent", lambda read, sizes, rows: 1)
    assert not max(compared(Simd, CASES["single head"], 1)[2]) < 1e-6

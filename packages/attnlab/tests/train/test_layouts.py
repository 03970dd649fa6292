"""Whatever the layout, each member learns what it would learn alone."""

import copy
import itertools
import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from attnlab.errors import WrongUsage
from attnlab.simd import interpret
from attnlab.train import Member, TrainConfig, train_together
from attnlab.train.layouts import choose, simd
from attnlab.train.layouts.choose import choose_layout, ways
from attnlab.train.layouts.effort import Effort, effort_of
from attnlab.train.layouts.layout import NotExpressible
from attnlab.train.layouts.simd import interpreted
from attnlab.train.layouts.vmap import vmapped
from tests.planting import fault_tests, faults_in
from tests.sampling import sampled

from .cases import (
    CASES,
    LAYOUTS,
    MEMBERS,
    NEVER,
    Case,
    Tables,
    compared,
    configs_of,
    drawn,
    first_batch,
    many_operations_batch,
    models_of,
    next_token,
    of_many_operations,
    part_of,
    rates,
)
from .tiny import Watcher, evaluate


@pytest.mark.parametrize("name", sampled(CASES, 2))
@pytest.mark.parametrize("make", [vmapped, interpreted])  # compiled lanes: see test_simd.py
def test_every_layout_takes_the_steps_that_members_take_alone(make, name):
    assert max(compared(make, CASES[name], 2)[2]) < 1e-12


def test_one_step_of_plain_descent_shows_the_same_gradient(make):
    held, _, apart = compared(make, CASES["single head"], 1, optimiser="sgd")
    assert max(apart) < 1e-13
    assert not [name for name in held.state() if name.startswith(("first", "second"))]


def test_operations_beyond_our_own_models_are_those_of_pytorch(make):
    case = Case(Tables, of_many_operations, many_operations_batch)
    assert max(compared(make, case, 2)[2]) < 1e-12


def tokens_and_factor(source):
    return torch.randint(5, (4, 6), generator=source), torch.ones(1, dtype=torch.float64)


def scaled(model, row, factor):
    return next_token(model, row) * factor.sum()


def table():
    return nn.Sequential(nn.Embedding(5, 3), nn.Linear(3, 5))


SHORT = Case(table, scaled, tokens_and_factor)


def held_by(make, data, num=MEMBERS, **options):
    return make(models_of(SHORT, num), configs_of(num), SHORT.loss, first_batch(data), **options)


@pytest.mark.parametrize("make", [*LAYOUTS, "sequential"], indirect=True)
def test_a_member_that_breaks_stays_as_it_was_for_good_and_disturbs_nobody(make):
    data, at, found = drawn(SHORT.batch, 8), 5, []
    for factor in (1.0, math.nan):
        data[1][-1][at] = factor
        held = held_by(make, data)
        before = held.advance(part_of(data, 0, at), rates(8)[:at], 0, NEVER)
        middle = held.state()
        after = held.advance(part_of(data, at), rates(8)[at:], at, NEVER)
        found.append((before, middle, after, held.state()))
    (_, _, whole, expected), (before, middle, broken, state) = found
    assert torch.isfinite(before.losses).all()
    assert not torch.isfinite(broken.losses[0, 1] + broken.norms[0, 1])
    for name in state:
        if name != "is_alive":  # finite batches follow, and it does not move
            assert torch.equal(state[name][1], middle[name][1]), name
            assert torch.equal(state[name][::2], expected[name][::2]), name
    assert state["is_alive"].tolist() == [True, False, True]
    assert torch.equal(broken.losses[:, ::2], whole.losses[:, ::2])


def test_a_state_that_is_loaded_goes_on_to_the_bit(make):
    data = drawn(SHORT.batch, 6)
    whole, first, second = (held_by(make, data) for _ in "123")
    whole.advance(data, rates(6), 0, NEVER)
    first.advance(part_of(data, 0, 2), rates(6)[:2], 0, NEVER)
    kept = first.state()
    first.advance(part_of(data, 2, 3), rates(6)[2:3], 2, NEVER)  # a state is a copy
    second.load_state(kept)
    second.advance(part_of(data, 2), rates(6)[2:], 2, NEVER)
    expected, found = whole.state(), second.state()
    assert set(found) == set(expected)
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_a_training_that_is_told_to_stop_returns_what_is_done(make):
    data = drawn(SHORT.batch, 40)
    held = held_by(make, data)
    assert len(held.advance(data, rates(40), 0, lambda: True).losses) == 1
    assert held.state()["steps"].tolist() == [1] * MEMBERS


@pytest.mark.parametrize("make", [*LAYOUTS][1:], indirect=True)
def test_blocks_on_several_threads_give_the_same_bits(make, monkeypatch):
    monkeypatch.setattr(simd, "WIDTH", 8)
    data, found = drawn(SHORT.batch, 5, 20), []
    for workers in (1, 3):
        held = held_by(make, data, 20, workers=workers)
        held.advance(data, rates(5, 20), 0, NEVER)
        found.append(held.state())
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])


FAULTS = """
one norm clips all | train.layouts.update | vmap
- (norms.double() + 1e-6)
+ (norms.norm().double() + 1e-6)
one decay for all | train.layouts.update | lanes without a compiler
- rates * rule.decay)
+ rates * rule.decay[:1])
moments without correction | train.layouts.update | lanes without a compiler
- steps = state.steps.clamp(min=1)
+ steps = state.steps + 9
members in another order | train.layouts.blocks | lanes without a compiler
- list(map(torch.stack, zip(*whole, strict=True)))
+ list(map(torch.stack, zip(*whole[::-1], strict=True)))
the temperature of the first, under vmap | train.layouts.blocks | vmap
- torch.stack(values)
+ torch.stack(values[:1] * len(values))
the temperature of the first | train.layouts.blocks | lanes without a compiler
- torch.stack(values)
+ torch.stack(values[:1] * len(values))
an operation is left out | simd.interpret | lanes without a compiler
- return calls
+ return calls[: len(calls) // 2] + calls[len(calls) // 2 + 1 :]
gradients stay where they are computed | train.layouts.vmap | vmap
- views_by_name(self.gradients, shapes).values()
+ views_by_name(self.gradients.clone(), shapes).values()
"""


def check_steps(layout):
    assert max(compared(LAYOUTS[layout], CASES["sorter"], 2)[2]) < 1e-6


test_every_fault_has_its_place_in_the_code, test_a_planted_fault_shows = fault_tests(
    faults_in(FAULTS), check_steps
)


def test_memory_that_is_given_away_too_early_would_show(monkeypatch):
    monkeypatch.setattr(interpret, "reads", lambda term: [])  # as if nobody read what was written
    try:
        assert not max(compared(interpreted, CASES["single head"], 2)[2]) < 1e-6
    except RuntimeError as error:  # PyTorch notices some of it
        assert "single memory location" in str(error)  # noqa: PT017


def square(model, x):
    return model(x).square().mean()


def ragged(first, count):
    return [(torch.ones(step % 3 + 1, 2),) for step in range(first, first + count)]


def test_batches_of_many_shapes_are_for_solo():
    config = TrainConfig(steps=160)
    members = [Member(nn.Linear(2, 2), config, ragged, evaluate) for _ in range(2)]
    assert train_together(members, square).layout == "sequential"
    with pytest.raises(WrongUsage, match=r"cannot hold .*: the batches differ in shape"):
        train_together(members, square, layout="vmap")


def test_batches_that_turn_out_to_be_of_another_shape_are_said():
    def growing(first, count):
        return (torch.ones(count, 3 if first < 50 else 4, 2),)

    members = [Member(nn.Linear(2, 2), TrainConfig(steps=100), growing, evaluate)]
    assert train_together(members, square, layout="vmap").layout == "vmap"
    with pytest.raises(WrongUsage, match=r"batches.*\(3, 2\).*\(4, 2\)"):
        train_together(members, square, layout="simd", engine="eager")


@pytest.mark.parametrize("make", [*LAYOUTS][1:], indirect=True)
def test_an_id_that_is_no_token_is_a_wrong_usage_and_reads_no_other_memory(make):
    data = drawn(SHORT.batch, 1)
    held = held_by(make, data)
    data[1][0][0, 0, 0] = 99
    with pytest.raises(WrongUsage, match="an id of a batch"):
        held.advance(data, rates(1), 0, NEVER)


SORTING, SMALL, MIDDLE = Effort(46.2, 0.235), Effort(220, 5.11), Effort(6_165, 629)


@pytest.mark.parametrize(
    ("effort", "members", "steps", "threads", "has_compiler", "expected"),
    [
        (SORTING, 1, 15_000, 1, True, ("simd", True)),
        (SORTING, 1_024, 15_000, 1, True, ("simd", True)),
        (SORTING, 64, 15_000, 2, False, ("simd", False)),
        (SORTING, 1, 15_000, 1, False, ("simd", False)),
        (SORTING, 1, 50, 1, True, ("sequential", False)),
        (SMALL, 64, 15_000, 1, True, ("simd", True)),
        (SMALL, 1, 15_000, 1, False, ("sequential", False)),
        (SMALL, 64, 15_000, 1, False, ("vmap", False)),
        (MIDDLE, 1, 100, 1, True, ("sequential", False)),
        (MIDDLE, 32, 10_000, 1, True, ("sequential", False)),
        (MIDDLE, 32, 10_000, 2, True, ("simd", True)),
        (MIDDLE, 1, 10_000, 1, False, ("sequential", False)),
        (MIDDLE, 32, 10_000, 2, False, ("sequential", False)),
    ],
)
def test_the_rule_chooses_what_is_quickest(effort, members, steps, threads, has_compiler, expected):
    possible = [way for way in ways(effort, members) if has_compiler or not way.is_compiled]
    best = min(possible, key=lambda way: way.seconds(effort, members, steps, threads))
    assert (best.layout, best.is_compiled) == expected


def test_more_work_is_never_cheaper():
    for effort, members in itertools.product((SORTING, SMALL, MIDDLE), (1, 7, 64)):
        for way in ways(effort, members):
            price = way.seconds(effort, members, 100, 2)
            assert way.seconds(effort, members + 1, 100, 2) >= price
            assert way.seconds(effort, members, 101, 2) > price
            assert way.seconds(replace(effort, numbers=effort.numbers * 2), members, 100, 2) > price


class Changing(nn.Linear):
    def __init__(self, *sizes):
        super().__init__(*sizes, bias=False)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        self.seen.add_(1)
        return super().forward(x)


def test_work_is_counted_and_the_model_left_as_it_was():
    model = Changing(3, 4)
    before = copy.deepcopy(model.state_dict())
    effort = effort_of(model, lambda model, x: model(x).sum(), (torch.ones(5, 3),))
    assert effort.products == pytest.approx(2 * (2 * 5 * 3 * 4) / 1e6)  # x W, and the gradient of W
    assert model.weight.grad is None
    assert torch.equal(model.weight, before["weight"])
    assert float(model.seen) == 0


def chosen(monkeypatch=None, num=4, steps=15_000, **options):
    """Return the layout that is chosen, or the function that would make it, and what is told."""
    case, watcher, made = CASES["sorter"], Watcher(), []
    if monkeypatch is not None:
        monkeypatch.setattr(choose, "tried", lambda layout, *args: layout)  # these take no steps
        for name in ("Simd", "interpreted", "vmapped"):
            make = lambda *args, name=name, **kw: made.append(name) or Watcher()  # noqa: E731
            monkeypatch.setattr(choose, name, make)
    options |= {"noise": [0] * num, "example": drawn(case.batch, 1, num), "tell": watcher.tell}
    models = models_of(case, num, torch.float32)
    found = choose_layout(models, configs_of(num, steps=steps), case.loss, **options)
    return (made[0] if made else found.name), watcher.told


def test_without_a_compiler_it_says_so_and_trains(monkeypatch):
    monkeypatch.setattr(choose, "compiler_name", lambda: None)
    name, told = chosen(monkeypatch)
    assert name == "interpreted"
    assert told == [
        "No C++ compiler was found (such as g++), so the steps are not compiled and take longer."
    ]
    assert chosen(monkeypatch, engine="compiled") == (name, told)
    assert chosen(monkeypatch, engine="eager") == (name, [])  # nobody asked for one
    assert chosen(num=1, steps=10) == ("sequential", [])


def test_the_engine_asked_for_is_taken(monkeypatch):
    monkeypatch.setattr(choose, "compiler_name", lambda: "g++")
    assert chosen(monkeypatch)[0] == "Simd"
    assert chosen(monkeypatch, engine="eager")[0] == "interpreted"
    assert chosen(monkeypatch, num=1, steps=10, engine="compiled")[0] == "Simd"
    for layout, made in (("sequential", "sequential"), ("vmap", "vmapped")):
        name, told = chosen(monkeypatch, layout=layout, engine="compiled")
        assert name == made
        assert told == [f"The layout {layout} compiles nothing; it trains as it is."]


def test_what_cannot_be_compiled_is_told_and_the_next_way_taken(monkeypatch):
    def refuse(*args, **options):
        raise NotExpressible("the compiler g++ failed")

    monkeypatch.setattr(choose, "compiler_name", lambda: "g++")
    monkeypatch.setattr(choose, "Simd", refuse)
    name, told = chosen(layout="simd", engine="compiled", num=2)
    assert name == "simd"
    assert told == ["The layout simd cannot be compiled here: the compiler g++ failed."]


def test_a_compiler_that_fails_is_told_also_where_nobody_asked_for_it(monkeypatch, tmp_path):
    monkeypatch.setenv("CXX", "false")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    _, told = chosen(num=2)
    assert told[0].startswith("The layout simd cannot be compiled here: ")

"""Whatever the layout, each member learns what it would learn alone; the rule chooses what was
measured to be best."""

import copy
import itertools
import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from attnlab import seeds
from attnlab.errors import WrongUsage
from attnlab.experiments.sorting.config import SortingConfig
from attnlab.experiments.sorting.sorter import build_model, make_draw, make_loss
from attnlab.simd import interpret
from attnlab.train import Member, TrainConfig, train_together
from attnlab.train.layouts import blocks, choose, simd, update, vmap
from attnlab.train.layouts.choose import choose_layout, ways
from attnlab.train.layouts.effort import Effort, effort_of
from attnlab.train.layouts.layout import NotExpressible
from attnlab.train.layouts.sequential import Sequential
from attnlab.train.layouts.simd import interpreted
from attnlab.train.layouts.vmap import vmapped

from .test_simd import (
    CASES,
    Case,
    Tables,
    drawn,
    many_operations_batch,
    of_many_operations,
    rates,
    relative,
)
from .tiny import Watcher, judge

MEMBERS = 3
NEVER = bool  # bool() is False


LAYOUTS = {
    "vmap": vmapped,
    "lanes without a compiler": interpreted,
}


def models_of(case, num=MEMBERS, dtype=torch.float64):
    found = []
    for seed in range(num):
        with seeds.isolated(seed, "model"):
            found.append(case.make().to(dtype))
    for index, model in enumerate(found):
        for part in model.modules():
            if hasattr(part, "temperature"):
                part.temperature.fill_(0.5 + 0.5 * index)
    return found


def configs_of(num=MEMBERS, **fields):
    return [TrainConfig(**fields, weight_decay=0.1 * i, clip=0.1 * (i + 1)) for i in range(num)]


def first_batch(data):
    return tuple(part[0] for part in data[0])


def compared(make, case, steps, *, dtype=torch.float64, num=MEMBERS, **fields):
    """Train in a layout and alone; return the layout and how far losses, norms and parameters are
    apart, relative."""
    data, configs = drawn(case.batch, steps, num), configs_of(num, **fields)
    layout = make(models_of(case, num, dtype), configs, case.loss, first_batch(data))
    alone = Sequential(models_of(case, num, dtype), configs, case.loss, [0] * num)
    ours, theirs = (each.advance(data, rates(steps, num), 0, NEVER) for each in (layout, alone))
    found, wanted = layout.parameters(), alone.parameters()
    assert list(found) == [name for name, _ in models_of(case, 1)[0].named_parameters()]
    weights = [torch.cat([each[name].flatten(1) for name in found], 1) for each in (found, wanted)]
    return layout, [
        relative(ours.losses, theirs.losses),
        relative(ours.norms, theirs.norms),
        relative(*weights),
    ]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_takes_the_steps_that_members_take_alone(layout, name):
    assert max(compared(LAYOUTS[layout], CASES[name], 2)[1]) < 1e-12


@pytest.mark.parametrize("layout", LAYOUTS)
def test_one_step_of_plain_descent_shows_the_same_gradient(layout):
    held, apart = compared(LAYOUTS[layout], CASES["encoder-decoder"], 1, optimiser="sgd")
    assert max(apart) < 1e-13
    assert not [name for name in held.state() if name.startswith(("first", "second"))]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_operations_beyond_our_own_models_are_those_of_pytorch(layout):
    assert (
        max(
            compared(LAYOUTS[layout], Case(Tables, of_many_operations, many_operations_batch), 2)[1]
        )
        < 1e-12
    )


@pytest.mark.parametrize(
    ("dtype", "bound"),
    [
        (torch.float64, 1e-10),
        pytest.param(torch.float32, 1e-5, marks=pytest.mark.slow),  # each population says it too
    ],
)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_hundred_steps_end_where_members_end_alone(layout, dtype, bound):
    losses, _, weights = compared(LAYOUTS[layout], CASES["sorter"], 100, dtype=dtype, num=2)[1]
    assert losses < bound
    assert weights < bound


def next_token(model, row, factor=1.0):
    return F.cross_entropy(model(row[:, :-1]).transpose(1, 2), row[:, 1:]) * factor


def tokens(source):
    return (torch.randint(5, (4, 6), generator=source),)


def with_factor(source):
    return (*tokens(source), torch.ones((), dtype=torch.float64))


def table(width):
    return lambda: nn.Sequential(nn.Embedding(5, width), nn.Linear(width, 5))


SHORT = Case(table(3), next_token, tokens)
LONG = Case(table(512), next_token, tokens)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_long_members_are_updated_alike(layout):
    assert max(compared(LAYOUTS[layout], LONG, 5)[1]) < 1e-12


@pytest.mark.parametrize("layout", [*LAYOUTS, "sequential"])
@pytest.mark.parametrize("case", [SHORT, LONG], ids=["short", "long"])
def test_a_member_that_breaks_stays_as_it_was_for_good_and_disturbs_nobody(layout, case):
    make = LAYOUTS.get(
        layout,
        lambda models, configs, loss, example: Sequential(models, configs, loss, [0] * MEMBERS),
    )
    data, steps, at = drawn(with_factor, 8), 8, 5
    found = []
    for factor in (1.0, math.nan):
        data[1][-1][at] = factor
        held = make(models_of(case), configs_of(), case.loss, first_batch(data))
        before = held.advance(
            [tuple(p[:at] for p in each) for each in data], rates(steps)[:at], 0, NEVER
        )
        middle = held.state()
        after = held.advance(
            [tuple(p[at:] for p in each) for each in data], rates(steps)[at:], at, NEVER
        )
        found.append((before, middle, after, held.state()))
    (_, _, whole, expected), (before, middle, broken, state) = found
    assert torch.isfinite(before.losses).all()
    assert not torch.isfinite(broken.losses[0, 1] + broken.norms[0, 1])
    for name in state:
        if name != "is_alive":
            assert torch.equal(state[name][1], middle[name][1]), (
                name
            )  # finite batches follow, and it does not move
            assert torch.equal(state[name][::2], expected[name][::2]), name
    assert state["is_alive"].tolist() == [True, False, True]
    assert torch.equal(broken.losses[:, ::2], whole.losses[:, ::2])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_state_that_is_loaded_goes_on_to_the_bit(layout):
    case, data = SHORT, drawn(SHORT.batch, 6)
    whole, first, second = (
        LAYOUTS[layout](models_of(case), configs_of(), case.loss, first_batch(data)) for _ in "123"
    )
    whole.advance(data, rates(6), 0, NEVER)
    first.advance([tuple(p[:2] for p in each) for each in data], rates(6)[:2], 0, NEVER)
    kept = first.state()
    first.advance(
        [tuple(p[2:3] for p in each) for each in data], rates(6)[2:3], 2, NEVER
    )  # a state is a copy
    second.load_state(kept)
    second.advance([tuple(p[2:] for p in each) for each in data], rates(6)[2:], 2, NEVER)
    expected, found = whole.state(), second.state()
    assert set(found) == set(expected)
    assert all(torch.equal(found[name], expected[name]) for name in expected)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_training_that_is_told_to_stop_returns_what_is_done(layout):
    case, data = SHORT, drawn(SHORT.batch, 40)
    held = LAYOUTS[layout](models_of(case), configs_of(), case.loss, first_batch(data))
    done = len(held.advance(data, rates(40), 0, lambda: True).losses)
    assert done == 1
    assert held.state()["steps"].tolist() == [done] * MEMBERS


def test_blocks_on_several_threads_give_the_same_bits(monkeypatch):
    monkeypatch.setattr(simd, "WIDTH", 2)
    case, data, found = SHORT, drawn(SHORT.batch, 5, 5), []
    for threads in (1, 3):
        held = interpreted(
            models_of(case, 5), configs_of(5), case.loss, first_batch(data), workers=threads
        )
        held.advance(data, rates(5, 5), 0, NEVER)
        found.append(held.state())
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])


def test_gradient_on_counts_of_distinct_rows_is_that_of_the_drawn_batch():
    config = SortingConfig(batch_size=128)
    task, model = config.sequence_task(), build_model(config, 0).double()
    (counts,) = make_draw(task, 128, 0)(0, 1)
    rows = task.rows(task.all_prompts()).repeat_interleave(counts[0], 0)
    assert len(rows) == 128
    plain = F.cross_entropy(model(rows[:, :-1]).transpose(1, 2), rows[:, 1:])
    counted = make_loss(task, 128)(model, counts[0])
    for a, b in zip(
        *(torch.autograd.grad(each, list(model.parameters())) for each in (counted, plain)),
        strict=True,
    ):
        torch.testing.assert_close(a, b, atol=1e-12, rtol=0)
    (other,) = make_draw(task, 128, 1)(0, 1)  # another seed's counts are another batch
    assert abs(float(make_loss(task, 128)(model, other[0]).detach() - plain.detach())) > 1e-3


def clipped_by_one_norm(monkeypatch):
    true = update.update

    def together(state, gradients, losses, rates, rule):
        gradients.mul_((rule.clip / gradients.norm()).clamp(max=1.0).unsqueeze(1))
        return true(state, gradients, losses, rates, rule)

    monkeypatch.setattr(blocks, "update", together)


def one_decay_for_all(monkeypatch):
    true = update.update

    def shared(state, gradients, losses, rates, rule):
        rule = replace(rule, decay=rule.decay[:1].expand_as(rule.decay))
        return true(state, gradients, losses, rates, rule)

    monkeypatch.setattr(blocks, "update", shared)


def moments_without_correction(monkeypatch):
    true = update.update
    late = lambda state, *rest: true(replace(state, steps=state.steps + 9), *rest)  # noqa: E731
    monkeypatch.setattr(blocks, "update", late)


def members_in_another_order(monkeypatch):
    true = blocks.stacked_batches
    monkeypatch.setattr(
        blocks, "stacked_batches", lambda batches: [part.flip(0) for part in true(batches)]
    )


def temperature_of_the_first(monkeypatch):
    def alike(models):
        return {name: each[:1].expand_as(each).clone() for name, each in true(models).items()}

    true = blocks.different_buffers
    for file in (simd, vmap):
        monkeypatch.setattr(file, "different_buffers", alike)


FAULTS = [
    clipped_by_one_norm, one_decay_for_all, moments_without_correction, members_in_another_order,
    temperature_of_the_first,
]  # fmt: skip


@pytest.mark.parametrize("plant", FAULTS)
@pytest.mark.parametrize("layout", ["vmap", "lanes without a compiler"])
def test_a_planted_fault_shows(layout, plant, monkeypatch):
    plant(monkeypatch)
    assert max(compared(LAYOUTS[layout], CASES["sorter"], 2)[1]) > 1e-6


def test_an_operation_that_is_left_out_would_show(monkeypatch):
    def forgetful(stages, memory):
        calls = bound(stages, memory)
        del calls[len(calls) // 2]
        return calls

    bound = interpret._bound
    monkeypatch.setattr(interpret, "_bound", forgetful)
    assert not max(compared(interpreted, CASES["sorter"], 2)[1]) < 1e-6


def test_gradients_of_the_step_before_would_show(monkeypatch):
    monkeypatch.setattr(vmap, "cut", lambda rows, shapes: blocks.cut(rows.clone(), shapes))
    assert not max(compared(vmapped, CASES["sorter"], 2)[1]) < 1e-6


def test_memory_that_is_given_away_too_early_would_show(monkeypatch):
    monkeypatch.setattr(interpret, "reads", lambda term: [])  # as if nobody read what was written
    try:
        assert not max(compared(interpreted, CASES["sorter"], 2)[1]) < 1e-6
    except RuntimeError as error:  # PyTorch notices some of it
        assert "single memory location" in str(error)  # noqa: PT017


class Looking(nn.Linear):
    def forward(self, x):
        return super().forward(x) * (2.0 if float(self.weight.detach().sum()) > 0 else 1.0)


class Changing(nn.Linear):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        self.seen.add_(1)
        return super().forward(x)


def square(model, x):
    return model(x).square().mean()


def random(model, x):
    return (model(x) * torch.rand(1)).square().mean()


def rows_of(source):
    return (torch.randn(4, 2, generator=source),)


HARD = {
    "dropout": (
        lambda: nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.1)),
        square,
        "dropout draws its noise",
    ),
    "batch norm": (
        lambda: nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)),
        square,
        "keeps running statistics",
    ),
    "looking at numbers": (lambda: Looking(2, 2), square, ""),
    "random numbers": (lambda: nn.Linear(2, 2), random, ""),
    "frozen": (lambda: nn.Linear(2, 2).requires_grad_(requires_grad=False), square, ""),
}


@pytest.mark.parametrize("name", [name for name in HARD if name != "frozen"])
def test_what_only_solo_can_hold_is_held_by_solo(name):
    make, loss, words = HARD[name]
    data, models = drawn(rows_of, 2), [make() for _ in range(MEMBERS)]
    options = {"noise": [0] * MEMBERS, "example": data}
    configs = configs_of(steps=100_000)
    assert choose_layout(models, configs, loss, **options).name == "sequential"
    for layout in ("vmap", "simd"):
        with pytest.raises(
            WrongUsage, match=f"the layout {layout} cannot hold these models: .*{words}"
        ):
            choose_layout(models, configs, loss, **options, layout=layout)


@pytest.mark.parametrize("make", LAYOUTS.values())
def test_a_parameter_that_is_not_trained_is_refused(make):
    model = nn.Linear(2, 2)
    model.bias.requires_grad_(requires_grad=False)
    with pytest.raises(NotExpressible, match="the parameter bias is not trained"):
        make([model], configs_of(1), square, (torch.zeros(4, 2),))


def ragged(first, count):
    return [(torch.ones(step % 3 + 1, 2),) for step in range(first, first + count)]


def test_batches_of_many_shapes_are_for_solo():
    config = TrainConfig(steps=400)
    members = [Member(nn.Linear(2, 2), config, ragged, judge) for _ in range(2)]
    assert train_together(members, square).layout == "sequential"
    with pytest.raises(
        WrongUsage,
        match=r"the layout vmap cannot hold these models: the batches differ in shape",
    ):
        train_together(members, square, layout="vmap")


def test_batches_that_turn_out_to_be_of_another_shape_are_said():
    def growing(first, count):
        return (torch.ones(count, 3 if first < 50 else 4, 2),)

    members = [Member(nn.Linear(2, 2), TrainConfig(steps=100), growing, judge)]
    assert train_together(members, square, layout="vmap").layout == "vmap"
    with pytest.raises(WrongUsage, match=r"batches.*\(3, 2\).*\(4, 2\)"):
        train_together(members, square, layout="simd", engine="eager")


def test_a_loss_that_changes_buffers_is_refused_by_lanes():
    models = [Changing(2, 2) for _ in range(2)]
    with pytest.raises(NotExpressible):
        interpreted(models, configs_of(2), square, (torch.zeros(4, 2),))


def test_an_id_that_is_no_token_is_a_wrong_usage():
    data = drawn(tokens, 1)
    held = interpreted(models_of(SHORT), configs_of(), SHORT.loss, first_batch(data))
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
def test_the_rule_chooses_what_was_measured_to_be_quickest(
    effort, members, steps, threads, has_compiler, expected
):
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


def test_work_is_counted_and_the_model_left_as_it_was():
    model = nn.Linear(3, 4, bias=False)
    before = copy.deepcopy(model.state_dict())
    x = torch.ones(5, 3)
    effort = effort_of(model, lambda model, x: model(x).sum(), (x,))
    assert effort.products == pytest.approx(2 * (2 * 5 * 3 * 4) / 1e6)  # x W, and the gradient of W
    assert model.weight.grad is None
    assert torch.equal(model.weight, before["weight"])


def chosen(monkeypatch=None, num=64, steps=15_000, **options):
    case, watcher = CASES["sorter"], Watcher()
    models = models_of(case, num, torch.float32)
    data = drawn(case.batch, 1, num)
    made = []
    if monkeypatch is not None:
        monkeypatch.setattr(choose, "tried", lambda layout, *args: layout)  # these take no steps
        for name in ("Simd", "interpreted", "vmapped"):
            monkeypatch.setattr(
                choose, name, lambda *args, name=name, **kw: made.append((name, kw)) or Watcher()
            )
    found = choose_layout(
        models,
        configs_of(num, steps=steps),
        case.loss,
        noise=[0] * num,
        example=data,
        tell=watcher.tell,
        **options,
    )
    return (made[0][0] if made else found.name), watcher.told


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


def test_the_choice_is_the_same_each_time():
    assert len({chosen(num=20, steps=400)[0] for _ in range(3)}) == 1

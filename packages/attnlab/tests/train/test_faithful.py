"""What a layout cannot follow it refuses: models that differ in more than numbers."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from attnlab import seeds
from attnlab.errors import WrongUsage
from attnlab.native import compiler, compiler_name
from attnlab.simd import build
from attnlab.train import TrainConfig
from attnlab.train.layouts.choose import choose_layout
from attnlab.train.layouts.layout import NotExpressible
from attnlab.train.layouts.simd import Simd
from attnlab.train.layouts.vmap import vmapped

from .cases import (
    LAYOUTS,
    MEMBERS,
    NEVER,
    Case,
    compared,
    configs_of,
    drawn,
    first_batch,
    make_sequential,
    models_of,
    rates,
)

STEPS = 4
CONFIGS = [TrainConfig(steps=5_000, weight_decay=0.1)] * MEMBERS


class Net(nn.Module):
    def __init__(self, factor=1.0):
        super().__init__()
        self.inner, self.outer, self.factor = nn.Linear(4, 5), nn.Linear(5, 3), factor

    def forward(self, x):
        return self.outer(torch.tanh(self.inner(x))) * self.factor


class Unused(Net):
    def __init__(self):
        super().__init__()
        self.spare = nn.Parameter(torch.ones(3))


class Counting(Net):
    def __init__(self, kind):
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))
        self.calls, self.kind = 0, kind

    def forward(self, x):
        if self.kind == "attribute":
            self.calls += 1
        elif self.kind == "in place":
            self.seen.add_(1)
        else:
            self.seen = self.seen + 1
        return super().forward(x) / (1 + self.seen + self.calls)


class Looking(Net):
    def forward(self, x):
        return super().forward(x) * (2.0 if float(self.inner.weight.detach().sum()) > 0 else 1.0)


class Stretched(nn.Module):
    """A parameter as long as the batch, so that each row of the batch meets a row of its own."""

    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.randn(6, 4))

    def forward(self, x):
        return self.table + x


class Table(nn.Module):
    def __init__(self):
        super().__init__()
        self.rows, self.last = nn.Parameter(torch.randn(4, 3)), nn.Linear(3, 3)

    def forward(self, ids):
        return self.last(self.rows[ids])


def squares(model, x, y, ids):
    return F.mse_loss(model(x), y)


def batch(source):
    x, y = (torch.randn(6, width, generator=source, dtype=torch.float64) for width in (4, 3))
    return x, y, torch.randint(3, (6,), generator=source)


def made(make):
    found = []
    for member in range(MEMBERS):
        with seeds.isolated(member, "model"):
            found.append(make(member).double())
    return found


def chosen(make, loss, data, layout):
    told = []
    how = {"layout": layout, "engine": "eager", "tell": told.append}
    held = choose_layout(made(make), CONFIGS, loss, noise=[0] * MEMBERS, example=data, **how)
    assert told == []
    return held


def refused(make, loss, layout="vmap"):
    """Return why a layout refuses; `auto` must train it sequential then."""
    data = drawn(batch, STEPS)
    assert chosen(make, loss, data, "auto").name == "sequential"
    with pytest.raises(WrongUsage) as caught:
        chosen(make, loss, data, layout)
    return str(caught.value)


def reaching(model, x, y, ids):
    """A loss of parts, weights, a penalty on all parameters, and truths added and multiplied."""
    squares_of_all = sum(each.square().sum() for each in model.parameters())
    penalty = 1e-4 * squares_of_all + 0.1 * model.inner.weight.abs().sum()
    high, low = x[:, :3] > 0.5, y > 0.5
    counts = (high + low).double() + (high * low).double()
    counted = (model.outer(torch.relu(model.inner(x))).square() * counts).sum()
    return counted + squares(model, x, y, ids) + penalty


def distance(make, model, loss, batch=batch):
    """Train in a layout and alone; return the largest relative distance."""
    return max(compared(make, Case(model, loss, batch), STEPS)[2])


def test_a_loss_may_reach_into_the_model_and_count_truths(make):
    assert distance(make, Net, reaching) < 1e-10


@pytest.mark.parametrize("make", [*LAYOUTS][1:], indirect=True)
def test_ids_below_zero_count_from_the_end(make):
    def counted_from_the_end(source):
        x, y, ids = batch(source)
        return x, y, ids - 2

    loss = lambda model, x, y, ids: F.mse_loss(model(ids), y)  # noqa: E731
    assert distance(make, Table, loss, counted_from_the_end) < 1e-10


def test_a_maximum_over_a_number_that_is_not_one_is_not_one(make):
    data = drawn(batch, STEPS)
    data[1][0][1, 0, 0] = math.nan
    case = Case(Stretched, lambda model, x, y, ids: model(x).amax(), batch)
    held, alone, _ = compared(make, case, STEPS, data=data)
    assert held.state()["is_alive"].tolist() == [True, False, True]
    torch.testing.assert_close(held.parameters(), alone.parameters(), atol=1e-10, rtol=0)


@pytest.mark.skipif(compiler_name() is None, reason="there is no C++ compiler here")
def test_compiled_lanes_keep_digits_of_large_logits_and_of_small_errors():
    def loss(model, x, y, ids):
        return F.cross_entropy(model(x) + 1e6, ids) + 1e8 * torch.erf(model(x) * 1e-8).mean()

    assert distance(Simd, Net, loss) < 1e-9


def hooked(member):
    model = Net()
    model.inner.weight.register_post_accumulate_grad_hook(lambda each: each.grad.mul_(0.5))
    return model


def frozen(member):
    model = Net()
    model.inner.weight.requires_grad_(member != 1)
    return model


STRANGERS = {
    "an attribute of its own": (lambda member: Net(1.0 + member), squares, "differ in more than"),
    "a parameter that is not used": (
        lambda member: Unused(),
        squares,
        "does not depend on the parameter spare",
    ),
    "a hook": (hooked, squares, "a hook changes the gradient of the parameter inner.weight"),
    "frozen in one member": (frozen, squares, "the parameter inner.weight is not trained"),
    "counts in place": (
        lambda member: Counting("in place"),
        squares,
        "the loss changes the buffer seen",
    ),
    "counts anew": (lambda member: Counting("anew"), squares, "the loss changes the buffer seen"),
    "counts beside": (
        lambda member: Counting("attribute"),
        squares,
        "the loss changes the attribute calls",
    ),
    "dropout": (
        lambda member: nn.Sequential(Net(), nn.Dropout(0.1)),
        squares,
        "dropout draws its noise",
    ),
    "batch norm": (
        lambda member: nn.Sequential(Net(), nn.BatchNorm1d(3)),
        squares,
        "keeps running statistics",
    ),
    "looking at numbers": (lambda member: Looking(), squares, ""),
    "random numbers": (
        lambda member: Net(),
        lambda model, x, y, ids: (model(x) * torch.rand(1)).square().mean(),
        "",
    ),
    "what a mask picks": (
        lambda member: Net(),
        lambda model, x, y, ids: model(x)[y > 0].square().mean(),
        "vmap: We",
    ),
}


@pytest.mark.parametrize("name", STRANGERS)
def test_what_no_layout_could_follow_is_trained_one_by_one(name):
    make, loss, said = STRANGERS[name]
    assert said in refused(make, loss)
    refused(make, loss, "simd")


def test_a_loss_that_counts_its_calls_is_refused():
    calls = []

    def loss(model, x, y, ids):
        calls.append(1)
        return squares(model, x, y, ids) / len(calls)

    assert "not the same when it is computed twice" in refused(lambda member: Net(), loss)


def test_a_parameter_without_a_gradient_has_no_moments_and_stops_nothing():
    data, found = drawn(batch, STEPS), []
    for model in (Net, Unused):
        models = models_of(Case(model, squares, batch))
        models[1].inner.weight.requires_grad_(False)
        before = models[1].inner.weight.clone()
        held = make_sequential(models, configs_of(), squares, first_batch(data))
        held.advance(data, rates(STEPS), 0, NEVER)
        found.append(held.parameters())
        assert torch.equal(found[-1]["inner.weight"][1], before)
    plain, other = found
    assert torch.equal(other.pop("spare"), torch.ones(MEMBERS, 3, dtype=torch.float64))
    assert all(torch.equal(other[name], value) for name, value in plain.items())


def test_a_loss_that_is_reduced_keeps_its_own_shape():
    def loss(model, x, y, ids):
        out = model(x)
        return F.binary_cross_entropy(out.sigmoid(), y.sigmoid()) + F.smooth_l1_loss(out, y)

    assert distance(vmapped, Net, loss) < 1e-10


def test_a_full_disk_costs_the_compiling_and_no_more(monkeypatch, tmp_path):
    def full(path, content):
        raise OSError(28, "No space left on device")

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(compiler, "_built", lambda command, source: b"compiled")
    monkeypatch.setattr(compiler, "_replace", full)
    monkeypatch.setattr(compiler, "compiler_name", lambda: "a compiler")
    monkeypatch.setattr(compiler, "_version", lambda compiler: "1")
    with pytest.raises(NotExpressible, match=r"could not be kept .*No space left"):
        build.compiled_library("")

"""The training loop: what is learned, kept, evaluated and told, for one model and for several."""

import itertools
import math
import threading

import pytest
import torch
from torch import nn

from attnlab.errors import WrongUsage
from attnlab.train import Evaluation, TrainConfig, train_together
from attnlab.train.faults import NotFinite, first_not_finite
from attnlab.train.history import History
from attnlab.train.schedule import Schedule, share_of_peak, span_at
from tests.sampling import sampled

from .tiny import WAYS, Watcher, evaluate, fit, loss, make_sampler, member, network, weights


def test_training_fits_a_line_and_leaves_the_best_weights():
    (only,), found = fit()
    assert found.members[0].evaluation.figures["error"] < 0.1
    with torch.no_grad():
        assert float(evaluate(only.model).figures["error"]) == pytest.approx(
            found.members[0].evaluation.figures["error"]
        )
    assert not only.model.training


def test_the_best_weights_are_kept_not_the_last():
    seen = []

    def fickle(model):
        seen.append(model[0].weight.detach().clone())
        return Evaluation((1.0 if len(seen) == 2 else 0.0,), {})

    (only,), found = fit(evaluate=fickle)
    assert found.members[0].best_step == 120
    assert torch.equal(only.model[0].weight, seen[1])
    assert not torch.equal(only.model[0].weight, seen[2])


@pytest.mark.parametrize(("layout", "engine"), WAYS)
def test_each_of_several_ends_where_it_would_have_ended_alone(layout, engine):
    members, found = fit(num=3, layout=layout, engine=engine)
    for seed in range(3):
        (alone,), single = fit(members=[member(seed)])
        torch.testing.assert_close(
            members[seed].model.state_dict(), alone.model.state_dict(), rtol=1e-4, atol=1e-5
        )
        assert found.members[seed].best_step == single.members[0].best_step


def test_members_judged_together_are_judged_as_one_by_one():
    def one_by_one(model):
        found = evaluate(model)
        return Evaluation(
            (float(found.score[0]),), {"error": float(found.figures["error"])}
        )  # vmap forbids float()

    together, apart = (
        fit(num=3, evaluate=each)[1].history.table("error") for each in (evaluate, one_by_one)
    )
    torch.testing.assert_close(together, apart, rtol=1e-4, atol=1e-6)


def test_lines_of_metrics_come_in_order_and_are_those_that_are_returned():
    lines = []
    _, found = fit(num=2, record=lambda place, line: lines.append((place, line)))
    for place in range(2):
        own = [line for number, line in lines if number == place]
        assert own == found.members[place].metrics
        assert [line["step"] for line in own] == sorted(line["step"] for line in own)
    steps = [line["step"] for _, line in lines]
    assert steps == sorted(steps)
    assert [line["step"] for line in found.members[0].metrics if "error" in line] == [60, 120, 150]
    noted = {line["step"] for line in found.members[0].metrics if "loss" in line}
    assert noted == {50, 60, 100, 120, 150}


def test_a_member_that_has_had_enough_keeps_its_best_and_all_of_them_end_the_training():
    _, found = fit(num=2, stop=lambda evaluations: len(evaluations) == 2)
    assert found.history.ends == [120, 120]
    assert found.history.evaluated_steps == [60, 120]
    assert all(trained.metrics[-1]["step"] == 120 for trained in found.members)


def test_a_member_that_has_had_enough_is_not_touched_by_what_follows():
    def patient(evaluations):
        return evaluations[0].figures["error"] == first and len(evaluations) == 2

    _, whole = fit(num=2)
    first = whole.history.evaluations[0][0].figures["error"]
    _, found = fit(num=2, stop=patient)
    assert found.history.ends == [120, None]
    assert found.members[0].best_step <= 120
    assert found.members[1] == whole.members[1]
    assert math.isnan(found.history.table("error")[2, 0])


def breaking(at, tensor_of):
    """Return data whose step `at` (counted from 1) holds a tensor that is not finite."""

    def sample(first, count):
        (x,) = make_sampler()(first, count)
        if first < at <= first + count:
            x[at - 1 - first] = tensor_of(x[at - 1 - first])
        return (x,)

    return sample


@pytest.mark.parametrize(("layout", "engine"), WAYS)
@pytest.mark.parametrize("at", sampled([57, 1, 50, 133], 2))
def test_a_step_that_is_not_finite_is_caught_in_that_step(at, layout, engine):
    sample = breaking(at, lambda x: x * float("inf"))
    with pytest.raises(
        NotFinite,
        match=rf"no longer finite at step {at} \(loss (nan|inf), gradient norm nan; .*batch\)",
    ):
        fit(sample=sample, layout=layout, engine=engine)


def test_a_fault_that_nobody_looks_for_would_be_seen(monkeypatch):
    monkeypatch.setattr("attnlab.train.loop._Training._find_faults", lambda *_: None)
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        test_a_step_that_is_not_finite_is_caught_in_that_step(37, "sequential", "eager")


@pytest.mark.parametrize(("layout", "engine"), WAYS)
def test_of_several_only_the_broken_one_stops(layout, engine):
    def trained(tensor_of):
        members = [member(0), member(1, sample=breaking(77, tensor_of)), member(2)]
        return fit(members=members, layout=layout, engine=engine)

    members, found = trained(lambda x: x * float("nan"))
    whole, _ = trained(lambda x: x)
    for place in (0, 2):
        assert weights([members[place]]) == weights([whole[place]])
    assert found.members[1] is None
    assert found.history.ends == [None, 76, None]
    assert "at step 77 (loss nan" in found.history.faults[1]
    assert all(torch.isfinite(p).all() for p in members[1].model.parameters())


def test_all_of_several_broken_is_an_error_that_says_so():
    sample = breaking(5, lambda x: x * float("nan"))
    with pytest.raises(NotFinite, match="the last broke at step 5"):
        fit(num=2, sample=sample)


def test_a_judgement_that_is_not_finite_stops_the_training():
    with pytest.raises(NotFinite, match=r"no longer finite at step 60 \(evaluated"):
        fit(evaluate=lambda model: Evaluation((0.0,), {"error": math.inf}))


class TestTheFirstBadTensor:
    @staticmethod
    def named(model=None, loss=loss, x=None):
        return first_not_finite(model or network(), loss, (torch.ones(4, 2) if x is None else x,))

    def test_is_a_parameter(self):
        model = network()
        with torch.no_grad():
            model[2].weight[0, 1] = float("nan")
        assert self.named(model) == "the parameter 2.weight"

    def test_is_in_the_batch(self):
        assert self.named(x=torch.tensor([[1.0, float("inf")]])) == "tensor 1 of the batch"

    def test_is_what_a_part_puts_out(self):
        model = network()
        with torch.no_grad():
            model[0].weight.fill_(3e38)
        assert self.named(model, x=torch.full((1, 2), 3.0)) == "the output of 0"

    def test_is_the_loss(self):
        assert self.named(loss=lambda model, x: model(x).sum() * float("inf")) == "the loss"

    def test_is_the_last_gradient_of_the_model_for_they_are_made_backwards(self):
        class Root(nn.Module):
            def forward(self, x):
                return (x * 0).sqrt()  # its derivative at 0 is infinite

        model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2), Root(), nn.Linear(2, 1))
        assert self.named(model, loss=lambda model, x: model(x).sum()) == "the gradient of 1.bias"

    def test_leaves_no_hook_and_no_gradient(self):
        model = network()
        assert self.named(model) == "the norm of the whole gradient"
        assert not any(part._forward_hooks for part in model.modules())
        assert all(parameter.grad is None for parameter in model.parameters())


def test_the_number_of_threads_is_given_back_also_outside_the_main_thread():
    before, found = torch.get_num_threads(), []

    def train():
        found.append(train_together([member(steps=2)], loss, num_threads=before + 1))

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    assert len(found) == 1
    assert torch.get_num_threads() == before


def test_the_observer_sees_steps_in_order_and_the_end():
    watcher = Watcher()
    fit(observer=watcher)
    assert watcher.steps == sorted(watcher.steps)
    assert watcher.steps[-1] == (150, 150)


def test_the_schedule_warms_up_peaks_and_ends_at_its_share():
    config = TrainConfig(steps=1000, learning_rate=2.0, warmup_steps=100, final_share=0.1)
    rates = Schedule([config]).rates(0, 1000)[:, 0].tolist()
    assert rates[0] == pytest.approx(0.02)
    assert max(rates) == rates[99] == pytest.approx(2.0)
    assert rates[-1] == pytest.approx(0.2)
    assert all(a >= b for a, b in itertools.pairwise(rates[99:]))
    assert share_of_peak(0, TrainConfig(steps=1)) == 1.0
    assert [share_of_peak(step, config) for step in (999, 1000, 1020)] == pytest.approx([0.1] * 3)


def test_each_member_has_the_rates_of_its_own_config_wherever_one_begins():
    configs = [
        TrainConfig(steps=100, learning_rate=rate, warmup_steps=warmup)
        for rate, warmup in itertools.product((1, 2), (0, 9))
    ]
    together = Schedule(configs).rates(0, 100)
    for place, config in enumerate(configs):
        assert torch.equal(together[:, place], Schedule([config]).rates(0, 100)[:, 0])
    assert torch.equal(together[37:61], Schedule(configs).rates(37, 61))


def test_steps_are_cut_at_every_note_and_every_judgement():
    config = TrainConfig(steps=130, evaluate_every=60)
    cuts, step = [], 0
    while step < 130:
        first, step = span_at(config, step)
        cuts.append((first, step))
    assert cuts == [(0, 50), (50, 60), (60, 100), (100, 120), (120, 130)]
    assert all(span_at(config, step) == (100, 120) for step in range(100, 120))


def test_wrong_use_is_said():
    with pytest.raises(WrongUsage, match="warmup_steps must be below steps"):
        TrainConfig(steps=10, warmup_steps=10)
    with pytest.raises(WrongUsage, match="at least one model"):
        fit(members=[])
    with pytest.raises(WrongUsage, match="have the same steps; got 150 and 10"):
        fit(members=[member(0), member(1, steps=10)])
    with pytest.raises(WrongUsage, match="have the same shapes"):
        fit(members=[member(0), member(1, model=nn.Linear(2, 1))])


def test_of_equal_evaluations_the_first_is_the_best():
    history = History(1)
    history.evaluated_steps = [10, 20, 30]
    history.evaluations[0] = [Evaluation((score,), {}) for score in (1.0, 2.0, 2.0)]
    assert history.best(0) == (20, Evaluation((2.0,), {}))

import itertools

import pytest
import torch
from torch import nn

from attnlab.errors import CouldNotRun, WrongUsage
from attnlab.train import Judgement, TrainConfig, train
from attnlab.train.checkpoint import read_checkpoint
from attnlab.train.schedule import learning_rate


def line(seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Linear(2, 1)


def loss(model, generator):
    x = torch.randn(16, 2, generator=generator)
    return (model(x) - x.sum(-1, keepdim=True)).square().mean()


@torch.no_grad()
def judge(model):
    x = torch.eye(2)
    error = float((model(x) - 1).square().mean())
    return Judgement((-error,), {"error": error})


def fit(model, judge=judge, loss=loss, **options):
    config = TrainConfig(**{"steps": 200, "learning_rate": 0.1, "evaluate_every": 50, **options.pop("config", {})})
    return train(model, config, loss=loss, judge=judge, generator=torch.Generator().manual_seed(0), **options)


def test_training_fits_a_line_and_leaves_the_best_weights():
    model = line()
    trained = fit(model)
    assert trained.judgement.figures["error"] < 1e-3
    assert judge(model).figures == trained.judgement.figures
    assert not model.training


def test_the_best_weights_are_kept_not_the_last():
    model, calls = line(), []

    def fickle(model):
        calls.append({name: value.clone() for name, value in model.state_dict().items()})
        return Judgement((1.0 if len(calls) == 2 else 0.0,), {})

    trained = fit(model, judge=fickle)
    assert trained.best_step == 100
    assert torch.equal(model.weight, calls[1]["weight"])
    assert not torch.equal(model.weight, calls[3]["weight"])


def test_two_trainings_of_one_seed_are_equal_to_the_bit():
    one, two = line(), line()
    fit(one)
    fit(two)
    assert torch.equal(one.weight, two.weight)


def test_best_and_last_checkpoints_hold_what_it_takes_to_go_on(tmp_path):
    model = line()
    fit(model, folder=tmp_path)
    best, last = (read_checkpoint(tmp_path / f"{name}.safetensors") for name in ("best", "last"))
    assert set(best.weights()) == {"weight", "bias"}
    assert last.facts["step"] == 200
    assert "generator" in last.tensors
    assert {f"optimiser.0.{name}" for name in ("exp_avg", "exp_avg_sq", "step")} <= set(last.tensors)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["best.safetensors", "last.safetensors"]


def test_a_loss_that_breaks_stops_the_training_and_keeps_the_good_checkpoint(tmp_path):
    calls = []

    def breaking(model, generator):
        calls.append(1)
        return loss(model, generator) * (float("nan") if len(calls) == 120 else 1.0)

    with pytest.raises(CouldNotRun, match=r"no longer finite between steps 101 and 150.*smaller learning_rate"):
        fit(line(), loss=breaking, folder=tmp_path)
    kept = read_checkpoint(tmp_path / "last.safetensors")
    assert kept.facts["step"] == 100
    assert all(torch.isfinite(value).all() for value in kept.weights().values())


def test_the_number_of_threads_is_given_back():
    before = torch.get_num_threads()
    fit(line(), config={"steps": 2}, num_threads=before + 1)
    assert torch.get_num_threads() == before


def test_the_observer_sees_steps_in_order_and_the_end():
    class Watcher:
        seen = []  # noqa: RUF012

        def step(self, step, steps, figures):
            self.seen.append((step, steps))

    fit(line(), observer=Watcher())
    assert [step for step, _ in Watcher.seen] == sorted(step for step, _ in Watcher.seen)
    assert Watcher.seen[-1] == (200, 200)


def test_the_gradient_is_clipped_as_a_whole(tmp_path):
    fit(line(), config={"steps": 1, "clip": 1e-3}, folder=tmp_path)
    # After one step AdamW's first moment is (1 - 0.9) times the gradient it was given.
    moments = read_checkpoint(tmp_path / "last.safetensors").tensors
    given = torch.cat([moments[f"optimiser.{index}.exp_avg"].flatten() for index in range(2)]) / 0.1
    assert float(given.norm()) == pytest.approx(1e-3, rel=1e-3)


def test_weight_decay_shrinks_weights_that_nothing_else_moves():
    model = line()
    before = model.weight.detach().clone()
    fit(model, loss=lambda model, generator: 0.0 * model(torch.eye(2)).sum(), config={
        "steps": 10, "learning_rate": 0.1, "weight_decay": 0.5, "final_share": 1.0, "evaluate_every": 10,
    })  # fmt: skip
    torch.testing.assert_close(model.weight, before * (1 - 0.1 * 0.5) ** 10)


def test_a_model_that_breaks_between_logs_is_never_judged_or_saved(tmp_path):
    judged = []

    def breaking(model, generator):
        judged.append("loss")
        return loss(model, generator) * (float("nan") if len(judged) > 12 else 1.0)

    with pytest.raises(CouldNotRun, match="no longer finite between steps 11 and 20"):
        fit(line(), loss=breaking, folder=tmp_path, config={"evaluate_every": 10})
    assert read_checkpoint(tmp_path / "last.safetensors").facts["step"] == 10


def test_a_judgement_that_is_not_finite_stops_the_training():
    with pytest.raises(CouldNotRun, match=r"no longer finite at step 50 \(judged"):
        fit(line(), judge=lambda model: Judgement((0.0,), {"error": float("inf")}))


def test_the_schedule_warms_up_peaks_and_ends_at_its_share():
    rates = [learning_rate(s, peak=2.0, steps=1000, warmup_steps=100, final_share=0.1) for s in range(1000)]
    assert rates[0] == pytest.approx(0.02)
    assert max(rates) == rates[99] == pytest.approx(2.0)
    assert rates[-1] == pytest.approx(0.2)
    assert all(a >= b for a, b in itertools.pairwise(rates[99:]))
    assert learning_rate(0, peak=2.0, steps=1, warmup_steps=0, final_share=0.1) == 2.0


def test_a_warm_up_longer_than_the_training_is_refused():
    with pytest.raises(WrongUsage, match="warmup_steps must be below steps"):
        TrainConfig(steps=10, warmup_steps=10)


def test_a_damaged_checkpoint_is_said(tmp_path):
    (tmp_path / "last.safetensors").write_bytes(b"\x00" * 40)
    with pytest.raises(CouldNotRun, match="could not read the checkpoint"):
        read_checkpoint(tmp_path / "last.safetensors")

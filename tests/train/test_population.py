import pytest
import torch
import torch.nn.functional as F

from attnlab.errors import WrongUsage
from attnlab.models import Decoder, DecoderConfig
from attnlab.seeds import generator, isolated
from attnlab.train import Judgement, TrainConfig, train, train_population

CONFIG = DecoderConfig(vocab_size=5, max_length=6, d_model=12, num_heads=2, d_ff=12, positions="learned")


def decoder(seed, **changes):
    with isolated(seed):
        return Decoder(DecoderConfig(**{**CONFIG.to_mapping(), **changes})).double()


def draw(source):
    return (torch.randint(5, (8, 6), generator=source),)


def loss(model, rows):
    return F.cross_entropy(model(rows[:, :-1]).transpose(1, 2), rows[:, 1:])


def judge(model):
    rows = torch.arange(30).view(5, 6) % 5
    value = float(loss(model, rows))
    return Judgement((-value,), {"judged": value})


def population(num=3, steps=40, **options):
    models = [decoder(seed) for seed in range(num)]
    config = TrainConfig(steps=steps, evaluate_every=10, **options.pop("config", {}))
    options = {"draw": draw, "loss": loss, "judge": judge, **options}
    found = train_population(models, config, generators=[generator(seed, "data") for seed in range(num)], **options)
    return models, found


@pytest.mark.parametrize(
    "config",
    [
        {"learning_rate": 1e-2},
        {"learning_rate": 1e-2, "clip": 0.05, "warmup_steps": 5, "weight_decay": 0.1},
        {"learning_rate": 1e-1, "optimiser": "sgd", "clip": 1e9, "final_share": 1.0},
    ],
    ids=["adamw", "adamw clipped", "sgd"],
)
def test_each_member_ends_where_it_would_have_ended_alone(config):
    models, found = population(config=config)
    for seed, (model, trained) in enumerate(zip(models, found, strict=True)):
        alone = decoder(seed)
        expected = train(
            alone,
            TrainConfig(steps=40, evaluate_every=10, **config),
            loss=lambda model, source: loss(model, *draw(source)),
            judge=judge,
            generator=generator(seed, "data"),
        )
        assert trained.best_step == expected.best_step
        torch.testing.assert_close(dict(model.state_dict()), dict(alone.state_dict()), atol=1e-10, rtol=0)


def test_clipping_all_members_by_one_norm_is_seen(monkeypatch):
    def clip_together(parameters, most):
        return torch.nn.utils.clip_grad_norm_(parameters, most).repeat(len(parameters[0]))

    monkeypatch.setattr("attnlab.train.population._clip", clip_together)
    with pytest.raises(AssertionError, match="not close"):
        test_each_member_ends_where_it_would_have_ended_alone({"clip": 0.05, "optimiser": "sgd", "learning_rate": 0.1})


def test_members_that_share_their_data_are_seen():
    def draw_alike(source):
        return draw(torch.Generator().manual_seed(0))

    models, _ = population(draw=draw_alike)
    apart, _ = population()
    with pytest.raises(AssertionError, match="not close"):
        torch.testing.assert_close(dict(models[0].state_dict()), dict(apart[0].state_dict()), atol=1e-10, rtol=0)


def test_a_member_that_breaks_disturbs_nobody():
    models = [decoder(seed) for seed in range(3)]
    with torch.no_grad():
        models[1].embedding.tokens.weight[0, 0] = float("nan")
    found = train_population(
        models,
        TrainConfig(steps=20, evaluate_every=10),
        draw=draw,
        loss=loss,
        judge=judge,
        generators=[generator(seed, "data") for seed in range(3)],
    )
    whole, _ = population(steps=20)
    assert found[1] is None
    for index in (0, 2):
        for a, b in zip(models[index].parameters(), whole[index].parameters(), strict=True):
            torch.testing.assert_close(a, b, atol=1e-6, rtol=0)


def test_it_ends_when_all_are_done_and_keeps_the_best():
    _, found = population(steps=100, stop=lambda judgement: True)
    assert [trained.best_step for trained in found] == [10, 10, 10]


def test_the_observer_hears_of_it():
    heard = []

    class Listener:
        def stage(self, name): ...
        def step(self, step, steps, figures):
            heard.append((step, steps, figures["loss"] > 0))

    population(steps=40, observer=Listener())
    assert heard[-1] == (40, 40, True)


def test_wrong_use_is_said():
    with pytest.raises(WrongUsage, match="a generator for each model"):
        train_population([], TrainConfig(), draw=draw, loss=loss, judge=judge, generators=[])
    for part, words in ((torch.nn.Dropout(0.1), "without dropout"), (torch.nn.BatchNorm1d(3), "running statistics")):
        with pytest.raises(WrongUsage, match=words):
            train_population([part], TrainConfig(), draw=draw, loss=loss, judge=judge, generators=[generator(0)])
    with pytest.raises(WrongUsage, match="without dropout"):
        train_population(
            [decoder(0, dropout=0.1)], TrainConfig(), draw=draw, loss=loss, judge=judge, generators=[generator(0)]
        )

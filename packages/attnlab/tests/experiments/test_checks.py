"""Faults that leave a model able to learn: the claims that every run makes see each of them."""

import math
from dataclasses import replace

import pytest
import torch

import attnlab
from attnlab.experiments.checks import COMMON, check_claims, nudged, rate_by_hand
from attnlab.experiments.experiment import Run
from attnlab.experiments.sorting import SortingConfig
from attnlab.experiments.sorting.sorter import problem
from attnlab.models import (
    Decoder,
    DecoderConfig,
    Encoder,
    EncoderConfig,
    EncoderDecoder,
    EncoderDecoderConfig,
)
from attnlab.seeds import isolated
from attnlab.train.config import TrainConfig
from tests.parts.planting import planted

FORMULAS, GENERATION, TRAINING = COMMON
SMALL = {
    "vocab_size": 11,
    "max_length": 9,
    "d_model": 12,
    "num_heads": 2,
    "d_ff": 20,
    "num_layers": 2,
}


def models(**settings):
    shared = {**SMALL, **settings}
    with isolated(0):
        return [
            Decoder(DecoderConfig(**shared)).eval(),
            Encoder(EncoderConfig(**shared, num_classes=5)).eval(),
            EncoderDecoder(EncoderDecoderConfig(**shared, num_encoder_layers=1)).eval(),
        ]


def failed(claims):
    return {claim.name for claim in claims if not claim.passed}


@pytest.mark.parametrize(
    "settings",
    [
        {"positions": "sinusoidal", "activation": "gelu", "dropout": 0.1},
        {
            "positions": "learned",
            "norm": "rms",
            "norm_place": "post",
            "num_heads": 4,
            "num_kv_heads": 2,
        },
        {
            "positions": "concatenated",
            "projections": "gated",
            "rank": 2,
            "bias": False,
            "tie_output": True,
        },
        {"positions": "rotary", "projections": "strict", "activation": "swiglu", "num_heads": 4},
        {"positions": "alibi", "norm_place": "none", "final_norm": False, "scale_embedding": True},
    ],
    ids=lambda settings: settings["positions"],
)
def test_models_of_every_kind_compute_the_formulas(settings):
    tied = settings.pop("tie_output", False)
    own = models(**settings)
    if tied:
        own[2] = EncoderDecoder(replace(own[2].config, tie_output=True)).eval()
    claims = check_claims(own, [], seed=0)
    assert [claim.name for claim in claims] == [FORMULAS, GENERATION]
    assert not failed(claims)


MODEL_FAULTS = [
    (
        "the offset of sinusoids is ignored",
        "parts.positions",
        "x + table[offset:end]",
        "x + table[: x.shape[-2]]",
        GENERATION,
    ),
    ("sinusoids of base 100", "parts.positions", "math.log(10000.0)", "math.log(100.0)", FORMULAS),
    (
        "the final norm is never applied",
        "models.stack",
        "x = self.final_norm(x)",
        "return x",
        FORMULAS,
    ),
    (
        "forbidden is ignored",
        "models.generation",
        "if forbidden:",
        "if forbidden is None:",
        GENERATION,
    ),
    (
        "the second likeliest is chosen",
        "models.generation",
        "probabilities.argmax(-1)",
        "probabilities.topk(2).indices[:, 1]",
        GENERATION,
    ),
    (
        "heads are split interleaved",
        "parts.heads",
        "num_heads, x.shape[-1] // num_heads).transpose(-3, -2)",
        "x.shape[-1] // num_heads, num_heads).movedim(-1, -3)",
        FORMULAS,
    ),
    ("scores are not scaled", "parts.attend", "return float(width**-0.5)", "return 1.0", FORMULAS),
    (
        "another epsilon in the norm",
        "parts.norms",
        "self.bias, self.epsilon)",
        "self.bias, 1e-6)",
        FORMULAS,
    ),
    (
        "the approximate GELU",
        "parts.feed_forward",
        "torch.ops.aten.gelu_(inner)",
        'F.gelu(inner, approximate="tanh")',
        FORMULAS,
    ),
    ("cross-attention looks at padding", "parts.blocks", "mask=memory_mask", "mask=None", FORMULAS),
    (
        "the mean counts padding",
        "models.encoder",
        "real.sum(-1, keepdim=True)",
        "real.shape[-1] * real[:, :1]",
        FORMULAS,
    ),
    ("dropout goes on after training", "parts.dropout", "if is_training and", "if", FORMULAS),
    (
        "a norm stands after the sum instead of before",
        "parts.blocks",
        "read = self._read(x, self.norm_attention)",
        "read = x",
        FORMULAS,
    ),
]


@pytest.mark.parametrize(
    ("module", "old", "new", "claim"),
    [each[1:] for each in MODEL_FAULTS],
    ids=[each[0] for each in MODEL_FAULTS],
)
def test_a_fault_that_a_model_can_learn_with_fails_a_claim(module, old, new, claim):
    own = models(positions="sinusoidal", activation="gelu", dropout=0.1)
    with planted(f"attnlab.{module}", old, new):
        assert claim in failed(check_claims(own, [], seed=0))


def trained(layout="sequential", **settings):
    """Train two small sorters, and return what is claimed of it."""
    config, context = (
        SortingConfig(steps=20, warmup_steps=4, evaluate_every=10, **settings),
        Run(0, layout=layout, engine="eager"),
    )
    own = problem([config, config], [0, 1])
    context.train("sorting", own.members, own.loss)
    return check_claims([], context.trainings, seed=0)


@pytest.mark.parametrize("layout", ["sequential", "vmap"])
def test_a_sound_training_is_as_configured(layout):
    assert [claim.name for claim in trained(layout)] == [TRAINING]
    assert not failed(trained(layout, learning_rate=3e-2, weight_decay=0.1))


TRAINING_FAULTS = [
    (
        "a constant rate is planned",
        "schedule",
        "if step < warmup:\n        return (step + 1) / warmup",
        "return 1.0",
        "sequential",
    ),
    (
        "the cosine ends at nothing",
        "schedule",
        "return final + (1 - final) *",
        "return",
        "sequential",
    ),
    (
        "the rate is planned and not applied",
        "layouts.sequential",
        'group["lr"] = rate',
        "pass",
        "sequential",
    ),
    (
        "the rate is planned and not applied",
        "layouts.update",
        "(rates / (1 - BETAS[0] ** steps))",
        "(1 / steps)",
        "vmap",
    ),
    (
        "gradients are not clipped",
        "layouts.sequential",
        "self._clips[member], foreach",
        "1e9, foreach",
        "sequential",
    ),
    ("weights do not decay", "layouts.update", "column(1 - rates * rule.decay)", "1", "vmap"),
    (
        "every batch is the first",
        "layouts.sequential",
        "return batches[index] if isinstance(batches, list) else tuple(part[index] for part "
        "in batches)",
        "return tuple(part[0] for part in batches)",
        "sequential",
    ),
]


@pytest.mark.parametrize(
    ("module", "old", "new", "layout"),
    [each[1:] for each in TRAINING_FAULTS],
    ids=[f"{each[0]} ({each[4]})" for each in TRAINING_FAULTS],
)
def test_a_training_that_is_not_as_configured_fails_its_claim(module, old, new, layout):
    with planted(f"attnlab.train.{module}", old, new):
        assert failed(trained(layout, learning_rate=0.3, weight_decay=0.1, clip=0.01)) == {TRAINING}


def test_a_training_that_keeps_the_last_weights_and_not_the_best_fails_its_claim():
    with planted(
        "attnlab.train.loop", "self._hold(member, self._best).eval()", "self._models[member].eval()"
    ):
        assert failed(trained(learning_rate=10.0)) == {TRAINING}  # it gets worse


def test_models_that_begin_alike_fail_the_claim():
    context, own = Run(0), problem([SortingConfig(steps=2)] * 2, [5, 5])
    context.train("sorting", own.members, own.loss)
    assert context.trainings[0].alike == 1
    assert failed(check_claims([], context.trainings, seed=0)) == {TRAINING}


def test_the_rate_by_hand_is_that_of_the_formula():
    config = TrainConfig(steps=101, warmup_steps=20, learning_rate=2.0, final_share=0.25)
    assert [rate_by_hand(config, step) for step in (1, 10, 20, 21)] == pytest.approx(
        [0.1, 1.0, 2.0, 2.0]
    )
    assert rate_by_hand(config, 61) == pytest.approx(2.0 * (0.25 + 0.75 / 2))  # half of the cosine
    assert rate_by_hand(config, 101) == pytest.approx(0.5)
    assert math.isfinite(rate_by_hand(TrainConfig(steps=1), 1))


def test_a_nudged_model_is_one_rounding_away():
    model = models()[0]
    for weight, other in zip(model.parameters(), nudged(model).parameters(), strict=True):
        assert bool((other > weight).all())
        torch.testing.assert_close(other, weight)


def test_every_run_says_so():
    names = [claim.name for claim in attnlab.run("sorting", steps=4).claims]
    assert names[-3:] == [FORMULAS, GENERATION, TRAINING]

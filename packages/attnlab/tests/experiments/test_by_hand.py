"""Faults that leave a model able to learn: formulas in NumPy and steps by hand see each of them."""

import copy
import math
from dataclasses import replace

import pytest
import torch

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
from attnlab.train import train_together
from attnlab.train.config import TrainConfig
from tests.experiments.by_hand import (
    ROUNDING32,
    ROUNDING64,
    check_training,
    formula_differences,
    generated_by_hand,
    largest,
    nudged,
    rate_by_hand,
)
from tests.planting import planted
from tests.sampling import first_of_each

FORMULAS, GENERATION = "outputs", "generation"
SMALL = {"vocab_size": 11, "max_length": 9, "d_model": 12, "num_heads": 2, "d_ff": 20}


def models(**settings):
    shared = {**SMALL, "num_layers": 2, **settings}
    with isolated(0):
        return [
            Decoder(DecoderConfig(**shared)).eval(),
            Encoder(EncoderConfig(**shared, num_classes=5)).eval(),
            EncoderDecoder(EncoderDecoderConfig(**shared, num_encoder_layers=1)).eval(),
        ]


def wrong(models):
    """Which of the outputs and the generation of models are not those of the formulas?"""
    single, double = largest(formula_differences, models, 0)
    generating = [model for model in models if not isinstance(model, Encoder)]
    apart, num_forbidden = largest(generated_by_hand, generating, 0)
    found = set()
    if single > ROUNDING32 or double > ROUNDING64:
        found.add(FORMULAS)
    if apart > ROUNDING32 or num_forbidden:
        found.add(GENERATION)
    return found


KINDS = {
    "sinusoidal": {"activation": "gelu", "dropout": 0.1},
    "learned": {"norm": "rms", "norm_place": "post", "num_heads": 4, "num_kv_heads": 2},
    "concatenated": {"projections": "gated", "rank": 2, "bias": False, "tie_output": True},
    "rotary": {"projections": "strict", "activation": "swiglu", "num_heads": 4},
    "alibi": {"norm_place": "none", "final_norm": False, "scale_embedding": True},
}


@pytest.mark.parametrize("positions", KINDS)
def test_models_of_every_kind_compute_the_formulas(positions):
    settings = {"positions": positions, **KINDS[positions]}
    is_tied = settings.pop("tie_output", False)
    own = models(**settings)
    if is_tied:
        own[2] = EncoderDecoder(replace(own[2].config, tie_output=True)).eval()
    assert not wrong(own)


MODEL_FAULTS = {
    "the offset of sinusoids is ignored": (
        GENERATION,
        "parts.positions",
        "x + table[offset:end]",
        "x + table[: x.shape[-2]]",
    ),
    "sinusoids of base 100": (FORMULAS, "parts.positions", "math.log(10000.0)", "math.log(100.0)"),
    "the final norm is never applied": (
        FORMULAS,
        "models.stack",
        "x = final_norm(x)",
        "return x",
    ),
    "forbidden is ignored": (
        GENERATION,
        "models.generation",
        "if forbidden:",
        "if forbidden is None:",
    ),
    "the second likeliest is chosen": (
        GENERATION,
        "models.generation",
        "probabilities.argmax(-1)",
        "probabilities.topk(2).indices[:, 1]",
    ),
    "heads are split interleaved": (
        FORMULAS,
        "parts.heads",
        "num_heads, width // num_heads).transpose(-3, -2)",
        "width // num_heads, num_heads).movedim(-1, -3)",
    ),
    "scores are not scaled": (FORMULAS, "parts.attend", "return float(width**-0.5)", "return 1.0"),
    "another epsilon in the norm": (
        FORMULAS,
        "parts.norms",
        "self.bias, self.epsilon)",
        "self.bias, 1e-6)",
    ),
    "the approximate GELU": (
        FORMULAS,
        "parts.feed_forward",
        "torch.ops.aten.gelu_(inner)",
        'F.gelu(inner, approximate="tanh")',
    ),
    "cross-attention looks at padding": (FORMULAS, "parts.blocks", "mask=memory_mask", "mask=None"),
    "the mean counts padding": (
        FORMULAS,
        "models.encoder",
        "real.sum(-1, keepdim=True)",
        "real.shape[-1] * real[:, :1]",
    ),
    "dropout goes on after training": (FORMULAS, "parts.dropout", "if is_training and", "if"),
    "a norm stands after the sum instead of before": (
        FORMULAS,
        "parts.blocks",
        "read = self._read(x, self.norm_attention)",
        "read = x",
    ),
}


@pytest.mark.parametrize("fault", first_of_each(MODEL_FAULTS, lambda fault: MODEL_FAULTS[fault][0]))
def test_a_fault_that_a_model_can_learn_with_is_seen(fault):
    claim, module, old, new = MODEL_FAULTS[fault]
    own = models(positions="sinusoidal", activation="gelu", dropout=0.1)
    with planted(f"attnlab.{module}", old, new):
        assert claim in wrong(own)


def trained(layout="sequential", **settings):
    """Train two small sorters, and compare the first with the same by hand."""
    config = SortingConfig(**{"steps": 20, "warmup_steps": 4, "evaluate_every": 10, **settings})
    own = problem([config, config], [0, 1])
    start = copy.deepcopy(own.members[0].model)
    result = train_together(own.members, own.loss, layout=layout, engine="eager")
    return check_training(start, own.members[0], own.loss, result.members[0])


@pytest.mark.parametrize("layout", ["sequential", "vmap"])
def test_a_sound_training_is_as_configured(layout):
    assert trained(layout).holds
    assert trained(layout, learning_rate=3e-2, weight_decay=0.1).holds


TRAINING_FAULTS = {
    "a constant rate is planned (sequential)": (
        "schedule",
        "if step < warmup:\n        return (step + 1) / warmup",
        "return 1.0",
    ),
    "the cosine ends at nothing (sequential)": (
        "schedule",
        "return final + (1 - final) *",
        "return",
    ),
    "the rate is planned and not applied (sequential)": (
        "layouts.sequential",
        'group["lr"] = rate',
        "pass",
    ),
    "the rate is planned and not applied (vmap)": (
        "layouts.update",
        "(rates / (1 - BETAS[0] ** steps))",
        "(1 / steps)",
    ),
    "gradients are not clipped (sequential)": (
        "layouts.sequential",
        "self._clips[member], foreach",
        "1e9, foreach",
    ),
    "weights do not decay (vmap)": ("layouts.update", "column(1 - rates * rule.decay)", "1"),
    "every batch is the first (sequential)": (
        "layouts.sequential",
        "tuple(part[index] for part in batches)",
        "tuple(part[0] for part in batches)",
    ),
}


@pytest.mark.parametrize(
    "fault", first_of_each(TRAINING_FAULTS, lambda fault: TRAINING_FAULTS[fault][0])
)
def test_a_training_that_is_not_as_configured_is_seen(fault):
    module, old, new = TRAINING_FAULTS[fault]
    layout = "vmap" if "(vmap)" in fault else "sequential"
    with planted(f"attnlab.train.{module}", old, new):
        assert not trained(layout, learning_rate=0.3, weight_decay=0.1, clip=0.01).holds


def test_a_training_that_keeps_the_last_weights_and_not_the_best_is_seen():
    with planted(
        "attnlab.train.loop", "self._hold(member, self._best).eval()", "self._models[member].eval()"
    ):
        # It gets worse, as its rate rises to the last step.
        assert not trained(learning_rate=10.0, warmup_steps=19, evaluate_every=1).holds


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

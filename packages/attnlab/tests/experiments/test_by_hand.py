"""Faults that leave a model able to learn: formulas in NumPy and steps by hand see each of them."""

import copy
import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from torch import Tensor

from attnlab import seeds
from attnlab.models import (
    Decoder,
    DecoderConfig,
    Encoder,
    EncoderConfig,
    EncoderDecoder,
    EncoderDecoderConfig,
)
from attnlab.models.generation import generate
from attnlab.parts.numpy_transformer import softmax
from attnlab.train import Evaluation, Member, TrainConfig, train_together
from tests.models.formulas import decoder_logits, encoder_decoder_logits, encoder_output
from tests.planting import fault_tests, faults_in
from tests.train.tiny import loss, make_sampler, network

ROWS, LENGTH = 4, 8  # inputs of a check, and tokens of each at most
ROUNDING32, ROUNDING64 = 1e-4, 1e-9  # measured: at most 2e-06 and 1e-14
LAYOUTS = ["sequential", "vmap"]
SMALL = {"vocab_size": 11, "max_length": 9, "d_model": 12, "num_heads": 2, "d_ff": 20}


def models(**settings):
    shared = {**SMALL, "num_layers": 2, **settings}
    with seeds.isolated(0):
        return [
            Decoder(DecoderConfig(**shared)).eval(),
            Encoder(EncoderConfig(**shared, num_classes=5)).eval(),
            EncoderDecoder(EncoderDecoderConfig(**shared, num_encoder_layers=1)).eval(),
        ]


def largest(measure, models, seed):
    """Return the largest of each figure of the models."""
    columns = zip(*(measure(model, seed) for model in models), strict=True)
    return list(map(max, columns))


def formula_differences(model, seed):
    """Return the largest relative difference from the formulas in float32 and float64."""
    inputs = Inputs.drawn(model, seed)
    wanted = by_formula(model, inputs, inputs.tokens)
    single, double = outputs_of(model, inputs), outputs_of(copy.deepcopy(model).double(), inputs)
    return apart(wanted, single), apart(wanted, double)


def apart(wanted, output):
    difference = float(np.abs(output - wanted).max()) / max(1.0, float(np.abs(wanted).max()))
    return difference if math.isfinite(difference) else math.inf


@dataclass(frozen=True)
class Inputs:
    """Random inputs of a model, (batch, length) each; `real` is False at padding of the source."""

    tokens: Tensor
    source: Tensor
    real: Tensor

    @classmethod
    def drawn(cls, model, seed):
        generator, length = seeds.generator(seed, "checks"), min(model.config.max_length, LENGTH)
        tokens, source = torch.randint(
            model.config.vocab_size, (2, ROWS, length), generator=generator
        )
        num_real = length - torch.arange(ROWS) % length
        return cls(tokens, source, torch.arange(length) < num_real.unsqueeze(-1))


def by_formula(model, inputs, tokens):
    if isinstance(model, Decoder):
        return decoder_logits(model, tokens)
    if isinstance(model, Encoder):
        return encoder_output(model, tokens, inputs.real)
    return encoder_decoder_logits(model, inputs.source, tokens, inputs.real)


@torch.no_grad()
def outputs_of(model, inputs):
    if isinstance(model, Decoder):
        output = model(inputs.tokens)
    elif isinstance(model, Encoder):
        output = model(inputs.tokens, real=inputs.real)
    else:
        output = model(inputs.source, inputs.tokens, real=inputs.real)
    return np.asarray(output.double().numpy())


@torch.no_grad()
def generated_by_hand(model, seed):
    """Return the largest difference of a probability, and how often the forbidden token came."""
    inputs = Inputs.drawn(model, seed)
    length = inputs.tokens.shape[1]
    start = (length + 1) // 2
    prompt = inputs.tokens[:, :start]
    forbidden = int(by_formula(model, inputs, prompt)[0, -1].argmax())
    predictor = model
    if isinstance(model, EncoderDecoder):
        predictor = model.conditioned(inputs.source, real=inputs.real)
    generated = generate(predictor, prompt, length - start, forbidden=[forbidden])
    if length == start:
        return 0.0, 0
    logits = by_formula(model, inputs, generated.tokens[:, :-1])[:, start - 1 :]
    logits[..., forbidden] = -np.inf
    wanted, chosen = softmax(logits), generated.tokens[:, start:].numpy()
    less = wanted.max(-1) - np.take_along_axis(wanted, chosen[..., None], -1)[..., 0]
    differences = np.abs(generated.probabilities.double().numpy() - wanted)
    return float(max(differences.max(), less.max())), int((chosen == forbidden).sum())


def wrong(models):
    """Which of the outputs and the generation of models are not those of the formulas?"""
    single, double = largest(formula_differences, models, 0)
    generating = [model for model in models if not isinstance(model, Encoder)]
    difference, num_forbidden = largest(generated_by_hand, generating, 0)
    found = set()
    if single > ROUNDING32 or double > ROUNDING64:
        found.add("outputs")
    if difference > ROUNDING32 or num_forbidden:
        found.add("generation")
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


TRAINING = TrainConfig(
    steps=20, evaluate_every=20, warmup_steps=4, learning_rate=0.3, weight_decay=0.1, clip=0.01
)


def batches(first, count):
    return tuple(part.double() for part in make_sampler()(first, count))


def rate_of(step):
    """The learning rate of a step, counted from 1: a straight warm-up, then half a cosine."""
    warmup, peak = TRAINING.warmup_steps, TRAINING.learning_rate
    if step <= warmup:
        return peak * step / warmup
    turned = math.pi * (step - warmup - 1) / (TRAINING.steps - warmup - 1)
    final = TRAINING.final_share
    return peak * (final + (1 - final) * (1 + math.cos(turned)) / 2)


def train_by_hand(model):
    """Train by AdamW (Loshchilov & Hutter 2019, algorithm 2)."""
    weights = list(model.parameters())
    moments = [(torch.zeros_like(weight), torch.zeros_like(weight)) for weight in weights]
    for step, x in enumerate(batches(0, TRAINING.steps)[0], 1):
        gradients = torch.autograd.grad(loss(model, x), weights)
        norm = math.sqrt(sum(float(gradient.square().sum()) for gradient in gradients))
        scale, rate = min(1.0, TRAINING.clip / (norm + 1e-6)), rate_of(step)
        for weight, gradient, (first, second) in zip(weights, gradients, moments, strict=True):
            first += 0.1 * (scale * gradient - first)
            second += 0.001 * ((scale * gradient) ** 2 - second)
            size = (second / (1 - 0.999**step)).sqrt() + 1e-8
            weight.data *= 1 - rate * TRAINING.weight_decay
            weight.data -= rate * (first / (1 - 0.9**step)) / size


def distance_from_hand(layout):
    """Train a small network in a layout and by hand; return the largest difference of a weight."""
    model, same = network().double(), network().double()
    member = Member(model, TRAINING, batches, lambda model: Evaluation((0.0,), {}))
    train_together([member], loss, layout=layout, engine="eager")
    train_by_hand(same)
    pairs = zip(model.parameters(), same.parameters(), strict=True)
    return max(float((one - other).detach().abs().max()) for one, other in pairs)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_sound_training_is_as_configured(layout):
    assert distance_from_hand(layout) < 1e-12


FAULTS = """
the offset of sinusoids is ignored | parts.positions | generation
- x + table[offset:end]
+ x + table[: x.shape[-2]]
sinusoids of base 100 | parts.positions | outputs
- math.log(10000.0)
+ math.log(100.0)
the final norm is never applied | models.stack | outputs
- x = final_norm(x)
+ return x
forbidden is ignored | models.generation | generation
- if forbidden:
+ if forbidden is None:
the second likeliest is chosen | models.generation | generation
- probabilities.argmax(-1)
+ probabilities.topk(2).indices[:, 1]
heads are split interleaved | parts.heads | outputs
- num_heads, width // num_heads).transpose(-3, -2)
+ width // num_heads, num_heads).movedim(-1, -3)
scores are not scaled | parts.attend | outputs
- return float(width**-0.5)
+ return 1.0
another epsilon in the norm | parts.norms | outputs
- self.bias, self.epsilon)
+ self.bias, 1e-6)
the approximate GELU | parts.feed_forward | outputs
- torch.ops.aten.gelu_(inner)
+ F.gelu(inner, approximate="tanh")
cross-attention looks at padding | parts.blocks | outputs
- mask=memory_mask
+ mask=None
a norm stands after the sum instead of before | parts.blocks | outputs
- read = self._read(x, self.norm_attention)
+ read = x
the mean counts padding | models.encoder | outputs
- real.sum(-1, keepdim=True)
+ real.shape[-1] * real[:, :1]
dropout goes on after training | parts.dropout | outputs
- if is_training and
+ if
a constant rate is planned | train.schedule | sequential
- if step < warmup:
-         return (step + 1) / warmup
+ return 1.0
the cosine ends at nothing | train.schedule | sequential
- return final + (1 - final) *
+ return
the rate is planned and not applied | train.layouts.sequential | sequential
- group["lr"] = rate
+ pass
gradients are not clipped | train.layouts.sequential | sequential
- self._clips[member], foreach
+ 1e9, foreach
every batch is the first | train.layouts.sequential | sequential
- tuple(part[index] for part in batches)
+ tuple(part[0] for part in batches)
the rate is planned and not applied, side by side | train.layouts.update | vmap
- (rates / (1 - BETAS[0] ** steps))
+ (1 / steps)
weights do not decay | train.layouts.update | vmap
- column(1 - rates * rule.decay)
+ 1
"""


def check(name):
    if name in LAYOUTS:
        assert distance_from_hand(name) < 1e-3
    else:
        assert name not in wrong(models(positions="sinusoidal", activation="gelu", dropout=0.1))


test_every_fault_has_its_place_in_the_code, test_a_fault_that_a_model_can_learn_with_is_seen = (
    fault_tests(faults_in(FAULTS), check)
)

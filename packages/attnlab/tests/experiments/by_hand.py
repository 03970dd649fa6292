"""Models and trainings beside their formulas, for faults with which a model still learns."""

import copy
import math
from dataclasses import dataclass
from operator import truediv

import numpy as np
import torch
from torch import Tensor

from attnlab import seeds
from attnlab.models.decoder import Decoder
from attnlab.models.encoder import Encoder
from attnlab.models.encoder_decoder import EncoderDecoder
from attnlab.models.generation import Predictor, generate
from attnlab.parts.numpy_transformer import softmax
from tests.models.formulas import decoder_logits, encoder_decoder_logits, encoder_output

_ROWS, _LENGTH = 4, 8  # inputs of a check, and tokens of each at most
ROUNDING32, ROUNDING64 = 1e-4, 1e-9  # measured: at most 2e-06 and 1e-14
_TIMES_ROUNDING = 100  # measured: at most 12
_TWINS = 12  # whose weights are one rounding away
_SAME = 1e-5  # between numbers computed twice in the same way from the same weights


@dataclass(frozen=True)
class TrainingCheck:
    """The differences between a training and the same training by hand.

    rate: the largest relative difference of a logged learning rate. first_steps: the relative
    difference of the first logged loss, or of its gradient's norm, divided by what one rounding of
    the initial weights changes. kept: the largest relative difference of a figure of the best
    weights, evaluated once more.
    """

    rate: float
    first_steps: float
    kept: float

    @property
    def holds(self):
        """Is the training as it was configured?"""
        is_same = self.rate <= _SAME and self.kept <= _SAME
        return is_same and self.first_steps <= _TIMES_ROUNDING


def check_training(start, member, loss, trained):
    """Compare a member's training with the same by hand, from the initial model."""
    lines = [line for line in trained.metrics if "learning_rate" in line]
    rate = 0.0
    for line in lines:
        wanted = rate_by_hand(member.config, int(line["step"]))
        rate = max(rate, _apart(line["learning_rate"], wanted))
    logged = lines[0]["loss"], lines[0]["gradient_norm"]
    steps = int(lines[0]["step"])
    by_hand = _first_steps(start, member, loss, steps)
    # What one rounding does is a matter of chance, such as a unit that goes on or stays off: where
    # one twin does not show it, others may.
    effects, first_steps = [1e-7, 1e-7], math.inf
    for seed in range(_TWINS):
        by_twin = _first_steps(nudged(start, seed), member, loss, steps)
        effects = list(map(max, effects, map(_apart, by_hand, by_twin)))
        first_steps = max(map(truediv, map(_apart, logged, by_hand), effects))
        if first_steps <= _TIMES_ROUNDING:
            break
    with torch.no_grad():
        again = member.evaluate(member.model).figures
    figures = trained.evaluation.figures
    kept = max(_apart(value, float(again[name])) for name, value in figures.items())
    return TrainingCheck(rate, first_steps, kept)


def nudged(model, seed=0):
    """Return a copy whose every weight is the next float above or below: all above with seed 0."""
    twin = copy.deepcopy(model)
    with torch.no_grad():
        for number, parameter in enumerate(twin.parameters()):
            to = torch.full_like(parameter, math.inf)
            if seed:
                coins = torch.rand(to.shape, generator=seeds.generator(seed, "nudge", number))
                to[coins.to(to.device) < 0.5] = -math.inf
            parameter.copy_(torch.nextafter(parameter, to))
    return twin


def rate_by_hand(config, step):
    """Return the learning rate of a step, counted from 1: a straight warm-up, then half a cosine.

    >>> rate_by_hand(TrainConfig(steps=9, warmup_steps=2, learning_rate=4.0, final_share=0.1), 1)
    2.0
    """
    if step <= config.warmup_steps:
        return config.learning_rate * step / config.warmup_steps
    first, last = config.warmup_steps + 1, max(config.steps, config.warmup_steps + 2)
    height = (1 + math.cos(math.pi * (step - first) / (last - first))) / 2
    return config.learning_rate * (config.final_share + (1 - config.final_share) * height)


def _first_steps(start, member, loss, steps):
    """Take the first steps by hand; return their mean loss and the last gradient's norm."""
    config, batches, model = member.config, member.sample(0, steps), copy.deepcopy(start)
    parameters = list(model.train().parameters())
    first = list(map(torch.zeros_like, parameters))
    second = list(map(torch.zeros_like, parameters))
    rows = batches
    if not isinstance(rows, list):
        rows = list(zip(*batches, strict=True))
    losses, norm = list[float](), math.nan
    for step, batch in enumerate(rows, 1):
        with seeds.isolated(member.noise, "noise", step - 1):
            value = loss(model, *batch)
        gradients = torch.autograd.grad(value, parameters, materialize_grads=True)
        losses.append(float(value.detach()))
        norm = math.sqrt(sum(float(gradient.square().sum()) for gradient in gradients))
        factor, rate = min(1.0, config.clip / (norm + 1e-6)), rate_by_hand(config, step)
        with torch.no_grad():
            for index, weight in enumerate(parameters):
                gradient = factor * gradients[index]
                _step(weight, gradient, first[index], second[index], step, rate, config)
    return math.fsum(losses) / steps, norm


def _step(weight, gradient, first, second, step, rate, config):
    """Move one parameter: plain descent, or AdamW (Loshchilov & Hutter 2019, algorithm 2)."""
    if config.optimiser == "sgd":
        weight -= rate * gradient
        return
    first.copy_(0.9 * first + 0.1 * gradient)
    second.copy_(0.999 * second + 0.001 * gradient**2)
    weight -= rate * config.weight_decay * weight
    weight -= rate * (first / (1 - 0.9**step)) / ((second / (1 - 0.999**step)).sqrt() + 1e-8)


def largest(measure, models, seed):
    """Return the largest of each figure of the models."""
    columns = zip(*(measure(model, seed) for model in models), strict=True)
    return list(map(max, columns))


def formula_differences(model, seed):
    """Return the largest relative difference from the formulas in float32 and float64."""
    inputs = _Inputs.drawn(model, seed)
    wanted = _by_formula(model, inputs, inputs.tokens)
    single, double = _outputs(model, inputs), _outputs(copy.deepcopy(model).double(), inputs)
    return _apart_from(wanted, single), _apart_from(wanted, double)


def _apart_from(wanted, output):
    apart = float(np.abs(output - wanted).max()) / max(1.0, float(np.abs(wanted).max()))
    return _or_infinity(apart)


def _or_infinity(value):
    return value if math.isfinite(value) else math.inf


@dataclass(frozen=True)
class _Inputs:
    """Random inputs of a model, (batch, length) each; `real` is False at padding of the source."""

    tokens: Tensor
    source: Tensor
    real: Tensor

    @classmethod
    def drawn(cls, model, seed):
        generator, length = seeds.generator(seed, "checks"), min(model.config.max_length, _LENGTH)
        tokens, source = torch.randint(
            model.config.vocab_size, (2, _ROWS, length), generator=generator
        )
        num_real = length - torch.arange(_ROWS) % length
        return cls(tokens, source, torch.arange(length) < num_real.unsqueeze(-1))


def _by_formula(model, inputs, tokens):
    if isinstance(model, Decoder):
        return decoder_logits(model, tokens)
    if isinstance(model, Encoder):
        return encoder_output(model, tokens, inputs.real)
    return encoder_decoder_logits(model, inputs.source, tokens, inputs.real)


@torch.no_grad()
def _outputs(model, inputs):
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
    inputs = _Inputs.drawn(model, seed)
    length = inputs.tokens.shape[1]
    start = (length + 1) // 2
    prompt = inputs.tokens[:, :start]
    forbidden = int(_by_formula(model, inputs, prompt)[0, -1].argmax())
    predictor: Predictor = model
    if isinstance(model, EncoderDecoder):
        predictor = model.conditioned(inputs.source, real=inputs.real)
    generated = generate(predictor, prompt, length - start, forbidden=[forbidden])
    if length == start:
        return 0.0, 0
    logits = _by_formula(model, inputs, generated.tokens[:, :-1])[:, start - 1 :]
    logits[..., forbidden] = -np.inf
    wanted, chosen = softmax(logits), generated.tokens[:, start:].numpy()
    less = wanted.max(-1) - np.take_along_axis(wanted, chosen[..., None], -1)[..., 0]
    apart = np.abs(generated.probabilities.double().numpy() - wanted)
    return float(max(apart.max(), less.max())), int((chosen == forbidden).sum())


def _apart(one, other):
    """Return the relative difference; infinity if a number is not finite."""
    return _or_infinity(abs(one - other) / max(abs(one), abs(other), 1e-12))

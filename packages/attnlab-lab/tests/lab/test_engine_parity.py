"""The engine computes what the Python models compute: outputs, gradients, steps of an optimizer;
and where a line of it is changed, these tests see it."""

import shutil
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnlab.models import Decoder, DecoderConfig
from attnlab.models.storage import describe_model
from attnlab.train.config import TrainConfig
from attnlab.train.layouts.update import UpdateSettings, UpdateState, update
from attnlab.train.schedule import share_of_peak
from tests.sampling import first_of_each

from .engine_cases import (
    ENGINE,
    described,
    heard,
    needs_node,
    random_inputs,
    random_model,
    run_engine,
    tokens_of,
    told,
)

pytestmark = needs_node


def output_of(model: nn.Module, inputs: tuple[Tensor, ...]) -> Tensor:
    found = model(*inputs)
    return getattr(found, "output", found)


Case = tuple[dict[str, Any], Tensor, float, dict[str, Tensor]]


def make_case(seed: int) -> Case:
    """Return a request for gradients, and the output, the loss and the gradients by PyTorch."""
    model = random_model(seed)
    sent, inputs = random_inputs(model, seed)
    output = output_of(model, inputs)
    rows = output.flatten(0, -2)
    generator = torch.Generator().manual_seed(seed)
    targets = torch.randint(0, rows.shape[-1], (len(rows),), generator=generator)
    shares = torch.rand(len(rows), generator=generator, dtype=torch.float64)
    loss = (F.cross_entropy(rows, targets, reduction="none") * shares).sum()
    loss.backward()
    request = {"what": "gradients", **described(model), "inputs": sent}
    request |= {"targets": targets.tolist(), "shares": told(shares)}
    gradients = {
        name: torch.zeros_like(each) if each.grad is None else each.grad
        for name, each in model.named_parameters()
    }
    return request, output.detach(), loss.item(), gradients


def distance(one: np.ndarray, other: Tensor) -> float:
    """Return the largest difference, relative to numbers above 1."""
    wanted = other.numpy().ravel()
    return float(np.max(np.abs(one - wanted) / np.maximum(np.abs(wanted), 1.0), initial=0.0))


def gradient_distances(cases: list[Case], engine: Path = ENGINE) -> tuple[float, float]:
    """Return the largest distances of outputs and losses, and of gradients."""
    outputs, slopes = [], []
    answers = run_engine([case[0] for case in cases], engine)
    for answer, (_, output, loss, gradients) in zip(answers, cases, strict=True):
        assert answer["gradients"].keys() == gradients.keys()
        outputs.append(distance(heard(answer["output"]), output))
        outputs.append(distance(heard(answer["loss"]), torch.tensor(loss, dtype=torch.float64)))
        slopes += [distance(heard(answer["gradients"][n]), each) for n, each in gradients.items()]
    return float(np.max(outputs)), float(np.max(slopes))


def test_outputs_and_gradients_are_those_of_pytorch():
    outputs, gradients = gradient_distances([make_case(seed) for seed in range(40)])
    assert outputs <= 1e-12
    assert gradients <= 1e-10


@pytest.mark.slow
def test_outputs_and_gradients_are_those_of_pytorch_on_500_models():
    outputs, gradients = gradient_distances([make_case(seed) for seed in range(40, 540)])
    assert outputs <= 1e-12
    assert gradients <= 1e-10


def test_the_sample_has_every_kind_and_choice():
    seen: dict[str, set[Any]] = {}
    for seed in range(40):
        found = describe_model(random_model(seed))
        seen.setdefault("kind", set()).add(found["kind"])
        for name, value in found["config"].items():
            seen.setdefault(name, set()).add(value)
    assert seen["kind"] == {"decoder", "encoder", "single_head"}
    assert len(seen["positions"]) == 6
    for name in ("activation", "norm_place", "projections", "num_layers"):
        assert len(seen[name]) == 3
    for name in ("norm", "bias"):
        assert len(seen[name]) == 2


SORTER = {
    "vocab_size": 4,
    "max_length": 7,
    "d_model": 6,
    "num_heads": 2,
    "d_ff": 6,
    "projections": "gated",
    "rank": 3,
    "positions": "learned",
    "bias": False,
}


def steps_by_python(model: nn.Module, settings: dict[str, Any], rows: Tensor) -> list[float]:
    """Train a model on batches of rows with the update of attnlab.train; return the losses."""
    config = TrainConfig(**settings)
    parameters = list(model.parameters())
    flat = torch.cat([each.detach().flatten() for each in parameters]).unsqueeze(0)
    number = 2 if config.optimiser == "adamw" else 0
    state = UpdateState(
        flat,
        [torch.zeros_like(flat) for _ in range(number)],
        torch.zeros(1, dtype=torch.float64),
        torch.ones(1, dtype=torch.bool),
    )
    rule = UpdateSettings(
        torch.tensor([config.weight_decay], dtype=torch.float64),
        torch.tensor([config.clip], dtype=torch.float64),
    )
    losses = []
    for step, batch in enumerate(rows):
        nn.utils.vector_to_parameters(state.parameters[0], parameters)
        model.zero_grad()
        loss = F.cross_entropy(model(batch[:, :-1]).transpose(1, 2), batch[:, 1:])
        loss.backward()
        gradients = torch.cat([each.grad.flatten() for each in parameters]).unsqueeze(0)
        rate = config.learning_rate * share_of_peak(step, config)
        rates = torch.tensor([rate], dtype=torch.float64)
        update(state, gradients, loss.detach().unsqueeze(0), rates, rule)
        losses.append(loss.item())
    nn.utils.vector_to_parameters(state.parameters[0], parameters)
    return losses


def settings_of_steps() -> list[dict[str, Any]]:
    usual = {"steps": 20, "learning_rate": 0.03, "warmup_steps": 5, "weight_decay": 0.1}
    return [
        usual | {"clip": 1.0},
        usual | {"clip": 0.05, "final_share": 0.3},
        usual | {"warmup_steps": 0, "weight_decay": 0.0, "clip": 1e9},
        usual | {"optimiser": "sgd", "learning_rate": 0.5, "clip": 0.5},
    ]


@cache
def trainings() -> list[tuple[dict[str, Any], list[float], dict[str, Tensor]]]:
    """Requests for 20 steps of small models, with the losses and the weights by PyTorch."""
    found = []
    for seed, settings in enumerate(settings_of_steps()):
        torch.manual_seed(seed)
        model = Decoder(DecoderConfig(**SORTER)).double()
        rows = torch.randint(0, 4, (20, 16, 7))
        sent = [
            {"tokens": tokens_of(batch[:, :-1]), "targets": batch[:, 1:].flatten().tolist()}
            for batch in rows
        ]
        request = {"what": "steps", **described(model), "settings": settings, "batches": sent}
        losses = steps_by_python(model, settings, rows)
        found.append((request, losses, {n: each.detach() for n, each in model.named_parameters()}))
    return found


def step_distance(engine: Path = ENGINE) -> float:
    """Return the largest distance of weights and losses after 20 steps by either."""
    distances = []
    answers = run_engine([request for request, *_ in trainings()], engine)
    for answer, (_, losses, weights) in zip(answers, trainings(), strict=True):
        wanted = torch.cat([weights[name].flatten() for name in answer["names"]])
        distances.append(distance(heard(answer["weights"]), wanted))
        wanted = torch.tensor(losses, dtype=torch.float64)
        distances.append(distance(np.array(answer["losses"]), wanted))
    return float(np.max(distances))


def test_twenty_steps_are_those_of_the_python_training():
    assert step_distance() <= 1e-9


def test_the_rates_of_a_training_are_those_of_the_python_schedule():
    settings = {"steps": 50, "warmup_steps": 7, "final_share": 0.2}
    [rates] = run_engine([{"what": "rates", "settings": settings, "steps": list(range(50))}])
    config = TrainConfig(**settings)
    assert max(abs(rate - share_of_peak(k, config)) for k, rate in enumerate(rates)) <= 1e-15


# A line of a file as it stands, and as it becomes: each must be seen.
FAULTS = {
    "scale_is_not_a_root": ("parts", "1 / Math.sqrt(query.shape[3]))", "1 / query.shape[3])"),
    "epsilon_outside_the_root": (
        "arrays",
        "1 / Math.sqrt(squares / width + epsilon)",
        "1 / (Math.sqrt(squares / width) + epsilon)",
    ),
    "variance_is_unbiased": (
        "arrays",
        "Math.sqrt(squares / width +",
        "Math.sqrt(squares / (width - 1) +",
    ),
    "mask_is_off_by_one": ("parts", "isCausal && key > query", "isCausal && key > query + 1"),
    "axes_of_heads_swapped": (
        "parts",
        "((a * second + b) * third + c) * width",
        "((a * second + c) * third + b) * width",
    ),
    "rotary_sign": ("parts", "(channel < half ? -sin(angle)", "(channel < half ? sin(angle)"),
    "rotary_frequency": ("parts", "-(channel % half) / half)", "-(channel % half) / width)"),
    "alibi_slope": ("parts", "pow(2, (-8 * (i + 1)) / power)", "pow(2, (-8 * i) / power)"),
    "sines_of_odd_channels": ("parts", "(channel - (channel % 2)) * (-log", "channel * (-log"),
    "temperature_multiplied": ("parts", "1 / config.temperature", "config.temperature"),
    "gate_instead_of_product": (
        "parts",
        "mixture = tape.times(mixture, weights",
        "mixture = ((_, base) => base)(0, weights",
    ),
    "gelu_by_tanh": (
        "parts",
        "0.5 * (1 + erf(x * Math.SQRT1_2))",
        "1 / (1 + exp(-1.5957691216057308 * (x + 0.044715 * x * x * x)))",
    ),
    "silu_slope": ("parts", "(1 + z * (1 - sigmoid(z)))", "(1 + z * sigmoid(z))"),
    "norm_after_instead_of_before": (
        "models",
        'config.norm_place === "pre" ? normed',
        'config.norm_place === "post" ? normed',
    ),
    "epsilons_swapped": ("parts", "isCentered ? 1e-5 : 1e-6", "isCentered ? 1e-6 : 1e-5"),
    "softmax_gradient_not_centered": (
        "arrays",
        "out.data[i] * (out.grad[i] - mean)",
        "out.data[i] * out.grad[i]",
    ),
    "norm_gradient_without_mean": (
        "arrays",
        "gain.data[i] - mean - normed",
        "gain.data[i] - normed",
    ),
    "gradient_of_repeats_lost": (
        "arrays",
        "if (index[i] >= 0) x.grad[index[i]] +=",
        "if (index[i] >= 0) x.grad[index[i]] =",
    ),
    "no_bias_correction": ("training", "rate / (1 - this.powers[0])", "rate"),
    "second_moment_uncorrected": ("training", "Math.sqrt(1 - this.powers[1])", "1"),
    "decay_after_the_change": (
        "training",
        "numbers[i] * (1 - rate * settings.weight_decay) - change",
        "(numbers[i] - change) * (1 - rate * settings.weight_decay)",
    ),
    "decay_in_the_gradient": (
        "training",
        "const gradient = gradients[i] * factor;",
        "const gradient = gradients[i] * factor + settings.weight_decay * numbers[i];",
    ),
    "cosine_to_the_wrong_end": ("training", "steps - 1 - warmup_steps", "steps - warmup_steps"),
    "warm_up_from_zero": (
        "training",
        "return (step + 1) / warmup_steps",
        "return step / warmup_steps",
    ),
    "clip_of_each_number": (
        "training",
        "settings.clip / (Math.sqrt(squares) + 1e-6)",
        "settings.clip",
    ),
}


@pytest.fixture(scope="module")
def few():
    """Models of which some show each fault."""
    return [make_case(seed) for seed in (11, 12, 22, 36, 38)]


@pytest.mark.parametrize("name", first_of_each(FAULTS, lambda name: FAULTS[name][0]))
def test_a_planted_fault_is_seen(name, few, tmp_path):
    file, stands, becomes = FAULTS[name]
    folder = Path(shutil.copytree(ENGINE, tmp_path / "engine"))
    path = folder / f"{file}.js"
    text = path.read_text()
    assert text.count(stands) == 1
    path.write_text(text.replace(stands, becomes))
    if file == "training":
        assert not step_distance(folder) <= 1e-9
        return
    outputs, gradients = gradient_distances(few, folder)
    assert not (outputs <= 1e-12 and gradients <= 1e-10)

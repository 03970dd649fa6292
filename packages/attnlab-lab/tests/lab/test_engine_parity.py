"""The engine computes what the Python models compute: outputs, gradients, steps of an optimizer."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnlab.models import Decoder, DecoderConfig
from attnlab.models.storage import MODELS, describe_model
from attnlab.sites import site_names
from attnlab.train.config import TrainConfig
from attnlab.train.layouts.update import Rule, State, update
from attnlab.train.schedule import share_of_peak

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


def expected_gradients(seeds: range) -> list[Case]:
    return [make_case(seed) for seed in seeds]


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
    outputs, gradients = gradient_distances(expected_gradients(range(40)))
    assert outputs <= 1e-12
    assert gradients <= 1e-10


@pytest.mark.slow
def test_outputs_and_gradients_are_those_of_pytorch_on_500_models():
    outputs, gradients = gradient_distances(expected_gradients(range(40, 540)))
    assert outputs <= 1e-12
    assert gradients <= 1e-10


def test_the_sample_has_every_kind_and_choice():
    seen: dict[str, set[Any]] = {}
    for seed in range(40):
        found = describe_model(random_model(seed))
        seen.setdefault("kind", set()).add(found["kind"])
        for name, value in found["config"].items():
            seen.setdefault(name, set()).add(value)
    assert seen["kind"] == set(MODELS)
    assert len(seen["positions"]) == 6
    for name in ("activation", "norm_place", "projections", "num_layers"):
        assert len(seen[name]) == 3
    for name in ("norm", "bias", "tie_output", "scale_embedding", "final_norm"):
        assert len(seen[name]) == 2


def test_sites_have_the_names_of_the_python_models():
    models = [random_model(seed) for seed in range(20)]
    for model, sites in zip(
        models, run_engine([{"what": "sites", **described(model)} for model in models]), strict=True
    ):
        assert sorted(sites) == sorted(site_names(model))


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
    state = State(
        flat,
        [torch.zeros_like(flat) for _ in range(number)],
        torch.zeros(1, dtype=torch.float64),
        torch.ones(1, dtype=torch.bool),
    )
    rule = Rule(
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


def step_distance(engine: Path = ENGINE) -> float:
    """Return the largest distance of weights and losses after 20 steps by either."""
    requests, expected = [], []
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
        requests.append(request)
        expected.append((losses, {n: each.detach() for n, each in model.named_parameters()}))
    found = 0.0
    for answer, (losses, weights) in zip(run_engine(requests, engine), expected, strict=True):
        wanted = torch.cat([weights[name].flatten() for name in answer["names"]])
        found = max(found, distance(heard(answer["weights"]), wanted))
        found = max(
            found, distance(np.array(answer["losses"]), torch.tensor(losses, dtype=torch.float64))
        )
    return found


def test_twenty_steps_are_those_of_the_python_training():
    assert step_distance() <= 1e-9


def test_the_rates_of_a_training_are_those_of_the_python_schedule():
    settings = {"steps": 50, "warmup_steps": 7, "final_share": 0.2}
    [rates] = run_engine([{"what": "rates", "settings": settings, "steps": list(range(50))}])
    config = TrainConfig(**settings)
    assert max(abs(rate - share_of_peak(k, config)) for k, rate in enumerate(rates)) <= 1e-15

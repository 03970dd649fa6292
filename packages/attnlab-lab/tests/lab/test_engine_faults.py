"""Faults that are planted in the engine, one at a time: the parity tests must see every one."""

import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from .engine_cases import ENGINE, needs_node
from .test_engine_parity import expected_gradients, gradient_distances, step_distance

pytestmark = needs_node


class Fault(NamedTuple):
    """A line of a file as it stands, and as it becomes."""

    file: str
    stands: str
    becomes: str


FAULTS = {
    "scale_is_not_a_root": Fault("parts", "1 / Math.sqrt(width)), key", "1 / width), key"),
    "epsilon_outside_the_root": Fault(
        "arrays",
        "1 / Math.sqrt(squares / width + epsilon)",
        "1 / (Math.sqrt(squares / width) + epsilon)",
    ),
    "variance_is_unbiased": Fault(
        "arrays", "Math.sqrt(squares / width +", "Math.sqrt(squares / (width - 1) +"
    ),
    "mask_is_off_by_one": Fault("parts", "isCausal && key > query", "isCausal && key > query + 1"),
    "axes_of_heads_swapped": Fault(
        "parts", "((a * second + b) * third + c) * width", "((a * second + c) * third + b) * width"
    ),
    "shared_heads_interleaved": Fault(
        "parts",
        "Math.floor(i / (size * group)) * size + (i % size)",
        "(Math.floor(i / (size * heads)) * own + (Math.floor(i / size) % own)) * size + (i % size)",
    ),
    "rotary_sign": Fault("parts", "(channel < half ? -sin(angle)", "(channel < half ? sin(angle)"),
    "rotary_frequency": Fault("parts", "-(channel % half) / half)", "-(channel % half) / width)"),
    "alibi_slope": Fault("parts", "pow(2, (-8 * (i + 1)) / power)", "pow(2, (-8 * i) / power)"),
    "sines_of_odd_channels": Fault("parts", "(channel - (channel % 2)) * (-log", "channel * (-log"),
    "temperature_multiplied": Fault("parts", "1 / config.temperature", "config.temperature"),
    "gate_instead_of_product": Fault(
        "parts", "mixture = tape.times(mixture, weights", "mixture = ((_, base) => base)(0, weights"
    ),
    "gelu_by_tanh": Fault(
        "parts",
        "0.5 * (1 + erf(x * Math.SQRT1_2))",
        "1 / (1 + exp(-1.5957691216057308 * (x + 0.044715 * x * x * x)))",
    ),
    "silu_slope": Fault("parts", "(1 + z * (1 - sigmoid(z)))", "(1 + z * sigmoid(z))"),
    "embedding_scaled_by_the_stream": Fault("models", "Math.sqrt(own))", "Math.sqrt(own + 1))"),
    "norm_after_instead_of_before": Fault(
        "models", 'config.norm_place === "pre" ? normed', 'config.norm_place === "post" ? normed'
    ),
    "epsilons_swapped": Fault("parts", "isCentered ? 1e-5 : 1e-6", "isCentered ? 1e-6 : 1e-5"),
    "mean_over_one_less": Fault("models", ".fill(1 / length)", ".fill(1 / (length - 1))"),
    "softmax_gradient_not_centered": Fault(
        "arrays", "out.data[i] * (out.grad[i] - mean)", "out.data[i] * out.grad[i]"
    ),
    "norm_gradient_without_mean": Fault(
        "arrays", "gain.data[i] - mean - normed", "gain.data[i] - normed"
    ),
    "gradient_of_repeats_lost": Fault(
        "arrays", "if (index[i] >= 0) x.grad[index[i]] +=", "if (index[i] >= 0) x.grad[index[i]] ="
    ),
    "no_bias_correction": Fault("training", "rate / (1 - this.powers[0])", "rate"),
    "second_moment_uncorrected": Fault("training", "Math.sqrt(1 - this.powers[1])", "1"),
    "decay_after_the_change": Fault(
        "training",
        "numbers[i] * (1 - rate * settings.weight_decay) - change",
        "(numbers[i] - change) * (1 - rate * settings.weight_decay)",
    ),
    "decay_in_the_gradient": Fault(
        "training",
        "const gradient = gradients[i] * factor;",
        "const gradient = gradients[i] * factor + settings.weight_decay * numbers[i];",
    ),
    "cosine_to_the_wrong_end": Fault(
        "training", "steps - 1 - warmup_steps", "steps - warmup_steps"
    ),
    "warm_up_from_zero": Fault(
        "training", "return (step + 1) / warmup_steps", "return step / warmup_steps"
    ),
    "clip_of_each_number": Fault(
        "training", "settings.clip / (Math.sqrt(squares) + 1e-6)", "settings.clip"
    ),
}


@pytest.fixture(scope="module")
def cases():
    return expected_gradients(range(40))


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_seen(name, cases, tmp_path):
    fault = FAULTS[name]
    folder = Path(shutil.copytree(ENGINE, tmp_path / "engine"))
    path = folder / f"{fault.file}.js"
    text = path.read_text()
    assert text.count(fault.stands) == 1
    path.write_text(text.replace(fault.stands, fault.becomes))
    if fault.file == "training":
        assert not step_distance(folder) <= 1e-9
        return
    outputs, gradients = gradient_distances(cases, folder)
    assert not (outputs <= 1e-12 and gradients <= 1e-10)


def test_without_a_fault_nothing_is_seen(cases):
    outputs, gradients = gradient_distances(cases, ENGINE)
    assert outputs <= 1e-12
    assert gradients <= 1e-10

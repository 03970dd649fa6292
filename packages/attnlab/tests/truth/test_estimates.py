"""Estimates scored: figures that can be redone by hand, and the suite's own."""

import math
from dataclasses import replace

import pytest
import torch

from attnlab.edits.effects import Patched, PatchTarget
from attnlab.edits.effects.patches import Recovery
from attnlab.truth import build_circuit, estimates, label
from attnlab.truth.estimates import _compared, score_estimates
from tests.planting import fault_tests, faults_in


def patched(shift=(0.0, 0.0), spread=0.3):
    """Three heads of 400 inputs that differ by 1: one does half, one a little, one nothing."""
    draw = torch.Generator().manual_seed(0)
    ends = Recovery(torch.ones(400).double(), torch.zeros(400).double())
    noise = spread * torch.randn(2, 400, generator=draw).double()
    noise -= noise.mean(1, keepdim=True)
    effects = torch.tensor([[0.5 + shift[0]], [0.1 + shift[1]]]).double() + noise
    after = torch.cat((effects, torch.zeros(1, 400).double()))
    places = tuple(PatchTarget("layers.0.attention", head) for head in range(3))
    return Patched(places, "logit", "denoise", ends, after)


def check():
    figures = _compared(patched(), patched(), [True, False, False], 0)
    assert figures["bias"] == figures["error"] == figures["false"] == 0.0
    assert figures["power"] == 1.0
    assert 0.9 <= figures["coverage"] <= 1.0
    figures = _compared(patched(shift=(2.0, -1.0)), patched(), [True, False, False], 0)
    assert figures["bias"] == pytest.approx(1.0 / 3.0)
    assert figures["error"] == pytest.approx(1.0)
    assert figures["coverage"] == 0.0
    weak = _compared(patched(spread=3.0), patched(spread=3.0), [True, False, False], 0)
    assert weak["power"] < 0.5
    loud = patched()
    after = torch.cat((loud.after[:2], loud.after[:1]))  # the third is said to do half
    assert _compared(replace(loud, after=after), patched(), [True, False, False], 0)["false"] == 1.0


def test_bias_error_coverage_power_and_false_findings_are_what_they_are_called():
    check()


FAULTS = """
coverage counts heads without effect | estimates | all
- "coverage": float(torch.stack(covered)[:, ~idle].double().mean())
+ "coverage": float(torch.stack(covered)[:, idle].double().mean())
power is of all heads | estimates | all
- "power": float(found_apart[:, used].mean())
+ "power": float(found_apart[:, idle].mean())
false findings are those of used heads | estimates | all
- "false": float(found_apart[:, idle & ~used].mean())
+ "false": float(found_apart[:, used].mean())
errors cancel | estimates | all
- "error": float(far.abs().mean())
+ "error": float(far.mean().abs())
"""


test_every_fault_has_its_place_in_the_code, test_a_planted_fault_is_noticed = fault_tests(
    faults_in(FAULTS, "truth."), lambda _: check()
)


def test_patching_is_exact_and_gradients_are_not():
    circuit = build_circuit("shift")
    proved = [(circuit, label(circuit))]
    exact, estimated = (
        score_estimates(name, proved) for name in ("patching", "attribution-patching")
    )
    assert exact.error.value == 0.0
    assert estimated.error.value > 0.0
    assert 0.0 <= estimated.coverage.value <= 1.0
    assert exact.insertion.value >= 0.5


def test_circuits_without_a_head_without_effect_have_no_false_findings(monkeypatch):
    compared = estimates._compared
    monkeypatch.setattr(estimates, "_compared", lambda *a: compared(*a) | {"false": math.nan})
    circuit = build_circuit("shift")
    scored = score_estimates("patching", [(circuit, label(circuit))])
    assert math.isnan(scored.false.value)
    assert scored.error.value == 0.0

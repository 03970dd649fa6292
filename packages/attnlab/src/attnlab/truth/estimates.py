"""Estimates of patching scored where the truth is known: how far off, and how honest are their
intervals?

The truth is the effect of patching a head over the whole domain of a circuit. A method is told some
inputs, drawn by lot, and says how large the effect is, with an interval.
"""

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from attnlab import seeds
from attnlab.core.stats import Interval
from attnlab.edits.effects.curves import patch_together
from attnlab.edits.effects.estimates import Estimate
from attnlab.edits.effects.patched import Patched, Recovery
from attnlab.edits.effects.patches import patch_all
from attnlab.truth.circuits import Circuit
from attnlab.truth.labels import Labels
from attnlab.truth.methods import corrupted
from attnlab.truth.score import bootstrapped

ESTIMATES: dict[str, Estimate | None] = {
    "patching": None,
    "attribution-patching": "gradient",
    "integrated-gradients": "integrated",
}
"""The methods that estimate the effect of a patch; the first is exact for the inputs it is told."""

INPUTS, DRAWS = 20, 50
_ROUNDING = 1e-6


@dataclass(frozen=True)
class EstimateSummary:
    """How well a method estimates the effects of patches, means over circuits with 95 % intervals.

    bias, error: estimate less truth over the whole domain, mean over heads, signed and absolute ·
    coverage: how often the 95 % interval from a few inputs holds a true effect that is not 0 ·
    power: how often the interval of a used head leaves out 0 · false: the same of a head without
    any effect · insertion, deletion: the areas under the curves of its order · seconds: for all
    circuits.
    """

    method: str
    circuits: int
    bias: Interval
    error: Interval
    coverage: Interval
    power: Interval
    false: Interval
    insertion: Interval
    deletion: Interval
    seconds: float

    def to_mapping(self) -> dict[str, object]:
        """Return the row as plain values for JSON."""
        return asdict(self)


def score_estimates(
    name: str, circuits: Iterable[tuple[Circuit, Labels]], *, seed: int = 0
) -> EstimateSummary:
    """Score one of `ESTIMATES` on circuits.

    Args:
        name: the method.
        circuits: with their labels.
        seed: of the inputs that are drawn.
    """
    figures: dict[str, list[float]] = {}
    seconds, count = 0.0, 0
    for circuit, labels in circuits:
        other = corrupted(circuit.inputs)
        options: dict[str, Any] = {"metric": "logit_difference", "target": circuit.answers}
        runs, estimate = (circuit.model, circuit.inputs, other), ESTIMATES[name]
        begin = time.perf_counter()
        result = patch_all(*runs, "heads", estimate=estimate, **options)
        seconds += time.perf_counter() - begin
        truth = result if estimate is None else patch_all(*runs, "heads", **options)
        count += 1
        curves = patch_together(*runs, result, **options)
        used = labels.used_heads(circuit)  # without heads that have no weights
        is_used = [used.get(f"{place.path}.{place.head}", False) for place in truth.places]
        one = {key: area.value for key, area in curves.areas.items()}
        one |= _compared(result, truth, is_used, seed)
        for key, value in one.items():
            values = figures.setdefault(key, [])
            if not math.isnan(value):  # some circuits have no head without effect
                values.append(value)
    means = {key: bootstrapped(values) for key, values in figures.items()}
    return EstimateSummary(name, count, **means, seconds=seconds)


def _compared(
    result: Patched, truth: Patched, is_used: Sequence[bool], seed: int
) -> dict[str, float]:
    """Compare estimates with the truth: over the whole domain, and from a few inputs at a time."""
    far, used = result.effects - truth.effects, torch.tensor(is_used)
    idle = truth.effects.abs() <= _ROUNDING
    generator = seeds.generator(seed, "estimates")
    covered, apart = [], []
    for _ in range(DRAWS):
        rows = torch.randint(len(truth.ends.clean), (INPUTS,), generator=generator)
        some = replace(
            result, ends=Recovery(*(end[rows] for end in result.ends)), after=result.after[:, rows]
        )
        low, high = torch.tensor([[i.low, i.high] for i in some.intervals]).double().T
        covered.append((low <= truth.effects + _ROUNDING) & (truth.effects - _ROUNDING <= high))
        apart.append((low > _ROUNDING) | (high < -_ROUNDING))
    found_apart = torch.stack(apart).double()
    return {
        "bias": float(far.mean()),
        "error": float(far.abs().mean()),
        "coverage": float(torch.stack(covered)[:, ~idle].double().mean()),
        "power": float(found_apart[:, used].mean()),
        "false": float(found_apart[:, idle & ~used].mean()),
    }

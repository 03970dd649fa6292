"""Effects: what edits do to the output, one at a time or all in a sweep, and how sure that is."""

from attnlab.edits.effects.ablate import Ablation, ablate
from attnlab.edits.effects.controls import (
    CONTROLS,
    PatternEffects,
    SignificanceRule,
    pattern_effects,
)
from attnlab.edits.effects.curves import Curves, patch_together
from attnlab.edits.effects.effect import Both, Effect, effect
from attnlab.edits.effects.metrics import Metric, next_tokens
from attnlab.edits.effects.patched import Patched
from attnlab.edits.effects.patches import patch_all
from attnlab.edits.effects.paths import Path, patch_paths
from attnlab.edits.effects.significance import assess
from attnlab.edits.effects.sweep import PatchTarget, SweepOptions

__all__ = [
    "CONTROLS",
    "Ablation",
    "Both",
    "Curves",
    "Effect",
    "Metric",
    "PatchTarget",
    "Patched",
    "Path",
    "PatternEffects",
    "SignificanceRule",
    "SweepOptions",
    "ablate",
    "assess",
    "effect",
    "next_tokens",
    "patch_all",
    "patch_paths",
    "patch_together",
    "pattern_effects",
]  # fmt: skip

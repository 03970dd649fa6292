"""Effects: what edits do to the output, one at a time or all in a sweep, and how sure that is."""

from attnlab.operate.effects.controls import CONTROLS, Matters, Rule, does_it_matter
from attnlab.operate.effects.effect import Both, Effect, effect
from attnlab.operate.effects.knock_out import KnockOut, knock_out
from attnlab.operate.effects.measuring import Place
from attnlab.operate.effects.metrics import Metric, next_tokens
from attnlab.operate.effects.patching import Patched, patch_all
from attnlab.operate.effects.paths import Path, patch_paths
from attnlab.operate.effects.significance import assess
from attnlab.operate.effects.sweep import How

__all__ = [
    "CONTROLS",
    "Both",
    "Effect",
    "How",
    "KnockOut",
    "Matters",
    "Metric",
    "Patched",
    "Path",
    "Place",
    "Rule",
    "assess",
    "does_it_matter",
    "effect",
    "knock_out",
    "next_tokens",
    "patch_all",
    "patch_paths",
]

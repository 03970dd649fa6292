"""Every option of `anatomy`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from attnlab.configs import Config, option

__all__ = ["NAME", "AnatomyConfig"]

NAME = "anatomy"

Part = Literal["all", "scaling", "masking", "mask_value", "rank", "heads", "position", "normalisation", "complexity"]


@dataclass(frozen=True, kw_only=True)
class AnatomyConfig(Config):
    """Every option of the experiment."""

    QUICK: ClassVar[Mapping[str, Any]] = {"draws": 1_000, "steps": 150, "repeats": 2, "longest": 1_024}

    only: Part = option("all", "which of the eight experiments to run")
    draws: int = option(2_000, "random draws for each number", low=200, high=100_000)
    seeds: int = option(10, "models with their own initial weights, where models are looked at", low=2, high=1_000)
    steps: int = option(300, "training steps of `heads`", low=1, high=1_000_000)
    longest: int = option(2_048, "longest input that `complexity` measures, in tokens", low=1_024, high=4_096)
    repeats: int = option(5, "times that `complexity` takes each time, of which the median counts", low=1, high=1_000)

"""The config of a training."""

from dataclasses import dataclass
from typing import Literal

from attnlab.configs import Config, option
from attnlab.errors import WrongUsage

EngineName = Literal["auto", "eager", "compiled"]
LayoutName = Literal["auto", "simd", "vmap", "sequential"]


@dataclass(frozen=True, kw_only=True)
class TrainConfig(Config):
    """The config of a training."""

    steps: int = option(1_000, "optimiser steps", low=1, high=100_000_000)
    optimiser: Literal["adamw", "sgd"] = option("adamw", "which rule makes a step of a gradient")
    learning_rate: float = option(1e-3, "peak learning rate", low=0.0, high=100.0)
    warmup_steps: int = option(0, "steps of linear warm-up", low=0, high=100_000_000)
    final_share: float = option(
        0.1, "share of the peak rate that the cosine ends at", low=0.0, high=1.0
    )
    weight_decay: float = option(
        0.01, "decoupled weight decay of AdamW; sgd has none", low=0.0, high=100.0
    )
    clip: float = option(1.0, "largest norm of the whole gradient", low=1e-9, high=1e9)
    evaluate_every: int = option(500, "steps between two evaluations", low=1, high=100_000_000)

    def validate(self) -> None:
        """Check fields against each other."""
        if self.warmup_steps >= self.steps and self.warmup_steps > 0:
            raise WrongUsage(
                f"warmup_steps must be below steps; got {self.warmup_steps} and {self.steps}."
            )

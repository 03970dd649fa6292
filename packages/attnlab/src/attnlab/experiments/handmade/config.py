"""Every option of `handmade`: how exact the designs are, and how their counterparts learn."""

from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from attnlab.configs import Config, Fields, option
from attnlab.experiments.words import Words
from attnlab.tasks.vectors import VectorRule
from attnlab.train.config import TrainConfig

NAME = "handmade"
WORDS = Words(__package__)

RULES = get_args(VectorRule)

HandmadePositions = Literal["one_hot", "learned", "both"]


@dataclass(frozen=True, kw_only=True)
class HandmadeConfig(Config):
    """Every option of the experiment."""

    FULL: ClassVar[Fields] = {"seeds": 20}

    tolerance: float = option(
        1e-3, "largest distance of a designed output from its target", low=1e-12, high=0.4
    )
    seeds: int = option(8, "learned heads for each task", low=1, high=1_000)
    steps: int = option(10_001, "training steps, one sequence each", low=1, high=1_000_000)
    learning_rate: float = option(3e-2, "of plain gradient descent (SGD)", low=0.0, high=10.0)
    positions: HandmadePositions = option(
        "both", "positions of learned heads: given as one-hot, learned too, or both"
    )

    def train_config(self) -> TrainConfig:
        """Return the config of the training: plain gradient descent at a constant rate.

        Evaluated only at the end, a training leaves the last weights.
        """
        return TrainConfig(
            steps=self.steps,
            optimiser="sgd",
            learning_rate=self.learning_rate,
            final_share=1.0,
            clip=1e9,
            evaluate_every=self.steps,
        )

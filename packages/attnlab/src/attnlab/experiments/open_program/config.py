"""Every option of `open_program`."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from attnlab.configs import Config, Fields, option
from attnlab.experiments.words import Words
from attnlab.train.config import TrainConfig

NAME = "open_program"
WORDS = Words(__package__)

Choice = Literal["all", "sort", "induction", "sort_by_frequency"]


@dataclass(frozen=True, kw_only=True)
class OpenProgramConfig(Config):
    """Every option of the experiment."""

    FULL: ClassVar[Fields] = {"seeds": 20, "length": 5}

    only: Choice = option("all", "one program to learn, or all")
    seeds: int = option(16, "models of each kind", low=2, high=1_000)
    length: int | None = option(
        None, "letters of the longest input; none: 4, and 5 for induction", low=4, high=6
    )
    steps: int = option(1_500, "training steps at most", low=50, high=1_000_000)
    evaluate_every: int = option(25, "steps between two evaluations on all inputs", low=1)
    learning_rate: float = option(3e-3, "of AdamW, after 20 steps of warm-up", low=0.0, high=1.0)
    batch: int = option(32, "inputs of a step", low=1, high=10_000)

    def length_of(self, name: str) -> int:
        """Return the letters of a program's longest input."""
        return self.length or (5 if name == "induction" else 4)

    def train_config(self) -> TrainConfig:
        """Return the config of a training; weight decay would move what is frozen."""
        return TrainConfig(
            steps=self.steps,
            learning_rate=self.learning_rate,
            warmup_steps=20,
            final_share=1.0,
            weight_decay=0.0,
            evaluate_every=self.evaluate_every,
        )

"""Every option of `anatomy`."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from attnlab.configs import Config, Fields, option
from attnlab.errors import WrongUsage
from attnlab.experiments.words import Words

NAME = "anatomy"
WORDS = Words(__package__)
SHORTEST = 32  # tokens, the first length that complexity measures
_LONGEST = (1_024, 2_048, 4_096)

AnatomyPart = Literal[
    "all", "scaling", "masking", "mask_value", "rank", "heads", "position", "normalization",
    "complexity",
]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class AnatomyConfig(Config):
    """Every option of the experiment."""

    FULL: ClassVar[Fields] = {"longest": 2_048}

    only: AnatomyPart = option("all", "one of the eight experiments, or all")
    draws: int = option(6_000, "random draws for each number", low=200, high=100_000)
    seeds: int = option(
        10, "models with their own initial weights, in experiments on models", low=2, high=1_000
    )
    steps: int = option(300, "training steps of the part heads", low=1, high=1_000_000)
    longest: int = option(
        1_024, "longest input that complexity measures, in tokens: 32 doubled again and again",
        low=_LONGEST[0], high=_LONGEST[-1],
    )  # fmt: skip
    repeats: int = option(
        5, "rounds in which complexity takes its times; the median counts", low=2, high=1_000
    )

    def validate(self) -> None:
        """Check that doubling reaches the longest input."""
        if self.longest not in _LONGEST:
            raise WrongUsage(
                f"longest must be {SHORTEST} doubled again and again, such as 1,024 or 2,048; got "
                f"{self.longest:,}."
            )

"""Who watches a training."""

from collections.abc import Mapping
from typing import Protocol

__all__ = ["Observer", "Silent"]


class Observer(Protocol):
    """Who watches a training; the command line's progress bar is one."""

    def stage(self, name: str) -> None:
        """Take note of what begins now."""
        ...

    def step(self, step: int, steps: int, figures: Mapping[str, float]) -> None:
        """Take note of a step (some of them, in order) and its figures."""
        ...

    def tell(self, sentence: str) -> None:
        """Take note of what is not as it was asked for, such as a checkpoint that is damaged."""
        ...


class Silent:
    """An observer that does nothing."""

    def stage(self, name: str) -> None:
        """Do nothing."""

    def step(self, step: int, steps: int, figures: Mapping[str, float]) -> None:
        """Do nothing."""

    def tell(self, sentence: str) -> None:
        """Do nothing."""

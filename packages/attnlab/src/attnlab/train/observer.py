"""Observers of a training."""

from collections.abc import Mapping
from typing import Protocol


class Observer(Protocol):
    """An observer of a training; the command line's progress bar is one."""

    def stage(self, name: str) -> None:
        """Note the beginning of a stage."""

    def step(self, step: int, steps: int, figures: Mapping[str, float]) -> None:
        """Note a step (some of them, in order) and its figures."""

    def tell(self, sentence: str) -> None:
        """Note a departure from the request, such as a damaged checkpoint."""


class SilentObserver:
    """An observer that does nothing."""

    def stage(self, name: str) -> None:
        """Ignore a stage."""

    def step(self, step: int, steps: int, figures: Mapping[str, float]) -> None:
        """Ignore a step."""

    def tell(self, sentence: str) -> None:
        """Ignore a sentence."""

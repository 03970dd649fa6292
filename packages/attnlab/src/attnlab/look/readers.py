"""What is known of a model's texts: how one is put to it, what its tokens and answers are called.

A pretrained model has a tokenizer. A model that comes from a run has the run's `TextReader` as its
attribute `reader`; other models of this package read ids alone.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from torch import nn

from attnlab.pretrained.model import Pretrained


class TextReader(Protocol):
    """What a run knows of its model."""

    @property
    def prompt(self) -> str:
        """What can be typed, in words."""

    @property
    def example(self) -> str:
        """A text that the model answers."""

    def ask(self, model: nn.Module, text: str) -> Any:
        """Put a text to the model: a question, see `look/questions.py`."""

    def token_names(self, model: nn.Module) -> Sequence[str] | None:
        """Return the names of the ids that the model reads and writes, if there is one list."""

    def answer_names(self, model: nn.Module) -> Sequence[str] | None:
        """Return the names of its logits."""


def reader_of(model: nn.Module) -> TextReader | None:
    """Return the reader of a model that comes from a run; None for others."""
    reader: TextReader | None = getattr(model, "reader", None)
    return reader


def reads_text(model: nn.Module) -> bool:
    """Can a text be put to this model, or at least be refused with the reason?"""
    return isinstance(model, Pretrained) or reader_of(model) is not None


def answer_names(model: nn.Module) -> Any:
    """Return the names of a model's logits, as far as known: a sequence, or a tokenizer's names."""
    reader = reader_of(model)
    if reader is not None:
        return reader.answer_names(model)
    return getattr(model, "vocabulary", None)

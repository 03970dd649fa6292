"""The texts of a model: how it reads one, and the names of its tokens and answers.

A pretrained model has a tokenizer. A model that comes from a run has the run's `TextReader` as its
attribute `reader`; other models of this package read ids alone.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from torch import nn

from attnlab.pretrained.model import Pretrained


class TextReader(Protocol):
    """The text format of a run's model."""

    @property
    def name(self) -> str:
        """The name of the run."""

    @property
    def prompt(self) -> str:
        """A description of the texts that the model takes."""

    @property
    def example(self) -> str:
        """A text that the model answers."""

    def ask(self, model: nn.Module, text: str) -> Any:
        """Make a question of a text, see `look/questions.py`."""

    def token_names(self, model: nn.Module) -> Sequence[str] | None:
        """Return the names of the model's ids, if inputs and outputs share them."""

    def answer_names(self, model: nn.Module) -> Sequence[str] | None:
        """Return the names of its logits."""


def reader_of(model: nn.Module) -> TextReader | None:
    """Return the reader of a model that comes from a run; None for others."""
    reader: TextReader | None = getattr(model, "reader", None)
    return reader


def model_name(model: nn.Module) -> str:
    """Return the name of a model, of its run, or of its class."""
    name = str(getattr(model, "name", ""))
    reader = reader_of(model)
    if not name and reader is not None:
        name = reader.name
    return name or type(model).__name__


def reads_text(model: nn.Module) -> bool:
    """Does this model read texts, or refuse them with a reason?"""
    return isinstance(model, Pretrained) or reader_of(model) is not None


def answer_names(model: nn.Module) -> Any:
    """Return the names of a model's logits, if known: a sequence, or a tokenizer's names."""
    reader = reader_of(model)
    if reader is not None:
        return reader.answer_names(model)
    return getattr(model, "vocabulary", None)

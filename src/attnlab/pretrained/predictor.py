"""A foreign model as a predictor for `attnlab.generate`: tokens in, logits out, its own cache
kept."""

from typing import Any, Protocol

import torch
from torch import Tensor, nn

from attnlab.errors import WrongUsage

__all__ = ["ForeignPredictor"]


class GenerativeModel(Protocol):
    """The part of a pretrained model that this file needs."""

    foreign: nn.Module
    name: str
    sites: tuple[str, ...]

    def __call__(self, *inputs: Tensor, **options: Any) -> Tensor:
        """Return the logits."""
        ...

    def last_alone(self, number: int) -> dict[str, Any]:
        """Return the options that restrict the logits to the last positions."""
        ...


class ForeignPredictor:
    """One generation of a foreign model.

    Args:
        model: with hook points.
        reads: the name of its argument for the generated tokens.
        given: its other arguments, such as the source of an encoder–decoder.

    Raises:
        WrongUsage: the model does not generate.
    """

    def __init__(self, model: GenerativeModel, reads: str, given: dict[str, Any]) -> None:
        can_generate = getattr(model.foreign, "can_generate", None)
        if "logits" not in model.sites or (callable(can_generate) and not can_generate()):
            raise WrongUsage(
                f"{model.name}, a {type(model.foreign).__name__}, does not choose one token "
                "after another."
            )
        self._model, self._reads, self._given = model, reads, given
        self._past: Any = None
        self._read: Tensor | None = None

    def __call__(self, tokens: Tensor, *, cache: object = None) -> Tensor:
        """Return the logits, (batch, positions, vocabulary), the last of them of the next token.

        tokens: all of them without a cache; with one, those since the last call.
        """
        options = {**self._given, **self._model.last_alone(1)}
        if cache is None:
            return self._model(**{self._reads: tokens}, **options)
        self._read = tokens if self._read is None else torch.cat((self._read, tokens), 1)
        new = tokens if self._past is not None else self._read
        output = self._model.foreign(
            **{self._reads: new}, past_key_values=self._past, use_cache=True, **options
        )
        self._past = output.get("past_key_values")  # None: the model reads all tokens each time
        memory = output.get("encoder_last_hidden_state")
        if memory is not None:
            self._given = {**self._given, "encoder_outputs": (memory,)}
        logits: Tensor = output["logits"]
        return logits

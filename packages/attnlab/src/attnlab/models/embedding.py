"""From token ids to the residual stream: a vector for each token, and its position."""

import torch
from torch import Tensor, nn

from attnlab.errors import WrongUsage, type_words
from attnlab.models.config import PositionKind, TransformerConfig
from attnlab.parts.dropout import dropped
from attnlab.parts.linear import linear
from attnlab.parts.positions import ConcatenatedPositions, LearnedPositions, SinusoidalPositions
from attnlab.shapes import shape_text


class Embedding(nn.Module):
    """A token's vector with its position, as a config says. Parameter of the tokens:
    `tokens.weight`."""

    def __init__(self, config: TransformerConfig, *, positions: PositionKind | None = None) -> None:
        super().__init__()
        kind = positions or config.positions
        width = config.token_width if kind == "concatenated" else config.d_model
        self.vocab_size, self.max_length = config.vocab_size, config.max_length
        self.scale = width**0.5 if config.scale_embedding else 1.0
        self.tokens = nn.Embedding(config.vocab_size, width)
        self.positions: nn.Module | None = None
        if kind == "sinusoidal":
            self.positions = SinusoidalPositions(config.d_model)
        elif kind == "learned":
            self.positions = LearnedPositions(config.max_length, config.d_model)
        elif kind == "concatenated":
            self.positions = ConcatenatedPositions(config.max_length, config.concatenated_width)
        self.dropout = config.dropout

    def forward(self, tokens: Tensor, offset: int = 0) -> Tensor:
        """(batch, length) of ids -> (batch, length, d_model); `offset` is the position of the
        first.

        Ids (batch, length, parts) stand for one token made of several parts, such as a key bound to
        its value: the vectors of the parts are added.
        """
        self._check(tokens, offset)
        try:
            x: Tensor = self.tokens(tokens)
        except IndexError:  # the look-up itself finds it out, at no cost
            wrong = int(tokens.min())
            if wrong >= 0:
                wrong = int(tokens.max())
            raise WrongUsage(
                f"token ids are from 0 to {self.vocab_size - 1}; got {wrong}."
            ) from None
        if tokens.dim() == 3:
            x = x.sum(-2)
        if self.scale != 1.0:
            x = x * self.scale
        if self.positions is not None:
            x = self.positions(x, offset)
        return dropped(x, self.dropout, is_training=self.training)

    def read_out(self, x: Tensor) -> Tensor:
        """Compare the stream with each token's vector, (batch, length, d_model) -> (…, vocabulary):
        the tied output.

        With concatenated positions only the tokens' part of the stream is compared.
        """
        weight = self.tokens.weight
        if x.shape[-1] != weight.shape[-1]:
            x = x[..., : weight.shape[-1]]
        return linear(x, weight)

    def _check(self, tokens: Tensor, offset: int) -> None:
        if not isinstance(tokens, Tensor):
            raise WrongUsage(
                f"tokens must be a tensor of ids; got {type_words(tokens)}. A text is for "
                "attnlab.ask(model, text)."
            )
        if tokens.dim() not in (2, 3) or tokens.is_floating_point() or tokens.dtype == torch.bool:
            raise WrongUsage(
                "tokens must be integer ids, (batch, length, parts) or (batch, length); "
                f"got {shape_text(tokens.shape)} of {tokens.dtype}."
            )
        if offset + tokens.shape[1] > self.max_length:
            raise WrongUsage(
                f"this model takes at most {self.max_length} tokens; got "
                f"{offset + tokens.shape[1]}. Shorten the input, or build the model with a larger "
                "max_length."
            )

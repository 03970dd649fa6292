"""Where a token's embedding and the logits meet: the product of both over all tokens.

The circuit of a head from tokens to logits is a matrix of the vocabulary's size, `U ov Eᵀ`. Its
eigenvalues that are not 0 are those of `ov Eᵀ U`, (d_model, d_model), so that `Eᵀ U` is all that is
needed, once for all heads where norms stand in front of the parts.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from attnlab.errors import CouldNotRun, WrongUsage
from attnlab.look.anatomy import (
    Anatomy,
    AnatomyStep,
    Function,
    HeadsStep,
    NormStep,
    anatomy_of,
    are_close,
    lens_stack,
)
from attnlab.look.head_matrices import LayerMatrices, through_norms
from attnlab.look.inputs import foreign_of
from attnlab.look.readout import FrozenNorm
from attnlab.look.streams import stack_of_part
from attnlab.models.encoder_decoder import EncoderDecoder
from attnlab.pretrained.model import Pretrained
from attnlab.sites import set_aside

_ROWS = 256  # of the logits of unit vectors, made at a time


class TokenMaps:
    """The products `Eᵀ U` of a model, (d_model, d_model), by the norms on both ways."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._maps: dict[tuple[tuple[str, ...], tuple[str, ...]], Tensor | None] = {}
        self._anatomy: Anatomy | None = None
        if not hasattr(foreign_of(model), "get_input_embeddings") and isinstance(model, Pretrained):
            return  # a hand-written model that does not name them
        try:
            self._stack = lens_stack(model)[0].rstrip(".")
            self._anatomy = anatomy_of(model)
        except (CouldNotRun, WrongUsage):  # no logits, or no way to them by norms and matrices
            return

    @torch.no_grad()
    def at(self, layer: LayerMatrices) -> Tensor | None:
        """Return the product for the heads of an attention; None if there is none."""
        if self._anatomy is None or stack_of_part(self._model, layer.part) != self._stack:
            return None
        if layer.streams.query != layer.streams.key:
            return None  # what cross-attention reads is another text
        if _embeddings(self._model).shape[1] != layer.output.shape[-1]:
            return None  # a matrix leads from smaller embeddings to the stream
        steps = self._anatomy.steps
        at = next(
            index
            for index, step in enumerate(steps)
            if isinstance(step, HeadsStep) and step.point == layer.part
        )
        before, after = _norms(steps[:at]), _norms(steps[at:])
        if (before, after) not in self._maps:
            with set_aside(self._model):
                self._maps[before, after] = _token_map(self._model, self._anatomy, before, after)
        return self._maps[before, after]


def _norms(steps: Sequence[AnatomyStep]) -> tuple[str, ...]:
    return tuple(step.path for step in steps if isinstance(step, NormStep))


def _token_map(
    model: nn.Module, anatomy: Anatomy, before: Sequence[str], after: Sequence[str]
) -> Tensor | None:
    """Compute the product; None where something else than norms and matrices is on the way."""
    foreign = foreign_of(model)
    embeddings = _embeddings(model)
    width = embeddings.shape[1]
    embeddings = through_norms(foreign, before, embeddings)
    rows = through_norms(foreign, after, torch.eye(width).to(embeddings))
    for _, function in anatomy.behind:
        passed = _linear(function, rows)
        if passed is None:
            return None
        rows = passed
    product = torch.zeros(width, width, dtype=torch.float64, device=rows.device)
    for first in range(0, width, _ROWS):
        some = rows[first : first + _ROWS]
        logits = anatomy.read(some) - anatomy.read(torch.zeros_like(some))
        if logits.shape[1] != len(embeddings):
            return None  # it answers with something else than its tokens
        product[first : first + _ROWS] = logits @ embeddings
    return product.T


def _linear(function: Function, rows: Tensor) -> Tensor | None:
    """Apply a matrix, or a norm at the scale 1, without its bias; None for another function."""
    bias = function(torch.zeros_like(rows))
    made = function(rows) - bias
    if are_close(function(-2 * rows) - bias, -2 * made):
        return made
    norm = FrozenNorm.of(function, rows, made + bias)
    return None if norm is None else norm.at_unit_scale().linear(rows)


def _embeddings(model: Any) -> Tensor:
    """Return the vectors of all tokens, (vocabulary, d_model)."""
    weight: Tensor
    if isinstance(model, Pretrained):
        embedding: Any = model.foreign.get_input_embeddings
        weight = embedding().weight
        return weight
    stack = model.decoder if isinstance(model, EncoderDecoder) else model
    weight = stack.embedding.tokens.weight
    # positions may stand beside the tokens
    return torch.nn.functional.pad(weight, (0, model.config.d_model - weight.shape[1]))

"""One head, one layer, nothing else: the model whose weights a person can write by hand.

`K = [x ; position] W_key`, `Q` and `V` alike, then `softmax(QKᵀ/√d_qk) V`: no residual stream, no
norm, no feed-forward part, no bias, no mask. The position is concatenated, not added.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from attnlab.configs import Config, option
from attnlab.display import displayed
from attnlab.errors import WrongUsage, type_words
from attnlab.models.stack import check_real
from attnlab.parts.attend import Attention
from attnlab.parts.heads import attend_at
from attnlab.parts.linear import Linear
from attnlab.parts.numpy_transformer import NumpyTransformer
from attnlab.parts.positions import ConcatenatedPositions
from attnlab.shapes import shape_text
from attnlab.sites import SitedModule


@displayed
class Matrices(NamedTuple):
    """What a single head is made of, as one writes it: `K = [x ; pos] Km`.

    Km and Qm (width, qk_dim) · Vm (width, v_dim) · pos (max_seq_len, pos_dim), or None for no
    positions. A torch layer holds the transpose, (out, in).
    """

    Km: Tensor
    Qm: Tensor
    Vm: Tensor
    pos: Tensor | None = None


@dataclass(frozen=True, kw_only=True)
class SingleHeadConfig(Config):
    """The settings of a single head."""

    input_dim: int = option(3, "width of an input vector", low=1, high=65_536)
    qk_dim: int = option(3, "width of query and key", low=1, high=65_536)
    v_dim: int = option(3, "width of value and output", low=1, high=65_536)
    pos_dim: int | None = option(
        None, "width of the concatenated position; none: no positions", low=1, high=65_536
    )
    max_seq_len: int = option(10, "longest input that has positions", low=1, high=1_000_000)
    learned_positions: bool = option(
        False, "learn the positions; otherwise they stay as built: one-hot rows"
    )


class SingleHead(SitedModule):
    """A single head of attention: vectors in, vectors out."""

    sites = ("query", "key", "value", "mask", "scores", "weights", "heads", "output")

    def __init__(self, config: SingleHeadConfig) -> None:
        super().__init__()
        self.config = config
        width = config.input_dim + (config.pos_dim or 0)
        self.positions: ConcatenatedPositions | None = None
        if config.pos_dim is not None:
            size = (config.max_seq_len, config.pos_dim)
            fixed = torch.eye(*size) if not config.learned_positions else None
            self.positions = ConcatenatedPositions(*size, fixed=fixed)
        self.query = Linear(width, config.qk_dim, bias=False)
        self.key = Linear(width, config.qk_dim, bias=False)
        self.value = Linear(width, config.v_dim, bias=False)

    @classmethod
    def from_matrices(
        cls,
        Km: Any,  # noqa: N803
        Qm: Any,  # noqa: N803
        Vm: Any,  # noqa: N803
        pos: Any = None,
        *,
        learned_positions: bool = False,
        dtype: torch.dtype = torch.float64,
    ) -> Self:
        """Build the head that has these matrices, shaped as in `Matrices`: lists, arrays or tensors
        of any dtype.

        Raises:
            WrongUsage: their shapes do not fit together.

        >>> head = SingleHead.from_matrices([[1.0], [2.0]], [[3.0], [4.0]], [[5.0], [6.0]])
        >>> head.matrices().Vm.tolist()
        [[5.0], [6.0]]
        """
        written = NumpyTransformer(Km, Qm, Vm, pos)  # which checks the shapes
        longest, pos_dim = 10, None
        if written.pos is not None:
            longest, pos_dim = written.pos.shape
        config = SingleHeadConfig(
            input_dim=written.input_dim,
            qk_dim=written.Km.shape[1],
            v_dim=written.Vm.shape[1],
            pos_dim=pos_dim,
            max_seq_len=longest,
            learned_positions=learned_positions and pos_dim is not None,
        )
        model = cls(config).to(dtype)
        with torch.no_grad():
            model.key.weight.copy_(torch.from_numpy(written.Km).T)
            model.query.weight.copy_(torch.from_numpy(written.Qm).T)
            model.value.weight.copy_(torch.from_numpy(written.Vm).T)
            if model.positions is not None and written.pos is not None:
                model.positions.weight.copy_(torch.from_numpy(written.pos))
        return model.eval()

    def matrices(self) -> Matrices:
        """Return copies of the matrices as one writes them."""
        Km, Qm, Vm = map(_written, (self.key, self.query, self.value))
        if self.positions is None:
            return Matrices(Km, Qm, Vm)
        return Matrices(Km, Qm, Vm, self.positions.weight.detach().clone())

    def _check(self, x: Any) -> None:
        if not isinstance(x, Tensor):
            raise WrongUsage(
                f"x must be a tensor; got {type_words(x)}. Convert it with torch.as_tensor."
            )
        if x.dim() != 3 or x.shape[-1] != self.config.input_dim:
            hint = ""
            if x.dim() == 2:
                hint = "; a sequence alone needs a batch axis: x.unsqueeze(0)"
            raise WrongUsage(
                f"x must have shape (batch, length, {self.config.input_dim}); got "
                f"{shape_text(x.shape)}{hint}."
            )
        expected, came = (
            str(tensor.dtype).removeprefix("torch.") for tensor in (self.query.weight, x)
        )
        if expected != came and not torch.is_autocast_enabled(x.device.type):
            raise WrongUsage(
                f"this head computes in {expected}; got x in {came}. Give x.to(torch.{expected})."
            )

    def forward(
        self, x: Tensor, *, real: Tensor | None = None, need_weights: bool = True
    ) -> Attention:
        """(batch, length, input_dim) -> output (batch, length, v_dim), weights and scores.

        Weights and scores are (batch, 1, query, key). real: (batch, length) boolean, False at
        padding, which is not attended to; None where there is no padding.
        """
        self._check(x)
        self.announce(x, 0, real)
        if self.positions is not None:
            if x.shape[1] > self.config.max_seq_len:
                raise WrongUsage(
                    f"this head has {self.config.max_seq_len} positions; got an input of "
                    f"length {x.shape[1]}."
                )
            x = self.positions(x)
        mask = check_real(real, x)
        query = self.visit("query", self.query(x).unsqueeze(1))
        key = self.visit("key", self.key(x).unsqueeze(1))
        value = self.visit("value", self.value(x).unsqueeze(1))
        attention = attend_at(self, query, key, value, mask, need_weights=need_weights)
        heads = self.visit("heads", attention.output)
        return attention._replace(output=self.visit("output", heads.squeeze(1)))


def _written(part: Linear) -> Tensor:
    """Return a copy of a layer's weight as one writes it, (in, out)."""
    return part.weight.detach().T.clone()

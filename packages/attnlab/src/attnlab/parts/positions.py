"""Positions: how attention, which sees a set, learns the order.

Added to the embedding: `SinusoidalPositions` (Vaswani et al. 2017, §3.5), `LearnedPositions`.
Beside it: `ConcatenatedPositions`. In the heads: `Rotary` turns queries and keys (Su et al. 2021),
`Alibi` lowers scores with distance (Press et al. 2022).
"""

import math

import torch
from torch import Tensor, nn

from attnlab.errors import WrongUsage
from attnlab.parts.masks import Mask, as_tensor
from attnlab.shapes import require_integer


def sinusoidal_positions(
    length: int, width: int, *, offset: int = 0, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Return sines (even channels) and cosines (odd channels) of falling frequency: (length,
    width).

    `PE[p, 2i] = sin(p / 10000^(2i/width))`, `PE[p, 2i+1] = cos(…)`. Any width: an odd one ends with
    a sine.
    """
    require_integer("length", length, low=0)
    require_integer("width", width)
    position = torch.arange(offset, offset + length, dtype=torch.float64).unsqueeze(-1)
    channel = torch.arange(0, width, 2, dtype=torch.float64)
    frequency = torch.exp(channel * (-math.log(10000.0) / width))
    angle = position * frequency
    encoding = torch.stack((angle.sin(), angle.cos()), -1).flatten(-2)
    return encoding[:, :width].to(dtype)


class SinusoidalPositions(nn.Module):
    """Add fixed sinusoidal positions; any length, no parameters."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.d_model = d_model
        self._table = torch.empty(0, d_model)

    def forward(self, x: Tensor, offset: int = 0) -> Tensor:
        """(batch, length, d_model) -> the same; `offset` is the position of the first."""
        end = offset + x.shape[-2]
        table = self._table  # read once: another thread may put its own table there at any time
        held = table.shape[0]
        if held < end or table.dtype != x.dtype or table.device != x.device:
            rows = max(end, 2 * held) if held < end else held
            table = sinusoidal_positions(rows, self.d_model, dtype=x.dtype).to(x.device)
            self._table = table
        return x + table[offset:end]


class LearnedPositions(nn.Module):
    """Add one learned vector per position. Parameter: `weight` (max_length, d_model)."""

    def __init__(self, max_length: int, d_model: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(max_length, d_model))

    def forward(self, x: Tensor, offset: int = 0) -> Tensor:
        """(batch, length, d_model) -> the same; `offset` is the position of the first."""
        return x + _rows(self.weight, offset, x.shape[-2])


class ConcatenatedPositions(nn.Module):
    """Put one vector for each position beside the token's: [x ; position].

    Args:
        max_length: the longest input.
        width: of the position vector.
        fixed: a table (max_length, width) that is not trained, such as `torch.eye`; None for a
            learned one.
    """

    weight: Tensor

    def __init__(self, max_length: int, width: int, *, fixed: Tensor | None = None) -> None:
        super().__init__()
        if fixed is None:
            self.weight = nn.Parameter(torch.randn(max_length, width))
        else:
            if tuple(fixed.shape) != (max_length, width):
                raise WrongUsage(
                    f"the fixed table must have shape ({max_length}, {width}); got "
                    f"{tuple(fixed.shape)}."
                )
            self.register_buffer("weight", fixed)

    def forward(self, x: Tensor, offset: int = 0) -> Tensor:
        """(batch, length, token_width) -> (batch, length, token_width + width)."""
        rows = _rows(self.weight, offset, x.shape[-2])
        return torch.cat((x, rows.expand(*x.shape[:-1], rows.shape[-1])), -1)


def rotate(x: Tensor, offset: int = 0, *, base: float = 10000.0) -> Tensor:
    """Turn each pair of channels by an angle that grows with the position (Su et al. 2021, equation
    34).

    Shapes: (..., length, width) -> the same. Channel i is paired with channel i + width // 2 (the
    layout of GPT-NeoX and Llama) and turned by position · base^(-2i/width). An odd width leaves its
    last channel as it is and counts as the even one below.
    """
    half = x.shape[-1] // 2
    if half == 0:
        return x
    frequency = base ** (-torch.arange(half, dtype=torch.float64, device=x.device) / half)
    position = torch.arange(offset, offset + x.shape[-2], dtype=torch.float64, device=x.device)
    angle = position.unsqueeze(-1) * frequency
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    first, second, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    return torch.cat((first * cos - second * sin, second * cos + first * sin, rest), -1)


class Rotary(nn.Module):
    """Turn queries and keys, so that their products depend on the distance alone; no parameters."""

    def __init__(self, *, base: float = 10000.0) -> None:
        super().__init__()
        self.base = base

    def forward(self, x: Tensor, offset: int = 0) -> Tensor:
        """(batch, head, length, head_width) -> the same; `offset` is the position of the first."""
        return rotate(x, offset, base=self.base)


def alibi_slopes(num_heads: int) -> Tensor:
    """Return each head's slope, a geometric series from 2^(-8/n) (Press et al. 2022).

    >>> alibi_slopes(4)
    tensor([0.2500, 0.0625, 0.0156, 0.0039])
    """
    power = 2 ** math.floor(math.log2(require_integer("num_heads", num_heads)))
    slopes = [2.0 ** (-8.0 * (i + 1) / power) for i in range(power)]
    between = [2.0 ** (-8.0 * (i + 1) / (2 * power)) for i in range(0, 2 * power, 2)]
    return torch.tensor((slopes + between)[:num_heads])


def alibi_bias(num_heads: int, num_queries: int, num_keys: int | None = None) -> Tensor:
    """Lower scores in proportion to distance: (head, query, key) = -slope · |query - key|.

    With more keys than queries, the queries are the last positions.
    """
    if num_keys is None:
        num_keys = num_queries
    queries = torch.arange(num_keys - num_queries, num_keys).unsqueeze(-1)
    distance = (queries - torch.arange(num_keys)).abs()
    return -alibi_slopes(num_heads)[:, None, None] * distance


class Alibi(nn.Module):
    """Bias the scores of each head by distance; no parameters."""

    def __init__(self, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads

    def masked(self, mask: Mask, num_queries: int, num_keys: int, like: Tensor) -> Tensor:
        """Join the bias with a mask into one float mask, (..., head, query, key)."""
        bias = alibi_bias(self.num_heads, num_queries, num_keys).to(like)
        tensor = as_tensor(mask, num_queries, num_keys, like.device)
        if tensor is None:
            return bias
        if tensor.dtype == torch.bool:
            return bias.masked_fill(~tensor, float("-inf"))
        return bias + tensor


def _rows(table: Tensor, offset: int, length: int) -> Tensor:
    if offset + length > table.shape[0]:
        raise WrongUsage(
            f"this model has learned {table.shape[0]} positions; got an input that reaches "
            f"position {offset + length}. Shorten the input, or build the model with a larger "
            "max_length."
        )
    return table[offset : offset + length]

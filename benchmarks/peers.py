"""The peers, each from token ids to logits: same widths, learned positions, GELU, pre-norm, no
dropout.

- `TorchEncoder`: `torch.nn.TransformerEncoder` between an embedding and an output head. In
  evaluation without gradients PyTorch takes its own fast path, as it chooses.
- `NanoGPT`: a decoder in nanoGPT's style: one product for query, key and value, the fused attention
  kernel, attention and feed-forward as modules of their own with their dropout modules (at 0), tied
  output.
- `BareDecoder`: the same arithmetic with nothing around it, the least that a decoder in PyTorch can
  be. It is no peer, but a limit: the distance to it is what modules cost.
- `x_transformers_model`: the encoder or decoder of x-transformers with `attn_flash=True`.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from x_transformers import Decoder as XDecoder
from x_transformers import Encoder as XEncoder
from x_transformers import TransformerWrapper

__all__ = ["BareDecoder", "NanoGPT", "Size", "TorchEncoder", "x_transformers_model"]


class Size(NamedTuple):
    """What is measured: the model's shape and the input's."""

    d_model: int
    num_layers: int
    num_heads: int
    length: int
    batch: int
    vocab_size: int = 64


class TorchEncoder(nn.Module):
    """`torch.nn.TransformerEncoder`, ids to logits."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.tokens = nn.Embedding(size.vocab_size, size.d_model)
        self.positions = nn.Parameter(torch.randn(size.length, size.d_model))
        layer = nn.TransformerEncoderLayer(
            size.d_model,
            size.num_heads,
            4 * size.d_model,
            dropout=0.0,
            activation="gelu",
            batch_first=True,
            norm_first=True,
        )
        self.encoder = nn.TransformerEncoder(
            layer, size.num_layers, norm=nn.LayerNorm(size.d_model), enable_nested_tensor=False
        )
        self.head = nn.Linear(size.d_model, size.vocab_size)

    def forward(self, ids: Tensor) -> Tensor:
        """(batch, length) -> (batch, length, vocabulary)."""
        return self.head(self.encoder(self.tokens(ids) + self.positions[: ids.shape[1]]))


class NanoGPT(nn.Module):
    """A pre-norm decoder in modules, with a tied output."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.max_length = size.length
        self.tokens = nn.Embedding(size.vocab_size, size.d_model)
        self.positions = nn.Embedding(size.length, size.d_model)
        self.dropout = nn.Dropout(0.0)
        self.blocks = nn.ModuleList(NanoGPTBlock(size) for _ in range(size.num_layers))
        self.norm = nn.LayerNorm(size.d_model)
        self.head = nn.Linear(size.d_model, size.vocab_size, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, ids: Tensor) -> Tensor:
        """(batch, length) -> (batch, length, vocabulary)."""
        _, length = ids.size()
        if length > self.max_length:
            raise ValueError(f"at most {self.max_length} tokens, got {length}")
        places = torch.arange(length, dtype=torch.long, device=ids.device)
        x = self.dropout(self.tokens(ids) + self.positions(places))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class NanoGPTBlock(nn.Module):
    """Attention and feed-forward as modules, each added to the stream."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.norm_attention = nn.LayerNorm(size.d_model)
        self.attention = NanoGPTAttention(size)
        self.norm_feed_forward = nn.LayerNorm(size.d_model)
        self.feed_forward = NanoGPTFeedForward(size.d_model)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, length, d_model) -> the same."""
        x = x + self.attention(self.norm_attention(x))
        return x + self.feed_forward(self.norm_feed_forward(x))


class NanoGPTAttention(nn.Module):
    """Causal self-attention by the fused kernel, from one packed projection."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.num_heads, self.width, self.probability = size.num_heads, size.d_model, 0.0
        self.query_key_value = nn.Linear(size.d_model, 3 * size.d_model)
        self.output = nn.Linear(size.d_model, size.d_model)
        self.dropout = nn.Dropout(self.probability)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, length, d_model) -> the same."""
        batch, length, width = x.size()
        query, key, value = (
            part.view(batch, length, self.num_heads, width // self.num_heads).transpose(1, 2)
            for part in self.query_key_value(x).split(self.width, dim=2)
        )
        probability = self.probability if self.training else 0.0
        heads = F.scaled_dot_product_attention(
            query, key, value, dropout_p=probability, is_causal=True
        )
        return self.dropout(
            self.output(heads.transpose(1, 2).contiguous().view(batch, length, width))
        )


class NanoGPTFeedForward(nn.Module):
    """Two layers around a GELU."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = nn.Linear(width, 4 * width)
        self.activation = nn.GELU()
        self.outer = nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(0.0)

    def forward(self, x: Tensor) -> Tensor:
        """(..., d_model) -> the same."""
        return self.dropout(self.outer(self.activation(self.inner(x))))


class BareDecoder(nn.Module):
    """A pre-norm decoder with a tied output."""

    def __init__(self, size: Size, *, bias: bool = True) -> None:
        super().__init__()
        self.tokens = nn.Embedding(size.vocab_size, size.d_model)
        self.positions = nn.Embedding(size.length, size.d_model)
        self.blocks = nn.ModuleList(BareBlock(size, bias) for _ in range(size.num_layers))
        self.norm = nn.LayerNorm(size.d_model, bias=bias)
        self.head = nn.Linear(size.d_model, size.vocab_size, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, ids: Tensor) -> Tensor:
        """(batch, length) -> (batch, length, vocabulary)."""
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class BareBlock(nn.Module):
    """Attention and feed-forward, each added to the stream."""

    def __init__(self, size: Size, bias: bool) -> None:
        super().__init__()
        width = size.d_model
        self.num_heads = size.num_heads
        self.norm_attention = nn.LayerNorm(width, bias=bias)
        self.query_key_value = nn.Linear(width, 3 * width, bias=bias)
        self.output = nn.Linear(width, width, bias=bias)
        self.norm_feed_forward = nn.LayerNorm(width, bias=bias)
        self.inner = nn.Linear(width, 4 * width, bias=bias)
        self.outer = nn.Linear(4 * width, width, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, length, d_model) -> the same."""
        batch, length, width = x.shape
        packed = self.query_key_value(self.norm_attention(x)).split(width, dim=-1)
        query, key, value = (
            part.view(batch, length, self.num_heads, -1).transpose(1, 2) for part in packed
        )
        heads = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.output(heads.transpose(1, 2).reshape(batch, length, width))
        return x + self.outer(F.gelu(self.inner(self.norm_feed_forward(x))))


def x_transformers_model(size: Size, *, is_causal: bool) -> nn.Module:
    """x-transformers' own wiring, with its fused attention."""
    layers = (XDecoder if is_causal else XEncoder)(
        dim=size.d_model,
        depth=size.num_layers,
        heads=size.num_heads,
        attn_dim_head=size.d_model // size.num_heads,
        attn_flash=True,
    )
    return TransformerWrapper(
        num_tokens=size.vocab_size, max_seq_len=size.length, attn_layers=layers
    )

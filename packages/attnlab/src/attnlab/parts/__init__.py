"""Parts: everything a transformer is made of, tensors in, tensors out, one file each."""

from attnlab.parts.attend import Attention, attend
from attnlab.parts.blocks import Block
from attnlab.parts.cache import Cache
from attnlab.parts.feed_forward import FeedForward
from attnlab.parts.heads import MultiHeadAttention, multi_head_attention
from attnlab.parts.linear import Linear, linear, use_matrix_path
from attnlab.parts.norms import LayerNorm, RMSNorm

__all__ = [
    "Attention",
    "Block",
    "Cache",
    "FeedForward",
    "LayerNorm",
    "Linear",
    "MultiHeadAttention",
    "RMSNorm",
    "attend",
    "linear",
    "multi_head_attention",
    "use_matrix_path",
]

"""A transformer of another course behind its adapters, as a test reads it: plain and right."""

import math

import torch
from torch import nn


class Linear(nn.Module):
    def __init__(self, in_features, out_features, device=None, dtype=None):
        super().__init__()
        self.weight = nn.Parameter(
            torch.empty(out_features, in_features, device=device, dtype=dtype)
        )

    def forward(self, x):
        return torch.einsum("...i,oi->...o", x, self.weight)


class Embedding(nn.Module):
    def __init__(self, num_embeddings, embedding_dim):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_embeddings, embedding_dim))

    def forward(self, ids):
        return self.weight[ids]


class RMSNorm(nn.Module):
    def __init__(self, d_model, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(d_model))

    def forward(self, x):
        dtype = x.dtype
        x = x.to(torch.float32)
        rms = torch.sqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)
        return (x / rms * self.weight).to(dtype)


def silu(x):
    return x * torch.sigmoid(x)


class SwiGLU(nn.Module):
    def __init__(self, d_model, d_ff):
        super().__init__()
        self.w1, self.w2, self.w3 = (
            Linear(d_model, d_ff),
            Linear(d_ff, d_model),
            Linear(d_model, d_ff),
        )

    def forward(self, x):
        return self.w2(silu(self.w1(x)) * self.w3(x))


class RoPE(nn.Module):
    def __init__(self, theta, d_k, max_seq_len):
        super().__init__()
        rates = theta ** (-torch.arange(0, d_k, 2) / d_k)
        angles = torch.outer(torch.arange(max_seq_len), rates)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, x, positions):
        cos, sin = self.cos[positions], self.sin[positions]
        even, odd = x[..., ::2], x[..., 1::2]
        turned = torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1)
        return turned.flatten(-2)


def softmax(x, dim):
    grown = torch.exp(x - x.max(dim=dim, keepdim=True).values)
    return grown / grown.sum(dim=dim, keepdim=True)


def attention(q, k, v, mask=None):
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    return softmax(scores, -1) @ v


class CausalMultiHeadSelfAttention(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.q, self.k, self.v, self.o = (Linear(d_model, d_model) for _ in range(4))

    def forward(self, x):
        *front, length, width = x.shape
        parts = [
            p(x).reshape(*front, length, self.num_heads, -1).transpose(-3, -2)
            for p in (self.q, self.k, self.v)
        ]
        mask = torch.tril(torch.ones(length, length, dtype=torch.bool))
        return self.o(attention(*parts, mask).transpose(-3, -2).reshape(*front, length, width))


def run_linear(d_in, d_out, weights, in_features):
    layer = Linear(d_in, d_out)
    layer.load_state_dict({"weight": weights})
    return layer(in_features)


def run_embedding(vocab_size, d_model, weights, token_ids):
    layer = Embedding(vocab_size, d_model)
    layer.load_state_dict({"weight": weights})
    return layer(token_ids)


def run_swiglu(d_model, d_ff, w1_weight, w2_weight, w3_weight, in_features):
    layer = SwiGLU(d_model, d_ff)
    layer.w1.weight.data = w1_weight
    layer.w2.weight.data = w2_weight
    layer.w3.weight.data = w3_weight
    return layer(in_features)


def run_scaled_dot_product_attention(Q, K, V, mask=None):  # noqa: N803
    return attention(Q, K, V, mask)


def run_multihead_self_attention(
    d_model, num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features
):
    layer = CausalMultiHeadSelfAttention(d_model, num_heads)
    layer.q.load_state_dict({"weight": q_proj_weight})
    layer.k.load_state_dict({"weight": k_proj_weight})
    layer.v.load_state_dict({"weight": v_proj_weight})
    layer.o.load_state_dict({"weight": o_proj_weight})
    return layer(in_features)


def run_rope(d_k, theta, max_seq_len, in_query_or_key, token_positions):
    return RoPE(theta, d_k, max_seq_len)(in_query_or_key, token_positions)


def run_rmsnorm(d_model, eps, weights, in_features):
    layer = RMSNorm(d_model, eps)
    layer.load_state_dict({"weight": weights})
    return layer(in_features)


def run_silu(in_features):
    return silu(in_features)


def run_softmax(in_features, dim):
    return softmax(in_features, dim)


def run_cross_entropy(inputs, targets):
    top = inputs.max(-1, keepdim=True).values
    log_sum = torch.log(torch.exp(inputs - top).sum(-1)) + top.squeeze(-1)
    return (log_sum - inputs.gather(-1, targets.unsqueeze(-1)).squeeze(-1)).mean()


def run_gradient_clipping(parameters, max_l2_norm):
    gradients = [p.grad for p in parameters if p.grad is not None]
    norm = torch.sqrt(sum(g.pow(2).sum() for g in gradients))
    if norm > max_l2_norm:
        for g in gradients:
            g.mul_(max_l2_norm / (norm + 1e-6))


def run_get_lr_cosine_schedule(
    it, max_learning_rate, min_learning_rate, warmup_iters, cosine_cycle_iters
):
    if it < warmup_iters:
        return it / warmup_iters * max_learning_rate
    if it > cosine_cycle_iters:
        return min_learning_rate
    share = (it - warmup_iters) / (cosine_cycle_iters - warmup_iters)
    return min_learning_rate + (1 + math.cos(math.pi * share)) / 2 * (
        max_learning_rate - min_learning_rate
    )


def run_transformer_lm(*_):
    raise NotImplementedError

"""How many parameters, and where: counted from the config by arithmetic, and from the model itself.

The two must agree; a test and every run say so.
"""

from torch import nn

from attnlab.models.config import TransformerConfig
from attnlab.models.decoder import DecoderConfig
from attnlab.models.encoder import EncoderConfig
from attnlab.models.encoder_decoder import EncoderDecoderConfig
from attnlab.models.single_head import SingleHeadConfig


def count_from_config(config: TransformerConfig | SingleHeadConfig) -> dict[str, int]:
    """Count the parameters of each part by arithmetic; parts without parameters are left out.

    >>> size = {"vocab_size": 4, "max_length": 7, "d_model": 6, "num_heads": 2, "d_ff": 6}
    >>> config = DecoderConfig(**size, positions="learned", projections="gated", bias=False)
    >>> sum(count_from_config(config).values())
    480
    """
    if isinstance(config, SingleHeadConfig):
        width = config.input_dim + (config.pos_dim or 0)
        positions = config.max_seq_len * (config.pos_dim or 0) if config.learned_positions else 0
        counts = {
            "positions": positions,
            "query": width * config.qk_dim,
            "key": width * config.qk_dim,
            "value": width * config.v_dim,
        }
    elif isinstance(config, EncoderDecoderConfig):
        layers = (
            config.num_layers if config.num_encoder_layers is None else config.num_encoder_layers
        )
        counts = _stack(config, "encoder.", layers, config.encoder_positions or config.positions)
        counts |= _stack(config, "decoder.", config.num_layers, config.positions, cross=True)
        counts["head"] = (
            0 if config.tie_output else _linear(config.d_model, config.vocab_size, config.bias)
        )
    else:
        counts = _stack(config, "", config.num_layers, config.positions)
        if isinstance(config, DecoderConfig) and not config.tie_output:
            counts["head"] = _linear(config.d_model, config.vocab_size, config.bias)
        if isinstance(config, EncoderConfig) and config.num_classes is not None:
            counts["head"] = _linear(config.d_model, config.num_classes, True)
    return {part: count for part, count in counts.items() if count}


def count_from_model(model: nn.Module) -> dict[str, int]:
    """Count the parameters that a model really holds, under the same names of parts."""
    counts: dict[str, int] = {}
    for name, parameter in model.named_parameters():
        part = _part(name)
        counts[part] = counts.get(part, 0) + parameter.numel()
    return counts


def _part(name: str) -> str:
    """`layers.0.attention.query.a` is part of `layers.0.attention.query`; norms are counted by
    themselves."""
    owner = name.rpartition(".")[0]
    return owner.removesuffix(".inner").removesuffix(".outer").removesuffix(".gate")


def _stack(
    config: TransformerConfig, prefix: str, num_layers: int, positions: str, *, cross: bool = False
) -> dict[str, int]:
    is_concatenated = positions == "concatenated"
    token_width = config.d_model - (config.concatenated_width if is_concatenated else 0)
    norm = config.d_model * (2 if config.norm == "layer" else 1)
    learned = {"learned": config.d_model, "concatenated": config.concatenated_width}.get(
        positions, 0
    )
    counts = {
        f"{prefix}embedding.tokens": config.vocab_size * token_width,
        f"{prefix}embedding.positions": config.max_length * learned,
        f"{prefix}final_norm": norm if config.final_norm else 0,
    }
    for layer in range(num_layers):
        path = f"{prefix}layers.{layer}."
        for attention in ("attention", "cross_attention")[: 2 if cross else 1]:
            counts |= _attention(config, f"{path}{attention}.")
            counts[f"{path}norm_{attention}"] = 0 if config.norm_place == "none" else norm
        d_ff = config.inner_width
        num_inner = 2 if config.activation == "swiglu" else 1
        counts[f"{path}feed_forward"] = num_inner * _linear(
            config.d_model, d_ff, config.bias
        ) + _linear(d_ff, config.d_model, config.bias)
        counts[f"{path}norm_feed_forward"] = 0 if config.norm_place == "none" else norm
    return counts


def _attention(config: TransformerConfig, path: str) -> dict[str, int]:
    shared = config.num_heads if config.num_kv_heads is None else config.num_kv_heads
    rank = config.head_width if config.rank is None else config.rank

    def projection(heads: int) -> int:
        if config.projections == "dense":
            return _linear(config.d_model, heads * config.head_width, config.bias)
        base = config.d_model * config.head_width if config.projections == "gated" else 0
        return heads * (config.d_model * rank + rank * config.head_width + base)

    return {
        f"{path}query": projection(config.num_heads),
        f"{path}key": projection(shared),
        f"{path}value": projection(shared),
        f"{path}output": _linear(config.d_model, config.d_model, config.bias),
    }


def _linear(inputs: int, outputs: int, bias: bool) -> int:
    return inputs * outputs + (outputs if bias else 0)

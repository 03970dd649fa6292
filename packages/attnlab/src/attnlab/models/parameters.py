"""How many parameters, and where: counted from the config by arithmetic, and from the model itself.

The two must agree; a test and every run say so.
"""

from collections import Counter

from torch import nn

from attnlab.models.config import PositionKind, TransformerConfig
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
        counts = _single_head(config)
    elif isinstance(config, EncoderDecoderConfig):
        layers = config.num_encoder_layers or config.num_layers
        counts = _stack(config, "encoder.", layers, config.encoder_positions or config.positions)
        counts |= _stack(config, "decoder.", config.num_layers, config.positions, cross=True)
    else:
        counts = _stack(config, "", config.num_layers, config.positions)
    if isinstance(config, DecoderConfig | EncoderDecoderConfig):
        counts["head"] = _linear(config.d_model, config.vocab_size, config.bias)
        counts["head"] *= not config.tie_output
    if isinstance(config, EncoderConfig):
        counts["head"] = _linear(config.d_model, config.num_classes or 0, True)
    return {part: count for part, count in counts.items() if count}


def count_from_model(model: nn.Module) -> dict[str, int]:
    """Count the parameters that a model really holds, under the same names of parts.

    `layers.0.attention.query.a` is part of `layers.0.attention.query`; norms are counted by
    themselves.
    """
    counts: Counter[str] = Counter()
    for name, parameter in model.named_parameters():
        part = name.rpartition(".")[0]
        for inner in (".inner", ".outer", ".gate"):
            part = part.removesuffix(inner)
        counts[part] += parameter.numel()
    return dict(counts)


def _single_head(config: SingleHeadConfig) -> dict[str, int]:
    pos_dim = config.pos_dim or 0
    width = config.input_dim + pos_dim
    return {
        "query": width * config.qk_dim,
        "key": width * config.qk_dim,
        "value": width * config.v_dim,
        "positions": config.learned_positions * config.max_seq_len * pos_dim,
    }


def _stack(
    config: TransformerConfig,
    prefix: str,
    num_layers: int,
    positions: PositionKind,
    *,
    cross: bool = False,
) -> dict[str, int]:
    d_model, d_ff = config.d_model, config.inner_width
    widths = {"learned": d_model, "concatenated": config.concatenated_width}
    position = widths.get(positions, 0)
    token = d_model - position * (positions == "concatenated")
    norm = {"layer": 2 * d_model, "rms": d_model}[config.norm]
    counts = {
        f"{prefix}embedding.tokens": config.vocab_size * token,
        f"{prefix}embedding.positions": config.max_length * position,
        f"{prefix}final_norm": norm * config.final_norm,
    }
    inner = _linear(d_model, d_ff, config.bias)
    if config.activation == "swiglu":
        inner *= 2
    own = {"feed_forward": inner + _linear(d_ff, d_model, config.bias)}
    own["norm_feed_forward"] = norm * (config.norm_place != "none")
    for name in ("attention", "cross_attention")[: 1 + cross]:
        own[f"norm_{name}"] = own["norm_feed_forward"]
        own[f"{name}.query"] = _projection(config, config.num_heads)
        own[f"{name}.key"] = _projection(config, config.num_kv_heads or config.num_heads)
        own[f"{name}.value"] = own[f"{name}.key"]
        own[f"{name}.output"] = _linear(d_model, d_model, config.bias)
    for layer in range(num_layers):
        counts |= {f"{prefix}layers.{layer}.{name}": count for name, count in own.items()}
    return counts


def _projection(config: TransformerConfig, heads: int) -> int:
    if config.projections == "dense":
        return _linear(config.d_model, heads * config.head_width, config.bias)
    factors = (config.rank or config.head_width) * (config.d_model + config.head_width)
    base = config.d_model * config.head_width * (config.projections == "gated")
    return heads * (factors + base)


def _linear(inputs: int, outputs: int, bias: bool) -> int:
    return inputs * outputs + outputs * bias

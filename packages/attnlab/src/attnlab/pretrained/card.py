"""The card of a foreign model at the prompt: its family, sizes and backend, in a few lines.

torch's tree of modules stays where it was: `model.foreign` prints it.
"""

from typing import Any

from attnlab.core.sizes import count_numbers
from attnlab.display import Card
from attnlab.pretrained.text import text_config

_WIDTHS = ("hidden_size", "n_embd", "d_model", "dim")


def pretrained_card(model: Any) -> Card:
    """Return the card of a `Pretrained`."""
    foreign, config = model.foreign, text_config(model.foreign)
    points = dict(model.attention_points()).values()
    parameters = list(foreign.parameters())
    dtypes = sorted({str(value.dtype).removeprefix("torch.") for value in parameters})
    family = getattr(config, "model_type", None)
    widths = [f"{getattr(config, name):,}" for name in _WIDTHS if hasattr(config, name)]
    facts: list[tuple[str, Any]] = [
        ("class", type(foreign).__name__ + (f", of the family {family}" if family else "")),
        ("layers", _layers(model.structure.stacks)),
        ("heads", _heads(points)),
        *[("width", width) for width in widths[:1]],
        ("parameters", f"{count_numbers(parameters):,}, {', '.join(dtypes)}"),
        ("attention by", ", ".join(sorted({point.backend for point in points}))),
        ("gives", _output_words(model, config)),
        ("all modules", "model.foreign"),
    ]
    lines = [f"  from {model.source}"] if model.source else []
    return Card(model.name, facts, lines=[*lines, *model.notes])


def _layers(stacks: Any) -> str:
    """Say how many blocks each stack has."""
    words = []
    for stack in stacks:
        place = f" in the {stack.name}" if stack.name else ""
        words.append(f"{len(stack.blocks):,}{place}")
    return ", ".join(words)


def _output_words(model: Any, config: Any) -> str:
    """Say what a model gives, and where it reads no texts."""
    words = "logits" if "logits" in model.sites else "vectors"
    if words == "vectors" and config is None:  # a hand-written model, whose output has no name
        words = "a tensor: logits or vectors"
    return words if model.tokenizer else f"{words}; no tokenizer: it reads ids, not texts"


def _heads(points: Any) -> str:
    """Say how many heads a layer has, of queries and of keys and values."""
    layouts = sorted({(point.layout.num_heads, point.layout.num_kv_heads) for point in points})
    words = []
    for heads, kv_heads in layouts:
        shared = f", {kv_heads:,} of keys and values" if kv_heads != heads else ""
        words.append(f"{heads:,} in a layer{shared}")
    return " or ".join(words)

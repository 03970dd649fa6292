"""The card of a model at the prompt: what kind it is, and its sizes, in a few lines.

torch's tree of modules stays where it was: `model.layers` prints it.
"""

from typing import Any

from attnlab.core.sizes import count_numbers
from attnlab.display import Card


def model_card(model: Any) -> Card:
    """Return the card of a decoder, encoder or encoder–decoder, from its config.

    A model of a run has a `reader`, which says what it reads.
    """
    config = model.config
    layers, tree = f"{config.num_layers:,}", "model.layers"
    if hasattr(config, "num_encoder_layers"):
        layers = f"{config.num_encoder_layers or config.num_layers:,} in the encoder, {layers} in "
        layers, tree = f"{layers}the decoder", "model.encoder.layers, model.decoder.layers"
    heads = f"{config.num_heads:,} in a layer"
    if config.num_kv_heads not in (None, config.num_heads):
        heads += f", {config.num_kv_heads:,} of keys and values"
    parameters = list(model.parameters())
    dtypes = sorted({str(value.dtype).removeprefix("torch.") for value in parameters})
    facts: list[tuple[str, Any]] = [
        ("layers", layers),
        ("heads", heads),
        ("width", f"{config.d_model:,}"),
        ("positions", config.positions),
        ("vocabulary", f"{config.vocab_size:,} tokens"),
        ("longest input", f"{config.max_length:,} tokens"),
        ("parameters", f"{count_numbers(parameters):,}, {', '.join(dtypes)}"),
    ]
    reader = getattr(model, "reader", None)
    if reader is not None:
        facts.append(("reads", reader.prompt))
    facts.append(("all modules", tree))
    return Card(type(model).__name__, facts)

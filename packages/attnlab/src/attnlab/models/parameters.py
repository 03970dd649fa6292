"""How many parameters a model holds, and where."""

from collections import Counter

from torch import nn


def count_from_model(model: nn.Module) -> dict[str, int]:
    """Count the parameters of each part of a model.

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

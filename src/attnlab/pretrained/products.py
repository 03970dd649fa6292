"""Faster products in a foreign model, on request: by the other of torch's two CPU paths, and by our
own attention kernel.

    with faster_products(model):
        model(tokens)      # the same but for rounding, in less time where oneDNN is the faster path

Outputs within the `with` are equal to the bit only among themselves. The faster path depends on
the processor (`attnlab.parts.linear`); it is never turned on by itself.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

from torch import Tensor, nn

from attnlab.errors import CouldNotRun, WrongUsage
from attnlab.parts.linear import linear, matrix_path_probe, use_matrix_path
from attnlab.pretrained.model import Pretrained
from attnlab.pretrained.registry import native_attention

__all__ = ["faster_products"]


@contextmanager
def faster_products(model: nn.Module) -> Iterator[None]:
    """Compute a model's large float32 products on a CPU by oneDNN, and its fused attention by our
    kernel, within the `with`.

    It applies to plain linear layers, and to those of transformers' GPT-2 with transposed weights,
    unless their `forward` was replaced; and to attention if every backend is the registry's and it
    depends on queries, keys, values, a mask and a scale alone (`attnlab.parts.fused` says when our
    kernel is taken). As with `use_matrix_path`, attnlab's own products in other threads take this
    path meanwhile.

    Raises:
        WrongUsage: `model` is not a torch module.
        CouldNotRun: this torch or this processor has no such path, or its results are wrong.
    """
    if not isinstance(model, nn.Module):
        raise WrongUsage(
            f"faster products are for a model, a torch module; got a {type(model).__name__}."
        )
    probe = matrix_path_probe()
    if probe.ratio is None:
        raise CouldNotRun(
            f"there is no faster path for products here: {probe.reason}. Leave faster_products out."
        )
    with ExitStack() as stack:
        for module in model.modules():
            product = _product_of(module)
            if product is not None and "forward" not in vars(module):
                module.forward = partial(product, module)
                stack.callback(vars(module).pop, "forward", None)
        stack.enter_context(use_matrix_path("onednn"))
        if isinstance(model, Pretrained):
            stack.enter_context(native_attention(_attentions(model)))
        yield


def _attentions(model: Pretrained) -> list[nn.Module]:
    """List the modules whose attention depends on its arguments alone; none if another backend is
    in use."""
    points = dict(model.attention_points())
    if any(point.backend != "registry" for point in points.values()):
        return []
    places = {each.place.path for path, each in model.structure.attentions if points[path].is_lazy}
    return [model.foreign.get_submodule(path) for path in places]


def _product_of(module: nn.Module) -> Callable[[nn.Module, Tensor], Tensor] | None:
    """Return the function that computes a linear layer's product; None for another layer."""
    if type(module) is nn.Linear:
        return lambda layer, input: linear(input, layer.weight, layer.bias)  # type: ignore[arg-type]
    turned = getattr(sys.modules.get("transformers.pytorch_utils"), "Conv1D", None)
    if turned is not None and type(module) is turned:
        return lambda layer, x: linear(x, layer.weight.t(), layer.bias)  # type: ignore[arg-type,operator]
    return None

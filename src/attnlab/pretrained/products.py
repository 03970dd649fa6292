"""Faster products in a model that is not ours, for who asks for it: by the other of torch's two CPU paths, and by our
own kernel of attention.

    with faster_products(model):
        model(tokens)                    # the same but for rounding, in less time where oneDNN is the faster path

What is claimed elsewhere of outputs that are equal to the bit holds within the `with` only of passes within it. Which
path is the faster is known of the processor (`attnlab.parts.linear`); nothing of this is ever turned on by itself.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

from torch import Tensor, nn

from attnlab.errors import CouldNotRun, WrongUsage
from attnlab.parts.linear import linear, matrix_path_probe, use_matrix_path
from attnlab.pretrained.model import Pretrained
from attnlab.pretrained.registry import quickened

__all__ = ["faster_products"]


@contextmanager
def faster_products(model: nn.Module) -> Iterator[None]:
    """Compute a model's large float32 products on a CPU by oneDNN, and its fused attention by our kernel.

    It lasts as long as the `with`. Plain linear layers, and those of transformers' GPT-2 with their weights turned; one
    that somebody else has changed is left as it is. Attention where every seam is the registry's, and queries, keys, a
    mask and a scale tell all (`attnlab.parts.fused` says when our kernel is taken). As with `use_matrix_path`,
    attnlab's own products in other threads take this path meanwhile.

    Raises:
        WrongUsage: what was given is no model.
        CouldNotRun: this torch or this processor has no such path, or it computes something else.
    """
    if not isinstance(model, nn.Module):
        raise WrongUsage(f"faster products are for a model, a torch module; got a {type(model).__name__}.")
    probe = matrix_path_probe()
    if probe.ratio is None:
        raise CouldNotRun(f"there is no faster path for products here: {probe.reason}. Leave faster_products out.")
    with ExitStack() as stack:
        for module in model.modules():
            product = _product_of(module)
            if product is not None and "forward" not in vars(module):
                module.forward = partial(product, module)
                stack.callback(vars(module).pop, "forward", None)
        stack.enter_context(use_matrix_path("onednn"))
        if isinstance(model, Pretrained):
            stack.enter_context(quickened(_attentions(model)))
        yield


def _attentions(model: Pretrained) -> list[nn.Module]:
    """List the modules whose attention can be told by what it is given; none where other seams have to stand by."""
    doors = dict(model.attention_doors())
    if any(door.seam != "registry" for door in doors.values()):
        return []
    places = {plan.place.path for path, plan in model.plan.attentions if doors[path].is_lazy}
    return [model.foreign.get_submodule(path) for path in places]


def _product_of(module: nn.Module) -> Callable[[nn.Module, Tensor], Tensor] | None:
    """Return what computes a layer's product; None for a layer that is more than that."""
    if type(module) is nn.Linear:
        return lambda layer, input: linear(input, layer.weight, layer.bias)  # type: ignore[arg-type]
    turned = getattr(sys.modules.get("transformers.pytorch_utils"), "Conv1D", None)
    if turned is not None and type(module) is turned:
        return lambda layer, x: linear(x, layer.weight.t(), layer.bias)  # type: ignore[arg-type,operator]
    return None

"""The switch for speed, `speed`, and what it does to a foreign model, `faster_products`.

    with attnlab.speed(model):
        model(tokens)      # the same but for rounding, in less time where oneDNN is the faster path

Within the `with`, products take the other of torch's two CPU paths, and attention our own kernel.
Outputs there are equal to the bit only among themselves. The faster path depends on the processor
(`attnlab.parts.linear`); it is never turned on by itself.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, Self

from torch import Tensor, nn

from attnlab.display import displayed
from attnlab.errors import CouldNotRun, WrongUsage
from attnlab.parts.fused import AttentionPath, use_attention_path
from attnlab.parts.linear import MatrixPath, linear, matrix_path_probe, use_matrix_path
from attnlab.pretrained.backends.registry import native_attention
from attnlab.sites import SitedModule

_in_use: list["Speed"] = []


@displayed
class Speed:
    """A choice of `speed`: it holds until `end`, or until the end of a `with`."""

    def __init__(self, choices: ExitStack) -> None:
        self._choices = choices
        _in_use.append(self)  # else a choice that is not kept would end at once

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Go back to what was in use before; end several choices in the reverse order."""
        if self in _in_use:
            _in_use.remove(self)
        self._choices.close()


def speed(
    model: nn.Module | None = None,
    *,
    matrix: MatrixPath | None = None,
    attention: AttentionPath | None = None,
) -> Speed:
    """Choose the kernels that compute on this processor, from now on or within a `with`.

    Results are the same but for rounding. A path that is given here wins over the environment's
    ATTNLAB_MATRIX_PATH and ATTNLAB_ATTENTION_PATH.

    Args:
        model: a foreign model whose large products and fused attention take the faster kernels, see
            `faster_products`.
        matrix: the path of large products: "onednn", "default" (torch's own), or "auto", the one
            that was faster when it was timed here.
        attention: the kernel of long attentions without weights: "native" (ours), "default"
            (torch's), or "auto".

    Raises:
        WrongUsage: nothing was chosen, there is no such path, or `model` is not a torch module.
        CouldNotRun: there is no faster path for this model here.

    >>> with speed(matrix="default", attention="default"):
    ...     pass
    """
    if model is None and matrix is None and attention is None:
        raise WrongUsage("say what shall be fast: speed(model), speed(matrix=…, attention=…).")
    with ExitStack() as choices:
        if matrix is not None:
            choices.enter_context(use_matrix_path(matrix))
        if attention is not None:
            choices.enter_context(use_attention_path(attention))
        if model is not None:
            choices.enter_context(faster_products(model))
        return Speed(choices.pop_all())


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
            f"there is no faster path for products here: {probe.reason}. "
            "Leave attnlab.speed(model) out."
        )
    with ExitStack() as stack:
        for module in model.modules():
            product = _product_of(module)
            if product is not None and "forward" not in vars(module):
                module.forward = partial(product, module)
                stack.callback(vars(module).pop, "forward", None)
        stack.enter_context(use_matrix_path("onednn"))
        if isinstance(model, SitedModule) and hasattr(model, "foreign"):
            stack.enter_context(native_attention(_attentions(model)))
        yield


def _attentions(model: Any) -> list[nn.Module]:
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

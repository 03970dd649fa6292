"""The general layout of a population: parameters stacked, (member, …), and one step under `torch.func.vmap`."""

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from attnlab.parts.attend import trusted_numbers
from attnlab.train.config import TrainConfig
from attnlab.train.layouts.blocks import Blocks, cut, different_buffers, one_dtype
from attnlab.train.layouts.layout import Batch, Loss, NotExpressible, stacked
from attnlab.train.layouts.solo import _makes_noise

__all__ = ["Called", "over_members", "refuse_noise", "vmapped"]

_MOST_AT_ONCE = 256  # members of which a function is asked together, lest a thousand take the memory of a thousand


def vmapped(models: Sequence[nn.Module], configs: Sequence[TrainConfig], loss: Loss, example: Batch) -> Blocks:
    """Make the layout `vmap`; the loss is tried on `example`, the batch of one step of one member.

    Raises:
        NotExpressible: something stands against it; the message says what.
    """
    refuse_noise(models[0])
    one_dtype(models[0])
    batch = tuple(part.unsqueeze(0).repeat(len(models), *[1] * part.dim()) for part in example)
    tried = _Vmapped(models, loss)
    try:
        tried.losses(batch)
    except RuntimeError as error:
        reason = str(error).strip().split("\n")[0].rstrip(".")
        raise NotExpressible(f"the loss cannot be computed for all members at once ({reason})") from None
    before = dict(models[0].named_buffers())
    changed = next((name for name, each in tried.frame.named_buffers() if not torch.equal(each, before[name])), None)
    if changed is not None:
        raise NotExpressible(f"the loss changes the buffer {changed}")
    return Blocks("vmap", models, configs, len(models), lambda: _Vmapped(models, loss))


class _Vmapped:
    """An engine (see `blocks.py`): all members' losses under `torch.func.vmap`, then autograd."""

    def __init__(self, models: Sequence[nn.Module], loss: Loss) -> None:
        self.frame = frame = copy.deepcopy(models[0]).train()
        self.parameters = torch.cat([each.reshape(len(models), -1) for each in stacked(models).values()], 1)
        self.gradients = torch.zeros_like(self.parameters)
        self.buffers = different_buffers(models)
        shapes = {name: parameter.shape for name, parameter in models[0].named_parameters()}
        self._leaves = {name: each.detach().requires_grad_() for name, each in cut(self.parameters, shapes).items()}
        self._to = cut(self.gradients, shapes)

        def member_loss(parameters: dict[str, Tensor], buffers: dict[str, Tensor], *batch: Tensor) -> Tensor:
            return loss(Called(frame, parameters, buffers), *batch)

        self._losses = vmap(member_loss)

    def losses(self, batch: Batch) -> Tensor:
        """Compute and differentiate."""
        with torch.enable_grad(), trusted_numbers():
            found: Tensor = self._losses(self._leaves, self.buffers, *batch)
            gradients = torch.autograd.grad(found.sum(), list(self._leaves.values()), materialize_grads=True)
        for place, gradient in zip(self._to.values(), gradients, strict=True):
            place.copy_(gradient)
        return found.detach()


class Called(nn.Module):
    """A model that computes with the parameters it is handed: what a loss or a judge sees."""

    def __init__(self, frame: nn.Module, parameters: dict[str, Tensor], buffers: dict[str, Tensor]) -> None:
        super().__init__()
        # In a tuple, lest the frame and its parameters be registered as parts of this module.
        self._member = (frame, parameters, buffers)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Compute as the member does."""
        frame, parameters, buffers = self._member
        return functional_call(frame, (parameters, buffers), args, kwargs)

    def named_modules(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, nn.Module]]:
        """Yield the parts of the member, so that a judge may record what passes inside."""
        yield from self._member[0].named_modules(*args, **kwargs)


def over_members(models: Sequence[nn.Module], function: Callable[[nn.Module], Any]) -> Callable[..., Any]:
    """Return function(model) for all members at once, as a function of their stacked parameters."""
    frame = copy.deepcopy(models[0]).to("meta").eval()
    _, buffers = stack_module_state(list(models))

    def one(parameters: dict[str, Tensor], buffers: dict[str, Tensor]) -> Any:
        return function(Called(frame, parameters, buffers))

    return lambda parameters: vmap(one, chunk_size=_MOST_AT_ONCE)(parameters, buffers)


def refuse_noise(model: nn.Module) -> None:
    """Refuse what members cannot do side by side."""
    for part in model.modules():
        if _makes_noise(part):
            raise NotExpressible("dropout draws its noise member by member")
        if getattr(part, "running_mean", None) is not None:
            raise NotExpressible(f"a {type(part).__name__} keeps running statistics")

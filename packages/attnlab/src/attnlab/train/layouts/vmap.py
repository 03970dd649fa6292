"""The general layout of a population: stacked parameters, (member, …), and one step under
`torch.func.vmap`."""

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from attnlab.errors import AttnlabError, type_words
from attnlab.sites import SitedModule
from attnlab.train.config import TrainConfig
from attnlab.train.layouts.blocks import EngineBlocks, different_buffers, one_dtype, views_by_name
from attnlab.train.layouts.layout import Batch, Loss, NotExpressible, first_line, stacked_parameters
from attnlab.train.layouts.sequential import makes_noise

# members of which a function is asked together, lest a thousand take the memory of a thousand
_MOST_AT_ONCE = 256


def vmapped(
    models: Sequence[nn.Module], configs: Sequence[TrainConfig], loss: Loss, example: Batch
) -> EngineBlocks:
    """Make the layout `vmap`; the loss is tested on `example`, the batch of one step of one member.

    Raises:
        NotExpressible: something stands against it; the message says what.
    """
    one_dtype(models)
    engine = _Vmapped(models, loss)
    try:
        engine.losses(tuple(torch.stack([part] * len(models)) for part in example))
    except (AttnlabError, NotExpressible):
        raise
    except Exception as error:
        raise NotExpressible(
            f"the loss cannot be computed for all members at once ({first_line(error)})"
        ) from None
    return EngineBlocks(
        "vmap", models, configs, len(models), lambda: engine, workers=1, lanes_first=True
    )


class _Vmapped:
    """An engine (see `blocks.py`): all members' losses under `torch.func.vmap`, then autograd."""

    def __init__(self, models: Sequence[nn.Module], loss: Loss) -> None:
        frame = frame_of(models[0])
        rows = [weight.flatten(1) for weight in stacked_parameters(models).values()]
        self.parameters = torch.cat(rows, 1)
        self.gradients = torch.zeros_like(self.parameters)
        self.buffers = self.parameters.new_zeros(0, len(models))  # they stay where they are
        self._different = different_buffers(models)
        shapes = {name: parameter.shape for name, parameter in models[0].named_parameters()}
        self._leaves = {}
        for name, leaf in views_by_name(self.parameters, shapes).items():
            self._leaves[name] = leaf.detach().requires_grad_()
        self._to = list(views_by_name(self.gradients, shapes).values())
        self._losses = vmap(MemberModel(frame, loss).to_member)

    def losses(self, batch: Batch) -> Tensor:
        """Compute and differentiate."""
        with torch.enable_grad():
            losses: Tensor = self._losses(self._leaves, self._different, *batch)
            leaves = list(self._leaves.values())
            gradients = torch.autograd.grad(losses.sum(), leaves, materialize_grads=True)
        for place, gradient in zip(self._to, gradients, strict=True):
            place.copy_(gradient)
        return losses.detach()


class MemberModel(nn.Module):
    """A model that computes with the numbers of each member.

    While it computes, they are the model's own: a function that reads the model directly (a part, a
    weight, all parameters for a penalty) gets this member's numbers, and derivatives by them.
    """

    def __init__(self, model: nn.Module, function: Callable[..., Any]) -> None:
        super().__init__()
        self.model, self._function = model, function

    def forward(self, *batch: Tensor) -> Any:
        """Compute with the model's present numbers."""
        return self._function(self.model, *batch)

    def to_member(
        self, parameters: Mapping[str, Tensor], buffers: Mapping[str, Tensor], *batch: Tensor
    ) -> Any:
        """Compute as a member does."""
        member_tensors = {
            f"model.{name}": tensor for name, tensor in {**parameters, **buffers}.items()
        }
        return functional_call(self, member_tensors, batch)


def frame_of(model: nn.Module) -> nn.Module:
    """Return a copy of a model to compute with other numbers, in training mode; its attention does
    not guard against NaN, which training finds otherwise.

    Raises:
        NotExpressible: it cannot be copied.
    """
    try:
        frame = copy.deepcopy(model).train()
    except (TypeError, RuntimeError) as error:
        raise NotExpressible(f"the model cannot be copied ({first_line(error)})") from None
    for part in frame.modules():
        if isinstance(part, SitedModule):
            part.guard = False
    return frame


def over_members(
    models: Sequence[nn.Module], function: Callable[[nn.Module], Any]
) -> Callable[..., Any]:
    """Return function(model) for all members at once, as a function of their stacked parameters."""
    lent = MemberModel(frame_of(models[0]).to("meta").eval(), function)
    _, buffers = stack_module_state(list(models))
    return lambda parameters: vmap(lent.to_member, chunk_size=_MOST_AT_ONCE)(parameters, buffers)


def refuse_noise(model: nn.Module) -> None:
    """Refuse random operations, which members cannot do side by side."""
    for part in model.modules():
        if makes_noise(part):
            raise NotExpressible("dropout draws its noise member by member")
        if getattr(part, "running_mean", None) is not None:
            raise NotExpressible(f"{type_words(part)} keeps running statistics")

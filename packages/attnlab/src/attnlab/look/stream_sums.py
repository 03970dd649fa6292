"""Does the residual stream add up? In every block, the stream before it and what its attentions and
its feed-forward part add, through their norms and factors, make the stream after it.

    stream_sums(model)    # {"layers.0.residual_after": 1.2e-07, …}

Block by block this holds the sites of a model against each other: a site that showed another value
than the model computed with, or a part that no site shows, would leave a gap.
"""

from collections.abc import Sequence
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from attnlab.look.anatomy import AnatomyStep, NormStep, PartStep, block_steps, example_of
from attnlab.look.inputs import Call, Inputs, foreign_of
from attnlab.look.position_names import stacks_of
from attnlab.look.readout import recorded_steps
from attnlab.look.recording.recording import Recording
from attnlab.pretrained.model import Pretrained


@torch.no_grad()
def stream_sums(model: nn.Module, inputs: Inputs | None = None) -> dict[str, float]:
    """Return how far the stream after each block is from the sum of its parts: the largest gap, as
    a share of the stream's largest number, by the site of the stream.

    Args:
        model: a decoder, an encoder, an encoder–decoder or a pretrained model.
        inputs: see `record`; None for a pretrained model's small example.

    Raises:
        WrongUsage: a model of another kind, or one of attnlab without inputs.
        CouldNotRun: what a block gives is not a sum.
    """
    if inputs is None and isinstance(model, Pretrained):
        inputs = example_of(model)
    call = Call.of(inputs if inputs is not None else (), model)
    gaps: dict[str, float] = {}
    for stack in stacks_of(model):
        blocks = dict(zip(_paths(model, stack), block_steps(model, stack), strict=True))
        steps = chain.from_iterable(blocks.values())
        sites = [f"{path}.residual_{place}" for path in blocks for place in ("before", "after")]
        with recorded_steps(model, steps, sites) as (recording, outputs):
            call(model)
        for path, block in blocks.items():
            after = recording[f"{path}.residual_after"].double()
            summed = _summed(model, recording[f"{path}.residual_before"], block, recording, outputs)
            gap = (summed.double() - after).abs().max() / after.abs().max()
            gaps[f"{path}.residual_after"] = float(gap)
    return gaps


def _paths(model: Any, stack: str) -> list[str]:
    """Return the paths of the blocks of a stack."""
    if isinstance(model, Pretrained):
        return next(known for known in model.structure.stacks if known.name == stack).paths
    prefix = f"{stack}.layers".lstrip(".")
    return [f"{prefix}.{index}" for index in range(len(model.get_submodule(prefix)))]


def _summed(
    model: nn.Module,
    stream: Tensor,
    steps: Sequence[AnatomyStep],
    recording: Recording,
    outputs: dict[PartStep, Tensor],
) -> Tensor:
    """Add what each step adds to the stream before a block, (batch, position, d_model)."""
    module_at = foreign_of(model).get_submodule
    for step in steps:
        if isinstance(step, NormStep):
            stream = module_at(step.path)(stream)
            continue
        if isinstance(step, PartStep):
            added = outputs[step]
        else:
            heads = recording[f"{step.point}.heads"]
            added = module_at(step.projection)(heads.transpose(1, 2).flatten(2))
            for norm in step.norms:
                added = module_at(norm)(added)
        stream = stream + step.factor * added.view_as(stream)
    return stream

"""Checkpoints: everything a training needs to go on, in one safetensors file.

`model.*` are the weights, `optimiser.*` its moments, `generator` the state of the data's randomness; step, score and
whatever else is plain stand in the file's metadata as JSON. Written in one step, so the one before survives a
failure.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from attnlab.errors import CouldNotRun
from attnlab.files import write_bytes

__all__ = ["Checkpoint", "read_checkpoint", "write_checkpoint"]


class Checkpoint(NamedTuple):
    """What a checkpoint file holds."""

    tensors: dict[str, Tensor]
    facts: dict[str, Any]

    def weights(self) -> dict[str, Tensor]:
        """The model's parameters and buffers by name."""
        return {name.removeprefix("model."): t for name, t in self.tensors.items() if name.startswith("model.")}


def write_checkpoint(
    path: Path,
    model: nn.Module,
    optimiser: torch.optim.Optimizer | None,
    generator: torch.Generator | None,
    facts: Mapping[str, Any],
) -> None:
    """Write the state of a training; pass None for what a mere copy of the weights does not need."""
    tensors = {f"model.{name}": value.detach().contiguous() for name, value in model.state_dict().items()}
    if optimiser is not None:
        for index, state in optimiser.state_dict()["state"].items():
            tensors |= {
                f"optimiser.{index}.{name}": torch.as_tensor(value).detach().contiguous()
                for name, value in state.items()
            }
    if generator is not None:
        tensors["generator"] = generator.get_state()
    write_bytes(path, safetensors.torch.save(tensors, metadata={"facts": json.dumps(dict(facts))}))


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint back."""
    try:
        with safetensors.safe_open(str(path), framework="pt") as file:
            facts = json.loads((file.metadata() or {}).get("facts", "{}"))
            return Checkpoint({name: file.get_tensor(name) for name in file.keys()}, facts)  # noqa: SIM118
    except (OSError, ValueError, safetensors.SafetensorError) as error:
        raise CouldNotRun(f"could not read the checkpoint {path}: {error}.") from None

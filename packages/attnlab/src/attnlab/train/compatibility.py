"""Does a checkpoint belong to this training? Checked before any number is used."""

import hashlib
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from attnlab import __version__
from attnlab.core.store import refusing_damage
from attnlab.errors import CouldNotRun
from attnlab.train.checkpoint import Checkpoint
from attnlab.train.config import TrainConfig
from attnlab.train.history import History
from attnlab.train.layouts.layout import Batches


def versions() -> dict[str, str]:
    """Return the versions of the libraries that compute the numbers."""
    return {"attnlab": __version__, "torch": str(torch.__version__)}


@dataclass(frozen=True)
class Description:
    """A training beside its models: how many, their configs, and a digest of its data.

    A field of the configs is one value where all members have the same, else a list.
    """

    members: int
    configs: dict[str, object]
    data: str


def describe_training(
    configs: Sequence[TrainConfig], noise: Sequence[int], first_batches: Sequence[Batches]
) -> Description:
    """Describe a training."""
    digest = hashlib.sha256(repr(list(noise)).encode())
    for batches in first_batches:
        for tensor in _tensors(batches):
            content = tensor.detach().cpu().contiguous().flatten().view(torch.uint8)
            digest.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
            digest.update(content.numpy().data)
    fields: dict[str, object] = {}
    mappings = [config.to_mapping() for config in configs]
    for name in mappings[0]:
        values = [mapping[name] for mapping in mappings]
        fields[name] = values[0] if len(set(values)) == 1 else values
    return Description(len(configs), fields, digest.hexdigest()[:16])


def read_history(
    checkpoint: Checkpoint, description: Description, models: Sequence[nn.Module], folder: Path
) -> History:
    """Check a checkpoint against the training and its models, and return its history.

    Args:
        checkpoint: what was found.
        description: of this training.
        models: of the members.
        folder: of the checkpoint, to name it.

    Raises:
        CouldNotRun: it is of another training, or damaged; nothing was taken over.
    """
    tensors, facts = checkpoint.tensors, checkpoint.facts
    with refusing_damage(f"the checkpoint in {folder}"):
        differences = _differences(facts, description) or _other_shapes(tensors, models)
        if differences:
            raise CouldNotRun(
                f"the checkpoint in {folder} is of another training: {'; '.join(differences)}. "
                "Choose another folder, or remove this one."
            )
        return History.from_state(tensors, facts)


def _differences(there: Mapping[str, Any], here: Description) -> list[str]:
    """Compare the facts of a checkpoint with a training: one short phrase for each difference."""
    if there["members"] != here.members:
        return [f"{there['members']} members there and {here.members} here"]
    differences = []
    for name, value in here.configs.items():
        other = there["configs"].get(name)
        if other != value:
            differences.append(f"{name} {_short(other)} there and {_short(value)} here")
    if not differences and there["data"] != here.data:
        differences.append("other data (another seed, batch size or file)")
    return differences


def _other_shapes(tensors: Mapping[str, Tensor], models: Sequence[nn.Module]) -> list[str]:
    """Compare the weights with the models': one short phrase for each that has another shape."""
    differences = []
    for name, parameter in models[0].named_parameters():
        there, here = tuple(tensors[f"model.{name}"].shape), (len(models), *parameter.shape)
        if there != here:
            differences.append(f"{name} is {there} there and {here} here")
    return differences


def _tensors(batches: Batches) -> Iterable[Tensor]:
    return itertools.chain(*batches) if isinstance(batches, list) else batches


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."

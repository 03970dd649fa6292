"""Does a checkpoint belong to this training, and does all of it fit? Checked before any number is
used."""

import hashlib
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import torch
from torch import Tensor, nn

from attnlab import __version__
from attnlab.errors import CouldNotRun
from attnlab.train.checkpoint import Checkpoint
from attnlab.train.config import LayoutName, TrainConfig
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
    checkpoint: Checkpoint,
    description: Description,
    config: TrainConfig,
    models: Sequence[nn.Module],
    folder: Path,
) -> History:
    """Check a checkpoint against the training and its models, and return its history.

    Args:
        checkpoint: what was found.
        description: of this training.
        config: what its members have in common.
        models: of the members.
        folder: of the checkpoint, to name it.

    Raises:
        CouldNotRun: it is of another training, or does not fit; nothing was taken over.
    """
    tensors, facts = checkpoint.tensors, checkpoint.facts
    try:
        differences = _differences(facts, description)
        if differences:
            raise CouldNotRun(
                f"the checkpoint in {folder} is of another training: {'; '.join(differences)}. "
                "Choose another folder, or remove this one."
            )
        _check_tensors(tensors, models)
        step, layout = facts["step"], facts["layout"]
        _require(step in range(1, config.steps + 1), f"step is {_short(step)}")
        _require(layout in get_args(LayoutName), f"there is no layout {_short(layout)}")
        return History.from_state(tensors, facts)
    except _Impossible as error:
        wrong = str(error)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        wrong = f"{type(error).__name__}: {error}"[:200]
    raise CouldNotRun(f"the checkpoint in {folder} does not fit the models: {wrong}.")


class _Impossible(Exception):
    """Something in a checkpoint cannot be."""


def _require(is_possible: bool, what_is: str) -> None:
    if not is_possible:
        raise _Impossible(what_is)


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


def _check_tensors(tensors: Mapping[str, Tensor], models: Sequence[nn.Module]) -> None:
    """Check that no tensor is missing, unknown, or of another shape."""
    number = len(models)
    for part in ("model", "first", "second", "best"):
        _check_part(part, tensors, models)
    for name in ("steps", "is_alive"):
        _require(name in tensors, f"{name} is missing")
        tensor = tensors[name]
        is_right = tensor.shape == (number,)
        _require(is_right, f"{name} is {tuple(tensor.shape)}, expected ({number},)")
    if "since_note" in tensors:
        shape = tuple(tensors["since_note"].shape)
        is_right = shape[1:] == (number,)
        _require(is_right, f"since_note is {shape}, expected (steps, {number})")


def _check_part(part: str, tensors: Mapping[str, Tensor], models: Sequence[nn.Module]) -> None:
    """Check the tensors of the models' names: their weights, a moment, or their best weights."""
    number, model_state = len(models), models[0].state_dict()
    held = [name.removeprefix(f"{part}.") for name in tensors if name.startswith(f"{part}.")]
    if held or part == "model":
        for name, _ in models[0].named_parameters():
            _require(name in held, f"{part}.{name} is missing")
    for name in held:
        _require(name in model_state, f"the models have no {name}")
        stored, expected = tensors[f"{part}.{name}"], model_state[name]
        shape = (number, *expected.shape)
        _require(
            stored.shape == shape and stored.dtype == expected.dtype,
            f"{part}.{name} is {tuple(stored.shape)} of {stored.dtype}, expected {shape} of "
            f"{expected.dtype}",
        )


def _tensors(batches: Batches) -> Iterable[Tensor]:
    return itertools.chain(*batches) if isinstance(batches, list) else batches


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."

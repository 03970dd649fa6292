"""Is a checkpoint of this very training, and does all of it fit? Asked before a single number is taken over."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
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

__all__ = ["describe_training", "read_history", "versions"]


def versions() -> dict[str, str]:
    """Name what computes the numbers."""
    return {"attnlab": __version__, "torch": str(torch.__version__)}


def describe_training(
    configs: Sequence[TrainConfig], noise: Sequence[int], first_batches: Sequence[Batches]
) -> dict[str, Any]:
    """Say what tells one training from another, beside its models: configs, and a digest of what it learns from."""
    digest = hashlib.sha256(repr(list(noise)).encode())
    for batches in first_batches:
        for tensor in _tensors(batches):
            digest.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
            digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    mappings = [config.to_mapping() for config in configs]
    fields = {name: [mapping[name] for mapping in mappings] for name in mappings[0]}
    return {
        "members": len(configs),
        "configs": {name: values[0] if len(set(values)) == 1 else values for name, values in fields.items()},
        "data": digest.hexdigest()[:16],
    }


def read_history(
    checkpoint: Checkpoint, description: Mapping[str, Any], models: Sequence[nn.Module], folder: Path
) -> History:
    """Hold a checkpoint against the training and its models, and return the course that it holds.

    Raises:
        CouldNotRun: it is of another training, or does not fit; nothing was taken over.
    """
    tensors, facts = checkpoint
    try:
        found = _differences(facts, description)
        if found:
            raise CouldNotRun(
                f"the checkpoint in {folder} is of another training: {'; '.join(found)}. "
                "Choose another folder, or remove this one."
            )
        wrong = _wrong_tensor(tensors, models) or _wrong_fact(checkpoint)
        if wrong is None:
            return History.from_state(tensors, facts)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        wrong = f"{type(error).__name__}: {error}"[:200]
    raise CouldNotRun(f"the checkpoint in {folder} does not fit the models: {wrong}.")


def _differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> list[str]:
    """Compare two descriptions: one short phrase for each difference."""
    if there["members"] != here["members"]:
        return [f"{there['members']} members there and {here['members']} here"]
    found = []
    for name, value in here["configs"].items():
        other = there["configs"].get(name)
        if other != value:
            found.append(f"{name} {_short(other)} there and {_short(value)} here")
    if not found and there["data"] != here["data"]:
        found.append("other data (another seed, batch size or file)")
    return found


def _wrong_fact(checkpoint: Checkpoint) -> str | None:
    facts = checkpoint.facts
    if type(facts["step"]) is not int or facts["step"] < 1:
        return f"step is {facts['step']!r}"
    if not isinstance(facts["is_compiled"], bool):
        return f"is_compiled is {facts['is_compiled']!r}"
    if checkpoint.threads is None:
        return f"threads is {facts['threads']!r}"
    return None if facts["layout"] in get_args(LayoutName) else f"there is no layout {facts['layout']!r}"


def _wrong_tensor(tensors: Mapping[str, Tensor], models: Sequence[nn.Module]) -> str | None:
    """Name the first tensor that is missing, unknown, or of another shape."""
    own = models[0].state_dict()
    parameters = [name for name, _ in models[0].named_parameters()]
    for part in ("model", "first", "second", "best"):
        held = [name.removeprefix(f"{part}.") for name in tensors if name.startswith(f"{part}.")]
        if held or part == "model":
            missing = next((name for name in parameters if name not in held), None)
            if missing is not None:
                return f"{part}.{missing} is missing"
        for name in held:
            if name not in own:
                return f"the models have no {name}"
            found, expected = tensors[f"{part}.{name}"], own[name]
            shape = (len(models), *expected.shape)
            if found.shape != shape or found.dtype != expected.dtype:
                return f"{part}.{name} is {tuple(found.shape)} of {found.dtype}, expected {shape} of {expected.dtype}"
    for name, tensor in tensors.items():
        if name in ("steps", "is_alive") and tensor.shape != (len(models),):
            return f"{name} is {tuple(tensor.shape)}, expected ({len(models)},)"
        if name == "since_note" and (tensor.dim() != 2 or tensor.shape[1] != len(models)):
            return f"since_note is {tuple(tensor.shape)}, expected (steps, {len(models)})"
    return next((f"{name} is missing" for name in ("steps", "is_alive") if name not in tensors), None)


def _tensors(batches: Batches) -> Iterable[Tensor]:
    return (tensor for batch in batches for tensor in batch) if isinstance(batches, list) else batches


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."

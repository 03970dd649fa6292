"""Does a checkpoint belong to this training, and does all of it fit? Checked before any number is
used."""

import hashlib
import itertools
import math
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
from attnlab.train.schedule import marks_until


def versions() -> dict[str, str]:
    """Return the versions of the libraries that compute the numbers."""
    return {"attnlab": __version__, "torch": str(torch.__version__)}


def describe_training(
    configs: Sequence[TrainConfig], noise: Sequence[int], first_batches: Sequence[Batches]
) -> dict[str, Any]:
    """Describe a training beside its models: its configs, and a digest of its data."""
    digest = hashlib.sha256(repr(list(noise)).encode())
    for batches in first_batches:
        for tensor in _tensors(batches):
            digest.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
            digest.update(
                tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data
            )
    fields: dict[str, Any] = {}
    mappings = [config.to_mapping() for config in configs]
    for name in mappings[0]:
        values = [mapping[name] for mapping in mappings]
        fields[name] = values[0] if len(set(values)) == 1 else values
    return {"members": len(configs), "configs": fields, "data": digest.hexdigest()[:16]}


def read_history(
    checkpoint: Checkpoint,
    description: Mapping[str, Any],
    config: TrainConfig,
    models: Sequence[nn.Module],
    folder: Path,
) -> History:
    """Check a checkpoint against the training and its models, and return its history.

    Args:
        checkpoint: what was found.
        description: of this training, see `describe_training`.
        config: what its members have in common.
        models: of the members.
        folder: of the checkpoint, to name it.

    Raises:
        CouldNotRun: it is of another training, or does not fit; nothing was taken over.
    """
    tensors, facts = checkpoint.tensors, checkpoint.facts
    try:
        found = _differences(facts, description)
        if found:
            raise CouldNotRun(
                f"the checkpoint in {folder} is of another training: {'; '.join(found)}. "
                "Choose another folder, or remove this one."
            )
        wrong = (
            _wrong_tensor(tensors, models)
            or _wrong_fact(checkpoint, config)
            or _wrong_state(checkpoint, config)
        )
        if wrong is None:
            history = History.from_state(tensors, facts)
            wrong = _wrong_course(history, facts["step"], config)
        if wrong is None:
            return history
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


def _wrong_fact(checkpoint: Checkpoint, config: TrainConfig) -> str | None:
    facts = checkpoint.facts
    if type(facts["step"]) is not int or not 1 <= facts["step"] <= config.steps:
        return f"step is {facts['step']!r}"
    if not isinstance(facts["versions"], dict):
        return f"versions is {_short(facts['versions'])}"
    if not isinstance(facts["is_compiled"], bool):
        return f"is_compiled is {facts['is_compiled']!r}"
    if checkpoint.threads is None:
        return f"threads is {facts['threads']!r}"
    if facts["layout"] not in get_args(LayoutName):
        return f"there is no layout {facts['layout']!r}"
    return None


def _wrong_state(checkpoint: Checkpoint, config: TrainConfig) -> str | None:
    """Return what is impossible in a state at this step; None if nothing is."""
    tensors, facts = checkpoint.tensors, checkpoint.facts
    step, updates, is_alive = facts["step"], tensors["steps"], tensors["is_alive"].bool()
    noted, judged = marks_until(config, step)
    moments = ["first", "second"] if config.optimiser == "adamw" else []
    for part in [*moments, "best"] if judged else moments:
        if not any(name.startswith(f"{part}.") for name in tensors):
            return f"{part} is missing"
    if moments and bool((updates != step)[is_alive].any()):
        return f"steps is {_short(updates.tolist())}, expected {step}"
    for name, tensor in tensors.items():
        if name.partition(".")[0] in moments and not _is_finite(tensor[is_alive]):
            return f"{name} is not finite"
    since = step - (noted[-1] if noted else 0)
    found = len(tensors["since_note"]) if "since_note" in tensors else 0
    if found != since:
        return f"since_note is of {found} steps, expected {since}"
    for member, alive in enumerate(is_alive.tolist()):
        if not alive and facts["ends"][member] is None:
            return f"member {member} broke, but not when"
    return None


def _is_finite(tensor: Tensor) -> bool:
    return bool(torch.isfinite(tensor).all())


def _wrong_course(history: History, step: int, config: TrainConfig) -> str | None:
    """Return what is impossible in a history that leads to this step; None if nothing is."""
    noted, marks = marks_until(config, step)
    if history.steps != noted:
        return f"logged is {_short(history.steps)}, expected {_short(noted)}"
    if history.judged_steps != marks:
        return f"judged is {_short(history.judged_steps)}, expected {_short(marks)}"
    for member, own in enumerate(history.evaluations):
        end, fault = history.ends[member], history.faults[member]
        if not (end is None or (type(end) is int and 0 <= end <= step)):
            return f"the end of member {member} is {_short(end)}"
        if not (fault is None or (isinstance(fault, str) and end is not None)):
            return f"the fault of member {member} is {_short(fault)}"
        judged = sum(1 for each in history.judged_steps if end is None or each <= end)
        if len(own) != judged - (fault is not None and end in history.judged_steps[len(own) :]):
            return f"member {member} has {len(own)} evaluations, expected {judged}"
        if not all(math.isfinite(value) for each in own for value in each.figures.values()):
            return f"a figure of member {member} is not finite"
    if all(fault is not None for fault in history.faults):
        return "all members broke"
    if not all(map(_is_finite, history.rates)):
        return "a rate is not finite"
    return None


def _wrong_tensor(tensors: Mapping[str, Tensor], models: Sequence[nn.Module]) -> str | None:
    """Return the first tensor that is missing, unknown, or of another shape."""
    for part in ("model", "first", "second", "best"):
        wrong = _wrong_weights(part, tensors, models)
        if wrong is not None:
            return wrong
    for name, tensor in tensors.items():
        if name in ("steps", "is_alive") and tensor.shape != (len(models),):
            return f"{name} is {tuple(tensor.shape)}, expected ({len(models)},)"
        if name == "since_note" and (tensor.dim() != 2 or tensor.shape[1] != len(models)):
            return f"since_note is {tuple(tensor.shape)}, expected (steps, {len(models)})"
    for name in ("steps", "is_alive"):
        if name not in tensors:
            return f"{name} is missing"
    return None


def _wrong_weights(
    part: str, tensors: Mapping[str, Tensor], models: Sequence[nn.Module]
) -> str | None:
    own = models[0].state_dict()
    held = [name.removeprefix(f"{part}.") for name in tensors if name.startswith(f"{part}.")]
    if held or part == "model":
        for name, _ in models[0].named_parameters():
            if name not in held:
                return f"{part}.{name} is missing"
    for name in held:
        if name not in own:
            return f"the models have no {name}"
        found, expected = tensors[f"{part}.{name}"], own[name]
        shape = (len(models), *expected.shape)
        if found.shape != shape or found.dtype != expected.dtype:
            return (
                f"{part}.{name} is {tuple(found.shape)} of {found.dtype}, expected {shape} of "
                f"{expected.dtype}"
            )
    return None


def _tensors(batches: Batches) -> Iterable[Tensor]:
    return itertools.chain(*batches) if isinstance(batches, list) else batches


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."

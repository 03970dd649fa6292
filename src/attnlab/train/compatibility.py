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
        _check_tensors(tensors, models)
        _check_facts(checkpoint, config)
        _check_state(checkpoint, config)
        history = History.from_state(tensors, facts)
        _check_course(history, facts["step"], config)
        return history
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


def _check_facts(checkpoint: Checkpoint, config: TrainConfig) -> None:
    facts, step = checkpoint.facts, checkpoint.facts["step"]
    is_step = type(step) is int and 1 <= step <= config.steps
    _require(is_step, f"step is {step!r}")
    _require(isinstance(facts["versions"], dict), f"versions is {_short(facts['versions'])}")
    is_compiled = facts["is_compiled"]
    _require(isinstance(is_compiled, bool), f"is_compiled is {is_compiled!r}")
    _require(checkpoint.threads is not None, f"threads is {facts['threads']!r}")
    _require(facts["layout"] in get_args(LayoutName), f"there is no layout {facts['layout']!r}")


def _check_state(checkpoint: Checkpoint, config: TrainConfig) -> None:
    """Check that the state can be that of its step."""
    tensors, facts = checkpoint.tensors, checkpoint.facts
    step, updates, is_alive = facts["step"], tensors["steps"], tensors["is_alive"].bool()
    noted, judged = marks_until(config, step)
    moments = ["first", "second"] if config.optimiser == "adamw" else []
    parts = {name.partition(".")[0] for name in tensors}
    for part in [*moments, "best"] if judged else moments:
        _require(part in parts, f"{part} is missing")
    is_right = not moments or bool((updates == step)[is_alive].all())
    _require(is_right, f"steps is {_short(updates.tolist())}, expected {step}")
    for name, tensor in tensors.items():
        if name.partition(".")[0] in moments:
            _require(_is_finite(tensor[is_alive]), f"{name} is not finite")
    since = step - (noted[-1] if noted else 0)
    found = len(tensors.get("since_note", ()))
    _require(found == since, f"since_note is of {found} steps, expected {since}")
    for member, alive in enumerate(is_alive.tolist()):
        is_known = alive or facts["ends"][member] is not None
        _require(is_known, f"member {member} broke, but not when")


def _is_finite(tensor: Tensor) -> bool:
    return bool(torch.isfinite(tensor).all())


def _check_course(history: History, step: int, config: TrainConfig) -> None:
    """Check that a history can lead to this step."""
    noted, marks = marks_until(config, step)
    for name, found, wanted in (
        ("logged", history.steps, noted),
        ("judged", history.judged_steps, marks),
    ):
        _require(found == wanted, f"{name} is {_short(found)}, expected {_short(wanted)}")
    for member in range(history.num_members):
        _check_member(history, member, step)
    _require(not all(fault is not None for fault in history.faults), "all members broke")
    _require(all(map(_is_finite, history.rates)), "a rate is not finite")


def _check_member(history: History, member: int, step: int) -> None:
    own = history.evaluations[member]
    end, fault = history.ends[member], history.faults[member]
    is_end = end is None or (type(end) is int and 0 <= end <= step)
    _require(is_end, f"the end of member {member} is {_short(end)}")
    is_fault = fault is None or (isinstance(fault, str) and end is not None)
    _require(is_fault, f"the fault of member {member} is {_short(fault)}")
    judged = sum(1 for each in history.judged_steps if end is None or each <= end)
    is_cut = fault is not None and end in history.judged_steps[len(own) :]
    what = f"member {member} has {len(own)} evaluations, expected {judged}"
    _require(len(own) == judged - is_cut, what)
    values = itertools.chain.from_iterable(each.figures.values() for each in own)
    _require(all(map(math.isfinite, values)), f"a figure of member {member} is not finite")


def _check_tensors(tensors: Mapping[str, Tensor], models: Sequence[nn.Module]) -> None:
    """Check that no tensor is missing, unknown, or of another shape."""
    number, own = len(models), models[0].state_dict()
    for part in ("model", "first", "second", "best"):
        held = [name.removeprefix(f"{part}.") for name in tensors if name.startswith(f"{part}.")]
        if held or part == "model":
            for name, _ in models[0].named_parameters():
                _require(name in held, f"{part}.{name} is missing")
        for name in held:
            _require(name in own, f"the models have no {name}")
            found, expected = tensors[f"{part}.{name}"], own[name]
            shape = (number, *expected.shape)
            _require(
                found.shape == shape and found.dtype == expected.dtype,
                f"{part}.{name} is {tuple(found.shape)} of {found.dtype}, expected {shape} of "
                f"{expected.dtype}",
            )
    for name in ("steps", "is_alive"):
        _require(name in tensors, f"{name} is missing")
        found = tensors[name]
        is_right = found.shape == (number,)
        _require(is_right, f"{name} is {tuple(found.shape)}, expected ({number},)")
    if "since_note" in tensors:
        shape = tuple(tensors["since_note"].shape)
        is_right = shape[1:] == (number,)
        _require(is_right, f"since_note is {shape}, expected (steps, {number})")


def _tensors(batches: Batches) -> Iterable[Tensor]:
    return itertools.chain(*batches) if isinstance(batches, list) else batches


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."

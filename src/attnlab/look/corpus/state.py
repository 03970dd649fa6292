"""The folder of a search: its state, replaced as a whole, from which a stopped search resumes."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
from torch import Tensor

from attnlab.errors import CouldNotRun
from attnlab.files import read_json, write_bytes, write_json

__all__ = ["FORMAT", "is_there", "read_state", "write_state"]

FORMAT = "attnlab corpus search 1"


def is_there(folder: Path) -> bool:
    """Does a folder hold a search?"""
    return (folder / "search.json").is_file()


def write_state(folder: Path, told: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Write the state: first the numbers in a new file, then the JSON file that names it."""
    content = safetensors.torch.save({name: each.contiguous() for name, each in tensors.items()})
    digest = hashlib.sha256(content).hexdigest()
    name = f"numbers-{digest[:12]}.safetensors"
    write_bytes(folder / name, content)
    state = {"format": FORMAT, **told, "numbers": name, "sha256": digest}
    write_json(folder / "search.json", state)
    for old in folder.glob("numbers-*.safetensors"):
        if old.name != name:
            old.unlink(missing_ok=True)


def read_state(folder: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Read the state.

    Raises:
        CouldNotRun: it is missing, damaged or something else.
    """
    if not is_there(folder):
        raise CouldNotRun(f"there is no search in {folder}: search.json is missing.")
    told = read_json(folder / "search.json")
    if not isinstance(told, dict) or told.get("format") != FORMAT:
        raise CouldNotRun(f"{folder / 'search.json'} is no search: it does not say {FORMAT!r}.")
    try:
        content = (folder / Path(str(told["numbers"])).name).read_bytes()
        if hashlib.sha256(content).hexdigest() != told["sha256"]:
            raise CouldNotRun(
                f"{folder / told['numbers']} is damaged: its checksum is not the one in "
                "search.json."
            )
        return told, safetensors.torch.load(content)
    except (OSError, KeyError, safetensors.SafetensorError) as error:
        raise CouldNotRun(f"the search in {folder} is damaged: {error}.") from None

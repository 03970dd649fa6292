"""The folder of a search: its state, replaced as a whole, from which a stopped search resumes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from attnlab.core.store import StateFolder, digest_of, pack, refusing_damage, write_bytes

FORMAT = "attnlab corpus search 1"


def is_there(folder: Path) -> bool:
    """Does a folder hold a search?"""
    return _state_folder(folder).is_there


def write_state(folder: Path, told: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Write the state: first the numbers in a new file, then the JSON file that names it."""
    content = pack(tensors)
    digest = digest_of(content)
    name = f"numbers-{digest[:12]}.safetensors"
    write_bytes(folder / name, content)
    _state_folder(folder).write({**told, "numbers": name, "sha256": digest})
    for old in folder.glob("numbers-*.safetensors"):
        if old.name != name:
            old.unlink(missing_ok=True)


def read_state(folder: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Read the state.

    Raises:
        CouldNotRun: it is missing, damaged or something else.
    """
    state = _state_folder(folder)
    told = state.read()
    with refusing_damage(f"the search in {folder}"):
        return told, state.get(Path(str(told["numbers"])).name, told["sha256"])


def _state_folder(folder: Path) -> StateFolder:
    return StateFolder(folder, "search.json", FORMAT, "search")

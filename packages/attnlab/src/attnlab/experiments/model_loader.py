"""`load`: a model of a run, a live module, or a pretrained model by folder, file or hub id."""

import os
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from attnlab.errors import CouldNotRun, WrongUsage, type_words
from attnlab.pretrained.model_files.header import read_object

if TYPE_CHECKING:
    from attnlab.pretrained.model import Pretrained


def load(
    model: nn.Module | Path | str,
    *,
    example: Mapping[str, object] | None = None,
    tokenizer: Any = None,
    head: str | None = None,
    revision: str | None = None,
    dtype: torch.dtype | str | None = None,
    device: torch.device | str | None = None,
    device_map: str | Mapping[str, object] | None = None,
    quantization: Any = None,
) -> nn.Module:
    """Load a model, ready to be recorded and edited; a foreign one comes as `Pretrained`.

    Args:
        model: a run's folder, a saved model's, or a population's with the seed of a member; a live
            `nn.Module`, which stays as it is; a folder with `config.json` and safetensors, a
            `.gguf` file, or a hub id such as "openai-community/gpt2".
        example: small inputs of a live module by name, where its settings do not say what it takes.
        tokenizer: of transformers, in the place of the model's own.
        head: what a pretrained model ends in, such as "causal-lm", "masked-lm" or "none"; None for
            what its files say.
        revision: of a hub id, a branch, tag or commit.
        dtype, device: of the weights; None for what the files say, and the processor.
        device_map: where to put each module of a large model, as transformers takes it: "auto", or
            devices by the paths of modules.
        quantization: a config of transformers by which weights are quantized as they are read, such
            as `BitsAndBytesConfig(load_in_8bit=True)`.

    Returns:
        the model, a module in evaluation mode: one of attnlab's as it is, a foreign one as a
        `Pretrained`.

    Raises:
        WrongUsage: the population has no such member, or arguments that go with another kind of
            model.
        CouldNotRun: there is no such model, a file of it is missing or damaged, or no attention was
            found in it.

    >>> import tempfile
    >>> import attnlab
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model = load(attnlab.save_model(attnlab.Decoder(attnlab.DecoderConfig()), folder))
    >>> model.training
    False
    """
    options = {
        "head": head, "revision": revision, "dtype": dtype, "device": device,
        "device_map": device_map, "quantization": quantization,
    }  # fmt: skip
    if isinstance(model, nn.Module):
        from attnlab.pretrained.attach import attach

        _refuse(options, "belongs to a model that is opened; this one is open already.")
        return attach(model, tokenizer=tokenizer, example=example)
    if isinstance(model, type) and issubclass(model, nn.Module):
        raise WrongUsage(
            f"load takes a module, not its class: attnlab.load({model.__name__}(...))."
        )
    if not isinstance(model, str | os.PathLike):
        raise WrongUsage(
            f"load takes a folder, a file, a hub id or a torch module; got {type_words(model)}."
        )
    if is_ours(model):
        from attnlab.experiments.population.storage import load_run_model

        sentence = f"would say nothing: {model} is a run or model of attnlab's own."
        _refuse({**options, "example": example, "tokenizer": tokenizer}, sentence)
        return load_run_model(model)
    run = Path("runs") / model
    if os.path.isdir(run) and not os.path.lexists(model):
        raise CouldNotRun(f"there is no folder {model}. Did you mean {run}?")
    return load_pretrained(model, example=example, tokenizer=tokenizer, **options)


def _refuse(options: Mapping[str, object], sentence: str) -> None:
    names = [name for name, value in options.items() if value is not None]
    if names:
        raise WrongUsage(f"{' and '.join(names)} {sentence}")


def load_pretrained(
    name: Path | str,
    *,
    example: Mapping[str, object] | None = None,
    tokenizer: Any = None,
    **options: Any,
) -> "Pretrained":
    """Open a pretrained model and give it hook points; arguments as for `load`."""
    from attnlab.pretrained.attach import attach
    from attnlab.pretrained.model_files.hub import load_pretrained

    try:
        opened = load_pretrained(name, **options)
    except CouldNotRun as error:
        guess = similar(Path(name))
        if guess and Path(name).parent.is_dir():  # a path on the disk, misspelled
            raise CouldNotRun(f"there is no folder or file {str(name)!r}.{guess}") from None
        raise CouldNotRun(f"{guess} {error}".strip()) from None
    attached = attach(
        opened.model, tokenizer=tokenizer or opened.tokenizer, name=opened.name, example=example
    )
    attached.source, attached.notes = opened.source, opened.notes
    return attached


def similar(path: Path) -> str:
    """Name the folder beside a missing one, or the run, that was perhaps meant."""
    if os.path.lexists(path):
        return ""
    there: dict[str, Path] = {}
    for parent in filter(Path.is_dir, (path.parent, Path("runs"))):
        there |= {path.name: path for path in parent.iterdir()}
    for name in get_close_matches(path.name, there, n=1, cutoff=0.8):
        return f" Did you mean {there[name]}?"
    return ""


def is_ours(path: Path | str) -> bool:
    """Does this path hold a run, a population's member or a saved model of attnlab's own?"""
    path = Path(path)
    if not os.path.isfile(path / "config.json"):
        is_address = path.name.isdecimal() and path.parent.name.isdecimal()  # RUN/BLOCK/ROW
        if not (is_address or os.path.isdir(path.parent)):
            return False
        # Imported only here: loading a pretrained model needs nothing of populations.
        from attnlab.experiments.population.storage import is_member

        return is_member(path)
    try:
        # The file may be foreign, so its size and depth are bounded.
        config = read_object(path / "config.json")
    except CouldNotRun:
        return False  # opening it as a pretrained model tells what is wrong
    return "experiment" in config or isinstance(config.get("model"), dict)

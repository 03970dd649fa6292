"""Checkpoints: whole or not there, found again after any damage."""

import functools
import hashlib
import random
import shutil
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest
import safetensors.torch
import torch

from attnlab import seeds
from attnlab.core.store import LOCK, CouldNotWrite, FolderInUse, remove_remains
from attnlab.errors import CouldNotRun, WrongUsage
from attnlab.native import compiler_name
from attnlab.train.checkpoint import Pace, latest_checkpoint, read_checkpoint, write_checkpoint
from attnlab.train.layouts.sequential import Sequential
from tests.sampling import sampled

from .tiny import WAYS, Watcher, fit, make_sampler, member, weights


@pytest.fixture(autouse=True)
def _often(monkeypatch):
    monkeypatch.setenv("ATTNLAB_CHECKPOINT_SECONDS", "0")


@functools.cache
def finished():
    """The files of a finished training, its two checkpoints, by name."""
    with tempfile.TemporaryDirectory() as folder:
        fit(Path(folder) / "run", num=2)
        return {path.name: path.read_bytes() for path in (Path(folder) / "run").iterdir()}


@pytest.fixture
def trained(tmp_path):
    """The folder of a finished training."""
    (tmp_path / "run").mkdir()
    for name, content in finished().items():
        (tmp_path / "run" / name).write_bytes(content)
    return tmp_path / "run"


def files(folder):
    return sorted(folder.glob("*.safetensors"))


def stop_at(step, folder, **options):
    """Train until an interrupt after a step."""

    def interrupt():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(folder, observer=Watcher(step, interrupt), **options)


def test_two_are_kept_and_hold_what_it_takes_to_go_on(trained):
    before, last = (read_checkpoint(path) for path in files(trained))
    assert (before.facts["step"], last.facts["step"]) == (120, 150)
    assert sorted(path.name for path in trained.iterdir()) == [path.name for path in files(trained)]
    for part in ("model", "first", "second", "best"):
        assert last.tensors[f"{part}.0.weight"].shape == (2, 4, 2)
    assert last.tensors["steps"].tolist() == [150, 150]


@pytest.mark.parametrize(("layout", "engine"), WAYS)
def test_a_training_that_was_stopped_ends_in_the_same_bytes(tmp_path, layout, engine):
    """One of its three members has diverged, and stays so."""

    def sample(first, count):
        (x,) = make_sampler(1)(first, count)
        return (x * float("nan") if first == 50 else x,)

    def members():
        return [member(0), member(1, sample=sample), member(2)]

    told, again = [], []
    how = {"layout": layout, "engine": engine}
    whole, found = fit(members=members(), record=lambda *line: told.append(line), **how)
    stop_at(100, tmp_path, members=members(), **how)
    resumed, found_again = fit(tmp_path, members=members(), record=lambda *line: again.append(line))
    assert weights(whole) == weights(resumed)
    assert found.members == found_again.members
    assert found.history.faults == found_again.history.faults
    assert told == again


def test_other_numbers_in_the_checkpoint_would_be_seen(tmp_path, monkeypatch):
    whole = Sequential.state
    monkeypatch.setattr(
        Sequential,
        "state",
        lambda self: {k: v * 0 if "second" in k else v for k, v in whole(self).items()},
    )
    with pytest.raises(AssertionError):
        test_a_training_that_was_stopped_ends_in_the_same_bytes(tmp_path, "sequential", "eager")


def test_a_finished_training_returns_at_once_what_it_found(trained):
    calls = []

    def counted(model, x):
        calls.append(1)
        return (model(x) ** 2).mean()

    before = {path: path.read_bytes() for path in trained.iterdir()}
    told = []
    members, found = fit(trained, num=2, loss=counted, record=lambda *line: told.append(line))
    whole, expected = fit(num=2)
    assert not calls
    assert weights(members) == weights(whole)
    assert found.members == expected.members
    assert len(told) == sum(len(each.metrics) for each in expected.members)
    assert {path: path.read_bytes() for path in trained.iterdir()} == before


def test_a_training_that_had_enough_is_finished_too(tmp_path):
    _, found = fit(tmp_path, stop=lambda evaluations: len(evaluations) == 2)
    assert found.history.ends == [120]
    _, again = fit(tmp_path, stop=lambda evaluations: pytest.fail("asked again"))
    assert again.members == found.members


def test_models_that_were_trained_a_bit_go_on_from_the_checkpoint(tmp_path):
    """As in a notebook, whose cell is run again after Ctrl-C."""
    whole, _ = fit()
    members = [member()]
    stop_at(100, tmp_path, members=members)
    fit(tmp_path, members=members)
    assert weights(members) == weights(whole)


class TestDamage:
    def test_the_one_before_is_taken_and_that_is_told(self, trained):
        before, last = files(trained)
        last.write_bytes(last.read_bytes()[:-1])
        told = []
        assert latest_checkpoint(trained, told.append).facts["step"] == 120
        assert told == [
            f"the checkpoint {last} is damaged: its content does not fit the digest in its name. "
            f"Going on from the one before, {before.name}."
        ]
        whole, _ = fit(num=2)
        assert weights(fit(trained, num=2)[0]) == weights(whole)
        assert (
            read_checkpoint(files(trained)[-1]).facts["step"] == 150
        )  # written anew, over the damaged one

    def test_a_damaged_later_one_makes_room_for_good_ones(self, trained):
        files(trained)[1].rename(trained / f"000000151-{'0' * 16}.safetensors")
        fit(trained, num=2)
        assert [read_checkpoint(path).facts["step"] for path in files(trained)] == [120, 150]

    def test_none_whole_is_one_sentence(self, trained):
        for path in files(trained):
            path.write_bytes(b"")
        with pytest.raises(CouldNotRun, match=r"000000150.* is damaged: .* There is no other"):
            fit(trained, num=2)

    @pytest.mark.parametrize("times", sampled([1, 10], 1))
    def test_every_truncation_flip_and_swap_is_seen(self, trained, tmp_path, times):
        damage_everything(trained, tmp_path / "damaged", 20 * times, 100 * times, 2 + 2 * times)

    def test_a_reader_that_compares_no_digest_is_caught(self, trained, tmp_path, monkeypatch):
        class Anything(str):
            def __getitem__(self, place):
                return self

            def __ne__(self, other):
                return False

        monkeypatch.setattr("attnlab.train.checkpoint.digest_of", lambda content: Anything())
        with pytest.raises(AssertionError):
            damage_everything(trained, tmp_path / "damaged", 0, 10, 0)


def damage_everything(folder, copy, truncations, flips, swaps):
    """Damage the last checkpoint in many ways: each must be named, and the one before be found."""
    before, last = files(folder)
    content, drawn = last.read_bytes(), random.Random(0)
    damaged = [content[: drawn.randrange(len(content))] for _ in range(truncations)]
    for _ in range(flips):
        flipped = bytearray(content)
        flipped[drawn.randrange(len(content))] ^= 1 << drawn.randrange(8)
        damaged.append(bytes(flipped))
    for number in range(swaps):
        seed = drawn.randrange(10**6)
        damaged.append(
            before.read_bytes() if number % 2 else random.Random(seed).randbytes(len(content))
        )
    copy.mkdir()
    shutil.copy(before, copy)
    for each in damaged:
        (copy / last.name).write_bytes(each)
        told = []
        assert latest_checkpoint(copy, told.append).facts["step"] == 120
        assert len(told) == 1
        assert last.name in told[0]


@pytest.mark.parametrize("idle", [0, 1])
def test_a_model_with_a_part_that_nothing_reaches_goes_on_to_the_same_bytes(tmp_path, idle):
    def members():
        with seeds.isolated(0, "model"):
            parts = torch.nn.ModuleList(torch.nn.Linear(2, 1) for _ in range(2))
        return [member(model=Reaching(parts, 1 - idle))]

    whole, _ = fit(members=members())
    stop_at(60, tmp_path, members=members())
    resumed, _ = fit(tmp_path, members=members())
    assert weights(whole) == weights(resumed)


class Reaching(torch.nn.Module):
    """Several parts, of which one is used."""

    def __init__(self, parts, used):
        super().__init__()
        self.parts, self.used = parts, used

    def forward(self, x):
        return self.parts[self.used](x)


def rewritten(folder, change):
    """Write the last checkpoint anew with other contents, under a name that fits."""
    kept = read_checkpoint(files(folder)[-1])
    tensors, facts = kept.tensors, kept.facts
    change(tensors, facts)
    for path in files(folder):
        path.unlink()
    write_checkpoint(folder, 150, tensors, facts)


def wrong_shape(name, *shape):
    return lambda tensors, facts: tensors.update({name: torch.zeros(shape)})


def without(name):
    return lambda tensors, facts: (facts if name in facts else tensors).pop(name)


def with_fact(**values):
    return lambda tensors, facts: facts.update(values)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (wrong_shape("model.0.weight", 2, 4, 3), r"0\.weight is \(2, 4, 3\) there and \(2, 4, 2\)"),
        (without("model.0.weight"), r"model\.0\.weight' is missing"),
        (without("history.norms"), "history.norms' is missing"),
        (with_fact(ends=None), "is damaged"),
        (with_fact(configs=3), "is damaged"),
        (with_fact(members=3), "3 members there and 2 here"),
    ],
)
def test_a_checkpoint_of_other_models_is_refused_before_any_number_is_used(trained, change, words):
    rewritten(trained, change)
    members = [member(0), member(1)]
    before = weights(members)
    with pytest.raises(CouldNotRun, match=words):
        fit(trained, members=members)
    assert weights(members) == before


@pytest.mark.parametrize("facts", [None, "[]", "{", "[" * 100_000])
def test_a_file_of_another_kind_is_no_checkpoint(tmp_path, facts):
    content = safetensors.torch.save(
        {"a": torch.zeros(1)}, metadata=None if facts is None else {"facts": facts}
    )
    path = tmp_path / f"000000001-{hashlib.sha256(content).hexdigest()[:16]}.safetensors"
    path.write_bytes(content)
    with pytest.raises(CouldNotRun, match="is no checkpoint of a training"):
        read_checkpoint(path)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"steps": 151}, "steps 150 there and 151 here"),
        ({"learning_rate": 0.04}, "learning_rate 0.05 there and 0.04 here"),
        ({"evaluate_every": 30}, "evaluate_every 60 there and 30 here"),
        ({"weight_decay": 0.5}, "weight_decay 0.01 there and 0.5 here"),
        ({"clip": 2.0}, "clip 1.0 there and 2.0 here"),
        ({"warmup_steps": 3}, "warmup_steps 0 there and 3 here"),
        ({"final_share": 1.0}, "final_share 0.1 there and 1.0 here"),
        ({"optimiser": "sgd"}, "optimiser 'adamw' there and 'sgd' here"),
        ({"num": 3}, "2 members there and 3 here"),
        ({"sample": make_sampler(7)}, "other data"),
    ],
)
def test_another_training_is_refused_with_the_difference(trained, options, words):
    before = {path: path.read_bytes() for path in trained.iterdir()}
    with pytest.raises(CouldNotRun, match=f"is of another training: {words}"):
        fit(trained, **{"num": 2, **options})
    assert {path: path.read_bytes() for path in trained.iterdir()} == before


def test_another_torch_is_told(trained, monkeypatch):
    versions = {"attnlab": "0.1.0", "torch": "9.9"}
    monkeypatch.setattr("attnlab.train.loop.versions", lambda: versions)
    watcher = Watcher()
    fit(trained, num=2, observer=watcher)
    assert "now it is attnlab 0.1.0, torch 9.9: the last digits may differ." in watcher.told[0]


def test_a_compiler_that_is_gone_is_told(tmp_path, monkeypatch):
    if compiler_name() is None:
        pytest.skip("there is no C++ compiler here")
    stop_at(60, tmp_path, num=2, layout="simd", engine="compiled")
    monkeypatch.setattr("attnlab.train.layouts.choose.compiler_name", lambda: None)
    watcher = Watcher()
    members, _ = fit(tmp_path, num=2, observer=watcher)
    assert watcher.told[0].startswith("No C++ compiler was found")
    assert watcher.told[1] == "It began with the layout simd, compiled: the last digits may differ."
    whole, _ = fit(num=2, layout="simd", engine="compiled")
    for one, other in zip(members, whole, strict=True):
        found, expected = one.model.state_dict(), other.model.state_dict()
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)


def test_a_second_trainer_is_refused_at_once_and_told_by_whom(tmp_path):
    def second():
        words = f"^this process is writing into {tmp_path}: wait until it has ended"
        with pytest.raises(FolderInUse, match=words):
            fit(tmp_path)

    fit(tmp_path, observer=Watcher(100, second))
    assert not (tmp_path / LOCK).exists()


def test_what_a_killed_writer_left_is_removed_at_the_next_start(trained):
    (trained / ".000000150-cd.safetensors.x2.part").mkdir()
    (trained / ".000000150-cd.safetensors.x2.part" / "part").write_bytes(b"")
    (trained / "mine.part").write_bytes(b"whole")
    shutil.copy(
        files(trained)[0], trained / f"000000100-{'0' * 16}.safetensors"
    )  # killed before it could be removed
    fit(trained, num=2)
    assert [read_checkpoint(path).facts["step"] for path in files(trained)] == [120, 150]
    assert not list(trained.glob(".*.part"))
    assert (trained / "mine.part").exists()
    remove_remains(trained / "not there")


def test_too_little_room_is_said_before_the_first_step(tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=1000, total=9999))
    with pytest.raises(CouldNotWrite, match=r"only 1,000 bytes .* of this size needs \d\d,"):
        fit(tmp_path, loss=lambda *_: pytest.fail("a step was taken"))


def test_checkpoints_are_seldom_enough_to_cost_little(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    monkeypatch.setenv("ATTNLAB_CHECKPOINT_SECONDS", "3")
    pace = Pace()
    for before, due, seconds in (
        (0.0, 3.0, 0.01),
        (5.9, 6.1, 1.0),
        (56.0, 56.2, 0.0),  # at 2 % of the time, one second is worth fifty
    ):
        now[0] = before
        assert not pace.is_due()
        now[0] = due
        assert pace.is_due()
        pace.saved(seconds)


@pytest.mark.parametrize("text", ["soon", "-1", "nan", "inf", ""])
def test_a_wrong_time_between_checkpoints_is_said(monkeypatch, text):
    monkeypatch.setenv("ATTNLAB_CHECKPOINT_SECONDS", text)
    with pytest.raises(WrongUsage, match="ATTNLAB_CHECKPOINT_SECONDS must be a number of at least"):
        Pace()

"""Commands that write folders: whatever ends the process, the folder goes on or says what to do."""

from contextlib import nullcontext
from typing import NamedTuple

import pytest

pytest.importorskip("transformers")
pytest.importorskip("tokenizers")

from attnlab.cli import main
from attnlab.core.store import LOCK, write_bytes
from attnlab.draw import long_text_report
from tests.kills import FILLS, content_of, killed_at, without_room_at, writes_of
from tests.pretrained.speaking import SENTENCES, saved
from tests.sampling import sampled
from tests.train.runs import FAILED

TINY = "steps=20 evaluate_every=10 letters=2 length=2 d_model=4 d_ff=4"
COMMANDS = {
    "population": f"run sorting --seeds 2 -q --set {TINY}",
    "tune": f"tune sorting --seeds 1 --trials 7 -q --set rank=1..4 norm=layer,rms {TINY}",
    "search": "search llama --corpus texts.csv",
    "long text": "look llama --document book.txt --tiles 16 --head 1.2",
    "census": "census llama --corpus texts.csv",
    "run": f"run sorting -q --set {TINY}",
    "sweep": f"sweep sorting --seeds 1 -q --set rank=1,2 {TINY}",
}
DONE = (0, FAILED)  # in so few steps nothing is learned
WITH_TIMES = {"config.json", "search.json", "document.json"}
REPORTS = {"report.json", "report.html"}  # a population's say how long it took


class Undisturbed(NamedTuple):
    """A command without its --out, what it writes, and the number of its writes."""

    command: list[str]
    results: dict[str, bytes]
    writes: list[str]


@pytest.fixture(scope="module", params=sampled(COMMANDS, ["sweep"]))
def whole(request, tmp_path_factory):
    """A command of each kind that nothing disturbed, in a folder with what it reads."""
    if request.param == "tune":
        pytest.importorskip("optuna")
    here, command = tmp_path_factory.mktemp("whole"), COMMANDS[request.param].split()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here)
        patch.setenv("ATTNLAB_CHECKPOINT_SECONDS", "0")
        patch.setenv("HF_HUB_OFFLINE", "1")
        patch.setattr("attnlab.draw.figures.is_available", lambda: False)
        patch.setattr(long_text_report, "save_figure", lambda _, path: write_bytes(path, b"none"))
        if "llama" in command:
            saved("llama", here / "llama")
            (here / "book.txt").write_text(" ".join(SENTENCES))
            lines = [f'"{sentence.strip()}"\n' for sentence in SENTENCES]
            (here / "texts.csv").write_text("text\n" + "".join(lines))
        with writes_of() as writes:
            assert main([*command, "--out", "whole"]) in DONE
        yield Undisturbed(command, results_of(here / "whole"), writes)


def results_of(folder):
    """Return the files of a folder but its lock, and those with times without their content."""
    files = content_of(folder)
    files.pop(LOCK, None)
    timed = WITH_TIMES | (REPORTS if "population.safetensors" in files else set())
    return {name: b"" if name in timed else content for name, content in files.items()}


def go_on(command, folder, capsys):
    """Do as a person does: type the command again, and then what its refusal says."""
    capsys.readouterr()
    status = main([*command, "--out", str(folder)])
    refusal = capsys.readouterr().err
    if status in DONE:
        return
    assert (status in (2, 3), refusal.count("\n")) == (True, 1), refusal
    if "attnlab resume" in refusal:
        assert main(["resume", str(folder), "-q"]) in DONE
    elif "--resume" in refusal:
        assert main([*command, "--out", str(folder), "--resume"]) in DONE
    else:
        assert "holds a run already, and nothing is overwritten" in refusal


def kill_and_go_on(whole, parent, capsys, places):
    """Kill a command before some of its writes; each folder must end as the undisturbed one."""
    for nth in places:
        folder = parent / str(nth)
        if not killed_at(nth, [*whole.command, "--out", str(folder)]):
            assert nth > len(whole.writes) / 2  # the first of all fills what is cached
            break
        go_on(whole.command, folder, capsys)
        assert results_of(folder) == whole.results, nth


def fill_and_go_on(whole, parent, capsys, places):
    """Let the disk be full at some of a command's writes; then free it, and go on."""
    for nth in places:
        folder = parent / str(nth)
        capsys.readouterr()
        status, came_so_far = without_room_at(nth, [*whole.command, "--out", str(folder)])
        if not came_so_far:
            break
        refusal = capsys.readouterr().err
        assert (status, "disk is full" in refusal) == (3, True), (nth, refusal)
        go_on(whole.command, folder, capsys)
        assert results_of(folder) == whole.results, nth


def test_killed_at_a_write_each_folder_goes_on(whole, tmp_path, capsys):
    kill_and_go_on(whole, tmp_path, capsys, [len(whole.writes) * 2 // 3])


def test_on_a_full_disk_each_folder_goes_on(whole, tmp_path, capsys):
    fills = sum(name in FILLS for name in whole.writes)
    fill_and_go_on(whole, tmp_path, capsys, [fills // 2])


@pytest.mark.parametrize("whole", sampled(["run", "search"], 1), indirect=True)
def test_files_that_are_written_in_place_are_caught(whole, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("attnlab.core.store._replacing", lambda path, size: nullcontext(path))
    with pytest.raises(AssertionError):
        kill_and_go_on(whole, tmp_path, capsys, range(2, 9))


@pytest.mark.slow
def test_killed_at_any_write_each_folder_goes_on(whole, tmp_path, capsys):
    kill_and_go_on(whole, tmp_path, capsys, range(1, len(whole.writes) + 1))


@pytest.mark.slow
def test_on_a_disk_full_at_any_write_each_folder_goes_on(whole, tmp_path, capsys):
    fill_and_go_on(whole, tmp_path, capsys, range(1, len(whole.writes) + 1))

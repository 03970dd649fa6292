"""The folder of a proof: whatever ends the process, the same command goes on or starts again."""

from contextlib import nullcontext

import pytest

from attnlab.cli import main
from attnlab.core.store import locked
from attnlab.errors import CouldNotRun
from attnlab.programs import (
    Program,
    apply,
    compile_program,
    everything,
    open_compiled,
    prove_program,
    selector_width,
    tokens,
)
from tests.kills import content_of, killed_at, without_room_at
from tests.sampling import sampled

PROGRAM = """
from attnlab.programs import Program, aggregate, indices, select, tokens

program = Program(aggregate(select(indices, 0, "=="), tokens), "ab", "first")
"""


def compiling(folder, text=PROGRAM, length=3):
    """The command that compiles and proves a program, and where it writes."""
    (folder / "program.py").write_text(text)
    out = folder / "out"
    size = ["--length", str(length)]
    return ["compile", str(folder / "program.py"), *size, "--out", str(out)], out


@pytest.fixture(params=sampled(["prove many", "compile", "prove"], 1))
def command(request, sorters, tmp_path):
    """A command of each kind, without its --out, which the tests give it."""
    if request.param == "compile":
        return compiling(tmp_path)[0][:-2]
    folder = sorters.folder
    if request.param == "prove":
        folder = folder / "1"
    return ["prove", str(folder), "--float64"]


@pytest.fixture(autouse=True)
def kept_at_once(monkeypatch):
    """Keep how far a proof is after each part of it."""
    monkeypatch.setattr("attnlab.programs.proof._SECONDS_BETWEEN_SAVES", 0.0)


def whole_folder(command, folder):
    assert main([*command, "--out", str(folder)]) == 0
    found = content_of(folder)
    assert any(name.endswith("certificate.json") for name in found)
    assert not any("unfinished" in name or "proof.json" in name for name in found)
    return found


SOME_WRITES = sampled([29, 1], 1)  # some of them, and each


@pytest.mark.parametrize("every", SOME_WRITES)
def test_killed_at_any_write_the_same_command_ends_in_the_same_folder(command, every, tmp_path):
    nth = 2
    whole = whole_folder(command, tmp_path / "whole")
    while killed_at(nth, [*command, "--out", str(tmp_path / f"{nth}")]):
        folder = tmp_path / f"{nth}"
        if folder_is_open(folder):
            assert main([*command, "--out", str(folder)]) == 0, nth
        found = {name: text for name, text in content_of(folder).items() if name != ".lock"}
        assert found == whole, nth
        nth += every
    assert nth > 20


def folder_is_open(folder):
    """Is it not yet finished, or not yet begun?"""
    names = {name for name in content_of(folder) if not name.startswith(".")}
    return not names or "unfinished" in names


@pytest.mark.parametrize("every", SOME_WRITES)
def test_on_a_full_disk_it_is_told_and_the_same_command_goes_on(command, every, tmp_path, capsys):
    nth, came_so_far = 2, True
    whole = whole_folder(command, tmp_path / "whole")
    while came_so_far:
        folder = tmp_path / f"{nth}"
        status, came_so_far = without_room_at(nth, [*command, "--out", str(folder)])
        if came_so_far and status:
            assert (status, "disk is full" in capsys.readouterr().err) == (3, True), nth
            assert main([*command, "--out", str(folder)]) == 0, nth
        assert content_of(folder) == whole, nth
        nth += every
    assert nth > 10


def test_resume_goes_on_with_what_is_unfinished_and_with_nothing_else(tmp_path, capsys):
    command, out = compiling(tmp_path)
    assert main([*command, "--resume"]) == 3
    assert "there is no interrupted proof" in capsys.readouterr().err
    assert killed_at(12, command)
    assert "unfinished" in content_of(out)
    assert main([*command, "--resume"]) == 0
    whole = content_of(out)
    assert main([*command[:-2], "--resume"]) == 2
    for more in ([], ["--resume"]):
        assert main([*command, *more]) == 3
        assert "exists already and is not an unfinished proof" in capsys.readouterr().err
    assert content_of(out) == whole


def test_a_folder_of_something_else_or_in_use_is_left_alone(tmp_path, capsys):
    command, out = compiling(tmp_path)
    out.mkdir()
    (out / "thesis.txt").write_text("years of work")
    assert main(command) == 3
    assert content_of(out) == {"thesis.txt": b"years of work"}
    (out / "thesis.txt").unlink()
    with locked(out):
        assert main(command) == 3
    assert "is writing into" in capsys.readouterr().err
    assert not content_of(out)
    assert main(command) == 0  # an empty folder is taken
    assert main([*command[:-1], str(tmp_path / "program.py")]) == 3  # a file in its place
    refused, _ = compiling(tmp_path, PROGRAM.replace('"=="), tokens)', '"<"), tokens)'))
    assert main([*refused[:-1], str(tmp_path / "none")]) == 2
    assert "nothing" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()


LABELS = """
from attnlab.programs import Program, aggregate, indices, select, tokens

FIRST, SECOND, NOTHING = "x", "y", {}
table = {"a": FIRST, "b": SECOND}


class Words:
    of_b = SECOND


def labels(third=SECOND):
    def label(token, place):
        if place == 6:
            return third
        return Words.of_b if token == "b" else FIRST
    return label


program = Program(apply(labels(), tokens, indices), "ab", "labels")
""".replace("aggregate,", "aggregate, apply,")

CHANGES = {
    "a global": ('"x", "y", {}', '"x", "z", {}'),
    "the order of globals": ('"x", "y", {}', '"y", "x", {}'),
    "a default": ("third=SECOND", "third=FIRST"),
    "a closure": ("labels(), tokens", "labels(FIRST), tokens"),
    "an attribute": ("of_b = SECOND", "of_b = FIRST"),
    "a body": ("place == 6", "place == 0"),
    "a body, in long inputs alone": ("place == 6", "place == 5"),
    "the alphabet": ('indices), "ab"', 'indices), "ba"'),
}


@pytest.mark.parametrize(
    ("change", "more"), [*((change, []) for change in CHANGES), ("a global", ["--resume"])]
)
def test_a_proof_ends_where_the_program_has_changed(change, more, tmp_path, capsys, monkeypatch):
    command, out = compiling(tmp_path, LABELS, 7)
    interrupt(command, monkeypatch, after=60)
    assert "proof.json" in content_of(out)
    old, new = CHANGES[change]
    assert LABELS.count(old) == 1
    compiling(tmp_path, LABELS.replace(old, new))
    assert main([*command, *more]) == 3
    assert "belongs to another proof" in capsys.readouterr().err
    compiling(tmp_path, LABELS)
    assert main([*command, *more]) == 0
    assert open_compiled(out)("abbabab") == ["x", "y", "y", "x", "y", "x", "y"]


@pytest.mark.parametrize("more", [["--tolerance", "0.01"], ["--float32"], ["--causal"]])
def test_a_proof_is_not_gone_on_with_by_another_command(more, tmp_path, capsys, monkeypatch):
    text = LABELS.replace("apply(labels(), tokens, indices)", NUMBERS)
    command, _ = compiling(tmp_path, text, 7)
    interrupt(command, monkeypatch, after=60)
    assert main([*command, *more]) == 3
    assert "belongs to another proof" in capsys.readouterr().err
    assert main(command) == 0


NUMBERS = 'aggregate(select(indices, indices, "<="), tokens == "a")'


def interrupt(command, monkeypatch, *, after):
    """Press Ctrl-C when so many inputs are done."""

    def tell(done, of):
        if done >= after:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("attnlab.cli.compile.counting", lambda *_, **__: nullcontext(tell))
        assert main(command) == 130


def copying(last, length):
    """Copy the tokens, but for the inputs of one length; the same words name two functions."""

    def label(token, each):
        return last if each == length else token

    return Program(apply(label, tokens, selector_width(everything)), "abz", "copy")


def interrupted_proof(length, state):
    def stop(done, of):
        if done > 30:
            raise KeyboardInterrupt

    compiled = compile_program(copying("a", length), 6)
    with pytest.raises(KeyboardInterrupt):
        prove_program(compiled, copying("a", length), state=state, progress=stop)
    return compiled


def test_an_interrupted_proof_of_a_program_is_not_of_one_that_differs_in_a_map(tmp_path):
    state = tmp_path / "proof.json"
    compiled = interrupted_proof(1, state)
    with pytest.raises(CouldNotRun, match="of a program with other answers"):
        prove_program(compiled, copying("z", 1), state=state)
    assert prove_program(compiled, copying("a", 1), state=state).holds
    # One that differs in longer inputs alone is refuted when it goes on.
    proof = prove_program(interrupted_proof(6, state), copying("z", 6), state=state)
    assert not proof.holds
    assert len(proof.counterexample.tokens) == 6

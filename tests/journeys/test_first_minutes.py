"""Somebody installs attnlab, trains the first model, looks at it, mistypes, and presses Ctrl-C."""

import re
import shlex
import shutil
import signal

import pytest


def test_a_first_model_is_trained_shown_asked_and_cut(home, visit, first_run):
    home.environment["BROWSER"] = "true"
    folder, answer = first_run
    shutil.copytree(folder, home.here, dirs_exist_ok=True)
    figures = [file.suffix for file in (home.here / "runs/sorting/figures").iterdir()]
    assert figures.count(".png") == figures.count(".svg") > 0
    assert "3 of 3 claims hold, self-checks: 1 of 1" in answer.out
    assert "27/27" in answer.out
    assert "report   runs/sorting/report.html\n" in answer.out
    assert re.search(r"(\S+) of \1\b", answer.err), answer.err  # the last line of the progress
    assert "sorting" in home.run("attnlab list").out
    assert "27 of 27 inputs" in home.run("attnlab show sorting").out
    assert "report.html" in home.run("attnlab open sorting").text
    assert "c a b SEP a → b" in home.run("attnlab trace sorting cab").out
    assert "edited → a a a" in home.run("attnlab edit sorting cab --zero-head 0.0").out
    proof = home.run(
        "attnlab prove sorting", status=1
    ).out  # right, but the bound is above the margin
    assert "right on all 27 inputs" in proof
    assert "not certified" in proof
    page = visit(home.here / "runs/sorting/report.html")
    assert "27 of 27" in page.locator("body").inner_text()


MISTAKES = {
    "attnlab": "attnlab COMMAND",  # which is no mistake: the commands, in groups
    "attnlab rnu sorting": "Did you mean",
    "attnlab run": "name an experiment",
    "attnlab run sorting --set lettrs=4": "did you mean 'letters'?",
    "attnlab show nothing": "there is no run in nothing; make one with: attnlab run sorting",
    "attnlab search sorting cab": "search needs a value for --corpus",
    "attnlab grade nofolder": "grade needs a value for --out",
    "attnlab trace sorting": "there is no run",
}


@pytest.mark.parametrize("command", MISTAKES)
def test_a_mistyped_command_gets_one_sentence_and_leaves_nothing_behind(home, command):
    status = {"attnlab": 0, "attnlab show nothing": 3, "attnlab trace sorting": 3}.get(command, 2)
    answer = home.run(command, status=status)
    assert MISTAKES[command] in answer.text
    assert command == "attnlab" or len(answer.text.splitlines()) == 1
    assert list(home.here.iterdir()) == []


def test_ctrl_c_keeps_what_was_trained_and_names_the_command_that_goes_on(home):
    (home.here / "my runs").mkdir()
    settings = "steps=1200 learning_rate=1e-2 evaluate_every=200"
    process = home.start(f"attnlab run sorting --out 'my runs/first' --set {settings}")
    printed = ""
    while "right" not in printed:  # the first line of progress
        printed += process.stdout.readline()
        assert process.poll() is None, printed
    process.send_signal(signal.SIGINT)
    printed += process.communicate()[0]
    assert process.returncode == 130, printed
    assert "to go on: " in printed
    command = printed.partition("to go on: ")[2].strip()
    assert shlex.split(command) == ["attnlab", "resume", "my runs/first"]
    assert "3 of 3 claims hold, self-checks: 1 of 1" in home.run(command).out

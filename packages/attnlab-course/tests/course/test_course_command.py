"""attnlab course, as a student types it."""

import json
import re
from contextlib import nullcontext
from pathlib import Path

import pytest

from attnlab.cli import main
from attnlab_course.catalog import exercise_names, find_exercise
from attnlab_course.cells import solution_text
from tests.sampling import sampled

from .classroom import exercises_in

RIGHT = solution_text(find_exercise("attention").source)
WRONG = RIGHT.replace(" / math.sqrt(query.shape[-1])", "")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch, worker):
    """Work in an empty folder, where answers are checked by the worker of all tests."""
    monkeypatch.setattr("attnlab_course.sandbox.worker.Worker", lambda: nullcontext(worker))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")


def run(capsys, *arguments):
    capsys.readouterr()
    status = main(["course", *arguments])
    return status, *capsys.readouterr()


def begin(capsys, name, source):
    """Begin an exercise, write an answer, and return its file."""
    run(capsys, "start", name)
    answer = Path("course", f"{name}.py")
    answer.write_text(source)
    return answer


def test_a_hint_begins_with_the_mistake_that_the_last_check_found(capsys):
    """It is told once; then, or without a mistake that is known, the ladder begins."""
    answer = begin(capsys, "attention", WRONG)
    run(capsys, "check")
    out = run(capsys, "hint", "attention")[1]
    assert out.startswith(find_exercise("attention").mistake("no scaling").says)
    assert "of your answer:\n    scores = query @ key.transpose(-2, -1)\n" in out
    assert "1 of " not in out
    assert "1 of " in run(capsys, "hint", "attention")[1]
    answer.write_text(WRONG.replace("-2, -1)", "-2, -1) * 0.7"))
    run(capsys, "check")
    out = run(capsys, "hint", "attention")[1]
    assert "→" not in out
    assert "2 of " in out


def test_a_hint_is_on_the_check_that_failed_where_the_mistake_is_not_known(capsys):
    """Once, and then the ladder begins."""
    answer = solution_text(find_exercise("decoder_layer").source)
    wrong = answer.replace("source_mask[:, None, :]", "source_mask[:, None, :].roll(1, 0)")
    begin(capsys, "decoder_layer", wrong)
    assert "✗ source mask" in run(capsys, "check")[1]
    out = run(capsys, "hint", "decoder_layer")[1]
    assert out.startswith("On the check source mask: The source's mask (batch, keys) holds for")
    assert "1 of 4" in run(capsys, "hint", "decoder_layer")[1]


def test_several_exercises_are_begun_at_once_and_other_commands_take_one(capsys, tmp_path):
    status, out, _ = run(capsys, "start", "causal_mask", "layer_norm")
    assert status == 0
    for name in ("causal_mask", "layer_norm"):
        assert (tmp_path / "course" / f"{name}.ipynb").is_file()
        assert f"then: attnlab course check {name}\n" in out
    assert run(capsys, "start", "padding_mask", "layer_nrom")[0] == 2
    assert not (tmp_path / "course" / "padding_mask.py").exists()
    status, _, told = run(capsys, "hint", "causal_mask", "layer_norm")
    assert status == 2
    assert "Give one at a time; if these are the words of one input" in " ".join(told.split())


@pytest.mark.parametrize("source", ["", "# %%\nimport torch\n"])
def test_an_answer_that_was_emptied_is_not_written_yet(source, capsys):
    begin(capsys, "softmax", source).with_suffix(".ipynb").unlink()
    assert run(capsys, "check", "softmax")[1].startswith("softmax: nothing is written yet")


def test_a_function_in_place_of_a_class_is_told_with_what_is_asked_for(capsys):
    begin(capsys, "layer_norm", "def layer_norm(x):\n    return x\n")
    asked = "the exercise asks for a class LayerNormalization"
    out = run(capsys, "check", "layer_norm")[1]
    assert out.startswith(f"layer_norm: you defined layer_norm; {asked}\n")
    assert "✗" not in out


@pytest.mark.parametrize(
    "name", sampled(["attention", "predict_lookup", "identity", "reflect_model"], 2)
)
def test_an_answer_sheet_that_is_not_filled_in_is_no_try(name, capsys, tmp_path):
    run(capsys, "start", name)
    assert f"{name}: nothing is written yet" in run(capsys, "check", name)[1]
    shown = json.loads(run(capsys, "progress", "--json")[1])
    (row,) = [row for row in shown if row["exercise"] == name]
    assert (row["state"], row["tries"]) == ("started", 0)
    shown = run(capsys, "progress")[1]
    assert name in shown
    assert shown.count("not begun") == 1  # the next one
    assert run(capsys, "progress", "--all")[1].count("not begun") == len(exercise_names()) - 1
    with (tmp_path / "course" / f"{name}.py").open("a") as file:
        file.write('\nanswer = "a start"\n')
    run(capsys, "check", name)
    shown = json.loads(run(capsys, "progress", "--json")[1])
    (row,) = [row for row in shown if row["exercise"] == name]
    is_blank = name == "attention"  # its function is still to be written
    assert row["tries"] == int(not is_blank)
    assert (row["state"] == "started") == is_blank


def test_a_hint_without_a_line_to_show_is_the_one_on_the_subject(capsys):
    sum_lost = "    e = torch.exp(x)\n    return e / e.sum(dim)\n"
    begin(capsys, "softmax", f"import torch\ndef softmax(x, dim=-1):\n{sum_lost}")
    assert "`keepdim=True` is missing" in run(capsys, "check", "softmax")[1]
    out = run(capsys, "hint", "softmax")[1]
    assert "1 of 4" not in out
    assert "Keep the axis (keepdim) each time" in out
    for number in ("1 of 4", "2 of 4", "4 of 4"):  # the third was told
        *_, newest = re.findall("[1-4] of 4", run(capsys, "hint", "softmax")[1])
        assert newest == number


def test_what_an_exercise_bans_is_told_at_the_check_and_at_the_hand_in(capsys):
    called = "import torch\ndef softmax(scores, dim=-1):\n    return scores.softmax(dim)\n"
    answer = begin(capsys, "softmax", called)
    warning = "uses softmax, which this exercise does not allow; a teacher will look at it"
    assert warning in " ".join(run(capsys, "check")[1].split())
    assert f"softmax {warning}" in " ".join(run(capsys, "submit", "Ada")[1].split())
    own = "scores.exp() / scores.exp().sum(dim, keepdim=True)"
    answer.write_text(answer.read_text().replace("scores.softmax(dim)", own) + "torch.softmax\n")
    assert "does not allow" not in run(capsys, "check")[1] + run(capsys, "submit", "Ada")[1]


def test_an_answer_that_was_never_checked_is_not_said_to_fail(capsys):
    begin(capsys, "attention", WRONG)
    out = run(capsys, "submit", "Ada")[1]
    assert "handed in, though never checked: attention" in out
    assert "did not pass" not in out
    run(capsys, "check")
    out = run(capsys, "submit", "Ada")[1]
    assert "though the last check did not pass: attention" in out
    assert "never" not in out


def test_the_list_has_every_exercise_once(capsys):
    status, out, _ = run(capsys, "list", "--json")
    assert status == 0
    assert [each["exercise"] for each in json.loads(out)] == exercise_names()
    assert "Scaled dot-product attention" in run(capsys, "list")[1]


@pytest.mark.parametrize(
    ("words", "status", "told"),
    [
        (["start", "atention"], 2, "did you mean 'attention'?"),
        (["check"], 2, "begin with: attnlab course start attention"),
        (["check", "attention"], 2, "begin it with: attnlab course start attention"),
        (["submit", "Ada"], 2, "there is no answer in course to hand in"),
        (["solution", "attention"], 2, "a hint is less"),
        (["list", "--exercises", "nowhere"], 2, "there is no folder nowhere"),
        (["verify", "nothing"], 2, "no exercise named 'nothing'"),
    ],
)
def test_what_is_mistyped_is_told_in_one_sentence(capsys, words, status, told):
    got, _, err = run(capsys, *words)
    assert got == status
    assert told in err
    assert err.count("\n") == 1


def test_beginning_again_keeps_the_answer_unless_it_is_asked(capsys):
    answer = begin(capsys, "softmax", "mine = 1\n")
    status, _, err = run(capsys, "start", "softmax")
    assert status == 3
    assert "left as it is" in err
    assert answer.read_text() == "mine = 1\n"
    assert run(capsys, "start", "softmax", "--again")[0] == 0
    assert "mine" not in answer.read_text()


def test_what_an_instructor_holds_back_is_never_called_solved(capsys, tmp_path):
    exercises_in(tmp_path / "own")
    own = ["--exercises", "own"]
    assert run(capsys, "start", "double", *own)[0] == 0
    assert "double" in run(capsys, "list", *own)[1]
    answer = tmp_path / "course" / "double.py"
    answer.write_text("def double(number):\n    return 2 * number if number < 1e9 else 0.0\n")
    status, out, _ = run(capsys, "check", "double", *own)
    assert status == 0
    assert "1 check not run yet: it is held back for the grading" in out
    out = run(capsys, "progress", *own)[1]
    assert "passes so far; 1 not run yet" in out
    assert "0 of" in out
    status, _, err = run(capsys, "solution", "double", *own)
    assert status == 2
    assert "has 1 check not run yet" in err


def test_watching_checks_each_time_the_file_is_saved_until_ctrl_c(tmp_path, capsys, monkeypatch):
    run(capsys, "start", "attention")
    looks = []

    def next_look(seconds):
        looks.append(capsys.readouterr().out)
        if len(looks) == 1:
            (tmp_path / "course" / "attention.py").write_text(WRONG)
        if len(looks) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("attnlab_course.check_commands.time.sleep", next_look)
    assert run(capsys, "watch", "attention")[0] == 130
    assert looks[0].startswith("watching attention")
    assert "nothing is written yet" in looks[0]
    assert "7 of 8 checks pass" in looks[1]
    assert looks[2] == ""  # nothing was saved

"""Answers of the process with the models: requests are checked, and any question has one."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnlab.experiments import registry
from attnlab_lab.server import answer_process

from .serving import asked


def test_experiments_are_described_as_the_command_line_does():
    status, found = asked("experiments")
    assert status == 200
    (sorting,) = [each for each in found if each["name"] == "sorting"]
    by_name = {each["name"]: each for each in sorting["settings"]}
    assert by_name["letters"] == {
        "name": "letters", "type": "int", "default": 3, "is_optional": False, "low": 1, "high": 26,
        "choices": None, "expected": "an integer from 1 to 26", "comment": "size of the alphabet",
    }  # fmt: skip
    assert by_name["task"]["choices"] == ["sort", "reverse", "copy", "add", "induction"]
    assert [each["name"] for each in found] == list(registry.experiments())


def test_a_member_of_what_is_no_population_is_refused(sorter):
    status, found = asked("ask", folder=str(sorter / "17"), text="cab", edits=[])
    assert (status, "could not read" in found["error"]) == (409, True)


def test_a_request_is_checked_as_the_command_line_does(monkeypatch):
    def check(**settings):
        return asked("check", experiment="sorting", settings=settings, seed=0)

    typed = {"steps": 20, "learning_rate": 0.01, "bias": True, "holdout": None, "norm": "rms"}
    texts = {
        "steps": "20",
        "learning_rate": "0.01",
        "bias": "true",
        "holdout": "none",
        "norm": "rms",
    }
    assert check(**typed) == (200, {"settings": texts})
    checked = asked("check", experiment="sorting", settings={"steps": 20}, seed=3)[1]
    assert checked["settings"] == {"steps": "20"}
    assert check(steps=0)[1]["error"].startswith("steps must be an integer from 1 to 10,000,000")
    assert "did you mean 'letters'?" in check(leters=3)[1]["error"]
    assert check(num_heads=4)[0] == 400
    assert asked("check", experiment="sortin", settings={}, seed=0)[0] == 400
    status, found = check(d_model=4096, num_heads=1, num_layers=48, d_ff=16384)
    assert (status, "this training takes about" in found["error"]) == (413, True)
    monkeypatch.setattr(answer_process, "free_memory", lambda: 30_000)
    assert check()[0] == 413
    monkeypatch.setattr(answer_process, "free_memory", lambda: None)
    assert check()[0] == 200


def test_only_a_run_with_few_inputs_is_answered(sorter, monkeypatch):
    monkeypatch.setattr(answer_process, "_MOST_INPUTS", 26)
    status, found = asked("ask", folder=str(sorter), text="cab", edits=[])
    assert (status, "at most 26 inputs" in found["error"]) == (400, True)
    monkeypatch.setattr(answer_process, "_MOST_INPUTS", 27)
    assert asked("ask", folder=str(sorter), text="cab", edits=[])[0] == 200


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 9)
    | st.floats(allow_nan=False)
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=4,
)
KINDS = "CutEdge ZeroHead MeanHead FreezePattern RedirectToFirst UniformPattern SetMask AddToScores"
FIELDS = ["layer", "head", "query", "key", "step", "site", "pattern", "value", "mask", "amount"]
FIELDS += ["recording", "factor", "version"]
EDITS = st.lists(
    st.fixed_dictionaries(
        {"edit": st.sampled_from(KINDS.split()) | st.text(max_size=5)},
        optional=dict.fromkeys(FIELDS, VALUES),
    )
    | VALUES,
    max_size=2,
)


def check_any_question(folder, text, edits):
    status, found = asked("ask", folder=folder, text=text, edits=edits)
    assert status in (200, 400, 409, 413)
    assert (list(found) == ["error"]) == (status != 200)


@settings(max_examples=10)
@given(text=st.text(alphabet="abc", min_size=3, max_size=3) | st.text(max_size=6), edits=EDITS)
def test_any_question_has_an_answer_or_a_sentence(sorter, text, edits):
    check_any_question(str(sorter), text, edits)


@pytest.mark.slow
@settings(max_examples=20_000)
@given(text=st.text(alphabet="abc", min_size=3, max_size=3) | st.text(max_size=6), edits=EDITS)
def test_very_many_questions_have_an_answer_or_a_sentence(sorter, text, edits):
    check_any_question(str(sorter), text, edits)

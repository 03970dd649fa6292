"""Heads that students design by hand: what is accepted, and what is said of what is not."""

import numpy as np
import pytest

from attnlab.design import design_for
from attnlab.tasks.vectors import VectorTask, vector_task
from attnlab_course.catalog import find_exercise
from attnlab_course.material.weight_mistakes import add_scores, gain_mistake, missing_factor
from attnlab_course.material.weights import DesignedHead, run_head
from attnlab_course.sandbox.student_code import load_names

from .classroom import outcome_of_weights as outcome_of

RULES = ("identity", "copy_first", "unique")


def matrices_of(rule):
    design = design_for(rule)
    found = [np.array(each) for each in (design.Km, design.Qm, design.Vm)]
    return found if design.pos is None else [*found, np.array(design.pos)]


def words_of(outcome):
    return [each.failure.words for each in outcome.checks if each.failure is not None]


@pytest.mark.parametrize("rule", RULES)
def test_the_designs_of_the_package_are_right_in_any_basis_of_keys_and_queries(rule):
    Km, Qm, *rest = matrices_of(rule)
    random = np.random.default_rng(0)
    change = random.normal(size=(Km.shape[1],) * 2) + 3 * np.eye(Km.shape[1])
    for given in ([Km, Qm, *rest], [Km @ change, np.linalg.solve(change, Qm.T).T, *rest]):
        outcome = outcome_of(rule, given)
        assert outcome.passed, words_of(outcome)


@pytest.mark.parametrize("rule", RULES)
def test_a_gain_that_is_too_low_is_told_with_what_it_lacks(rule):
    Km, Qm, *rest = matrices_of(rule)
    outcome = outcome_of(rule, [Km, Qm / 10, *rest])
    assert outcome.mistake.name == "gain too low"
    assert all("; with Qm " in words for words in words_of(outcome) if "expected" in words)


def test_what_the_queries_lack_is_what_was_taken_from_them():
    design = design_for("identity")  # a thousandth above what is needed

    def is_right(head):
        run = run_head(head, vector_task("identity"), np.array([[0, 1, 1, 1, 1, 1]]), np.float64)
        return run.output[0, 0, 0] > 0.999

    head = DesignedHead(np.array(design.Km), np.array(design.Qm) / 3, np.array(design.Vm))
    assert missing_factor(head, is_right) == pytest.approx(3 / 1.001, rel=2e-3)
    for is_short, name in ((False, "gain too low"), (True, "short inputs only")):

        def judged(head, lengths=(), is_short=is_short):
            return is_short if lengths else is_right(head)

        assert gain_mistake(head, judged, [1]) == name
    assert gain_mistake(head.louder(3), is_right, [1]) is None


def test_scores_are_added_to_those_that_a_head_has():
    task = VectorTask("copy_first", longest=3)
    random = np.random.default_rng(2)
    head = DesignedHead(
        *(random.normal(size=(5, 4)) for _ in "KQ"), random.normal(size=(5, 3)), np.eye(3)[:, :2]
    )
    table = random.normal(size=(6, 6))
    ids = np.array([[2, 0, 1]])
    features = np.hstack([np.eye(3)[ids[0]], np.eye(3)])
    before = run_head(head, task, ids, np.float64)
    after = run_head(add_scores(head, task, table), task, ids, np.float64)
    assert np.allclose(after.scores[0], before.scores[0] + features @ table @ features.T)


@pytest.mark.parametrize(
    ("rule", "change", "words"),
    [
        ("identity", lambda m: None, "must return the list [Km, Qm, Vm]; got None"),
        ("identity", lambda m: m[:2], "must return the list [Km, Qm, Vm]; got 2 values"),
        ("identity", lambda m: [None, *m[1:]], "Km is not written yet"),
        ("identity", lambda m: ["A", *m[1:]], "Km must be a matrix of real numbers"),
        ("identity", lambda m: [m[0] * 1j, *m[1:]], "Km must be a matrix of real numbers"),
        ("identity", lambda m: [m[0][0], *m[1:]], "Km must be a matrix with 1 to 64 rows and col"),
        (
            "identity",
            lambda m: [np.eye(3, 65), *m[1:]],
            "1 to 64 rows and columns; got shape (3, 65)",
        ),
        ("identity", lambda m: [np.eye(3, 4), *m[1:]], "Km and Qm must have one shape"),
        ("identity", lambda m: [*m[:2], np.eye(3, 2)], "Vm must have 3 columns; it has 2"),
        ("identity", lambda m: [*m, np.eye(6)], "got 4 values"),
        ("copy_first", lambda m: m[:3], "[Km, Qm, Vm, pos]; got 3 values"),
        ("copy_first", lambda m: [m[0][:6], *m[1:]], "Km must have 7 rows, 3 for the token and 4"),
        ("copy_first", lambda m: [*m[:3], m[3][:3]], "each of the 4 places; it has 3"),
        ("unique", lambda m: [*m[:2], np.ones((8, 2)), m[3]], "Vm must have 1 column; it has 2"),
    ],
)
def test_matrices_of_the_wrong_form_get_no_points_and_words(rule, change, words):
    outcome = outcome_of(rule, change(matrices_of(rule)))
    assert outcome.points == 0
    assert all(words in each for each in words_of(outcome)), words_of(outcome)


def test_numbers_that_are_not_finite_are_wrong_and_break_nothing():
    for rule in RULES:
        for value in (np.nan, np.inf, -np.inf, 1e300):
            matrices = [each.copy() for each in matrices_of(rule)]
            matrices[1][0, 0] = value
            assert not outcome_of(rule, matrices).passed


def test_the_rule_of_the_program_puzzle_is_its_head_s_on_every_text():
    exercise = find_exercise("puzzle_program")
    names = load_names(exercise.source, str(exercise.path))
    assert len(names["RULED"]) == 363
    for text in names["RULED"]:
        shown = [1 if value > 0 else -1 for value in names["model"](text)]
        assert shown == names["program"](text)

"""What an exercise gives is the exercise's own when an answer is checked, and so is attnlab."""

import json
import zipfile

from attnlab_course.catalog import find_exercise
from attnlab_course.cells import solution_text
from attnlab_course.grading import classroom
from attnlab_course.grading.submission import SubmittedAnswer
from attnlab_course.judge import check_here, judge
from attnlab_course.sandbox.replies import Reply, ask_here
from attnlab_course.sandbox.student_code import load_names
from attnlab_course.submit import hand_in
from attnlab_course.workspace import Workspace

from .classroom import questions_of

FORGED = "\n\ndef rows_after(rows, labels, size):\n    return 'forged'\n"
IN_A_NOTEBOOK = (
    '\nimport attnlab.course\n\nshown = attnlab.course.check("attention")\nprint(shown)\n'
)


def is_forged(source):
    return "forged" in load_names(source)["rows_after"].__code__.co_consts


def test_a_given_function_that_was_rewritten_is_given_again():
    batches = find_exercise("batches")
    program = solution_text(batches.source) + FORGED
    assert is_forged(program)
    assert not is_forged(batches.with_given(program))
    questions = questions_of("batches")
    assert check_here(questions, batches.with_given(program)).passed
    assert not check_here(questions, program).passed


def test_matrices_are_handed_in_as_they_are_checked(tmp_path):
    """A file whose `weights` was changed is checked and handed in with the one that is given."""
    identity = find_exercise("identity")
    workspace = Workspace(tmp_path)
    workspace.start(identity)
    changed = "\n\ndef weights():\n    return [Km]\n"
    (tmp_path / "identity.py").write_text(solution_text(identity.source) + changed)
    path = tmp_path / "ada.zip"
    hand_in(workspace, {"identity": identity}, "Ada", path, ask_here)
    with zipfile.ZipFile(path) as archive:
        assert "work/identity.py" not in archive.namelist()
        matrices = json.loads(archive.read("work/identity.json"))["weights"]["items"]
    assert len(matrices) == 3


def test_a_graded_program_goes_to_the_sandbox_with_what_is_given():
    batches = find_exercise("batches")
    heard = []

    class Hears:
        def ask(self, source, path, cases, *, is_graded):
            heard.append((source, is_graded))
            return Reply()

    answer = SubmittedAnswer("batches", "batches.py", solution_text(batches.source) + FORGED)
    job = classroom._Job(answer, "ada", questions_of("batches"), "")
    classroom._ask(job, Hears())
    ((source, is_graded),) = heard
    assert is_graded
    assert not is_forged(source)


def test_a_check_in_a_notebook_does_nothing_in_the_sandbox_and_costs_nothing(jailed):
    attention = find_exercise("attention")
    questions = questions_of("attention")
    program = solution_text(attention.source) + IN_A_NOTEBOOK
    reply = jailed.ask(program, "attention.py", questions.encoded, is_graded=True)
    assert judge(questions, reply).points == attention.points
    stolen = "from attnlab.parts.attend import attend as attention\n"
    reply = jailed.ask(stolen, "attention.py", questions.encoded, is_graded=True)
    assert judge(questions, reply).points == 0

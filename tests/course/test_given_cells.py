"""What an exercise gives is the exercise's own when an answer is checked, and so is attnlab."""

from attnlab.course.cases import draw_questions
from attnlab.course.catalog import find_exercise
from attnlab.course.cells import solution_text
from attnlab.course.check import answer_here, check_answer
from attnlab.course.grading import classroom
from attnlab.course.grading.submissions import Answer
from attnlab.course.sandbox.runner import load_names
from attnlab.course.sandbox.worker import Worker

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
    questions = draw_questions(batches, 0, graded=True)
    assert check_answer(questions, answer_here(batches.with_given(program))).passed
    assert not check_answer(questions, answer_here(program)).passed


def test_a_graded_program_goes_to_the_sandbox_with_what_is_given():
    batches = find_exercise("batches")
    heard = []

    class Hears:
        def answerer(self, source, path, *, is_graded):
            heard.append((source, is_graded))
            return lambda cases: {"answers": []}

    answer = Answer("batches", "batches.py", solution_text(batches.source) + FORGED)
    job = classroom._Job(answer, "ada", draw_questions(batches, 0, graded=True), "")
    classroom._ask(job, Hears())
    ((source, is_graded),) = heard
    assert is_graded
    assert not is_forged(source)


def test_a_check_in_a_notebook_does_nothing_in_the_sandbox_and_costs_nothing(jail):
    attention = find_exercise("attention")
    questions = draw_questions(attention, 0, graded=True)
    program = solution_text(attention.source) + IN_A_NOTEBOOK
    with Worker(jail) as worker:
        outcome = check_answer(questions, worker.answerer(program, "attention.py", is_graded=True))
        assert outcome.points == attention.points
        stolen = "from attnlab.parts.attend import attend as attention\n"
        outcome = check_answer(questions, worker.answerer(stolen, "attention.py", is_graded=True))
        assert outcome.points == 0

"""Copied programs are found under new names; what the exercise forces is no sign."""

from attnlab_course.cells import solution_text
from attnlab_course.grading.similarity import find_alike, fingerprints
from attnlab_course.grading.submission import Submission, SubmittedAnswer

from .classroom import GOOD, exercises_in

ODD = """
def double(number):
    total = 0.0
    for _ in range(2):
        total += number
    if total != number + number:
        total = sum([number for _ in [1, 2]])
    while total < 0 and number > 0:
        total = abs(total) - 0
    return total
"""
RENAMED = (
    ODD.replace("total", "result")
    .replace("_ in", "step in")
    .replace("0.0", "0")
    .replace("    for", "    # mine\n    for")
)


def class_of(sources):
    return [
        Submission(
            f"student{number:03}", {"double": SubmittedAnswer("double", "double.py", source)}
        )
        for number, source in enumerate(sources)
    ]


def own_program(number):
    """Return a program that no other student writes."""
    parts = ["x += number", "x = -x", "x = x if x else 0", "x, y = y, x", "del y; y = [x][0]"]
    order = [parts[number // 5**place % 5] for place in range(5)]
    body = "\n".join(f"    {part}" for part in order)
    return f"def double(number):\n    x = y = {number}\n{body}\n    return number + number\n"


def test_a_copy_under_new_names_is_found_and_no_other(tmp_path):
    exercises = exercises_in(tmp_path)
    students = [own_program(7 * number) for number in range(40)]
    assert find_alike(class_of(students), exercises) == []
    found = find_alike(class_of([ODD, *students, RENAMED]), exercises)
    assert [(each.first, each.second) for each in found] == [("student000", "student041")]
    assert found[0].shared > 0.9 * found[0].of


def test_what_the_solution_or_much_of_the_class_has_is_no_sign(tmp_path):
    exercises = exercises_in(tmp_path)
    assert find_alike(class_of([GOOD] * 30), exercises) == []
    most = [ODD.replace("return total", f"return total + {'0 + ' * each}0") for each in range(30)]
    assert find_alike(class_of(most + [GOOD] * 70), exercises) == []


def test_equal_programs_with_much_of_their_own_are_alike_however_many_they_are(tmp_path):
    exercises = exercises_in(tmp_path)
    found = find_alike(class_of([ODD] * 20 + [RENAMED] + [GOOD] * 10), exercises)
    assert {each.first for each in found} == {"student000"}
    assert len(found) == 20
    assert all(each.shared == each.of >= 8 for each in found)


def test_two_who_write_what_the_course_writes_are_not_alike(tmp_path):
    exercises = exercises_in(tmp_path, with_attention=True)
    solution = solution_text(exercises["attention"].source)
    assert len(fingerprints(solution)) > 20
    answer = SubmittedAnswer("attention", "attention.py", solution)
    students = [Submission(name, {"attention": answer}) for name in ("alice", "bob")]
    assert find_alike(students, exercises) == []


def test_programs_that_are_no_python_have_few_fingerprints_and_no_error():
    for source in ("", "'''", "(" * 300, "def f(:\n  x", "\x00", "x = 1\n  y"):
        fingerprints(source)
    assert fingerprints("x = 1") == frozenset()
    assert fingerprints(ODD) == fingerprints(ODD.replace("total", "t"))

"""Every journey is broken once: a fault is planted in a copy of attnlab, and the journey must fail.

What is planted is what people met, or its like; it takes the place of a function, by its name.
"""

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = {folder.name: folder.parent for folder in ROOT.glob("packages/*/src/attnlab*")}
MAIN = '\nif __name__ == "__main__":'


class Break(NamedTuple):
    """A function of a file of a package, the fault in its place, and the stories that meet it."""

    file: str
    function: str
    fault: str
    stories: list[str]


TABLE = r"""
stray quotes hide rows
    attnlab/tasks/csv_rows.py CsvRows._rows_of_lines = lambda self: None
    data::every_row_of
a list is taken for a label
    attnlab/tasks/texts.py _plain = lambda value, name, number: str(value)
    data::a_file_that
rows without a text are lost in silence
    attnlab/look/corpus/text_rows.py _rows = lambda texts, lines: (row for row in real(texts,
    lines) if row.text is not None)
    data::a_head_is reasons::a_census_in
a missing text is taken for one
    attnlab/tasks/texts.py _is_missing = lambda value: False
    data::a_classifier_learns
a low gain has no name
    attnlab_course/material/weight_mistakes.py gain_mistake = lambda *args: None
    grading::a_log_of
a report names no mistake
    attnlab_course/grading/student_feedback.py mistake_words = lambda *args: ''
    grading::a_log_of
refused submissions are not counted
    attnlab_course/grading/grades.py Gradebook.refused = property(lambda self: ())
    grading::a_class_is
grades do not know the code that they were made with
    attnlab_course/grading/classroom.py _code_digest = lambda: ''
    grading::nothing_stale_is
the starter's statements come after the student's
    attnlab_course/exercise.py CourseExercise.with_given = lambda self, program:
    f'{program}\n\n{self.starter}'
    course::a_student_who
a single submission is called graded unseen
    attnlab_course/grading/one_submission.py _grade = lambda *given: {'state': 'graded'}
    school::by_the_page
wrong answers are called solved
    attnlab_course/workspace.py ExerciseState.solved = property(lambda self: True)
    course::a_learner_without
the search for mistakes finds none
    attnlab_course/mistakes.py find_mistake = lambda *args, **options: None
    course::the_wrong_answers
a proof's check reads the certificate alone
    attnlab/programs/check.py differences = lambda text, checked: []
    programs::a_folder_of
a changed certificate holds
    attnlab/programs/check_program.py differences = lambda text, fields, worst: []
    programs::a_program_is
a proof goes on after its program has changed
    attnlab/programs/proof.py _SavedTally._refuse = lambda self, other: None
    programs::a_proof_that_ctrl
a folder with a begun proof takes no other
    attnlab/programs/proof_folder.py _content = lambda path: {'begun'} if real(path) else
    set()
    programs::a_proof_that_is
a compiled program answers from back to front
    attnlab/programs/compiled_program.py CompiledProgram.__call__ = lambda self, tokens:
    real(self, tokens)[::-1]
    programs::a_program_is
every mistake is on the first line
    attnlab/programs/lines.py current_line = lambda: Line(real().file, 1)
    programs::a_mistake_is
an edit shows no answer
    attnlab/cli/answers.py show_fork = lambda fork, edits: None
    first_minutes::a_first_model edits::an_edit_is docs::what_a_page[README]
the command that goes on is not quoted
    attnlab/errors.py typed = str
    first_minutes::ctrl_c_keeps
a mistyped name has no suggestion
    attnlab/errors.py did_you_mean = lambda word, known: ''
    first_minutes::a_mistyped_command python::wrong_calls_end
every call with a text is one to the server
    attnlab_lab/parts/server.js joinEngines = (local, count) => { const call = real(local,
    count); return (method, first, ...rest) => typeof first === 'string' ? Promise.reject(new
    Error('methods[method] is not a function')) : call(method, first, ...rest); }
    lab::every_room_of_the_lab
an experiment says the same whatever is moved
    attnlab_lab/rooms/anatomy.js makeExperiment = (name, maker, tools) => real(name, (told) =>
    ({ ...maker(told), show: () => ({ said: name, python: name }) }), tools)
    lab::every_room_of_the_page
no second browser is let in
    attnlab_lab/server/guard.py AccessKeys.renew = lambda self: None if hasattr(self, 'token') else
    real(self)
    lab::a_second_browser
what the server refuses is not said
    attnlab_lab/parts/server.js makeAsker = () => real({ tell() {} })
    lab::what_is_wrong
the first guess of everybody records nothing
    attnlab/look/recording/recorder.py pass_of = lambda inputs, model: (real(inputs,
    model)[0], None)
    python::the_first_guesses python::the_model_of
shares of patches are upside down
    attnlab/edits/effects/patched.py Recovery.share = lambda self, values: 1 - real(self,
    values)
    lab::the_picture_of
pairs that do not fit are lost in silence
    attnlab/edits/effects/pairs.py _text_pairs = lambda *args: Pairs(real(*args).groups, (),
    real(*args).texts)
    reasons::patching_finds
queries and keys are of other places
    attnlab/look/head_scores.py _Seen.written = lambda self, stream, positions:
    real(self, stream, [0] * len(positions))
    reasons::why_a_head
calls of another library are not answered
    attnlab/pretrained/model.py Pretrained.__getattr__ = lambda self, name:
    nn.Module.__getattr__(self, name)
    python::wrong_calls
figures wait for a magic
    attnlab/draw/pictures/notebook_figure.py show_below_cell = lambda figure: None
    notebooks::figures_are
figures are text
    attnlab/draw/pictures/notebook_figure.py NotebookFigure._repr_png_ = lambda self: None
    notebooks::figures_are
whatever came is shown as nothing
    attnlab/experiments/viewer.py show = lambda *args, **options: None
    notebooks::figures_are
a head's number tells its role
    attnlab/truth/network.py shuffle_heads = lambda network, random: None
    edits::a_method_of
loading leaves its traces
    attnlab/pretrained/model_state.py _State.restore = lambda self: None
    models::a_hand_written
what is recorded is not what was computed
    attnlab/look/recording/recorder.py _copied = lambda *args: real(*args) * 1.01
    models::a_hugging_face model_kinds::modules_and
what cannot be shown is not named
    attnlab/pretrained/model_trace.py ModelTrace.why_set_aside = property(lambda self: '')
    model_kinds::what_cannot_be
the mask of a cut is open
    attnlab/edits/attention_edits.py _with_allowed = lambda mask, allowed: mask
    docs::what_a_page[edit]
"""
# A break's name; a file of a package and a function in it = the fault, in which `real` is the
# function itself; the stories that meet it, each by its file and the first words of its name.


def functions_of(source: str) -> list[str]:
    """Return the functions of a program, and the methods of its classes after their class."""
    names = []
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef):
            names.append(node.name)
        if isinstance(node, ast.ClassDef):
            names += [f"{node.name}.{n.name}" for n in node.body if isinstance(n, ast.FunctionDef)]
    return names


STORIES = [
    f"{file.stem.removeprefix('test_')}::{name.removeprefix('test_')}"
    for file in sorted(Path(__file__).parent.glob("test_*.py"))
    for name in functions_of(file.read_text())
    if name.startswith("test_") and file != Path(__file__)
]


def whole(words: str) -> str:
    """Return the name of the one story that begins with these words."""
    begin, bracket, parameter = words.partition("[")
    (name,) = (story for story in STORIES if story.startswith(begin))
    return name + bracket + parameter


def breaks() -> Iterator[tuple[str, Break]]:
    """Yield the breaks of the table, by their names."""
    for name, lines in re.findall(r"^(\S.*)\n((?:    .*\n)+)", TABLE, re.MULTILINE):
        *plant, stories = (line.strip() for line in lines.splitlines())
        place, _, fault = " ".join(plant).partition(" = ")
        yield name, Break(*place.split(), fault, [whole(words) for words in stories.split()])


BREAKS = dict(breaks())


def source_of(broken: Break) -> Path:
    """Return the file that a fault is planted in."""
    return SOURCES[broken.file.partition("/")[0]] / broken.file


def planted_in(source: str, broken: Break) -> str:
    """Put a fault in the place of a function, at the end of its file."""
    if broken.file.endswith(".js"):
        name = broken.function
        return f"{source}\n{{\n  const real = {name};\n  {name} = {broken.fault};\n}}\n"
    before, main, after = source.partition(MAIN)
    name = broken.function
    return f"{before}\n\n{name} = (lambda real: {broken.fault})({name})\n{main}{after}"


@pytest.mark.parametrize("name", BREAKS)
def test_every_break_takes_the_place_of_a_function(name):
    broken = BREAKS[name]
    source = source_of(broken).read_text()
    if broken.file.endswith(".js"):
        assert re.search(rf"^(export )?function {broken.function}\(", source, re.MULTILINE)
    else:
        assert broken.function in functions_of(source)


def test_every_story_is_broken_by_a_break():
    met = {story.partition("[")[0] for one in BREAKS.values() for story in one.stories}
    assert met == set(STORIES)


@pytest.mark.slow
@pytest.mark.parametrize("planted", BREAKS)
def test_a_journey_meets_what_is_planted(planted, tmp_path):
    broken = BREAKS[planted]
    package = broken.file.partition("/")[0]
    shutil.copytree(SOURCES[package] / package, tmp_path / package)
    file = tmp_path / broken.file
    file.write_text(planted_in(file.read_text(), broken))
    for file, name in (story.split("::") for story in broken.stories):
        place = f"tests/journeys/test_{file}.py::test_{name}"
        command = [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider"]
        done = subprocess.run(
            [*command, place],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
        )
        sys.stdout.write(done.stdout)
        assert done.returncode == 1, done.stdout + done.stderr
        assert " failed" in done.stdout

"""Every journey is broken once: a fault is planted in a copy of attnlab, and the journey must fail.

What is planted is what people met, or its like; it takes the place of a function, by its name.
"""

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = {folder.name: folder.parent for folder in ROOT.glob("packages/*/src/attnlab*")}
MAIN = '\nif __name__ == "__main__":'


class Break(NamedTuple):
    """A function of a file of a package, the fault in its place, and the stories that meet it.

    In the fault, `real` is the function itself. A story is its file and its name.
    """

    file: str
    function: str
    fault: str
    stories: tuple[str, ...]


BREAKS = {
    "stray quotes hide rows": Break(
        "attnlab/tasks/csv_rows.py",
        "Rows._rows_of_lines",
        "lambda self: None",
        ("data::every_row_of_a_file_with_stray_quotes_is_in_the_report",),
    ),
    "a list is taken for a label": Break(
        "attnlab/tasks/texts.py",
        "_plain",
        "lambda value, name, number: str(value)",
        ("data::a_file_that_cannot_be_used_is_refused_in_a_sentence_that_says_what_to_do",),
    ),
    "rows without a text are lost in silence": Break(
        "attnlab/look/corpus/text_files.py",
        "_rows",
        "lambda texts, lines: (row for row in real(texts, lines) if row.text is not None)",
        ("data::a_head_is_searched_for_in_files_of_each_kind_and_no_row_is_lost",),
    ),
    "a missing text is taken for one": Break(
        "attnlab/tasks/texts.py",
        "_is_missing",
        "lambda value: False",
        (
            (
                "data::a_classifier_learns_from_an_array_and_from_cells_without_names_and_says_what"
                "_it_read"
            ),
        ),
    ),
    "a low gain has no name": Break(
        "attnlab_course/material/weights.py",
        "gain_mistake",
        "lambda *args: None",
        ("grading::a_log_of_the_homework_loses_the_points_of_its_wrong_design_alone_and_says_why",),
    ),
    "a report names no mistake": Break(
        "attnlab_course/grading/student_feedback.py",
        "mistake_words",
        "lambda *args: ''",
        ("grading::a_log_of_the_homework_loses_the_points_of_its_wrong_design_alone_and_says_why",),
    ),
    "refused submissions are not counted": Break(
        "attnlab_course/grading/gradebook.py",
        "Gradebook.refused",
        "property(lambda self: ())",
        ("grading::a_class_is_graded_and_its_tables_add_up",),
    ),
    "grades do not know the code that they were made with": Break(
        "attnlab_course/grading/classroom.py",
        "_code_digest",
        "lambda: ''",
        ("grading::nothing_stale_is_reused_once_shared_code_of_the_course_is_edited",),
    ),
    "the starter's statements come after the student's": Break(
        "attnlab_course/exercise.py",
        "CourseExercise.with_given",
        "lambda self, program: f'{program}\\n\\n{self.starter}'",
        ("course::a_student_who_solves_everything_gets_every_point",),
    ),
    "wrong answers are called solved": Break(
        "attnlab_course/workspace.py",
        "State.solved",
        "property(lambda self: True)",
        ("course::a_learner_without_a_teacher_is_not_told_solved_too_early",),
    ),
    "the search for mistakes finds none": Break(
        "attnlab_course/mistakes.py",
        "find_mistake",
        "lambda *args, **options: None",
        ("course::the_wrong_answers_that_people_give_are_caught_and_named",),
    ),
    "a proof's check reads the certificate alone": Break(
        "attnlab/programs/check.py",
        "differences",
        "lambda text, checked: []",
        (
            (
                "programs::the_folder_of_a_proof_in_which_somebody_changed_anything_is_refused_by_i"
                "ts_check"
            ),
        ),
    ),
    "a changed certificate holds": Break(
        "attnlab/programs/reader.py",
        "differences",
        "lambda text, fields, worst: []",
        ("programs::a_certificate_in_which_someone_changed_a_field_does_not_hold",),
    ),
    "a proof goes on after its program has changed": Break(
        "attnlab/programs/proof.py",
        "_SavedTally._refuse",
        "lambda self, other: None",
        ("programs::a_proof_that_ctrl_c_stopped_goes_on_with_its_own_program_alone",),
    ),
    "a folder with a begun proof takes no other": Break(
        "attnlab/programs/proof_folder.py",
        "_content",
        "lambda path: {'begun'} if real(path) else set()",
        ("programs::a_proof_that_is_killed_early_is_begun_anew_by_the_same_command",),
    ),
    "a compiled program answers from back to front": Break(
        "attnlab/programs/compiled_program.py",
        "CompiledProgram.__call__",
        "lambda self, tokens: real(self, tokens)[::-1]",
        ("programs::a_program_is_compiled_proved_and_checked_by_someone_else",),
    ),
    "every mistake is on the first line": Break(
        "attnlab/programs/lines.py",
        "current_line",
        "lambda: Line(real().file, 1)",
        ("programs::a_mistake_is_told_with_its_file_line_and_expression",),
    ),
    "an edit shows no answer": Break(
        "attnlab/cli/answers.py",
        "show_fork",
        "lambda fork, edits: None",
        (
            "first_minutes::a_first_model_is_trained_shown_asked_and_cut",
            "edits::an_edit_is_made_kept_and_made_again_and_tells_what_it_alone_did",
            "docs::what_a_page_shows_can_be_typed_and_prints_what_it_shows[README]",
        ),
    ),
    "the command that goes on is not quoted": Break(
        "attnlab/errors.py",
        "typed",
        "str",
        ("first_minutes::ctrl_c_keeps_what_was_trained_and_names_the_command_that_goes_on",),
    ),
    "a mistyped name has no suggestion": Break(
        "attnlab/errors.py",
        "did_you_mean",
        "lambda word, known: ''",
        (
            "first_minutes::a_mistyped_command_gets_one_sentence_and_leaves_nothing_behind",
            "python::wrong_calls_end_in_one_sentence_that_says_what_to_do",
        ),
    ),
    "every call with a text is one to the server": Break(
        "attnlab_lab/parts/server.js",
        "joinEngines",
        (
            "(local, count) => { const call = real(local, count); return (method, first, ...rest) ="
            "> typeof first === 'string' ? Promise.reject(new Error('methods[method] is not a funct"
            "ion')) : call(method, first, ...rest); }"
        ),
        ("lab::every_room_of_the_lab_does_its_work",),
    ),
    "an experiment says the same whatever is moved": Break(
        "attnlab_lab/rooms/anatomy.js",
        "makeExperiment",
        (
            "(name, maker, tools) => real(name, (told) => ({ ...maker(told), show: () => ({ said: n"
            "ame, python: name }) }), tools)"
        ),
        ("lab::every_room_of_the_page_from_disk_does_its_work",),
    ),
    "no second browser is let in": Break(
        "attnlab_lab/server/guard.py",
        "Keys.renew",
        "lambda self: None if hasattr(self, 'token') else real(self)",
        ("lab::a_second_browser_is_told_what_to_do_and_does_it",),
    ),
    "what the server refuses is not said": Break(
        "attnlab_lab/parts/server.js",
        "makeAsker",
        "() => real({ tell() {} })",
        ("lab::what_is_wrong_is_said_beside_it_and_no_old_answer_stands_there",),
    ),
    "the first guess of everybody records nothing": Break(
        "attnlab/look/recording/recorder.py",
        "_passage_of",
        "lambda inputs, model: (real(inputs, model)[0], None)",
        (
            "python::the_first_guesses_of_a_person_from_another_library_work",
            "python::the_model_of_a_run_is_asked_with_letters_and_names_them",
        ),
    ),
    "shares of patches are upside down": Break(
        "attnlab/edits/effects/patches.py",
        "Recovery.share",
        "lambda self, values: 1 - real(self, values)",
        ("lab::the_picture_of_patching_shows_where_two_texts_differ",),
    ),
    "figures wait for a magic": Break(
        "attnlab/draw/pictures/notebook_figure.py",
        "show_below_cell",
        "lambda figure: None",
        ("notebooks::a_figure_is_a_picture_once_and_without_a_magic",),
    ),
    "figures are text": Break(
        "attnlab/draw/pictures/notebook_figure.py",
        "NotebookFigure._repr_png_",
        "lambda self: None",
        ("notebooks::a_converted_notebook_holds_the_pictures_and_a_model_that_has_answered",),
    ),
    "whatever came is shown as nothing": Break(
        "attnlab/experiments/viewer.py",
        "show",
        "lambda *args, **options: None",
        ("notebooks::a_wrong_call_in_a_cell_ends_in_one_sentence",),
    ),
    "a head's number tells its role": Break(
        "attnlab/truth/network.py",
        "shuffle_heads",
        "lambda network, random: None",
        ("edits::a_method_of_ones_own_stands_beside_those_that_look_at_no_model",),
    ),
    "loading leaves its traces": Break(
        "attnlab/pretrained/model_state.py",
        "_State.restore",
        "lambda self: None",
        ("models::a_hand_written_model_is_looked_into_and_stays_as_it_was",),
    ),
    "what is recorded is not what was computed": Break(
        "attnlab/look/recording/recorder.py",
        "_copied",
        "lambda *args: real(*args) * 1.01",
        (
            "models::a_model_of_hugging_face_from_a_folder_is_looked_into_and_stays_as_it_was",
            "model_kinds::attention_in_modules_or_with_a_prefix_is_shown_as_self_attention",
            "model_kinds::gradient_times_attention_of_a_tiny_llama_from_disk",
        ),
    ),
    "what cannot be shown is not named": Break(
        "attnlab/pretrained/tracing.py",
        "ModelTrace.why_set_aside",
        "property(lambda self: '')",
        ("model_kinds::what_cannot_be_shown_is_refused_with_what_was_met",),
    ),
    "the mask of a cut is open": Break(
        "attnlab/edits/attention_edits.py",
        "_with_allowed",
        "lambda mask, allowed: mask",
        ("model_kinds::a_cut_edge_of_a_tiny_bloom_is_minus_infinity_in_that_score",),
    ),
}


def place_of(story: str) -> str:
    """Return a story as pytest names it."""
    file, name = story.split("::")
    return f"tests/journeys/test_{file}.py::test_{name}"


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


def functions_of(source: str) -> set[str]:
    """Return the functions of a program, and the methods of its classes after their class."""
    names = set()
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{n.name}" for n in node.body if isinstance(n, ast.FunctionDef)}
    return names


@pytest.mark.parametrize("name", BREAKS)
def test_every_break_takes_the_place_of_a_function(name):
    broken = BREAKS[name]
    source = source_of(broken).read_text()
    if broken.file.endswith(".js"):
        assert re.search(rf"^(export )?function {broken.function}\(", source, re.MULTILINE)
    else:
        assert broken.function in functions_of(source)


def test_every_story_is_broken_by_a_break():
    named = {place_of(story).partition("[")[0] for one in BREAKS.values() for story in one.stories}
    stories = {
        f"tests/journeys/{file.name}::{name}"
        for file in Path(__file__).parent.glob("test_*.py")
        if file != Path(__file__)
        for name in functions_of(file.read_text())
        if name.startswith("test_")
    }
    assert named == stories


@pytest.mark.slow
@pytest.mark.parametrize("name", BREAKS)
def test_a_journey_meets_what_is_planted(name, tmp_path):
    broken = BREAKS[name]
    package = broken.file.partition("/")[0]
    shutil.copytree(SOURCES[package] / package, tmp_path / package)
    file = tmp_path / broken.file
    file.write_text(planted_in(file.read_text(), broken))
    for story in broken.stories:
        command = [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider"]
        done = subprocess.run(
            [*command, place_of(story)],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
        )
        sys.stdout.write(done.stdout)
        assert done.returncode == 1, done.stdout + done.stderr
        assert " failed" in done.stdout

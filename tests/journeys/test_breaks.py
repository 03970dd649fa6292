"""Every journey is broken once: a fault is planted in a copy of attnlab, and the journey must fail.

What is planted is what people met, or its like.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]


class Break(NamedTuple):
    """A fault in a file of src/attnlab, and the journeys that meet it: their file, and words of
    their names."""

    journeys: str
    words: str
    file: str
    old: str
    new: str


BREAKS = {
    "stray quotes hide rows": Break(
        "test_data.py",
        "stray_quotes",
        "tasks/csv_rows.py",
        " if hides_rows else None",
        " if False else None",
    ),
    "a list is taken for a label": Break(
        "test_data.py",
        "cannot_be_used",
        "tasks/texts.py",
        "if isinstance(value, Mapping | list | tuple | set | frozenset):",
        "if False:",
    ),
    "the corpus reader learns no column": Break(
        "test_data.py",
        "searched_for",
        "look/corpus/text_files.py",
        "islice(first, _NUM_LEARNED)",
        "()",
    ),
    "the screen does not say what was left out": Break(
        "test_data.py",
        "array",
        "tasks/texts.py",
        "            counts[_MISSING] += 1\n",
        "",
    ),
    "a wrong design has the name of another": Break(
        "test_grading.py",
        "wrong_design",
        "course/exercises/copy_first.py",
        "Every place looks at the second",
        "Every place looks at the last",
    ),
    "a proof's check reads the certificate alone": Break(
        "test_programs.py",
        "changed_anything",
        "programs/check.py",
        'differences((folder / "certificate.json").read_text(), checked)',
        "[]",
    ),
    "the command that goes on is not quoted": Break(
        "test_first_minutes.py",
        "ctrl_c",
        "cli/failures.py",
        "attnlab resume {typed(folder)}",
        "attnlab resume {folder}",
    ),
    "a mistyped setting has no suggestion": Break(
        "test_first_minutes.py",
        "mistyped",
        "errors.py",
        "    if close:\n",
        "    if not names:\n",
    ),
    "a page shows words that are not printed": Break(
        "test_docs.py",
        "README",
        "cli/answers.py",
        '"  token", "  weight on"',
        '"  token", "  weights"',
    ),
    "a changed certificate holds": Break(
        "test_programs.py",
        "changed_a_field",
        "programs/reader.py",
        "    wrong = differences(text, fields, worst)\n",
        "    wrong = []\n",
    ),
    "a proof goes on after its program has changed": Break(
        "test_programs.py",
        "ctrl_c",
        "programs/proof.py",
        "    def _refuse(self, other: str) -> NoReturn:\n",
        "    def _refuse(self, other: str) -> NoReturn:\n        return\n",
    ),
    "wrong answers are called solved": Break(
        "test_course.py",
        "too_early",
        "course/workspace.py",
        "    def solved(self) -> bool:\n",
        "    def solved(self) -> bool:\n        return True\n",
    ),
    "refused submissions are not counted": Break(
        "test_grading.py",
        "add_up",
        "cli/grade.py",
        "{len(book.refused)} refused",
        "0 refused",
    ),
    "every call with a text is one to the server": Break(
        "test_lab.py",
        "room_of_the_lab",
        "lab/parts/server.js",
        "return async (method, first, ...rest) => {",
        "return async (method, first, ...rest) => {\n"
        '    if (typeof first === "string") return methods[method](first, ...rest);',
    ),
    "no second browser is let in": Break(
        "test_lab.py",
        "second_browser",
        "lab/server/guard.py",
        "    def renew(self) -> None:\n",
        "    def renew(self) -> None:\n        return\n",
    ),
    "the first guess of everybody returns nothing": Break(
        "test_python.py",
        "first_guesses",
        "look/recording/recorder.py",
        "    if passage is None:\n        return recording\n",
        "    return recording\n",
    ),
    "figures are text": Break(
        "test_notebooks.py",
        "without_a_magic",
        "draw/pictures/notebook_figure.py",
        "    def _repr_png_(self)",
        "    def _not_png_(self)",
    ),
    "an edit counts another's change": Break(
        "test_edits.py",
        "it_alone_did",
        "edits/checks.py",
        "instead = {hook: hook.again() for hook in call.earlier}",
        "instead = {}",
    ),
    "loading leaves its traces": Break(
        "test_models.py",
        "hand_written",
        "pretrained/model_state.py",
        "        state.restore()\n",
        "",
    ),
}


def test_every_break_has_its_place_in_the_source():
    for name, (_, _, file, old, _) in BREAKS.items():
        assert old in (ROOT / "src" / "attnlab" / file).read_text(), name


@pytest.mark.slow
@pytest.mark.parametrize("name", BREAKS)
def test_a_journey_meets_what_is_planted(name, tmp_path):
    journeys, words, file, old, new = BREAKS[name]
    shutil.copytree(ROOT / "src", tmp_path / "src")
    broken = tmp_path / "src" / "attnlab" / file
    source = broken.read_text()
    broken.write_text(source.replace(old, new))
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, f"tests/journeys/{journeys}", "-k", words],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(tmp_path / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout
    assert " failed" in done.stdout

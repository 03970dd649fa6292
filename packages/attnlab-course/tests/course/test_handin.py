"""Submissions of every form are read, and what is wrong with one is told and costs no other."""

import io
import json
import os
import stat
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest

from attnlab.errors import CouldNotRun
from attnlab_course.catalog import find_exercise
from attnlab_course.cells import starter_cells, starter_notebook, starter_program
from attnlab_course.grading import answers
from attnlab_course.grading.course_file import read_course
from attnlab_course.grading.file_names import exercise_of, student_of
from attnlab_course.grading.submission_files import MOST_DEPTH, MOST_FILES, MOST_OF_FILE
from attnlab_course.grading.submissions import entries_passed_over, read_class

from .classroom import GOOD, SQUARE, exercises_in, handed_in, zip_of


@pytest.fixture(scope="module")
def exercises(tmp_path_factory):
    return exercises_in(tmp_path_factory.mktemp("exercises"))


@pytest.fixture
def read(tmp_path, exercises):
    """Read one submission: the bytes of a file, or the files of a folder by their names."""

    def read_it(content, name="alice.zip"):
        place = tmp_path / "submissions"
        if isinstance(content, bytes):
            content = {name: content}
        else:
            content = {f"alice/{name}": text for name, text in content.items()}
        for path, text in content.items():
            (place / path).parent.mkdir(parents=True, exist_ok=True)
            (place / path).write_bytes(text if isinstance(text, bytes) else text.encode())
        (found,) = read_class(place, exercises)
        return found

    return read_it


def notebook(*cells, **metadata):
    """Return a notebook of cells: a text, or a text and nbgrader's marks."""
    made = []
    for cell in cells:
        text, marks = cell if isinstance(cell, tuple) else (cell, None)
        about = {"nbgrader": marks} if marks else {}
        made.append({"cell_type": "code", "metadata": about, "source": [text]})
    return json.dumps({"cells": made, "metadata": metadata, "nbformat": 4}).encode()


def test_a_zip_of_the_course_is_read_with_its_label_time_and_no_problem(read):
    found = read(handed_in({"double.py": GOOD, "pair.json": '{"weights": 3}', "why.txt": "so"}))
    assert found.student == "alice"
    assert found.label == "a label"
    assert found.created == "2026-11-20T10:00:00+00:00"
    assert found.problems == []
    assert found.answers["double"].source == GOOD
    assert found.answers["pair"].data == 3
    assert found.answers["why"].source == "so"


def test_a_changed_file_is_told_and_still_graded(read):
    files = {}
    with zipfile.ZipFile(io.BytesIO(handed_in({"double.py": GOOD}))) as archive:
        for name in archive.namelist():
            files[name] = archive.read(name)
    files["work/double.py"] = SQUARE.encode()
    found = read(zip_of(files))
    assert found.answers["double"].source == SQUARE
    assert any("is not the file that was handed in" in words for words in found.problems)


def test_a_manifest_that_is_none_leaves_the_files_to_their_names_and_one_of_nonsense_is_told(read):
    found = read(zip_of({"manifest.json": '{"format": "other"}', "work/double.py": GOOD}))
    assert list(found.answers) == ["double"]
    assert "manifest.json is not of the form" in found.problems[0]
    made = {"format": "attnlab course 1", "exercises": {"double": 3, "nothing": {}, "why": {}}}
    found = read(zip_of({"manifest.json": json.dumps(made)}))
    assert (found.answers, len(found.problems)) == ({}, 4)


def test_a_folder_of_a_student_is_read_and_untouched_starters_are_not_answers(read, exercises):
    cells = starter_cells(exercises["double"].source, "double")
    starters = {
        "double.py": starter_program(cells),
        "double.ipynb": starter_notebook(cells, "double"),
    }
    found = read({**starters, "why.py": 'answer = "since it does"'})
    assert list(found.answers) == ["why"]
    assert found.answers["why"].source == "since it does"
    assert read({"double.ipynb": notebook(GOOD)}).answers["double"].file == "double.ipynb"


def test_files_named_by_a_course_system_find_their_student_and_exercise(tmp_path, exercises):
    for name, student in {
        "alice_double.py": "alice",
        "alice-double (2).py": "alice",
        "double.py": tmp_path.name,
        "doejane_12345_678_double-1.py": "doejane_12345",
        "doejane_LATE_12345_678_work.zip": "doejane_LATE_12345",
        "Jane Doe_99_assignsubmission_file_": "Jane Doe_99",
        "bob.zip": "bob",
        "Ada_Double (final).py": "Ada",
        "Ada Double.zip": "Ada Double",  # a zip and a folder keep their names
        "Ada Double": "Ada Double",
    }.items():
        assert student_of(tmp_path / name, exercises) == student, name
    assert exercise_of("Redouble", exercises, loosely=True) is None
    assert exercise_of("doejane_12345_678_double-1", exercises) == "double"
    assert exercise_of("trouble", exercises) is None
    both = {"attention": None, "cross_attention": None}
    assert exercise_of("alice_cross_attention", both) == "cross_attention"


@pytest.mark.parametrize(
    "name", ["double (final).py", "Double.py", "DOUBLE (2).PY", "a_Double (my last).ipynb"]
)
def test_another_case_and_an_ending_in_brackets_name_an_exercise_all_the_same(name, read):
    content = notebook(GOOD) if name.endswith("ipynb") else GOOD
    found = read({name: content, "pair.json": '{"weights": 1}'})
    assert found.answers["double"].file == name
    assert f"{name} was read as double{Path(name).suffix.lower()}" in found.problems
    found = read({name: content, "double.py": SQUARE})
    assert found.answers["double"].source == SQUARE
    assert any("answered twice: double.py is graded" in words for words in found.problems)


def test_one_notebook_answers_each_exercise_whose_names_it_defines(read):
    found = read(notebook("%matplotlib inline\n" + GOOD, "x = 1"), "alice.ipynb")
    assert list(found.answers) == ["double"]
    assert "%" not in found.answers["double"].source
    found = read(notebook("x = 1"), "alice.ipynb")
    assert "answers no exercise" in found.problems[0]


ATTENTION = "def attention(query, key, value, mask=None, dropout=0.0):\n    return value, None\n"
ALIKE = {name: find_exercise(name) for name in ("attention", "attention_dropout", "swiglu")}


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ([ATTENTION], ["attention"]),
        ([ATTENTION, 'import attnlab.course\nattnlab.course.check("attention_dropout")'], ["d"]),
        (["# # Attention with dropout", ATTENTION], ["d"]),
        (["# ## attention_dropout", ATTENTION], ["d"]),
        (["# # Attention", "# # Attention with dropout", ATTENTION], ["attention", "d"]),
        (["# # Attention with dropout", "class SwiGLU: pass\ndef swish(x): pass"], ["swiglu"]),
        (["# # Swish", "def swish(x): pass"], []),
    ],
)
def test_a_name_that_two_exercises_ask_for_answers_the_one_that_is_meant(cells, expected, tmp_path):
    made = json.loads(notebook(*cells))
    for cell in made["cells"]:
        (text,) = cell["source"]
        if text.startswith("# #"):
            cell |= {"cell_type": "markdown", "source": [text[2:]]}
    (tmp_path / "ada.ipynb").write_text(json.dumps(made))
    (found,) = read_class(tmp_path, ALIKE)
    assert list(found.answers) == [{"d": "attention_dropout"}.get(name, name) for name in expected]


def test_of_two_exercises_with_one_name_the_course_file_says_which_counts(tmp_path):
    (tmp_path / "course.toml").write_text('exercises = ["attention_dropout"]')
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "ada.ipynb").write_bytes(notebook(ATTENTION))
    (found,) = read_class(tmp_path / "work", read_course(tmp_path / "course.toml").exercises)
    assert list(found.answers) == ["attention_dropout"]


def test_an_nbgrader_notebook_is_read_without_its_cells_of_tests(read):
    solution = (GOOD, {"grade_id": "double", "grade": False, "solution": True})
    tests = ("assert double(2) == 5", {"grade_id": "tests", "grade": True, "solution": False})
    found = read(notebook(solution, tests), "alice.ipynb")
    assert "assert" not in found.answers["double"].source
    assert list(found.answers) == ["double"]


def test_a_record_of_hand_designs_is_data_and_a_program(tmp_path, monkeypatch, exercises):
    found = {"pair": {"weights": [np.eye(2)]}, "double": {"source": GOOD}, "unique": {"source": ""}}
    monkeypatch.setattr(answers, "answers_of_record", lambda record: found)
    (tmp_path / "alice.json").write_text("{}")
    (read,) = read_class(tmp_path, exercises)
    assert read.answers["pair"].data["items"][0]["shape"] == [2, 2]
    assert read.answers["double"].source == GOOD
    assert len(read.answers) == 2
    monkeypatch.undo()
    (tmp_path / "alice.json").write_text('{"form": "other"}')
    (read,) = read_class(tmp_path, exercises)
    assert "expected a record of the form" in read.problems[0]


def test_nothing_to_read_is_an_error(tmp_path, exercises):
    with pytest.raises(CouldNotRun, match="holds no submission; expected zips"):
        read_class(tmp_path, exercises)
    with pytest.raises(CouldNotRun, match="expected a folder of submissions"):
        read_class(tmp_path / "nowhere", exercises)


def entry(name, content=b"x = 1", *, mode=None, flags=0):
    """Return an entry of a zip with an odd name, kind or flag."""
    info = zipfile.ZipInfo("plain.py")
    info.filename = name
    if mode is not None:
        info.external_attr = mode << 16
    info.flag_bits = flags
    return info, content


def zip_with(*entries):
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("double.py", GOOD)
        for info, content in entries:
            archive.writestr(info, content, zipfile.ZIP_DEFLATED)
    return written.getvalue()


ODD = {
    "climbs": entry("../../evil.py"),
    "climbs in the middle": entry("work/../../evil.py"),
    "absolute": entry("/etc/evil.py"),
    "drive": entry("C:/evil.py"),
    "backslashes": entry("..\\..\\evil.py"),
    "line end": entry("a\nb.py"),
    "escape": entry("a\x1b[31m.py"),
    "very long": entry("a" * 300 + ".py"),
    "link": entry("link.py", b"/etc/passwd", mode=stat.S_IFLNK | 0o777),
    "device": entry("device.py", b"", mode=stat.S_IFCHR | 0o666),
    "pipe": entry("pipe.py", b"", mode=stat.S_IFIFO | 0o666),
    "bomb": entry("bomb.py", b"0" * 900_000),
    "large": entry("large.py", os.urandom(MOST_OF_FILE + 1)),
    "large and thin": entry("thin.py", b"0" * (MOST_OF_FILE + 1)),
}


@pytest.mark.parametrize("what", ODD)
def test_an_odd_entry_of_a_zip_is_left_out_and_told_and_the_rest_is_read(read, what, tmp_path):
    before = set(tmp_path.rglob("*"))
    found = read(zip_with(ODD[what]))
    assert list(found.answers) == ["double"], what
    assert len(found.problems) == 1, what
    assert "left out" in found.problems[0]
    assert "\x1b" not in found.problems[0]
    made = {path.name for path in set(tmp_path.rglob("*")) - before}
    assert made == {"submissions", "alice.zip"}


@pytest.mark.parametrize("file", ["submissions/alice_double.py", "submissions/alice/double.py"])
def test_a_file_that_is_too_large_was_handed_in_and_is_not_missing(file, tmp_path):
    path = tmp_path / file
    path.parent.mkdir(parents=True)
    path.write_bytes(b"#" * (MOST_OF_FILE + 1))
    (found,) = read_class(tmp_path / "submissions", exercises_in(tmp_path / "own"))
    assert found.unreadable == {"double"}
    assert any(words.endswith("it has over 1,000,000 bytes") for words in found.problems)
    zipped = zip_of({"double.py": os.urandom(MOST_OF_FILE + 1)})
    (tmp_path / "submissions" / "bob.zip").write_bytes(zipped)
    found = read_class(tmp_path / "submissions", exercises_in(tmp_path / "own"))[-1]
    assert found.unreadable == {"double"}


def test_names_with_a_null_inside_and_encrypted_entries_are_left_out(read):
    made = bytearray(zip_with(entry("null_here.py")))
    assert read(bytes(made).replace(b"null_here", b"null\0here")).problems
    made = bytearray(zip_with(entry("secret.py")))
    for mark, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        place = made.rindex(mark)
        made[place + offset] |= 1
    found = read(bytes(made))
    assert found.problems == ["secret.py was left out: it is encrypted"]


def test_damaged_zips_are_told(read):
    whole = handed_in({"double.py": GOOD})
    for content in (b"", b"PK\x03\x04", whole[:-30], whole[: len(whole) // 2], b"not a zip" * 99):
        found = read(content)
        assert found.answers == {}
        assert "could not be read" in found.problems[0]
    broken = bytearray(whole)
    broken[45] ^= 0xFF  # within the first file's data
    assert read(bytes(broken)).problems


def test_a_name_that_stands_twice_is_read_once(read):
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        archive.writestr("double.py", GOOD)
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("double.py", SQUARE)
    found = read(written.getvalue())
    assert found.answers["double"].source == GOOD
    assert "twice" in found.problems[0]


def test_too_many_files_are_not_all_read(read):
    files = {f"f{number}.txt": "x" for number in range(MOST_FILES + 50)}
    found = read(zip_of(files))
    assert any("only its first" in words for words in found.problems)


def test_a_zip_that_lies_about_its_sizes_is_held_to_the_limit(read):
    made = bytearray(zip_with(entry("lie.py", b"1" * 5000 + os.urandom(2_000_000))))
    place = made.rindex(b"PK\x01\x02")
    struct.pack_into("<I", made, place + 24, 10)  # the uncompressed size, as the directory says
    found = read(bytes(made))
    assert "lie.py" not in str(found.answers)
    assert found.problems


def test_links_pipes_and_folders_in_folders_are_not_followed(tmp_path, exercises):
    secret = tmp_path / "secret.py"
    secret.write_text(GOOD)
    folder = tmp_path / "submissions" / "alice"
    folder.mkdir(parents=True)
    (folder / "double.py").symlink_to(secret)
    os.mkfifo(folder / "why.py")
    (folder / "more").symlink_to(tmp_path)
    (folder.parent / "bob").symlink_to(folder)
    (folder.parent / "carl.zip").symlink_to(secret)
    alice, bob, carl = read_class(folder.parent, exercises)
    assert alice.answers == bob.answers == carl.answers == {}
    assert len(alice.problems) == 4
    assert "link" in bob.problems[0]
    assert "link" in carl.problems[0]


def test_folders_that_are_nested_too_deep_are_told(read):
    deepest = "/".join(map(str, range(MOST_DEPTH)))
    files = {"pair.json": '{"weights": [3, 7]}', "below/double.py": GOOD, "__pycache__/a.py": "1"}
    found = read({f"{deepest}/{name}": text for name, text in files.items()})
    assert list(found.answers) == ["pair"]
    assert found.problems == ["0/1/2/3/4/5/6/7/below was left out: it is more than 8 folders deep"]


def test_a_moodle_folder_with_a_zip_in_it_is_one_submission(read):
    content = handed_in({"double.py": GOOD})
    found = read(content, "Jane_7_assignsubmission_file_/handin.zip")
    assert (found.student, list(found.answers), found.problems) == ("Jane_7", ["double"], [])


HOSTILE_TEXTS = {
    "double.py": b"\xff\xfe\x00",
    "double.ipynb": b"[" * 100_000,
    "pair.json": b'{"weights": ' + b"[" * 100_000,
    "other.json": b'{"a": 1}',
    "alice.ipynb": b'{"cells": {"a": 3}}',
    "bob.ipynb": b'{"cells": [3, {"cell_type": "code", "source": 7, "metadata": []}]}',
    "carl.ipynb": b'{"cells": [], "metadata": {"attnlab": 3}}',
    "why.py": b"answer = " + b"(" * 5000,
}


def test_files_that_are_no_text_notebook_or_json_are_told(read):
    found = read(zip_of({**HOSTILE_TEXTS, "work/double.py": GOOD}))
    assert list(found.answers) == ["double"]
    assert len(found.problems) >= len(HOSTILE_TEXTS) - 2


def test_a_program_in_the_encoding_of_an_older_system_is_read_and_an_empty_one_is_told(read):
    program = f"# größer\n{GOOD}"
    found = read({"double.py": program.encode("latin-1")})
    assert found.answers["double"].source == program
    assert found.problems == ["double.py is not in UTF-8, and was read as Latin-1"]
    found = read({"double.py": program.encode("utf-16")})
    assert (found.answers["double"].source, found.problems) == (program, [])
    assert read({"double.py": " \n"}).problems[0] == "double.py is empty"


def test_of_numbered_files_in_one_folder_the_highest_counts(read):
    found = read({"double (1).py": SQUARE, "double (2).py": GOOD, "double.py": SQUARE})
    assert found.answers["double"].file == "double (2).py"


def test_deep_programs_are_no_python_and_do_not_end_the_reading(read):
    for text in ("-" * 90_000 + "1", "a" + ".b" * 90_000, "1" + "+1" * 90_000):
        found = read(text.encode(), "alice_double.py")
        assert list(found.answers) == ["double"]


def test_names_of_submissions_are_one_harmless_line(read):
    found = read(handed_in({"double.py": GOOD}), "a\x1b[31m\nb\u202ec.zip")
    assert found.student == "a␛[31m b\ufffdc"


@pytest.mark.parametrize("name", ["alice.ipynb", "alice_double.ipynb"])
def test_stray_cells_of_a_notebook_cost_nothing_and_those_that_are_no_python_are_told(read, name):
    found = read(notebook("%%bash\nls", GOOD, "double(", "1 / 0\nx = !ls"), name)
    assert list(found.answers) == ["double"]
    assert found.problems == [f"{name}: code cell 3 is no Python or too long, so it was left out"]


def test_whatever_is_passed_over_is_told(tmp_path, exercises):
    place = tmp_path / "submissions"
    place.mkdir()
    (place / "Dan.ZIP").write_bytes(handed_in({"double.py": GOOD}))
    (place / "eve_double.PY").write_text(GOOD)
    (place / "double_final.py").write_text(GOOD)
    (place / "notes.docx").write_text("x")
    carls = {"My.py": GOOD, "double.Py": GOOD, "a.pdf": "x", "more.zip": "x", ".DS_Store": ""}
    (place / "carl.zip").write_bytes(zip_of(carls))
    found = {each.student: each for each in read_class(place, exercises)}
    assert list(found["Dan"].answers) == list(found["eve"].answers) == ["double"]
    assert found["Dan"].problems == []
    assert list(found["carl"].answers) == ["double"]
    told = "\n".join(found["carl"].problems)
    for name in ("a.pdf", "more.zip", "My.py"):
        assert f"{name} was passed over" in told
    assert ".DS_Store" not in told
    words = "double_final.py was read as double, as it defines what is asked for"
    assert found["double_final"].problems[-1] == words
    assert not found["double_final"].passed_over
    assert entries_passed_over(place, exercises) == ["notes.docx"]


def test_a_program_of_another_name_is_read_by_what_it_defines_if_there_is_no_other(read):
    """As copies and Windows name it: `double - Copy.py`, `double.py.txt`, `main.py`."""
    for name in ("double - Copy.py", "double.py.txt", "main.py"):
        found = read(zip_of({name: GOOD, "notes.txt": "I did my best."}), "ann.zip")
        assert list(found.answers) == ["double"]
        assert found.passed_over == ["notes.txt"]
    found = read(zip_of({"double.py": GOOD, "helpers.py": SQUARE}), "ann.zip")
    assert (list(found.answers), found.passed_over) == (["double"], ["helpers.py"])


@pytest.mark.parametrize(
    "name", ["{}_47{}1_assignsubmission_file_/double.py", "HW/{}_1234{}_5678{}_double.py"]
)
def test_a_download_of_a_class_is_not_taken_for_one_student(name, read):
    files = {name.format(*(who, place, place)): GOOD for place, who in enumerate(("ada", "alan"))}
    found = read(zip_of(files), "class.zip")
    assert not found.answers
    assert found.problems[0].startswith("it holds what several students handed in, such as ada_")
    assert read(zip_of(dict([*files.items()][:1])), "class.zip").answers


def test_a_lone_program_is_not_taken_for_a_student_of_the_folders_name(tmp_path, exercises):
    place = tmp_path / "class"
    place.mkdir()
    (place / "double.py").write_text(GOOD)
    (place / "ada_double.py").write_text(GOOD)
    (place / "readme.txt").write_text("Please grade these.")
    found = {each.student: each for each in read_class(place, exercises)}
    assert found.keys() == {"ada", "double"}
    assert found["ada"].problems == []
    assert "does not say whose it is: name it STUDENT_double.py" in found["double"].problems[0]
    assert list(found["double"].answers) == ["double"]  # and nothing is lost
    assert entries_passed_over(place, exercises) == ["readme.txt"]


def test_of_two_submissions_of_a_student_the_later_one_counts_and_is_late(tmp_path):
    """A browser numbers the second; the earlier one keeps what the later one lacks."""
    place = tmp_path / "class"
    place.mkdir()
    known = exercises_in(tmp_path / "own")
    for name, works, created in (
        ("ada.zip", {"double.py": SQUARE, "why.txt": "so"}, "2026-11-20T10:00:00+00:00"),
        ("ada (1).zip", {"double.py": GOOD}, "2026-12-02T10:00:00+00:00"),
    ):
        (place / name).write_bytes(handed_in(works, created=created))
    (ada,) = read_class(place, known)
    assert (ada.student, ada.created[:10]) == ("ada", "2026-12-02")
    assert ada.answers["double"].source == GOOD
    assert ada.answers["why"].source == "so"
    words = "double is answered twice: ada (1).zip counts, ada.zip not, as the time in it is later"
    assert ada.problems == [words]


@pytest.mark.parametrize(
    ("names", "counts", "rule"),
    [
        (["ada.zip", "ada (1).zip"], "ada (1).zip", "its name has the higher number"),
        (["ada (2).zip", "ada (1).zip"], "ada (2).zip", "its name has the higher number"),
        (["ada_1_2_double.py", "ada_1_3_double-1.py"], "ada_1_3_double-1.py", "higher number"),
        (["ada.zip", "ada"], "ada", "no time and no number says which is later"),
    ],
)
def test_without_a_time_the_higher_number_counts(names, counts, rule, tmp_path, exercises):
    place = tmp_path / "class"
    for name in names:
        path = place / name if "." in name else place / name / "double.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        source = GOOD if name == counts else SQUARE
        path.write_bytes(zip_of({"double.py": source}) if ".zip" in name else source.encode())
    (ada,) = read_class(place, exercises)
    assert ada.answers["double"].source == GOOD
    (words,) = ada.problems
    assert f"double is answered twice: {counts} counts" in words
    assert rule in words

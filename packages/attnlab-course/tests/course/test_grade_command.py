"""`attnlab grade`: a class in the sandbox from the command to the reports, and when it refuses."""

import re

import pytest

from attnlab.errors import CouldNotRun, WrongUsage
from attnlab_course.grade_command import grade

from .classroom import GOOD, MULTIPLIES, RAISES, exercises_in, grade_here, handed_in, zip_of


@pytest.fixture
def room(tmp_path, monkeypatch):
    grade_here(monkeypatch)
    exercises_in(tmp_path / "own")
    (tmp_path / "course.toml").write_text('folder = "own"\ntitle = "Autumn"\n')
    (tmp_path / "submissions").mkdir()
    return tmp_path


def grade_room(room, capsys):
    """Grade the class, and return what is printed, without its lines."""
    grade(room / "submissions", out=room / "grades", course=room / "course.toml", quiet=True)
    return " ".join(capsys.readouterr().out.split())


def add_to_course(room, line):
    with (room / "course.toml").open("a") as file:
        file.write(line)


def test_a_cut_message_says_so_and_a_student_has_one_name_in_all_files(room, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "200")
    many = {"double.py": GOOD, **{f"an_answer_to_nothing_{n}.py": "" for n in range(9)}}
    (room / "submissions" / "Ada-Lovelace.zip").write_bytes(zip_of(many))
    (room / "submissions" / "Grace-Hopper.zip").write_bytes(
        handed_in({"double.py": MULTIPLIES, "why.txt": "so"})
    )
    (room / "students.csv").write_text("student\nAda Lovelace\nGrace Hopper\n")
    add_to_course(room, 'students = "students.csv"\n')
    told, out = grade_room(room, capsys), room / "grades"
    assert "an_answer_to_nothing_8.py was passed over: its name is not that of an exercise" in told
    assert "…" in told
    assert "1 answer uses banned functions" in told
    assert "1 text waits for points" in told
    for file in ("grades.csv", "canvas.csv", "moodle.csv", "class.html", "grades.json"):
        text = (out / file).read_text()
        assert "Ada Lovelace" in text
        assert not re.search(r"(?<![/\w])Ada-Lovelace", text), file
    for sheet in ("reviews.csv", "texts.csv"):
        assert "Grace Hopper" in (out / sheet).read_text()


def test_a_download_that_was_not_unpacked_is_refused_and_its_cell_is_a_question(room, capsys):
    files = {f"{who}_4711_assignsubmission_file_/attention.py": GOOD for who in ("Ada", "Alan")}
    (room / "submissions" / "class.zip").write_bytes(zip_of(files))
    grade(room / "submissions", out=room / "grades", quiet=True)
    told = " ".join(capsys.readouterr().out.split())
    assert "it holds what several students handed in, such as Ada_4711 and Alan_4711" in told
    assert "1 handed in: 0 read, 1 refused" in told
    assert '"class","class","?",' in (room / "grades" / "grades.csv").read_text()


def test_a_note_beside_the_submissions_is_passed_over_and_not_counted(room, capsys):
    (room / "submissions" / "Ada.zip").write_bytes(zip_of({"double.py": GOOD}))
    (room / "submissions" / "notes.txt").write_text("Of mine.")
    told = grade_room(room, capsys)
    assert "1 handed in: 1 read, 0 refused" in told
    assert "passed over, as they are no submissions: notes.txt" in told


def test_a_file_that_cannot_be_read_waits_beside_one_that_can(room, capsys):
    folder = room / "submissions" / "Ina Nopython_1009_assignsubmission_file_"
    folder.mkdir()
    (folder / "attention.py").write_text("I would multiply the queries by the keys.")
    (folder / "double.py").write_bytes(bytes(range(256)))
    other = room / "submissions" / "Ada_1001_assignsubmission_file_"
    other.mkdir()
    (other / "double.py").write_text(GOOD)
    (other / "homework.ipynb").write_text("{")
    add_to_course(room, 'exercises = ["attention", "double", "pair"]\n')
    told, out = grade_room(room, capsys), room / "grades"
    assert "double: double.py could not be read: it is no text" in told
    table = (out / "grades.csv").read_text().splitlines()
    assert table[2].split(",")[3:5] == ['"?"', '"0"']
    assert [line.rpartition(",")[2] for line in table[1:]] == ['"waits"', '"waits"']
    moodle = (out / "moodle.csv").read_text()
    assert "double: ? of 4, a file was handed in, and could not be read." in moodle
    assert "pair: 0 of 2, nothing was handed in." in moodle
    (report,) = (out / "students").glob("Ina*/report.html")
    assert "double: a file was handed in, and could not be read" in report.read_text()
    assert '<td class="figure">?</td>' in (out / "class.html").read_text()


@pytest.mark.parametrize(
    ("listed", "cells"),
    [
        ("", '"Participant 1001","Ada Lovelace","","4"'),
        ("student\nLovelace Ada\n", '"Participant 1001","Lovelace Ada","","4"'),
        (
            "student,identifier\nAda Lovelace,Participant 7\n",
            '"Participant 7","Ada Lovelace","","4"',
        ),
        ("student,identifier\nAda Lovelace,\n", '"Participant 1001","Ada Lovelace","","4"'),
    ],
)
def test_moodle_gets_the_name_and_the_identifier_that_it_wrote(room, capsys, listed, cells):
    folder = room / "submissions" / "Ada Lovelace_1001_assignsubmission_file_"
    folder.mkdir()
    (folder / "double.py").write_text(GOOD)
    if listed:
        (room / "students.csv").write_text(listed)
        add_to_course(room, 'students = "students.csv"\n')
    grade_room(room, capsys)
    table = (room / "grades" / "moodle.csv").read_text().splitlines()
    assert [line.startswith(cells) for line in table] == [False, True]
    name = re.search('"Participant [0-9]+","([^"]+)"', cells)[1]
    (report,) = (room / "grades" / "students").glob("*/report.html")
    assert f"<h1>{name}</h1>" in report.read_text()
    assert f'"{name}","4"' in (room / "grades" / "grades.csv").read_text().splitlines()[1]
    page = (room / "grades" / "class.html").read_text()
    assert f">{name}</a>" in page
    assert ("Ada Lovelace_1001" in page) == (not listed)


def test_without_bubblewrap_nothing_is_graded_and_its_installation_is_told(room, monkeypatch):
    (room / "submissions" / "alice.zip").write_bytes(handed_in({"double.py": RAISES}))
    monkeypatch.undo()
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr("sys.prefix", "/nowhere")
    with pytest.raises(CouldNotRun, match="apt-get install bubblewrap"):
        grade(room / "submissions", out=room / "grades", course=room / "course.toml")
    assert not (room / "grades").exists()


def test_wrong_options_and_grades_inside_the_submissions_are_refused(room):
    course = room / "course.toml"
    for options, words in (
        ({"workers": 0}, "--workers must be at least 1; got 0"),
        ({"exercise": ["dubble"], "again": True}, "did you mean 'double'"),
        ({"exercise": ["double"]}, "give both"),
    ):
        with pytest.raises(WrongUsage, match=words):
            grade(room / "submissions", out=room / "grades", course=course, **options)
    for out in (room / "submissions", room / "submissions" / "grades"):
        with pytest.raises(WrongUsage, match="must lie outside the folder of submissions"):
            grade(room / "submissions", out=out, course=course)

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


def test_a_cut_message_says_so_and_a_student_has_one_name_in_all_files(room, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "200")
    many = {"double.py": GOOD, **{f"an_answer_to_nothing_{n}.py": "" for n in range(9)}}
    (room / "submissions" / "Ada-Lovelace.zip").write_bytes(zip_of(many))
    (room / "submissions" / "Grace-Hopper.zip").write_bytes(
        handed_in({"double.py": MULTIPLIES, "why.txt": "so"})
    )
    (room / "students.csv").write_text("student\nAda Lovelace\nGrace Hopper\n")
    with (room / "course.toml").open("a") as file:
        file.write('students = "students.csv"\n')
    out, course = room / "grades", room / "course.toml"
    grade(room / "submissions", out=out, course=course, quiet=True)
    told = " ".join(capsys.readouterr().out.split())
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
    assert '"class","?",' in (room / "grades" / "grades.csv").read_text()


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

"""Every line that the page for users of other libraries gives is run, in the page's order."""

import re
import shlex
import sys
from pathlib import Path

import pytest

from attnlab.cli import main
from attnlab.edits.edit import edit_kinds
from attnlab.errors import WrongUsage
from attnlab_course.catalog import find_exercise
from attnlab_course.cells import solution_text

PAGE = Path(__file__).parents[1] / "docs" / "coming-from.md"
SECTIONS = dict(re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.S | re.M))
FIRST = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.S)[1]
MIN_ROWS = 15


@pytest.fixture(autouse=True)
def edits_as_before(monkeypatch):
    """Forget the edit that the page defines."""
    monkeypatch.setattr(sys.modules[edit_kinds.__module__], "_KINDS", dict(edit_kinds()))


def rows(section: str) -> list[str]:
    """Return our side of a table, the code of its last column."""
    return re.findall(r"^\|.*\| `([^|]+)` \|$", SECTIONS[section], re.M)


@pytest.mark.parametrize("section", SECTIONS)
def test_a_table_has_a_row_for_each_habit(section):
    assert len(rows(section)) >= MIN_ROWS
    assert len(rows(section)) == SECTIONS[section].count("\n| ") - 2  # head and rule


@pytest.mark.parametrize("section", [name for name in SECTIONS if "nbgrader" not in name])
def test_python_rows_run(section, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("webbrowser.open", lambda page: True)
    names = {}
    exec(FIRST, names)
    exec("model = attnlab.load(gpt2)", names)
    exec('weights = attnlab.record(model, tokens, "*.weights")', names)
    if "Tracr" in section:
        exec("from attnlab.programs import *", names)
    for row in rows(section):
        exec(row, names)


def test_a_hook_of_another_library_leads_to_our_site(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(FIRST, names)
    exec("recording = attnlab.record(attnlab.load(gpt2), tokens)", names)
    row = r'`cache\["([^"]+)"\]`.*`recording\["([^"]+)"\]`'
    pairs = re.findall(row, SECTIONS["TransformerLens"])
    assert len(pairs) >= 5
    for theirs, ours in pairs:
        with pytest.raises(WrongUsage, match=re.escape(f"did you mean {ours!r}?")):
            names["recording"][theirs]
    monkeypatch.setattr("attnlab.sites._ELSEWHERE", {})
    with pytest.raises(WrongUsage) as refusal:
        names["recording"][pairs[0][0]]
    assert "did you mean 'layers.0.attention.weights'" not in str(refusal.value)


@pytest.mark.slow
def test_commands_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "course.toml").write_text('title = "Attention"\n')
    for row in rows("nbgrader and ARENA"):
        words = shlex.split(row)[1:]
        if "watch" in words:  # runs until Ctrl-C
            continue
        if "submit" in words:
            source = solution_text(find_exercise("softmax").source)
            Path("course/softmax.py").write_text(source)
        if words[0] == "grade" and not Path("SUBMISSIONS").exists():
            Path("SUBMISSIONS").mkdir()
            for handed_in in tmp_path.rglob("*.zip"):
                handed_in.rename(tmp_path / "SUBMISSIONS" / handed_in.name)
        status = main(words)
        assert status in (0, 1), (row, capsys.readouterr())

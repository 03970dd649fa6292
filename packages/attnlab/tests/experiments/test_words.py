import tomllib
from pathlib import Path

import jinja2
import pytest

import attnlab
from attnlab.experiments import words
from attnlab.experiments.words import Words

FOLDERS = sorted(Path(attnlab.__file__).parent.glob("experiments/**/words.toml"))


@pytest.fixture
def some_words(monkeypatch):
    texts = tomllib.loads(
        """
        joined = '''
        {{ total }} inputs,
        {{ share | as('.1%') }} right

        and more'''
        table.columns = ["of {{ total }}", "right"]
        """
    )
    monkeypatch.setattr(words, "read_words", lambda package: texts)
    return Words("anything")


def test_lines_are_joined_and_numbers_written_for_people(some_words):
    told = some_words.text("joined", {"total": 12_345, "share": 0.5})
    assert told == "12,345 inputs, 50.0% right\n\nand more"


def test_a_list_of_texts_is_filled_one_by_one(some_words):
    assert some_words.texts("table", {"total": 1_000}) == {"columns": ["of 1,000", "right"]}


def test_a_missing_number_is_an_error(some_words):
    with pytest.raises(jinja2.UndefinedError, match="total"):
        some_words.text("joined", {"share": 0.5})


@pytest.mark.parametrize("path", FOLDERS, ids=lambda path: path.parent.name)
def test_every_text_is_used(path):
    """A text that no line of its experiment names is left over."""
    source = "".join(each.read_text() for each in path.parent.glob("*.py"))
    names = tomllib.loads(path.read_text())
    assert [name for name in names if f'"{name}' not in source] == []

"""The page of the commands is what the program says of itself, with an example of each."""

import pytest
from cyclopts import App

from docs import commands


def test_every_command_has_a_sentence_an_example_and_a_meaning_of_each_argument():
    assert list(commands.faults()) == []


def test_the_page_is_the_one_that_the_program_makes():
    assert commands.PAGE.read_text() == commands.page(), "python docs/commands.py writes it"


def greet(name: str, /, *, loud: bool = False, times: int = 0, tone: str, calm: int = 1) -> None:
    """Greet somebody

    Parameters
    ----------
    name
        Who is greeted.
    times
        How often.
    tone
        How.
    calm
        How calm; by default fairly.
    """


def test_a_section_has_arguments_before_options_and_the_defaults_that_are_not_told_yet():
    program = App(name="attnlab")
    program.command(greet)
    command = program["greet"]
    assert commands.synopsis("attnlab greet", command) == "attnlab greet NAME --tone STR [options]"
    meanings = {one.name: commands.meaning(one) for one in commands.arguments(command)}
    assert list(meanings) == ["NAME", "--tone", "--loud", "--times", "--calm"]
    assert meanings["--times"] == "How often. By default `0`."
    assert meanings["--calm"] == "How calm; by default fairly."
    assert meanings["--tone"] == "How. Required."
    assert meanings["--loud"] == ""


@pytest.mark.parametrize(
    ("examples", "fault"),
    [
        ({}, "attnlab greet: no example"),
        ({"attnlab greet": {"example": "attnlab run sorting"}}, "attnlab greet: no example"),
        ({"attnlab part": {"example": "attnlab part"}}, "attnlab part: there is no such command"),
        ({}, "attnlab greet: no sentence"),
        ({}, "attnlab greet: no meaning of --loud"),
    ],
)
def test_a_command_without_words_or_an_example_is_found(monkeypatch, examples, fault):
    program = App(name="attnlab")
    program.command(greet)
    monkeypatch.setattr(commands, "app", program)
    monkeypatch.setattr(commands, "examples", lambda: examples)
    assert fault in "\n".join(commands.faults())

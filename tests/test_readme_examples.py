"""What the README says of its examples: the sweep has a boundary, the edits change the answer."""

import re
import shlex
from pathlib import Path

import pytest

import attnlab
from attnlab.cli import main
from attnlab.experiments.sorting import SortingConfig
from attnlab.experiments.sweeps.axes import read_axes

README = (Path(__file__).parents[1] / "README.md").read_text()


def commands(start):
    """Return the README's commands that begin so, as lists of words."""
    lines = re.findall(rf"^({re.escape(start)}[^\n]*)$", README, re.M)
    assert lines
    return [shlex.split(line, comments=True) for line in lines]


def settings_of(words):
    """Return what a command's --set says."""
    pairs = [word.split("=") for word in words[words.index("--set") + 1 :] if "=" in word]
    return dict(pairs)


@pytest.fixture(scope="module")
def sorting(tmp_path_factory):
    return attnlab.run("sorting", quick=True, out=tmp_path_factory.mktemp("runs") / "sorting").folder


@pytest.mark.parametrize("words", commands("attnlab edit sorting"), ids=" ".join)
def test_every_edit_of_the_sorter_changes_its_answer(words, sorting, capsys):
    assert main(["edit", str(sorting), *words[3:]]) == 0
    out = capsys.readouterr().out
    assert "c a b → a b c" in out
    assert "they part at step 2" in out


def test_inputs_kept_out_are_as_many_as_said():
    (words,) = (each for each in commands("attnlab run sorting --set") if any("holdout" in word for word in each))
    config = SortingConfig().with_settings(settings_of(words))
    trained, held_out = config.split()
    assert (len(held_out), len(trained) + len(held_out)) == (64, 256)
    assert "# 64 of 256 inputs kept out of training" in README


def test_the_sweep_of_the_sorter_spans_widths_that_are_told_to_be_too_small_and_one_that_is_not():
    axes, fixed = read_axes(SortingConfig, settings_of(commands("attnlab sweep sorting")[0]))
    values = {axis.name: axis.values for axis in axes}
    told = {
        (letters, width): SortingConfig(**fixed, letters=letters, d_model=width).too_small() is not None
        for letters in values["letters"]
        for width in values["d_model"]
    }
    assert told[8, 6]
    assert not told[8, 10]


@pytest.mark.slow
def test_the_sweep_of_the_sorter_has_a_boundary():
    settings = settings_of(commands("attnlab sweep sorting")[0])
    for width, share in ((6, 0.0), (10, 1.0)):
        cell = settings | {"letters": "8", "d_model": str(width)}
        assert attnlab.train_population("sorting", range(8), settings=cell).success.value == share

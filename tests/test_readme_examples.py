"""What the README and the pages of docs/ show is so: long commands, options, links.

What takes no minutes is typed in `journeys/test_docs.py`.
"""

import io
import re
import shlex
import shutil
from contextlib import redirect_stdout
from dataclasses import fields
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

import pytest

import attnlab
from attnlab.cli import main
from attnlab.cli.commands import app
from attnlab.experiments import registry
from attnlab.experiments.sorting import SortingConfig
from attnlab.experiments.sweeps.axes import read_axes

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
IDS = [page.stem for page in PAGES]
LINKING = [*PAGES, *sorted((ROOT / "docs").glob("[!_]*/**/*.md"))]


class Block(NamedTuple):
    """A fenced block of a page, and the note in the comment before it: slow, or not run: why."""

    page: Path
    note: str
    kind: str
    body: str

    @property
    def commands(self) -> list[list[str]]:
        """The attnlab commands of a block of shell lines, as lists of words."""
        text = self.body.replace("\\\n", " ")
        lines = [shlex.split(line, comments=True) for line in text.splitlines()]
        return [words for words in lines if words[:1] == ["attnlab"]]


def blocks(page: Path) -> list[Block]:
    found = re.findall(
        r"(?:<!-- (slow|not run: [^>]*) -->\n)?^```(\w+)\n(.*?)^```$", page.read_text(), re.S | re.M
    )
    return [Block(page, *each) for each in found]


BLOCKS = [block for page in PAGES for block in blocks(page)]
COMMANDS = [words for block in BLOCKS if block.kind == "sh" for words in block.commands]


def settings_of(words: list[str]) -> dict[str, str]:
    """Return what a command's --set says."""
    if "--set" not in words:
        return {}
    after = words[words.index("--set") + 1 :]
    return dict(word.split("=", 1) for word in after if re.match(r"[\w.]+=", word))


def words_missing(shown: str, printed: str) -> list[str]:
    """Return the words of an output on a page that were not printed.

    Numbers are left out: they are those of one machine, as the last bits of a training are.
    """
    return sorted(
        set(re.findall(r"[A-Za-z]{3,}", shown)) - set(re.findall(r"[A-Za-z]{3,}", printed))
    )


def with_outputs(page: Path, kind: str) -> list[tuple[Block, str]]:
    """Return a page's blocks of a kind, each with the output shown right below it."""
    found = blocks(page)
    return [
        (block, below.body if below is not None and below.kind == "text" else "")
        for block, below in zip_longest(found, found[1:])
        if block.kind == kind
    ]


@pytest.fixture(scope="module")
def all_runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages") / "runs"
    assert main(["run", "all", "--out", str(folder), "--quiet"]) == 0
    return folder


@pytest.fixture
def _here(tmp_path, monkeypatch):
    """Work in an empty folder, in a terminal of 80 columns, with a browser that opens nothing."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("webbrowser.open", lambda page: True)
    shutil.copytree(ROOT / "examples", tmp_path / "examples")


def run_commands(page: Path, capsys: pytest.CaptureFixture) -> None:
    """Run a page's slow commands, and hold what they print against the page."""
    for block, shown in with_outputs(page, "sh"):
        if block.note != "slow":
            continue
        printed = ""
        for words in block.commands:
            capsys.readouterr()
            status = main(words[1:])
            printed += capsys.readouterr().out
            assert status in ((0, 1) if words[1] == "run" else (0,)), (
                f"{page.name}: {shlex.join(words)} ended with {status}"
            )
        assert words_missing(shown, printed) == [], f"{page.name}: {block.body}{printed}"


def run_python(page: Path) -> None:
    """Run a page's Python from top to bottom, and hold what it prints against the page."""
    parts = [each for each in with_outputs(page, "python") if each[0].note in ("", "slow")]
    if not parts or page.name == "families.md":  # generated; names a model of the hub
        return
    names = {"__name__": "__main__"}
    for block, shown in parts:
        with redirect_stdout(io.StringIO()) as stream:
            exec(block.body, names)
        printed = stream.getvalue()
        assert words_missing(shown, printed) == [], f"{page.name}: {block.body}{printed}"
        if "as certificate" in block.body:
            assert "parameters: unchanged" in printed


@pytest.mark.slow
@pytest.mark.usefixtures("_here")
@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_the_long_commands_of_a_page_run_and_print_what_it_shows(page, all_runs, capsys):
    shutil.copytree(all_runs, "runs")
    run_python(page)
    run_commands(page, capsys)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_is_one_that_there_is_with_options_and_settings_that_there_are(words):
    app.parse_args(words[1:], exit_on_error=False, print_error=False)
    if words[1] == "run" and words[2] != "all":
        registry.config(words[2], settings_of(words), full="--full" in words)
    if words[1] in {"sweep", "tune"}:
        names = {field.name for field in fields(registry.find(words[2]).config_class)}
        assert settings_of(words).keys() <= names


@pytest.mark.parametrize("page", LINKING, ids=lambda page: page.stem)
def test_the_links_of_a_page_lead_somewhere(page):
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.S)
    links = re.findall(r"\]\(([^)\s]+)\)|(?:src|srcset)=\"([^\"]+)\"", text)
    for link in (first or second for first, second in links):
        path, _, place = link.partition("#")
        if "://" in link:
            continue
        target = page.parent / path if path else page
        assert target.exists(), f"{page.name} links to {link}"
        headings = re.findall(r"^#+ (.*)$", target.read_text() if place else "", re.M)
        anchors = {re.sub(r"[^\w\- ]", "", each).lower().replace(" ", "-") for each in headings}
        assert not place or place in anchors, f"{page.name} links to {link}"


def test_the_readme_is_short_and_names_the_two_commands():
    readme = (ROOT / "README.md").read_text()
    assert len(readme.splitlines()) <= 150
    assert "make run" in readme
    assert "make test" in readme


def test_every_page_is_linked_from_the_readme_or_the_site():
    readme, site = (ROOT / "README.md").read_text(), (ROOT / "docs" / "index.md").read_text()
    listed = re.findall(r"^(?:.* <)?([\w-]+)>?$", site, re.M)
    assert "(docs/index.md" in readme
    for page in PAGES[1:]:
        assert f"(docs/{page.name}" in readme or page.stem in [*listed, "index"]


def test_a_word_that_was_not_printed_is_missed():
    assert words_missing("c a b → wrong 0.5", "c a b → right 0.7") == ["wrong"]


def test_inputs_kept_out_are_as_many_as_said():
    (words,) = {tuple(words) for words in COMMANDS if any("holdout" in word for word in words)}
    trained, held_out = SortingConfig().with_settings(settings_of(list(words))).split()
    assert (len(held_out), len(trained) + len(held_out)) == (64, 256)
    assert any("# 64 of 256 inputs kept out of training" in block.body for block in BLOCKS)


def sweep_of_the_sorter() -> dict[str, str]:
    """Return the settings of the first sweep over letters and widths."""
    words = next(words for words in COMMANDS if words[1] == "sweep" and "letters=4,6,8" in words)
    return settings_of(words)


def test_the_sweep_of_the_sorter_spans_widths_that_are_told_to_be_too_small_and_one_that_is_not():
    axes, fixed = read_axes(SortingConfig, sweep_of_the_sorter())
    values = {axis.name: axis.values for axis in axes}
    told = {
        (letters, width): SortingConfig(**fixed, letters=letters, d_model=width).too_small()
        is not None
        for letters in values["letters"]
        for width in values["d_model"]
    }
    assert told[8, 6]
    assert not told[8, 10]


@pytest.mark.slow
def test_the_sweep_of_the_sorter_has_a_boundary():
    settings = sweep_of_the_sorter()
    for width, share in ((6, 0.0), (10, 1.0)):
        cell = settings | {"letters": "8", "d_model": str(width)}
        assert attnlab.train_population("sorting", range(8), settings=cell).success.value == share

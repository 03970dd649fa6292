"""Somebody reads the README and then every page of docs/, and types what they show, in order.

All pages are followed in one home, as a reader follows them: what a page needs, an earlier one or
the page itself has made, and what was typed once is not typed again. Blocks marked slow, or not
run, are left out; `make test-slow` has them.
"""

import shlex
import shutil

import pytest

from tests.sampling import SLOW
from tests.test_readme_examples import IDS, PAGES, ROOT, Block, with_outputs, words_missing

BETWEEN = "\x1e"  # printed between the blocks of a page
COMMANDS = ROOT / "docs" / "commands.md"  # made by the program; each of its examples is parsed
READ = [pytest.param(page, marks=SLOW) if page == COMMANDS else page for page in PAGES]


@pytest.fixture(scope="module")
def folder(home_folder, first_run):
    """The folder that all pages are read in, with the files of a clone that they name."""
    here = home_folder / "clone"
    shutil.copytree(first_run[0], here)
    shutil.copytree(ROOT / "examples", here / "examples")
    return here


@pytest.fixture(scope="module")
def typed(first_run):
    """What each command of the pages has printed."""
    return {"attnlab run sorting": first_run[1].out}


@pytest.mark.parametrize("page", READ, ids=IDS)
def test_what_a_page_shows_can_be_typed_and_prints_what_it_shows(page, home, folder, typed):
    home.here = folder
    home.environment |= {"COLUMNS": "80", "BROWSER": "true"}
    for block, shown in with_outputs(page, "sh"):
        if block.note:
            continue
        commands = [shlex.join(words) for words in block.commands]
        for command in commands:
            if command not in typed:
                typed[command] = home.run(command).out
        printed = "".join(typed[command] for command in commands)
        edits = [words for words in block.commands if words[1:4] == ["edit", "sorting", "cab"]]
        assert printed.count("they part at step 2") == len(edits)
        assert words_missing(shown, printed) == [], f"{block.body}{printed}"
    blocks = [pair for pair in with_outputs(page, "python") if not pair[0].note]
    if not blocks or page.name == "families.md":  # which names a model of the hub
        return
    program = f"\nprint({BETWEEN!r})\n".join(block.body for block, _ in blocks)
    outputs = home.python(program).out.split(BETWEEN)
    for (block, shown), printed in zip(blocks, outputs, strict=True):
        assert words_missing(shown, printed) == [], f"{block.body}{printed}"
        assert_certified(block, shown, printed)


def assert_certified(block: Block, shown: str, printed: str) -> None:
    if "as certificate" in block.body:
        assert "parameters: unchanged" in printed
    if "print(certificate)" in block.body:  # whole on the page
        assert len(shown.strip().splitlines()) == len(printed.strip().splitlines())

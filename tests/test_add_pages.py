"""The pages of docs/add/ are followed to the letter, in a copy of this tree."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import attnlab
from attnlab.edits.edit import _KINDS, edit_kinds
from attnlab.experiments import registry
from attnlab.experiments.sorting import SortingConfig
from tests.sampling import sampled

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs" / "add").glob("*.md"))
STEP = re.compile(r"<!-- (new file|in|run)(.*?) -->\n```(\w+)\n(.*?)^```$", re.S | re.M)


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """A copy of this tree, to which every page adds what it says."""
    folder = tmp_path_factory.mktemp("copy")
    for name in ("packages", "tests", "docs", "examples"):
        shutil.copytree(ROOT / name, folder / name)  # with what Python compiled: it is quicker
    for name in ("pyproject.toml", "conftest.py"):
        shutil.copy(ROOT / name, folder)
    return folder


def follow(page: str, copy: Path) -> str:
    """Do what a page says, step by step, and return what its last command printed."""
    printed = ""
    assert len(STEP.findall(page)) == page.count("<!-- "), "a step has no block"
    for what, where, kind, body in STEP.findall(page):
        if what == "run":
            command = ["bash", "-e", "-c", body] if kind == "sh" else [sys.executable, "-c", body]
            environment = {
                **os.environ,
                "PYTHONPATH": os.pathsep.join(map(str, [*copy.glob("packages/*/src"), copy])),
                "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            }
            done = subprocess.run(
                command, cwd=copy, env=environment, capture_output=True, text=True, check=False
            )
            printed = done.stdout + done.stderr
            assert done.returncode == 0, printed
        elif what == "new file":
            path = copy / where.strip(": ")
            assert not path.exists()
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(body)
        else:
            name, after = re.fullmatch(r" (\S+), after: (.*)", where).groups()
            lines = (copy / name).read_text().splitlines(keepends=True)
            (place,) = [number for number, line in enumerate(lines) if line.strip() == after]
            lines.insert(place + 1, body)
            (copy / name).write_text("".join(lines))
    return printed


# One that adds to files of ours and runs their tests; a test below runs what "an-experiment" adds.
SAMPLE = [page for page in PAGES if page.stem == "an-edit"]


@pytest.mark.parametrize("page", sampled(PAGES, SAMPLE), ids=lambda page: page.stem)
def test_who_follows_a_page_has_added_it(page, copy):
    text = page.read_text()
    assert len(text.splitlines()) < 40
    follow(text, copy)


@pytest.mark.slow
def test_a_page_that_is_wrong_is_caught(copy):
    page = (ROOT / "docs" / "add" / "a-section.md").read_text()
    (copy / "packages/attnlab/src/attnlab/draw/quotation.py").unlink(missing_ok=True)
    with pytest.raises(AssertionError, match="unexpected keyword"):
        follow(page.replace("words: str\n", "word: str\n"), copy)
    with pytest.raises(AssertionError, match="a step has no block"):
        follow(page.replace("```python", "python"), copy)


def test_experiments_and_edits_of_another_package_are_found(tmp_path, monkeypatch):
    """As pip leaves it: a package with its entry points."""
    shutil.copy(ROOT / "examples" / "first_experiment.py", tmp_path / "evenly.py")
    (tmp_path / "own_edits.py").write_text(
        "from attnlab.edits import ZeroHead\nclass SilenceHead(ZeroHead):\n    ...\n"
    )
    facts = tmp_path / "evenly-1.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: evenly\nVersion: 1\n")
    (facts / "entry_points.txt").write_text(
        "[attnlab.experiments]\nevenly = evenly:EvenlyConfig\n"
        "[attnlab.edits]\nsilence-head = own_edits:SilenceHead\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert attnlab.run("evenly", draws=5).passed
    with pytest.raises(attnlab.AttnlabError, match="did you mean 'evenly'"):
        attnlab.run("evenyl")
    assert edit_kinds()["SilenceHead"].__mro__[1].__name__ == "ZeroHead"
    _KINDS.pop("SilenceHead")
    monkeypatch.setattr(registry, "entry_points", None)  # reads a file of each installed package
    assert registry.find("sorting").config_class is SortingConfig

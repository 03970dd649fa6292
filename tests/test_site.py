"""The site: what the notebooks offer, what the theme leaves out, and the check of all pages."""

import importlib.util
import re
from pathlib import Path

import nbformat
import pytest
from nbconvert.preprocessors import ExecutePreprocessor

DOCS = Path(__file__).parents[1] / "docs"
NOTEBOOKS = sorted((DOCS / "notebooks").glob("*.md"))
PLACE = "someone/attnlab"


def of_docs(name):
    """Return a module of the folder docs, which is no package."""
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


pages, accessibility = of_docs("notebook_pages"), of_docs("accessibility")
check_site = of_docs("check_site")


def notebook_of(path: Path) -> nbformat.NotebookNode:
    """Return the page of a notebook as MyST-NB reads it: texts, and blocks of code."""
    text = path.read_text().partition("---\n\n")[2]
    cells = []
    for part in re.split(r"(^```\{code-cell\}.*?^```\n)", text, flags=re.M | re.S):
        code = re.fullmatch(r"```\{code-cell\}[^\n]*\n(.*?)```\n", part, re.S)
        if code:
            cells.append(nbformat.v4.new_code_cell(code[1].rstrip("\n")))
        elif part.strip():
            cells.append(nbformat.v4.new_markdown_cell(part.strip("\n")))
    return nbformat.v4.new_notebook(cells=cells)


def download(path: Path, place: str = "") -> nbformat.NotebookNode:
    """Return the file that the page of a notebook offers."""
    made = nbformat.from_dict(pages.with_first_cell(notebook_of(path), path.stem, place))
    nbformat.validate(made)
    return made


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_each_notebook_offers_its_file_and_without_a_host_nothing_else(path):
    shown = pages.with_links(path.read_text(), "")
    assert shown.count(f'href="{path.stem}.ipynb" download') == 1
    assert "{nb-download}" not in shown
    assert "http" not in re.search(r"^Download it.*", shown, re.M)[0]
    needs_model = "runs/models" in path.read_text()
    assert ("small_models.py</a>" in shown) == needs_model


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_with_a_host_each_notebook_opens_in_colab_molab_and_binder(path):
    shown = re.search(r"^Download it.*", pages.with_links(path.read_text(), PLACE), re.M)[0]
    links = re.findall(r"\[[^]]+\]\((https://[^)]+)\)", shown)
    assert [link.split("/")[2] for link in links] == [
        "colab.research.google.com",
        "molab.marimo.io",
        "mybinder.org",
    ]
    assert all(PLACE in link and f"notebooks/{path.stem}.ipynb" in link for link in links)


@pytest.mark.parametrize("place", ["", PLACE])
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_each_file_begins_with_how_to_get_attnlab_and_its_model(path, place):
    made = download(path, place)
    first = made.cells[0].source
    assert made.cells[0].cell_type == "code"
    assert "%pip install" in first
    texts = [cell.source for cell in made.cells[1:]]
    assert "Download it" not in "".join(texts)
    named = re.search(r"runs/models/(\w+)", "".join(texts))
    assert (f"small_models.py {named[1]}" in first) if named else ("small_models" not in first)
    assert ("urlretrieve" in first) == bool(named and place)


def run_first(path: Path, folder: Path, source: str) -> str:
    """Run the first two cells of code of a file, in a kernel of its own; return what they show."""
    made = download(path)
    made.cells[0].source = source
    made.cells = [cell for cell in made.cells if cell.cell_type == "code"][:2]
    ExecutePreprocessor(timeout=300).preprocess(made, {"metadata": {"path": str(folder)}})
    return str(made.cells[1].outputs)


FRAME = """<!doctype html><html lang="en"><head><title>One</title></head><body>
<aside class="sidebar-drawer"><p class="caption" role="heading"><span>How to</span></p></aside>
<main><h1 id="top">One</h1>
<table><thead><tr><th class="head"><p></p></th><th class="head">A</th></tr></thead>
<tbody><tr><td>1</td><td>2</td></tr></tbody></table>
<div style="width: 20rem"><pre style="overflow: auto">{code}</pre></div>{body}</main>
<aside class="toc-drawer">Contents</aside></body></html>"""


@pytest.fixture
def findings(browser, tmp_path):
    """Write a page into a site and return what the check of a site finds there."""

    def find(body="", mend=accessibility.accessible):
        page = FRAME.format(body=body, code="x = 1  " * 60)
        (tmp_path / "index.html").write_text(mend(page))
        return " ".join(check_site.site_findings(tmp_path, browser))

    return find


def test_what_the_theme_leaves_out_is_found_and_mended(findings):
    found = findings(mend=str)
    rules = "aria-required-attr landmark-unique scrollable-region-focusable empty-table-header"
    assert [rule for rule in rules.split() if rule not in found] == []
    assert findings() == ""


def test_the_check_of_the_site_finds_each_fault(findings):
    faults = {
        "light: color-contrast": "<p style='color: #aaa; background: #fff'>pale</p>",
        "dark: color-contrast": "<p class=dim>dim</p><style>@media (prefers-color-scheme: dark)"
        "{ .dim { color: #333; background: #000 } }</style>",
        "px wide in a window of 390": "<p style='width: 600px'>wide</p>",
        "image-alt": "<img src='data:image/gif;base64,R0lGODlhAQABAAAAACw='>",
        "asks for http://127.0.0.1:9/": "<img alt=one src='http://127.0.0.1:9/none.png'>",
        "gone.html is no file": "<a href='gone.html'>gone</a>",
        "index.html#gone is no place": "<a href='index.html#gone'>gone</a>",
    }
    found = findings(body="".join(faults.values()))
    assert [fault for fault in faults if fault not in found] == []


@pytest.mark.slow
def test_a_file_runs_where_attnlab_is_installed_and_a_wrong_first_cell_is_seen(tmp_path):
    path = DOCS / "notebooks" / "sorting.md"
    source = download(path).cells[0].source
    assert "claims hold" in run_first(path, tmp_path, source)
    with pytest.raises(Exception, match="SyntaxError"):
        run_first(path, tmp_path, source.replace("is None:", "is None"))

"""The site: its menu and search, what notebooks offer, what the theme leaves out, and its check."""

import importlib.util
import re
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import nbformat
import pytest
from sphinx.cmd.build import build_main

DOCS = Path(__file__).parents[1] / "docs"
PAGES = sorted(path for path in DOCS.rglob("*.md") if "_build" not in path.parts)
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


OPENING = ("**The question.**", "**At the end you know**", "**Time:**")
TRY = "## What next\n\n- **Try it:**"


def what_is_missing(text: str) -> list[str]:
    """Return what a notebook does not say: at its beginning the question, what one knows at the end
    and how long it takes; at its end what to try."""
    opening = text.partition("{nb-download}")[0]
    return [mark for mark in OPENING if mark not in opening] + [TRY] * (TRY not in text)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_each_notebook_says_its_question_its_end_its_time_and_what_to_try(path):
    text = path.read_text()
    assert what_is_missing(text) == []
    for mark in (*OPENING, TRY):
        assert what_is_missing(text.replace(mark, "")) == [mark]


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


def test_what_a_cell_printed_in_pieces_stands_once_in_the_file():
    path = DOCS / "notebooks" / "sorting.md"
    notebook = notebook_of(path)
    cell = next(cell for cell in notebook.cells if cell.cell_type == "code")
    pieces = [("stdout", "1\n2\n"), ("stderr", "slow\n"), ("stdout", "2\n")]
    cell.outputs = [nbformat.v4.new_output("stream", name=name, text=text) for name, text in pieces]
    made = pages.with_first_cell(notebook, path.stem, "")
    shown = [output["text"] for cell in made["cells"] for output in cell.get("outputs", [])]
    assert shown == ["1\n2\n", "slow\n"]


def run_first(path: Path, folder: Path, source: str) -> str:
    """Run the first two cells of code of a file, in a kernel of its own; return what they show."""
    made = download(path)
    made.cells[0].source = source
    made.cells = [cell for cell in made.cells if cell.cell_type == "code"][:2]
    from nbconvert.preprocessors import ExecutePreprocessor  # which takes seconds to load

    ExecutePreprocessor(timeout=300).preprocess(made, {"metadata": {"path": str(folder)}})
    return str(made.cells[1].outputs)


FRAME = """<!doctype html><html lang="en"><head><title>One</title></head><body>
<aside class="sidebar-drawer"><div class="sidebar-tree"><p class="caption" role="heading">
<span class="caption-text">How to</span></p><ul><li><a href="#top">One</a></li></ul></div></aside>
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


def test_the_check_finds_each_fault_and_what_the_theme_leaves_out_which_is_mended(findings):
    rules = "aria-required-attr landmark-unique scrollable-region-focusable empty-table-header"
    faults = {
        "light: color-contrast": "<p style='color: #aaa; background: #fff'>pale</p>",
        "dark: color-contrast": "<p class=dim>dim</p><style>@media (prefers-color-scheme: dark)"
        "{ .dim { color: #333; background: #000 } }</style>",
        "px wide in a window of 390": "<p style='width: 600px'>wide</p>",
        "a column is out of sight in a window of 390: ours": "<div style='overflow: auto' "
        "tabindex=0><table><tr><td style='min-width: 500px'></td><td>ours</td></tr></table></div>",
        "the names of rows scroll away in a window of 390: Left": "<div class=table-wrapper "
        "style='overflow: auto; width: 300px' tabindex=0><table><tr><th>Left</th>"
        "<td style='min-width: 300px'>b</td><td style='min-width: 300px'>c</td></tr></table></div>",
        "a figure is a white box in the dark: data:": "<img alt=two width=9 height=9 "
        "src='data:image/gif;base64,R0lGODlhAQABAAAAACw='>",
        "image-alt": "<img src='data:image/gif;base64,R0lGODlhAQABAAAAACw='>",
        "asks for http://127.0.0.1:9/": "<img alt=one src='http://127.0.0.1:9/none.png'>",
        "gone.html is no file": "<a href='gone.html'>gone</a>",
        "index.html#gone is no place": "<a href='index.html#gone'>gone</a>",
    }
    found = findings(body="".join(faults.values()), mend=str)
    assert [fault for fault in (*rules.split(), *faults) if fault not in found] == []
    assert findings() == ""


QUICKLY = ["--builder", "html", "--fail-on-warning", "--keep-going", "--quiet"]
QUICKLY += ["-D", "nb_execution_mode=off", "-D", "suppress_warnings=myst-nb.lexer"]


@pytest.mark.slow  # by default a tiny one is built, and the links of pages are followed on disk
def test_the_site_builds_with_a_short_menu_and_each_search_finds_its_page(tmp_path, browser):
    site = tmp_path / "html"
    subprocess.run([sys.executable, "-m", "sphinx", *QUICKLY, str(DOCS), str(site)], check=True)
    assert list(check_site.search_findings(site, browser, check_site.searches())) == []
    assert list(check_site.broken_links(site)) == []
    assert list(check_site.menu_findings(site, browser)) == []
    text = (site / "index.html").read_text()
    (site / "index.html").write_text(text.replace("<details>", "<details open>"))
    assert "more than 12" in "".join(check_site.menu_findings(site, browser))


CONF = f"""import sys
sys.path.insert(0, {str(DOCS)!r})
extensions = ["myst_nb", "search_index"]
html_theme = "furo"
html_search_scorer = {str(DOCS / "search_order.js")!r}
"""
ANIMALS = """# Animals

Horses run.

## Coats

One is a zebra, which has strips.

<svg><title>zebra</title><text>zebra</text></svg>
"""
TEXT = "\n\nYou may ask why, and what `CutEdge` is for.\n"
TINY = {
    **{name: f"# Page {name}{TEXT}" for name in "abc"},
    "y": f"# Page y\n\n<!-- search: gpu -->{TEXT}",
    "z": f"# Page z\n\n<!-- search: why -->{TEXT}",
    "animals": ANIMALS,
    "use": "# Use\n\n<!-- search: fold_map -->\n\nUse `fold_map`.\n",
    "entry": "# Entry\n\n```{py:function} lib.fold_map()\nIt folds.\n```\n",
    "changes": "# Changes\n\n## fold_map\n\nNew: `fold_map`.\n",
    "calls": "# Others\n\n<!-- search: lib_call -->\n\nCalls.\n\n## Lib\n\n`lib_call()` is ours.\n",
    "cats": "# Lion\n\nA lion, <b class='lion'>another</b> lion, a vit.\n",
    "glossary": "# Words\n\n| | |\n| --- | --- |\n| mane | A lion has it. |\n| lion | A cat. |\n",
}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A tiny site; a warning is an error."""
    folder = tmp_path_factory.mktemp("site")
    source, menu = folder / "source", "\n".join(TINY)
    source.mkdir()
    (source / "conf.py").write_text(CONF)
    pages = TINY | {"index": f"# Menu\n\n```{{toctree}}\n{menu}\n```\n"}
    for name, text in pages.items():
        (source / f"{name}.md").write_text(text)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Sphinx and of what it loads
        assert build_main([*QUICKLY, str(source), str(folder / "html")]) == 0
    return folder / "html"


FOUND = {"why": "z", "gpu": "y", "cut_edge": "a", "cut edge": "b", "cutedge": "c"}
FOUND |= {"zebra": "animals", "fold_map": ["entry#lib.fold_map", "use"]}


def test_a_page_is_first_where_it_says_what_it_answers_and_a_name_before_its_changes(site, browser):
    assert list(check_site.search_findings(site, browser, FOUND)) == []
    (finding,) = check_site.search_findings(site, browser, {**FOUND, "why": "y"})
    assert finding.startswith("search for 'why': y is not in")


def test_a_result_shows_the_passage_with_the_words_and_leads_to_it(site, browser):
    page = browser.new_page()
    said = "Coats – One is a zebra, which has strips."
    assert check_site.results_of(page, site, "zebra") == [("animals", "coats", said)]
    assert check_site.results_of(page, site, "horse") == [("animals", "", "Horses run.")]
    said = "A lion, another lion, a vit."
    assert check_site.results_of(page, site, "ViT") == [("cats", "", said)]
    assert check_site.results_of(page, site, "lib_call")[0] == (
        "calls",
        "lib",
        "Lib – lib_call() is ours.",
    )
    explained = ("glossary", "", "lion · A cat.")
    assert check_site.results_of(page, site, "lion") == [explained, ("cats", "", said)]


def test_a_search_that_shows_other_passages_or_another_order_is_seen(site, browser, tmp_path):
    shutil.copytree(site, tmp_path, dirs_exist_ok=True)
    for name, old, new in (
        ("language_data", "score(passage) > score(best)", "false"),
        ("language_data", "? 3000 : 500", "? 0 : 0"),
        ("language_data", "(changes|evidence)", "(none)"),
        ("passages", '"coats"', '""'),
    ):
        script = tmp_path / "_static" / f"{name}.js"
        assert old in script.read_text()
        script.write_text(script.read_text().replace(old, new))
    zebra, order, changes = check_site.search_findings(tmp_path, browser, FOUND)
    assert zebra == "search for 'zebra': animals shows 'Horses run.'"
    assert "are not the first of" in order
    assert "changes or evidence stand before others" in changes


MISTYPED = {
    "zebar": ("No page has 'zebar'; these are the results of 'zebra'.", ["zebra"]),
    "stirps zebra": ("No page has 'stirps'; these are the results of 'strips zebra'.", ["zebra"]),
    "zeebra stirps": (
        "No page has 'zeebra' or 'stirps'; these are the results of 'zebra strips'.",
        ["zebra"],
    ),
    "qwert": ("No page has 'qwert'.", []),
    "debra": ("No page has 'debra'.", []),  # another first letter
    "zebras": (None, ["zebra"]),
    "ViT": (None, []),
}


def test_a_mistyped_word_is_named_with_the_nearest_one_and_drawings_are_not_marked(site, browser):
    page = browser.new_page()
    errors = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    for words, (said, found) in MISTYPED.items():
        shown = [result.shown for result in check_site.results_of(page, site, words)]
        assert ["zebra"] * ("zebra" in "".join(shown)) == found
        assert "categories" not in page.inner_text("#search-results")
        line = page.locator("#search-results > p:not(.search-summary)")
        assert line.all_inner_texts() == [said] * (said is not None)
    for words, marked in (("zebar", "zebra"), ("ViT", "vit"), ("what is a lion", "lion")):
        assert check_site.results_of(page, site, words)
        page.wait_for_selector("ul.search .highlighted")
        texts = page.locator("ul.search .highlighted").all_inner_texts()
        assert {text.lower() for text in texts} == {marked}
    assert check_site.results_of(page, site, "zebra")
    page.goto((site / "animals.html").as_uri())
    page.wait_for_selector("span.highlighted")
    assert page.locator("svg rect, svg tspan").count() == 0
    assert errors == []


HAS_HINT = """async ([element, left]) => {
  element.scrollLeft = left;
  await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  return getComputedStyle(element).maskImage !== "none";
}"""


def test_a_table_or_code_that_scrolls_fades_at_its_right_until_its_end(browser):
    style = (DOCS / "_static" / "site.css").read_text()
    page = browser.new_page(viewport={"width": 390, "height": 900})
    for width, left, has_hint in ((900, 0, True), (900, 9999, False), (90, 0, False)):
        wide = f"<div style='width: {width}px'>wide</div>"
        page.set_content(
            f"<style>{style} article > * {{ overflow: auto }}</style>"
            f"<article><div class=table-wrapper>{wide}</div><pre>{wide}</pre></article>"
        )
        for element in page.locator("article > *").element_handles():
            assert page.evaluate(HAS_HINT, [element, left]) == has_hint


SEEN = [
    check_site.Result("reference/edit", "attnlab.patch_all", ""),
    check_site.Result("look", "", ""),
]
LOG = check_site.Result("changes", "", "")


@pytest.mark.parametrize(
    ("found", "begins", "is_last"),
    [
        (SEEN, True, True),
        ([*SEEN, LOG], True, True),
        (SEEN[::-1], False, True),
        ([], False, True),
        ([*SEEN, LOG, LOG], True, False),
        ([LOG, *SEEN], False, False),
    ],
)
def test_results_in_a_wrong_order_are_seen(found, begins, is_last):
    assert check_site.begins_as(found, ["reference/edit#attnlab.patch_all", "look"]) == begins
    assert check_site.logs_are_last(found) == is_last


def test_each_page_has_one_name_and_is_in_the_menu_once():
    menus = re.findall(r"```\{toctree\}\n(.*?)```", (DOCS / "index.md").read_text(), re.S)
    menu = [line for part in menus for line in part.splitlines() if line and line[0] != ":"]
    assert [line for line in menu if "<" in line] == []  # a second name
    files = {path.relative_to(DOCS).with_suffix("").as_posix() for path in PAGES}
    inside = {page for page in files if page.startswith("reference/") and "index" not in page}
    assert sorted(menu) == sorted(files - inside - {"index"})
    titles = [re.search(r"^# (.*)", path.read_text(), re.M) for path in PAGES]
    names = [title[1] for title in titles if title]
    assert len(names) == len(set(names))


@pytest.mark.slow
def test_a_file_runs_where_attnlab_is_installed_and_a_wrong_first_cell_is_seen(tmp_path):
    path = DOCS / "notebooks" / "sorting.md"
    source = download(path).cells[0].source
    assert "claims hold" in run_first(path, tmp_path, source)
    with pytest.raises(Exception, match="SyntaxError"):
        run_first(path, tmp_path, source.replace("is None:", "is None"))

"""The documentation site: Sphinx, furo, MyST. `make docs` builds it; a warning is an error.

The pages are the Markdown files of this folder, which read as well without a build. The site adds
the playground, the reference from docstrings, and notebooks, which every build executes anew. A
build fetches two small models once; who reads the site needs no network.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

from sphinx.application import Sphinx

import attnlab

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from accessibility import accessible  # noqa: E402
from notebook_pages import with_first_cell, with_links  # noqa: E402

# The repository on GitHub whose branch gh-pages is this site, as "owner/name"; there is none yet.
# With it, notebooks have links that open them in Colab, molab and Binder.
REPOSITORY = ""

project = "attnlab"
author = "The attnlab authors"
copyright = author  # Sphinx' name
version = release = attnlab.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
    "search_index",
    "reference_index",
    "signatures",
]
exclude_patterns = ["_build", "notebooks/runs"]

myst_enable_extensions = ["attrs_block", "colon_fence"]
myst_heading_anchors = 3
nb_execution_mode = "force"  # a cache knows nothing of changes in attnlab
nb_execution_timeout = 600  # seconds a cell, on a busy machine
nb_execution_raise_on_error = True
nb_merge_streams = True
nb_mime_priority_overrides = [("html", "text/html", 0)]  # a page in place of a widget, which
nb_ipywidgets_js = {}  # would need the network

default_role = "code"  # `name` in a docstring is code, as in Markdown
autodoc_typehints = "none"  # in words in the docstrings
python_use_unqualified_type_names = True
autodoc_member_order = "bysource"
autodoc_inherit_docstrings = False  # torch's say nothing of our models
napoleon_use_rtype = False
napoleon_use_ivar = True  # attributes are a list of the class

html_theme = "furo"
html_title = "attnlab"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_search_scorer = str(HERE / "search_order.js")
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#2d5f8a", "color-brand-content": "#2d5f8a"},
    "dark_css_variables": {"color-brand-primary": "#8fbde6", "color-brand-content": "#8fbde6"},
}
copybutton_exclude = ".linenos, .gp, .go"


def write_playground(app: Sphinx) -> None:
    """Write the playground beside the pages, which show it live."""
    command = [sys.executable, "-m", "attnlab", "lab", "--static", f"{app.outdir}/playground"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def fetch_models(app: Sphinx) -> None:
    """Fetch the models that the notebooks open, once."""
    if app.config.nb_execution_mode == "off":  # as in a quick build, which shows no results
        return
    models = HERE / "notebooks" / "runs" / "models"
    script = HERE.parent / "examples" / "small_models.py"
    if not (models / "minilm").exists():
        command = [sys.executable, str(script), "--models", str(models), "smollm2", "minilm"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def link_within(app: Sphinx, page: str, source: list[str]) -> None:
    """Let links to files of the repository that the site has as pages lead to these pages."""
    source[0] = source[0].replace("](../benchmarks/README.md", "](benchmarks.md")
    source[0] = with_links(source[0], REPOSITORY)


def write_notebooks(app: Sphinx, error: Exception | None) -> None:
    """Write each notebook beside its page, and the script that fetches models."""
    if error is not None:
        return
    folder = Path(app.outdir) / "notebooks"
    for path in sorted((Path(app.outdir).parent / "jupyter_execute" / "notebooks").glob("*.ipynb")):
        notebook = with_first_cell(json.loads(path.read_text()), path.stem, REPOSITORY)
        (folder / path.name).write_text(json.dumps(notebook, indent=1, ensure_ascii=False))
    shutil.copy(HERE.parent / "examples" / "small_models.py", folder)


def mend_pages(app: Sphinx, error: Exception | None) -> None:
    """Write into each page what the theme leaves out."""
    if error is not None:
        return
    for path in Path(app.outdir).rglob("*.html"):
        if path.parent.name not in ("playground", "_static"):
            path.write_text(accessible(path.read_text()))


def setup(app: Sphinx) -> None:
    """Install them."""
    app.connect("builder-inited", write_playground)
    app.connect("builder-inited", fetch_models)
    app.connect("source-read", link_within)
    app.connect("build-finished", write_notebooks)
    app.connect("build-finished", mend_pages)

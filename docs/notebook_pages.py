"""The notebooks of the site as files to download, and links that open them elsewhere.

Each is written beside its page, with a first cell that installs attnlab where it is missing and
fetches the model that the notebook opens. Links need to know where the built site is kept.
"""

import re
from collections.abc import Iterator
from typing import Any

MODELS = dict.fromkeys(("real-search", "real-census"), "minilm") | dict.fromkeys(
    ("real-cut", "real-long", "real-look", "real-patch", "real-why"), "smollm2"
)
"""The model that a notebook opens, as `examples/small_models.py` names it."""

_MARK = re.compile(r"\{nb-download\}`([\w-]+)\.ipynb`")
_DOWNLOAD = re.compile(r"^Download it with its results: .*\n?", re.MULTILINE)
_OPENERS = {
    "Colab": "https://colab.research.google.com/github/{place}/blob/gh-pages/notebooks/{name}.ipynb",
    "molab": "https://molab.marimo.io/github/{place}/blob/gh-pages/notebooks/{name}.ipynb",
    "JupyterLab on Binder": "https://mybinder.org/v2/gh/{place}/gh-pages"
    "?urlpath=lab/tree/notebooks/{name}.ipynb",
}


def with_links(page: str, place: str) -> str:
    """Put links to a notebook in place of its `nb-download`.

    Args:
        page: the Markdown of a page.
        place: the repository on GitHub whose branch gh-pages is the built site, as "owner/name";
            empty where there is none, and then there are no links to other sites.
    """

    def links(mark: re.Match[str]) -> str:
        name = mark[1]
        words = f'<a href="{name}.ipynb" download>{name}.ipynb</a>'
        if name in MODELS:
            words += ' and, beside it, <a href="small_models.py" download>small_models.py</a>'
        words += ". Its first cell installs attnlab where it is missing"
        if name in MODELS:
            words += ", and fetches the model"
        if place:
            openers = [
                f"[{site}]({address.format(place=place, name=name)})"
                for site, address in _OPENERS.items()
            ]
            words += f". Or open it in {', '.join(openers[:-1])} or {openers[-1]}"
        return words

    return _MARK.sub(links, page)


def with_first_cell(notebook: dict[str, Any], name: str, place: str) -> dict[str, Any]:
    """Return a notebook (nbformat 4) with a first cell that gets attnlab and the model.

    The sentence about the download, which the reader has behind them, is left out, and so is what a
    cell printed after its first piece: MyST-NB has put all of it into that piece.
    """
    cells = [dict(cell) for cell in notebook["cells"]]
    for cell in cells:
        if cell["cell_type"] == "markdown":
            cell["source"] = _DOWNLOAD.sub("", "".join(cell["source"]))
        else:
            cell["outputs"] = list(_printed_once(cell["outputs"]))
    first = {
        "cell_type": "code",
        "execution_count": None,
        "id": "get-attnlab",
        "metadata": {},
        "outputs": [],
        "source": _first_source(name, place),
    }
    return {**notebook, "cells": [first, *cells]}


def _printed_once(outputs: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the outputs of a cell, of each stream the first piece alone."""
    seen = set()
    for output in outputs:
        stream = output.get("name")
        if stream is None or stream not in seen:
            yield output
        seen.add(stream)


def _first_source(name: str, place: str) -> str:
    lines = [
        "# attnlab, where it is not installed (before its first release: from the repository)",
        "import importlib.util",
        "",
        'if importlib.util.find_spec("attnlab") is None:',
        '    %pip install -q "attnlab[all,notebook]" attnlab-course attnlab-lab',
    ]
    if name in MODELS:
        model = MODELS[name]
        lines[0] += ", and the model"
        lines[2:2] = ["from pathlib import Path"]
        lines[3:3] = [""]
        lines += ["", f'if not Path("runs/models/{model}").exists():']
        if place:
            script = f"https://raw.githubusercontent.com/{place}/gh-pages/notebooks/small_models.py"
            lines += ["    from urllib.request import urlretrieve", ""]
            lines += [f'    urlretrieve("{script}", "small_models.py")']
        lines += [f"    %run small_models.py {model}"]
    return "\n".join(lines)

"""What the search of the site finds, in which order, and what each result says.

Sphinx's search works from disk without a server. Left alone it drops "why" and "own" as stop
words, takes `cut_edge` for one word and `CutEdge` for another, puts pages in alphabetical order,
and says nothing of a result where pages cannot be fetched, as from disk. So here:

- a page says in `<!-- search: words, and phrases -->` what it, or the section below whose heading
  that stands, is the answer to; these are main entries of Sphinx's index, and come first, and their
  words count as words of the page;
- names are split at `_` and at capitals, on the pages and in what is typed;
- `search_order.js` puts guides before lists, and gives each result its first sentence.
"""

import inspect
import json
import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.search.en import SearchEnglish

_COMMENT = re.compile(r"^<!-- search: ([^>]*) -->$", re.M)
_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W\d_]+|\d+")
_SENTENCE = re.compile(r"(?<=[.!?]) (?=[A-Z`])")
_QUESTIONS = {"why", "how", "what", "where", "which", "when", "own", "same", "few", "first"}


class CodeAndEnglish(SearchEnglish):
    """English in which questions are words, and names of code are taken apart."""

    stopwords = SearchEnglish.stopwords - _QUESTIONS
    js_splitter_code = """\
function splitQuery(query) {
  return query.match(/\\p{Lu}+(?!\\p{Ll})|\\p{Lu}?\\p{Ll}+|[\\p{L}]+|\\p{N}+/gu) ?? [];
}
"""

    def split(self, input: str) -> list[str]:
        """Split a text into words, and names at `_` and capitals; a name stays whole, too."""
        found = []
        for word in self._word_re.findall(input):
            parts = _PARTS.findall(word)
            found += parts if parts == [word] else [word, *parts]
        return found


def with_search_words(page: str) -> str:
    """Put entries of Sphinx's index in place of the comments that say what a page answers."""

    def entries(comment: re.Match[str]) -> str:
        words = [word.strip() for word in comment[1].split(",")]
        hidden = f"```{{raw}} html\n<span hidden>{' '.join(words)}</span>\n```"
        return f"{hidden}\n```{{index}} " + ", ".join(f"! {word}" for word in words) + "\n```"

    return _COMMENT.sub(entries, page)


def first_sentence(text: str) -> str:
    """Return the first sentence of a text, on one line; nothing of one that ends in no stop."""
    sentence = _SENTENCE.split(" ".join(text.split()))[0]
    return sentence if sentence.endswith((".", "!", "?")) else ""


def sentence_of(name: str) -> str:
    """Return the first sentence of the docstring of a public name."""
    path, *parts = name.split(".")
    thing: Any = import_module(path)
    for part in parts:
        path += f".{part}"
        try:
            thing = getattr(thing, part) if hasattr(thing, part) else import_module(path)
        except ImportError:  # a field of a class, which has no docstring
            return ""
    doc = inspect.getdoc(thing)
    return first_sentence((doc or "").partition("\n\n")[0])


def keep_summaries(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Keep what the results of a page say: by page, by place in it, and by public name."""
    kept: dict[str, str] = app.env.__dict__.setdefault("attnlab_summaries", {})
    kept[page] = _opening(doctree)
    for entry in doctree.findall(addnodes.index):
        section = _section_of(entry)
        for *_, place, _main, _key in entry["entries"]:
            if section is not None and section.parent is not doctree:
                title = section.next_node(nodes.title)
                kept[f"{page}#{place}"] = f"{title.astext()} – {_opening(section)}"
    for described in doctree.findall(addnodes.desc_signature):
        for name in described["ids"]:
            kept[f"{page}#{name}"] = sentence_of(name) if name.startswith("attnlab") else ""


def _section_of(node: nodes.Node) -> nodes.section | None:
    while node is not None and not isinstance(node, nodes.section):
        node = node.parent
    return node


def _opening(part: nodes.Element) -> str:
    """Return the first sentence of a page or a section that is one."""
    for paragraph in part.findall(nodes.paragraph):
        if sentence := first_sentence(paragraph.astext()):
            return sentence
    return ""


def write_summaries(app: Sphinx, error: Exception | None) -> None:
    """Write the summaries where the page of the search reads them."""
    if error is None:
        kept = getattr(app.env, "attnlab_summaries", {})
        text = json.dumps({key: value for key, value in sorted(kept.items()) if value})
        Path(app.outdir, "_static", "summaries.js").write_text(f"window.SUMMARIES = {text};\n")


def read_summaries(app: Sphinx, page: str, *_: Any) -> None:
    """Let the page of the search alone read the summaries."""
    if page == "search":
        app.add_js_file("summaries.js")


def setup(app: Sphinx) -> dict[str, bool]:
    """Install it."""
    app.add_search_language(CodeAndEnglish)
    app.connect("source-read", lambda _app, _page, source: _mend(source, with_search_words))
    app.connect("doctree-resolved", keep_summaries)
    app.connect("html-page-context", read_summaries)
    app.connect("build-finished", write_summaries)
    return {"parallel_read_safe": True, "parallel_write_safe": False}


def _mend(source: list[str], how: Callable[[str], str]) -> None:
    source[0] = how(source[0])

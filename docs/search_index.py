"""What the search of the site finds, in which order, and what each result says.

Sphinx's search works from disk without a server. Left alone it finds only pages that have every
typed word, drops "why" and "own" as stop words, takes `cut_edge` for one word and `CutEdge` for
another, and says nothing of a result where pages cannot be fetched, as from disk. So here:

- a page says in `<!-- search: words, and phrases -->` what it, or the section below whose heading
  that stands, is the answer to; these are main entries of Sphinx's index, and come first;
- all passages of the site are kept in `passages.js`, which the page of the search alone reads;
- `search_order.js` ranks sections by the words that they have, a rare word before a common one,
  splits names at `_` and at capitals, puts a name that is typed as code first, then the glossary
  where it explains what is typed, guides before lists, changes and evidence last, and shows of each
  result the passage that matches; of a typed word that no page has it says so, and searches for
  the nearest.
"""

import inspect
import json
import re
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.search.en import SearchEnglish

_COMMENT = re.compile(r"^<!-- search: ([^>]*) -->$", re.M)
_SENTENCE = re.compile(r"(?<=[.!?]) (?=[A-Z`])")
_QUESTIONS = {"why", "how", "what", "where", "which", "when", "own", "same", "few", "first"}


class CodeAndEnglish(SearchEnglish):
    """English in which questions are words, and typed names of code are taken apart."""

    stopwords = SearchEnglish.stopwords - _QUESTIONS
    js_splitter_code = """\
function splitQuery(query) {
  return query.match(/\\p{Lu}+(?!\\p{Ll})|\\p{Lu}?\\p{Ll}+|[\\p{L}]+|\\p{N}+/gu) ?? [];
}
"""


def with_search_words(page: str) -> str:
    """Put entries of Sphinx's index in place of the comments that say what a page answers."""

    def entries(comment: re.Match[str]) -> str:
        words = [word.strip() for word in comment[1].split(",")]
        return "```{index} " + ", ".join(f"! {word}" for word in words) + "\n```"

    return _COMMENT.sub(entries, page)


def first_sentence(text: str) -> str:
    """Return the first sentence of a text, on one line; nothing of one that ends in no stop."""
    sentence = _SENTENCE.split(" ".join(text.split()))[0]
    return sentence if sentence.endswith((".", "!", "?")) else ""


def thing_at(name: str) -> Any:
    """Return what a dotted name means: a module, or something in one.

    Raises:
        AttributeError: there is no such thing, as of a field of a class.
    """
    module, _, part = name.rpartition(".")
    parts = [part]
    while True:
        try:
            thing: Any = import_module(module)
            break
        except ModuleNotFoundError:
            module, _, part = module.rpartition(".")
            parts.insert(0, part)
    for part in parts:
        thing = getattr(thing, part)
    return thing


def sentence_of(name: str) -> str:
    """Return the first sentence of the docstring of a public name."""
    try:
        doc = inspect.getdoc(thing_at(name)) or ""
    except AttributeError:
        return ""
    return first_sentence(doc.partition("\n\n")[0])


class Passage(NamedTuple):
    """A paragraph, row or line of code of a page, and the section or public name it belongs to.

    place: the id to link to, "" at the top of a page · title: of the section, or the name · text ·
    is_code: 1 of a line of code, else 0.
    """

    place: str
    title: str
    text: str
    is_code: int


def passages(doctree: nodes.document) -> Iterator[Passage]:
    """Yield the passages of a page in their order."""
    for node in doctree.findall(_is_passage):
        is_code = isinstance(node, nodes.literal_block)
        parts = node.children if isinstance(node, nodes.row) else [node]
        texts = node.astext().splitlines() if is_code else [" · ".join(map(_words, parts))]
        for text in filter(None, (text.strip(" ·") for text in texts)):
            yield Passage(*_home_of(node), text, int(is_code))


def _words(node: nodes.Node) -> str:
    """Return the text of a node on one line, without what is written in HTML."""
    shown = node.deepcopy()
    for raw in list(shown.findall(nodes.raw)):
        raw.parent.remove(raw)
    return " ".join(shown.astext().split())


def _is_passage(node: nodes.Node) -> bool:
    if isinstance(node, nodes.row):
        return not isinstance(node.parent, nodes.thead)
    is_text = isinstance(node, (nodes.paragraph, nodes.literal_block))
    return is_text and not isinstance(node.parent, nodes.entry)


def _home_of(node: nodes.Node) -> tuple[str, str]:
    """Return the place and the title of the section or the public name that a node stands in."""
    while node.parent is not None:
        node = node.parent
        if isinstance(node, addnodes.desc):
            signature = node.next_node(addnodes.desc_signature)
            if signature["ids"]:
                return signature["ids"][0], signature["fullname"]
        if isinstance(node, nodes.section) and not isinstance(node.parent, nodes.document):
            return node["ids"][0], node.next_node(nodes.title).astext()
    return "", ""


def keep_passages(app: Sphinx, doctree: nodes.document) -> None:
    """Keep the passages of a page, and the phrases that it says it answers, with their places."""
    page = app.env.docname
    kept = app.env.__dict__.setdefault("attnlab_passages", {})
    kept[page] = list(passages(doctree))
    phrases = app.env.__dict__.setdefault("attnlab_phrases", {})
    phrases[page] = [
        (_home_of(entry)[0], phrase)
        for entry in doctree.findall(addnodes.index)
        for _kind, phrase, _place, main, _key in entry["entries"]
        if main == "main"
    ]


def write_passages(app: Sphinx, error: Exception | None) -> None:
    """Write the passages where the page of the search reads them."""
    if error is not None:
        return
    kept = getattr(app.env, "attnlab_passages", {})
    phrases = getattr(app.env, "attnlab_phrases", {})
    lines = [
        f"window.{name} = {json.dumps(value, ensure_ascii=False, sort_keys=True)};\n"
        for name, value in (("PASSAGES", kept), ("PHRASES", phrases))
    ]
    Path(app.outdir, "_static", "passages.js").write_text("".join(lines))


def read_passages(app: Sphinx, page: str, *_: Any) -> None:
    """Let the page of the search alone read the passages."""
    if page == "search":
        app.add_js_file("passages.js")


# Sphinx marks the words that were searched, and fails at some elements of drawings.
_NO_MARKS_IN_DRAWINGS = (
    'document.querySelectorAll("svg *").forEach((part) => part.classList.add("nohighlight"));'
)


def setup(app: Sphinx) -> dict[str, bool]:
    """Install it."""
    app.add_js_file(None, body=_NO_MARKS_IN_DRAWINGS)
    app.add_search_language(CodeAndEnglish)
    app.connect("source-read", lambda _app, _page, source: _mend(source, with_search_words))
    app.connect("doctree-read", keep_passages)
    app.connect("html-page-context", read_passages)
    app.connect("build-finished", write_passages)
    return {"parallel_read_safe": False, "parallel_write_safe": True}


def _mend(source: list[str], how: Callable[[str], str]) -> None:
    source[0] = how(source[0])

"""What a corpus search found, as one page: which heads do it most, and where, each token in its context."""

from pathlib import Path
from typing import Any

from attnlab.draw.page import render_page
from attnlab.errors import WrongUsage, in_order
from attnlab.files import write_text
from attnlab.look.corpus import MEASURES, Example, Found

__all__ = ["corpus_report", "write_corpus_page"]

_HEADS, _EXAMPLES = 12, 10  # that are shown unless somebody asks for others


def corpus_report(
    found: Found, *, heads: list[str] | None = None, examples: int = _EXAMPLES, most_heads: int = _HEADS
) -> dict[str, Any]:
    """Say what was found: a document for `render_page`.

    Args:
        found: what `search_corpus` or `open_search` gave.
        heads: whose examples are shown; None for those that do it most.
        examples: of each head, at most.
        most_heads: how many heads, where none are named.
    """
    rows = found.table()
    measured = [row for row in rows if row["count"]]
    shown = [row["head"] for row in measured][:most_heads] if heads is None else heads
    unknown = sorted(set(shown) - set(found.heads), key=in_order)
    if unknown:
        raise WrongUsage(f"the head {unknown[0]} was not searched.")
    words = _words_of(found.measure)
    counts: list[list[Any]] = [[name, f"{count:,}"] for name, count in found.counts.items() if count]
    sections: list[dict[str, Any]] = [
        {
            "kind": "passages",
            "title": "Where",
            "caption": "The token that looks is framed, the one that counts most of what it looks at is filled. Each "
            "text gives at most one example.",
            "groups": [_group(found, head, examples) for head in shown],
        },
        {
            "kind": "table",
            "title": "Heads",
            "caption": f"{_sentence(words)}: mean over all tokens where it can be measured, with its 95 % interval "
            "(bootstrap over texts), and quantiles of a sample of tokens.",
            "columns": ["head", "tokens", "mean", "low", "high", "5 %", "median", "95 %"],
            "rows": [
                [row["head"], int(row["count"]), *(_short(row[name]) for name in _NAMES)] for row in measured
            ],
        },
    ]  # fmt: skip
    return {
        "title": _sentence(words),
        "subtitle": f"{found.model}, {'lowest' if found.lowest else 'highest'} first, in "
        f"{found.counts.get('texts read', 0):,} texts{'' if found.is_done else ' so far'}.",
        "facts": counts,
        "sections": sections,
    }


_NAMES = ("mean", "low", "high", "q05", "median", "q95")


def write_corpus_page(found: Found, path: Path | str, **options: Any) -> Path:
    """Write the page of a search to a file, and return its path; options as in `corpus_report`."""
    write_text(Path(path), render_page(corpus_report(found, **options)))
    return Path(path)


def _group(found: Found, head: str, most: int) -> dict[str, Any]:
    return {"title": f"Head {head}", "items": [_item(each) for each in found.examples(head)[:most]]}


def _item(example: Example) -> dict[str, Any]:
    context = example.context()
    places = [place for place, _ in context]
    return {
        "label": f"{example.value:.3f} · text {example.text:,}, token {example.query:,} looks at {example.key:,}",
        "tokens": [token for _, token in context],
        "query": places.index(example.query),
        "key": places.index(example.key),
    }


def _words_of(measure: str) -> str:
    if measure.startswith("token:"):
        return f"the weight on tokens that are {measure.removeprefix('token:')}"
    return MEASURES.get(measure, measure)


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:]


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")

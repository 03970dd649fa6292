"""The page of a corpus search: heads with the largest values, and examples in their context."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from attnlab.core.store import JsonObject, write_text
from attnlab.draw.page import render_page
from attnlab.draw.sections import Passage, PassageGroup, Passages, ReportContent, Table
from attnlab.look.corpus import MEASURES, CorpusSearch, Example

_HEADS, _EXAMPLES = 12, 10  # shown by default
_STATISTICS = ("mean", "low", "high", "q05", "median", "q95")


def corpus_report(
    search: CorpusSearch,
    *,
    heads: list[str] | None = None,
    examples: int = _EXAMPLES,
    most_heads: int = _HEADS,
) -> ReportContent:
    """Describe the result of a search as a report.

    Args:
        found: the result of `search_corpus` or `open_search`.
        heads: heads whose examples are shown; None for those with the largest values.
        examples: the most examples of each head.
        most_heads: how many heads are shown if `heads` is None.
    """
    measured = [row for row in search.table() if row["count"]]
    if heads is None:
        heads = [row["head"] for row in measured[:most_heads]]
    words = _words_of(search.measure)
    order = "lowest" if search.lowest else "highest"
    texts = f"{search.counts.get('texts read', 0):,} texts"
    if not search.is_done:
        texts += " so far"
    return ReportContent(
        title=capitalized(words),
        subtitle=f"{search.model}, {order} first, in {texts}.",
        facts=[(name, f"{count:,}") for name, count in search.counts.items() if count],
        sections=[_examples(search, heads, examples), _heads_table(words, measured)],
    )


def _examples(search: CorpusSearch, heads: Sequence[str], most: int) -> Passages:
    groups = []
    for head in heads:
        items = list(map(passage_of, search.examples(head)[:most]))
        groups.append(PassageGroup(title=f"Head {head}", items=items))
    return Passages(
        title="Examples",
        caption="The query is framed; the key with most of the measured weight is filled. "
        "Each text gives at most one example.",
        groups=groups,
    )


def _heads_table(words: str, measured: Sequence[JsonObject]) -> Table:
    rows = []
    for row in measured:
        cells = [row["head"], int(row["count"])]
        for name in _STATISTICS:
            value = row[name]
            cells.append(None if value is None else float(f"{value:.4g}"))
        rows.append(cells)
    return Table(
        title="Heads",
        caption=f"{capitalized(words)}: mean over all tokens where it is defined, with its "
        "95 % interval (bootstrap over texts), and quantiles of a sample of tokens.",
        columns=["head", "tokens", "mean", "low", "high", "5 %", "median", "95 %"],
        rows=rows,
    )


def write_corpus_page(search: CorpusSearch, path: Path | str, **options: Any) -> Path:
    """Write the page of a search to a file and return its path; options are of `corpus_report`."""
    write_text(Path(path), render_page(corpus_report(search, **options)))
    return Path(path)


def passage_of(example: Example, before: str = "") -> Passage:
    """Show the context of an example; its label begins with `before`."""
    places, tokens = zip(*example.context(), strict=True)
    at = f"text {example.text:,}, query {example.query:,}, key {example.key:,}"
    return Passage(
        label=f"{before}{example.value:.3f} · {at}",
        tokens=tokens,
        query=places.index(example.query),
        key=places.index(example.key),
    )


def _words_of(measure: str) -> str:
    if measure.startswith("token:"):
        return f"the weight on tokens that match {measure.removeprefix('token:')}"
    return MEASURES.get(measure, measure)


def capitalized(words: str) -> str:
    """Return words that begin with a capital letter."""
    return words[:1].upper() + words[1:]

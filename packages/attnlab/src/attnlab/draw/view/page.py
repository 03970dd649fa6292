"""The page of a recording, or of two compared: one HTML file that opens from disk."""

import html
import tempfile
import textwrap
import webbrowser
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from markupsafe import escape

from attnlab.core.store import JsonObject, write_text
from attnlab.display import displayed, plural
from attnlab.draw.attention.pattern import Pattern, site_words
from attnlab.draw.attention.recordings import to_drawable, why_unjoined
from attnlab.draw.markup import make_page, to_embedded_json
from attnlab.draw.view.maps import Drawable, fit_maps, telling_head
from attnlab.errors import WrongUsage
from attnlab.look.heads import head_at
from attnlab.look.recording.recording import Recording, name_and_kind
from attnlab.progress import shows_pages

_MAX_BYTES = 30_000_000
NOTEBOOK_BYTES = 8_000_000  # a notebook stores its outputs
_TOLERANCE = 1e-6  # equal weights of two forward passes may differ by rounding
_TITLE = 80  # letters of an input in a title
_SCRIPT_BYTES = 130_000
_FACT_BYTES = 60  # markup around a note


def view_page(
    recording: Any,
    other: Any = None,
    *,
    row: int = 0,
    tokens: Any = None,
    title: str = "",
    names: Sequence[str] = ("before", "after"),
    notes: Sequence[tuple[str, str]] = (),
    table: Sequence[Sequence[str]] = (),
    opens: tuple[str, int] | Literal["telling"] | None = None,
    max_bytes: int = _MAX_BYTES,
) -> str:
    """Render the interactive page of a recording: every head, every weight, zoom, keyboard control.

    Weights are stored in 8 bits each; the page states the error bound, and whether they were stored
    more coarsely or pooled to stay within the budget.

    The page carries what was drawn, unless that is much: `attnlab.open` reads it again.

    Args:
        recording: the result of `record`, a mapping of site names to weights (batch, head, query,
            key), patterns, or weights: (query, key), (head, query, key), a list of these by layer,
            Hugging Face's `attentions`. The steps of a cached generation are joined; if that is
            impossible, the page says so and shows the last.
        other: a second recording of the same sites and lengths, to compare with the first.
        row: which input of the batch.
        tokens: names of the places, if the recording has none: a list of texts, a pair (of the
            queries, of the keys), or lists by stack, `{"encoder": …, "decoder": …}`.
        title: the title of the page; by default the model and the input of a recording, and
            "Attention" of anything else.
        names: names of the two recordings.
        notes: (name, text) pairs for below the title, such as answers; line ends are kept.
        table: rows of texts for below the notes, the first with the names of the columns.
        opens: the site and number of the head that is shown first; "telling" for the one that tells
            most, see `telling_head`, as the page then says; None for the first one.
        max_bytes: the largest size of the page.

    Raises:
        WrongUsage: there are no weights, one is not finite or negative, the two recordings do not
            fit each other, a note is not two texts, or the budget is too small.
    """
    patterns = to_drawable(recording, row, tokens)
    others = [] if other is None else to_drawable(other, row, tokens)
    recordings = [recording] if other is None else [recording, other]
    taken = sum(_FACT_BYTES + len(escape(name + text).encode()) for name, text in _checked(notes))
    taken += sum(_FACT_BYTES + len(escape(cell).encode()) for row in table for cell in row)
    taken += _words_size([*patterns, *others])
    if taken >= max_bytes:
        raise WrongUsage(
            f"style, scripts, tokens, facts and notes may take {taken:,} bytes, which leaves no "
            f"room for the maps; give a larger max_bytes than {max_bytes:,}."
        )
    maps = fit_maps(patterns, others, names=names, max_bytes=max_bytes - taken)
    remarks = [*_remarks(recordings, patterns, maps)]
    if opens == "telling":
        telling = telling_head(maps)
        opens = telling and telling[:2]
        if telling is not None:
            words = f"head {head_at(telling[0], telling[1])}: {telling[2]}"
            remarks.append(("Shown first", words, "told"))
    if opens is not None:
        maps["opens"] = {"site": opens[0], "head": opens[1]}
    facts = page_facts(recordings[-1], patterns, notes, others=others, remarks=remarks)
    page = make_page(
        "view/view.html",
        ["page.css", "sections.css", "view/view.css", "print.css"],
        "view/modules/page.js",
        title=title or _title(recording, patterns),
        facts=facts,
        table=table,
        maps=to_embedded_json(maps),
    )
    size = len(page.encode())
    if size > max_bytes:
        raise WrongUsage(
            f"the page takes {size:,} bytes, more than the {max_bytes:,} allowed; give a larger "
            "max_bytes."
        )
    return page


def write_view(path: str | Path, recording: Any, other: Any = None, **options: Any) -> Path:
    """Write `view_page(recording, other, ...)` to a file and return its path."""
    place = Path(path)
    write_text(place, view_page(recording, other, **options))
    return place


def page_facts(
    recording: Any,
    patterns: Sequence[Drawable],
    notes: Sequence[tuple[str, str]],
    *,
    others: Sequence[Drawable] = (),
    remarks: Sequence[tuple[str, str, str]] = (),
) -> list[tuple[str, str, str]]:
    """Return what stands below the title of a page: names, texts, and a class of each."""
    return [
        *_facts(recording, patterns),
        *remarks,
        *_labels(patterns),
        *_cautions([*patterns, *others]),
        *((name, text, "told") for name, text in notes),
    ]


@displayed
@dataclass(frozen=True)
class NotebookPage:
    """A page for a notebook, in a sandboxed frame; `page` is its HTML, `name` the frame's."""

    page: str
    height: int = 900
    name: str = ""

    def _repr_html_(self) -> str:
        name = f'name="{html.escape(self.name)}" ' if self.name else ""
        return (
            f'<iframe sandbox="allow-scripts" {name}title="attention" '
            f'style="width:100%;height:{self.height}px;border:0" '
            f'srcdoc="{html.escape(self.page)}"></iframe>'
        )


def show_page(page: str, out: Path | str | None = None) -> "NotebookPage | Path":
    """Show a page in the notebook, or write it to a file, open the browser and return the path.

    With `out` the page is written there, and not opened.

    Raises:
        WrongUsage: `out` names another kind of file.
    """
    if out is not None:
        if Path(out).suffix.lower() not in (".html", ".htm"):
            raise WrongUsage(
                f"show writes a page: expected a name that ends in .html; got {str(out)!r}. "
                "Figures are of attnlab.plot."
            )
        write_text(Path(out), page)
        return Path(out)
    if shows_pages():
        return NotebookPage(page)
    place = Path(tempfile.mkdtemp(prefix="attnlab-")) / "attention.html"
    write_text(place, page)
    webbrowser.open(place.as_uri())
    return place


def _title(recording: Any, patterns: Sequence[Drawable]) -> str:
    """Return the model's name, or what it is, and the input as far as it fits."""
    words = name_and_kind(recording.model) if isinstance(recording, Recording) else ""
    if not words:
        return "Attention"
    tokens = patterns[0].key_tokens
    text = " ".join(tokens).replace(" ##", "")  # WordPiece marks what goes on, others the blanks
    if any(token.startswith("␣") for token in tokens):
        text = "".join(tokens).replace("␣", " ")
    name, _, kind = words.rpartition(", ")
    name = name or kind[:1].upper() + kind[1:]
    return f"{name}: {textwrap.shorten(text, _TITLE, placeholder=' …')}"


def _words_size(patterns: Sequence[Drawable]) -> int:
    """Bytes of the page beside its tiles, at most: style, scripts, tokens and facts."""
    tokens = {(pattern.query_tokens, pattern.key_tokens) for pattern in patterns}
    letters = sum(len(to_embedded_json([*queries, *keys])) for queries, keys in tokens)
    return _SCRIPT_BYTES + 2 * letters + 600 * sum(pattern.shape[0] for pattern in patterns)


def _checked(notes: Sequence[tuple[str, str]]) -> Sequence[tuple[str, str]]:
    for note in notes:
        is_pair = not isinstance(note, str) and len(note) == 2
        if not is_pair or not all(isinstance(word, str) for word in note):
            raise WrongUsage(
                f"notes are pairs of texts, such as [('Answer', 'yes')]; got {note!r}."
            )
    return notes


def _labels(patterns: Sequence[Drawable]) -> list[tuple[str, str, str]]:
    labels = []
    for pattern in patterns:
        if isinstance(pattern, Pattern):
            for head, label in enumerate(filter(None, pattern.labels)):
                labels.append((f"Head {head_at(pattern.site, head)}", label, "told"))
    return labels


def _cautions(patterns: Sequence[Drawable]) -> list[tuple[str, str, str]]:
    return [
        ("Caution", pattern.caution, "told")
        for pattern in patterns
        if isinstance(pattern, Pattern) and pattern.caution
    ]


def _remarks(
    recordings: Sequence[Any], patterns: Sequence[Drawable], maps: JsonObject
) -> Iterator[tuple[str, str, str]]:
    """Yield facts that prevent a misreading: only the last step is shown, or nothing differs."""
    for why in sorted(set(map(why_unjoined, recordings)) - {""}):
        places = {
            len(pattern.key_tokens) - len(pattern.query_tokens)
            for pattern in patterns
            if pattern.key_tokens[-len(pattern.query_tokens) :] == pattern.query_tokens
        }
        place = ""
        if len(places) == 1:
            place = f", whose first query is at place {places.pop()} of the input"
        yield "Shown", f"The last step alone{place}. {why}", "told"
    if maps["change"] is not None and maps["change"] <= _TOLERANCE:
        words = (
            f"None: the patterns are the same, no weight differs by more than {_TOLERANCE:.6f}. An "
            "edit after the weights, such as of a head's output, changes none of them."
        )
        yield "Difference", words, "told"


def _facts(recording: Any, patterns: Sequence[Drawable]) -> list[tuple[str, str, str]]:
    """Return the facts below the title: the model, the number of heads, the sizes, the edits."""
    facts = []
    model = getattr(recording, "model", None)
    if isinstance(model, Mapping) and "kind" in model:
        facts.append(("Model", name_and_kind(model), ""))
    kinds = {site_words(pattern.site)[0] for pattern in patterns}
    layers = plural(len(patterns), "layer" if len(kinds) == 1 else "attention")
    num_heads = sum(pattern.shape[0] for pattern in patterns)
    facts.append(("Heads", f"{num_heads:,} in {len(patterns):,} {layers}", ""))
    lengths = sorted({pattern.shape[1:] for pattern in patterns}, reverse=True)
    sizes = ", ".join(f"{queries:,} × {keys:,}" for queries, keys in lengths)
    facts.append(("Queries × keys", sizes, ""))
    edits = getattr(recording, "edits", None)
    if edits:
        facts.append(("Edits", "; ".join(map(_edit_words, edits)), ""))
    return facts


def _edit_words(edit: Mapping[str, Any]) -> str:
    settings = ", ".join(
        f"{name}={value!r}"
        for name, value in edit.items()
        if name not in ("edit", "version") and value is not None
    )
    return f"{edit.get('edit', 'edit')}({settings if len(settings) < 200 else '…'})"

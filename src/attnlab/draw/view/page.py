"""The page: a recording, or two compared, as one HTML file that opens from disk and asks the network for nothing."""

import base64
import html
import tempfile
import webbrowser
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnlab.display import displayed
from attnlab.draw.attention.pattern import Pattern, site_words
from attnlab.draw.attention.recorded import to_drawable, why_unjoined
from attnlab.draw.markup import escape, make_page, modules_from, plural, to_embedded_json
from attnlab.draw.view.wire import Drawable, Packed, pack
from attnlab.errors import WrongUsage
from attnlab.files import write_text
from attnlab.progress import is_notebook

__all__ = ["NOTEBOOK_BYTES", "Shown", "show_page", "view_page", "write_view"]

_MAX_BYTES = 30_000_000
NOTEBOOK_BYTES = 8_000_000  # a notebook keeps its outputs inside
_SAME = 1e-6  # two passes of the same weights may differ in how they were rounded
_SCRIPT_BYTES = 130_000
_LEAST_BYTES = 300_000  # style, scripts and a few small maps


def view_page(
    recording: Any,
    other: Any = None,
    *,
    row: int = 0,
    tokens: Any = None,
    title: str = "Attention",
    names: Sequence[str] = ("before", "after"),
    notes: Sequence[tuple[str, str]] = (),
    max_bytes: int = _MAX_BYTES,
) -> str:
    """Make the interactive page of a recording: pick a head, read any weight, zoom, walk with the keyboard.

    Weights are kept in 8 bits a piece; the page says within what bound, and how far they had to be made coarser, or
    pooled, to stay within the budget.

    Args:
        recording: what `record` gave, a mapping of site names to weights (batch, head, query, key), patterns, or bare
            weights: (query, key), (head, query, key), a list of these by layer, Hugging Face's `attentions`. The steps
            of a cached generation are joined; where they cannot be, the page says so and shows the last.
        other: a second recording of the same sites and lengths, to be compared with the first.
        row: which input of the batch.
        tokens: names of the places, where the recording has none: a list of texts, a pair (of the queries, of the
            keys), or lists by stack, `{"encoder": …, "decoder": …}`.
        title: what stands at the top.
        names: what the two recordings are called where there are two.
        notes: (name, text) of what else shall stand under the title, such as answers; lines are kept.
        max_bytes: how large the page may become, at most.

    Raises:
        WrongUsage: there are no weights, one is not finite or negative, the two do not fit each other, a note is
            not two texts, or the budget is too small.
    """
    patterns = to_drawable(recording, row, tokens)
    others = [] if other is None else to_drawable(other, row, tokens)
    own = "".join(_fact(name, text, "told") for name, text in _checked(notes))
    packed = _pack(patterns, others, names, max_bytes, len(own.encode()))
    facts = [
        *_facts(recording if other is None else other, patterns),
        *_doubts([each for each in (recording, other) if each is not None], patterns, packed),
        *(
            ("Caution", each.caution, "told")
            for each in [*patterns, *others]
            if isinstance(each, Pattern) and each.caution
        ),
    ]
    parts = {
        "title": escape(title),
        "facts": "".join(_fact(*each) for each in facts) + own,
        "manifest": to_embedded_json(packed.manifest),
        "tiles": "\n".join(
            f'<script type="text/plain" id="tile.{name}">{base64.b64encode(tile).decode()}</script>'
            for name, tile in packed.tiles.items()
        ),
    }
    styles = ["page.css", "sections.css", "view/view.css", "print.css"]
    page = make_page("view/view.html", styles, modules_from("view/modules/page.js"), parts)
    size = len(page.encode())
    if size > max_bytes:
        raise WrongUsage(
            f"the page takes {size:,} bytes, of which {max_bytes:,} were allowed; give a larger max_bytes."
        )
    return page


def write_view(path: str | Path, recording: Any, other: Any = None, **options: Any) -> Path:
    """Write `view_page(recording, other, ...)` to a file, and return its path."""
    place = Path(path)
    write_text(place, view_page(recording, other, **options))
    return place


@displayed
@dataclass(frozen=True)
class Shown:
    """A page inside a notebook: a frame that is sealed off from it. `page` is the HTML itself."""

    page: str
    height: int = 900

    def _repr_html_(self) -> str:
        return (
            f'<iframe sandbox="allow-scripts" title="attention" style="width:100%;height:{self.height}px;border:0" '
            f'srcdoc="{html.escape(self.page)}"></iframe>'
        )


def show_page(page: str) -> "Shown | Path":
    """Show a page inside a notebook where this is one, else in the browser, from a file whose path is returned."""
    if is_notebook():
        return Shown(page)
    place = Path(tempfile.mkdtemp(prefix="attnlab-")) / "attention.html"
    write_text(place, page)
    webbrowser.open(place.as_uri())
    return place


def _pack(
    patterns: Sequence[Drawable], others: Sequence[Drawable], names: Sequence[str], max_bytes: int, taken: int
) -> Packed:
    if max_bytes < _LEAST_BYTES:
        raise WrongUsage(f"max_bytes must be {_LEAST_BYTES:,} or more, which an empty page takes; got {max_bytes:,}.")
    taken += _words_size([*patterns, *others])
    if taken >= max_bytes:
        raise WrongUsage(
            f"style, scripts, tokens, facts and notes may take {taken:,} bytes, which leaves no room for the maps; "
            f"give a larger max_bytes than {max_bytes:,}."
        )
    return pack(patterns, others, names=names, max_bytes=max_bytes - taken)


def _words_size(patterns: Sequence[Drawable]) -> int:
    """Bytes of the page beside its tiles, at most: style, scripts, tokens and facts."""
    tokens = {(each.query_tokens, each.key_tokens) for each in patterns}
    letters = sum(len(to_embedded_json([*queries, *keys])) for queries, keys in tokens)
    return _SCRIPT_BYTES + 2 * letters + 600 * sum(each.shape[0] for each in patterns)


def _checked(notes: Sequence[tuple[str, str]]) -> Sequence[tuple[str, str]]:
    for note in notes:
        if isinstance(note, str) or len(note) != 2 or not all(isinstance(each, str) for each in note):
            raise WrongUsage(f"notes are pairs of texts, such as [('Answer', 'yes')]; got {note!r}.")
    return notes


def _fact(name: str, text: str, kind: str = "") -> str:
    look = f' class="{kind}"' if kind else ""
    return f"<div{look}><dt>{escape(name)}</dt><dd>{escape(text)}</dd></div>"


def _doubts(recordings: Sequence[Any], patterns: Sequence[Drawable], packed: Packed) -> Iterator[tuple[str, str, str]]:
    """What a reader would take for something else, if the page did not say it."""
    for why in sorted({why_unjoined(each) for each in recordings} - {""}):
        places = {
            len(each.key_tokens) - len(each.query_tokens)
            for each in patterns
            if each.key_tokens[-len(each.query_tokens) :] == each.query_tokens
        }
        place = f", whose first query stands at place {places.pop()} of the input" if len(places) == 1 else ""
        yield "Shown", f"The last step alone{place}. {why}", "told"
    if packed.manifest.get("change", _SAME + 1) <= _SAME:
        words = (
            f"None: the patterns are the same, no weight differs by more than {_SAME:.6f}. An edit after the weights, "
            "such as of a head's output, changes none of them."
        )
        yield "Difference", words, "told"


def _facts(recording: Any, patterns: Sequence[Drawable]) -> list[tuple[str, str]]:
    """What stands under the title: the model, how much there is, and what was changed."""
    model = getattr(recording, "model", None)
    edits = getattr(recording, "edits", None)
    lengths = sorted({each.shape[1:] for each in patterns}, reverse=True)
    noun = "layer" if len({site_words(each.site)[0] for each in patterns}) == 1 else "attention"
    facts = [
        (
            "Heads",
            f"{sum(each.shape[0] for each in patterns):,} in {len(patterns):,} {plural(len(patterns), noun)}",
        ),
        ("Queries × keys", ", ".join(f"{queries:,} × {keys:,}" for queries, keys in lengths)),
    ]
    if isinstance(model, Mapping) and "kind" in model:
        facts.insert(0, ("Model", str(model["kind"])))
    if edits:
        facts.append(("Edits", "; ".join(map(_edit_words, edits))))
    return facts


def _edit_words(edit: Mapping[str, Any]) -> str:
    told = ", ".join(f"{name}={value!r}" for name, value in edit.items() if name not in ("edit", "version"))
    return f"{edit.get('edit', 'edit')}({told if len(told) < 200 else '…'})"

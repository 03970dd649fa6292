"""Passages: pieces of texts, token by token, in which one token looks at another; both are marked.

Plain HTML that needs no script: who looks is framed, what is looked at is filled, and each is named for who cannot see
that. Tokens that are cut off are told by an ellipsis.
"""

import re
from collections.abc import Mapping
from typing import Any

from attnlab.draw.markup import escape

__all__ = ["passages_to_html"]

_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Line ends, signs that are not seen, and those that turn the order of the letters after them around."""


def passages_to_html(section: Mapping[str, Any]) -> str:
    """Render the groups of a section: a heading, and its passages in a list."""
    return "\n".join(
        f'<details class="passages"{" open" if index == 0 else ""}><summary>{escape(group["title"])}</summary>'
        f"<ol>{''.join(map(_passage, group['items']))}</ol></details>"
        for index, group in enumerate(section["groups"])
    )


def _passage(item: Mapping[str, Any]) -> str:
    is_spaced = any("␣" in token for token in item["tokens"])  # then tokens bring their own blanks
    words = ("" if is_spaced else " ").join(
        _token(token, is_query=place == item["query"], is_key=place == item["key"])
        for place, token in enumerate(item["tokens"])
    )
    return f'<li><p class="note">{escape(item["label"])}</p><p class="passage">{words}</p></li>'


def _token(token: str, *, is_query: bool, is_key: bool) -> str:
    # A sign for the blank is a place where a line may break.
    text = escape(_UNSEEN.sub(lambda found: ascii(found[0])[1:-1], token)).replace(
        "␣", '<span class="blank">␣</span><wbr>'
    )
    if not (is_query or is_key):
        return f"<span>{text}</span><wbr>"
    what = "looks at itself" if is_query and is_key else "looks" if is_query else "is looked at"
    kind = " ".join(name for name, fits in (("query", is_query), ("key", is_key)) if fits)
    return f'<mark class="{kind}" title="{what}">{text}<span class="said"> ({what}) </span></mark><wbr>'

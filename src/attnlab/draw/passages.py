"""Passages: pieces of texts, token by token, with one query and one key marked.

Plain HTML without a script: the query is framed, the key is filled, and both are named for screen
readers. An ellipsis stands for tokens that are cut off.
"""

import re
from collections.abc import Mapping
from typing import Any

from attnlab.draw.markup import escape

__all__ = ["passages_to_html"]

_INVISIBLE = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Line ends, invisible characters, and those that reverse the direction of a text."""


def passages_to_html(section: Mapping[str, Any]) -> str:
    """Render each group of a section as a heading and a list of passages; the first is open."""
    groups = []
    for index, group in enumerate(section["groups"]):
        is_open = " open" if index == 0 else ""
        groups.append(
            f'<details class="passages"{is_open}><summary>{escape(group["title"])}</summary>'
            f"<ol>{''.join(map(_passage, group['items']))}</ol></details>"
        )
    return "\n".join(groups)


def _passage(item: Mapping[str, Any]) -> str:
    is_spaced = any("␣" in token for token in item["tokens"])  # then tokens contain their blanks
    words = ("" if is_spaced else " ").join(
        _token(token, is_query=place == item["query"], is_key=place == item["key"])
        for place, token in enumerate(item["tokens"])
    )
    return f'<li><p class="note">{escape(item["label"])}</p><p class="passage">{words}</p></li>'


def _token(token: str, *, is_query: bool, is_key: bool) -> str:
    visible = _INVISIBLE.sub(lambda found: ascii(found[0])[1:-1], token)
    # A line may break after the sign for a blank.
    text = escape(visible).replace("␣", '<span class="blank">␣</span><wbr>')
    if is_query and is_key:
        kind, what = "query key", "query and key"
    elif is_query:
        kind = what = "query"
    elif is_key:
        kind = what = "key"
    else:
        return f"<span>{text}</span><wbr>"
    return (
        f'<mark class="{kind}" title="{what}">{text}<span class="said"> ({what}) '
        "</span></mark><wbr>"
    )

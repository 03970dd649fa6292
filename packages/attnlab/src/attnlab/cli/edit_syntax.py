"""The syntax of edits: `zero-head layer=0 head=1`, `--zero-head 0.1`, `--cut-edge 3-0`, JSON."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlab.errors import CouldNotRun, WrongUsage, did_you_mean

if TYPE_CHECKING:
    from attnlab.edits import Edit

_EDGE = re.compile(r'(".+"|.+?)-(".+"|-?\d+|-?\d*\.\.-?\d*|[^-]+|-)', re.DOTALL)
"""QUERY-KEY. A key may be a negative number; a key that contains a dash needs quotes."""


def read_edits(
    zero_heads: Sequence[str], cut_edges: Sequence[str], others: Sequence[str], file: Path | None
) -> "list[Edit]":
    """Read the edits of all options: the file, heads, edges, others; none at all is an error."""
    from attnlab.edits import CutEdge, Edit, ZeroHead, edits_from_json
    from attnlab.look.heads import read_head

    edits: list[Edit] = []
    if file is not None:
        try:
            edits += edits_from_json(file.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise CouldNotRun(f"could not read the edits in {file}: {reason}.") from None
    for text in zero_heads:
        edits.append(ZeroHead(**read_head(text)))
    for text in cut_edges:
        edge = _EDGE.fullmatch(text)
        if edge is None:
            raise WrongUsage(f"an edge is QUERY-KEY, such as 3-0 or SEP-a; got {text!r}.")
        query, key = map(_position, edge.groups())
        edits.append(CutEdge(query=query, key=key))
    edits += map(parse_edit, others)
    if not edits:
        raise WrongUsage(
            "name at least one edit: --zero-head 0.1, --cut-edge 3-0, --edit 'redirect-to-first "
            "layer=0 head=1', or --edits FILE; `attnlab edits` lists them all."
        )
    return edits


def parse_edit(text: str) -> "Edit":
    """Read one edit: its name, then its settings.

    >>> parse_edit("zero-head layer=0 head=1")
    ZeroHead(layer=0, head=1)
    """
    from attnlab.edits import Edit
    from attnlab.edits.edit import edit_kinds

    words = text.split()
    if not words:
        raise WrongUsage(
            "an edit is a name and its settings, such as 'zero-head layer=0 head=1'; got nothing."
        )
    kinds = {dashed(name): name for name in edit_kinds()}
    name = dashed(words[0])
    if name not in kinds:
        raise WrongUsage(f"there is no edit {words[0]!r}; {did_you_mean(name, kinds)}")
    form = {"edit": kinds[name]}
    for word in words[1:]:
        key, _, value = parts = word.partition("=")
        if not all(parts):
            raise WrongUsage(f"a setting of an edit is key=value; got {word!r} in {text!r}.")
        if key in form:
            raise WrongUsage(
                f"{key}= is given twice in {text!r}; write several values as a list, {key}=0,1."
            )
        read = _position if key in ("query", "key") else _value
        form[key] = read(value)
    return Edit.from_json(form)


def dashed(name: str) -> str:
    """Return `zero-head` for `ZeroHead`, `zero_head` and `zero-head`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name).replace("_", "-").lower()


def _position(text: str) -> Any:
    """Read a position: a number, a list with commas or in JSON, or a token, quoted or not."""
    if re.fullmatch(r'-?\d+|".*"|\[.*\]', text):
        return _value(text)
    pieces = [piece for piece in text.split(",") if piece]
    if len(pieces) > 1:
        return list(map(_position, pieces))
    return text


def _value(text: str) -> Any:
    """Read a value: JSON, a list with commas, or else the word itself."""
    try:
        return json.loads(text)
    except ValueError:
        pass
    if "," in text:
        return [_value(piece) for piece in text.split(",") if piece]
    return text

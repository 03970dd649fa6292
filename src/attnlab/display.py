"""How results show themselves: a few lines at the prompt, a small table in a notebook.

@displayed
class Lens(NamedTuple): ...

A class says what it shows in a method `_card`. Without one its own `__str__` is shown, and where it
has none, its fields in short. Nothing large is shown whole, and no text from a file can end a tag
or steer a terminal.
"""

import html
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from attnlab.errors import AttnlabError, CouldNotRun

_T = TypeVar("_T")
_LINES, _WIDTH, _LETTERS = 15, 100, 950  # of a repr
_ROWS, _COLUMNS = 20, 12  # of a table in a notebook
_CELL = 60  # letters
_LISTED = 6  # items of a list that are named one by one
_BIDI = (
    0x61C,
    0x200E,
    0x200F,
    *range(0x2028, 0x202F),
    *range(0x2066, 0x206A),
)  # and the ends of lines of Unicode
_HARMLESS = {code: chr(0x2400 + code) for code in range(32) if chr(code) not in "\n\t"}
_HARMLESS |= {0x7F: "␡"} | dict.fromkeys(
    (*range(0x80, 0xA0), *_BIDI, *range(0xD800, 0xE000)), "\ufffd"
)
"""What a terminal would obey or order text by, or could not write, and what is shown instead."""


class Card(NamedTuple):
    """What is shown of a result: a title, facts (name, value), and a table or lines of text."""

    title: str
    facts: Sequence[tuple[str, Any]] = ()
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[Any]] = ()
    lines: Sequence[str] = ()


def displayed(kind: type[_T]) -> type[_T]:
    """Give a class a short `__repr__`, and `_repr_html_` for notebooks unless it has its own."""
    kind.__repr__ = _repr  # type: ignore[method-assign]
    if "_repr_html_" not in vars(kind):
        kind._repr_html_ = _repr_html  # type: ignore[attr-defined]
    return kind


def short(value: Any) -> str:
    """Write a value in few letters: a tensor by its shape, a long list by its length.

    >>> short(0.123456), short(None), short((1, 2)), short(range(1000)), short("a" * 99)[-3:]
    ('0.1235', 'none', '1, 2', '1,000 items', 'aa…')
    """
    if value is None:
        return "none"
    if isinstance(value, float):
        return f"{value:.4g}"
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"{str(value.dtype).removeprefix('torch.')} ({', '.join(map(str, value.shape))})"
    if (
        isinstance(value, Mapping | Sequence)
        and not isinstance(value, str)
        and not hasattr(value, "_fields")
    ):
        if len(value) > _LISTED or isinstance(value, Mapping) or not all(map(_is_plain, value)):
            return f"{len(value):,} item{'s' * (len(value) != 1)}"
        return _clipped(", ".join(map(short, value)), _CELL)
    if hasattr(value, "_repr_html_") or hasattr(value, "_modules"):
        return type(value).__name__
    return _clipped(str(value), _CELL)


def card_text(card: Card, lines: int | None = None) -> str:
    """Write a card as text, at most so many lines; None for all."""
    found = [harmless(card.title)]
    if card.facts:
        wide = max(len(name) for name, _ in card.facts)
        found += [f"  {name:{wide}}  {short(value)}" for name, value in card.facts]
    table = [[short(cell) for cell in row] for row in [card.columns, *card.rows[:lines]] if row]
    if table:
        columns = [_aligned(column, bool(card.columns)) for column in zip(*table, strict=True)]
        found += ["  " + "  ".join(row) for row in zip(*columns, strict=True)]
    total = len(found) + max(0, len(card.rows) - len(card.rows[:lines])) + len(card.lines)
    found += [harmless(line) for line in card.lines[:lines]]
    if lines is None:
        return "\n".join(line.rstrip() for line in found)
    kept: list[str] = []
    for line in found[:lines]:
        line = _clipped(line.rstrip(), _WIDTH)
        if sum(map(len, kept)) + len(kept) + len(line) > _LETTERS:
            break
        kept.append(line)
    more = total - len(kept)
    return "\n".join([*kept, f"… {more:,} more line{'s' * (more != 1)}"] if more else kept)


def harmless(text: str) -> str:
    """Replace characters that could command a terminal or reverse the text; keep line ends and
    tabs.

    >>> harmless("\\x1b[31mred")
    '␛[31mred'
    """
    return text.translate(_HARMLESS)


def frame(rows: Iterable[Mapping[str, Any]]) -> Any:
    """Make a pandas DataFrame of rows.

    Raises:
        CouldNotRun: pandas is not installed.
    """
    try:
        import pandas
    except ImportError:
        raise CouldNotRun(
            "a DataFrame needs pandas, which is not installed; get it with: pip install pandas"
        ) from None
    return pandas.DataFrame(list(rows))


def _card_of(result: Any) -> Card:
    """Return the card of a result, or one that says why it cannot be shown."""
    kind = type(result)
    try:
        if hasattr(result, "_card"):
            card: Card = result._card()
            return card
        if any("__str__" in vars(base) for base in kind.__mro__[:-1]):
            return Card(kind.__name__, lines=str(result).splitlines())
    except AttnlabError as error:
        return Card(f"{kind.__name__}: {error}")
    names = (
        getattr(kind, "_fields", None)
        or getattr(kind, "__dataclass_fields__", None)
        or vars(result)
    )
    told = [(name, getattr(result, name)) for name in names if not name.startswith("_")]
    return Card(kind.__name__, [(name, value) for name, value in told if value is not None])


def _repr(self: Any) -> str:
    return card_text(_card_of(self), _LINES)


def _repr_html(self: Any) -> str:
    card = _card_of(self)
    left = ' style="text-align:left"'
    parts = [f"<p><b>{_escaped(card.title)}</b></p>"]
    if card.facts:
        rows = "".join(
            f"<tr><th{left}>{_escaped(name)}</th><td{left}>{_escaped(short(value))}</td></tr>"
            for name, value in card.facts
        )
        parts.append(f"<table>{rows}</table>")
    if card.rows:
        table = [
            [short(cell) for cell in row[:_COLUMNS]] for row in [card.columns, *card.rows[:_ROWS]]
        ]
        sides = [
            "right" if _are_numbers(column[1:]) else "left" for column in zip(*table, strict=True)
        ]
        lines = [
            "".join(
                f'<{tag} style="text-align:{side}">{_escaped(cell)}</{tag}>'
                for cell, side in zip(row, sides, strict=True)
            )
            for tag, row in zip(["th", *["td"] * len(table)], table, strict=False)
        ]
        body = "".join(f"<tr>{line}</tr>" for line in lines[1:])
        parts.append(f"<table><thead><tr>{lines[0]}</tr></thead><tbody>{body}</tbody></table>")
        parts += [_left_out(len(card.rows), _ROWS, "row")]
        parts += [_left_out(len(card.columns), _COLUMNS, "column")]
    if card.lines:
        parts.append(f"<pre>{_escaped(chr(10).join(card.lines[:_ROWS]))}</pre>")
        parts += [_left_out(len(card.lines), _ROWS, "line")]
    return f'<div style="overflow-x:auto">{"".join(parts)}</div>'


def _left_out(number: int, most: int, noun: str) -> str:
    more = number - most
    return f"<p>… {more:,} more {noun}{'s' * (more > 1)}</p>" if more > 0 else ""


def _aligned(column: Sequence[str], has_head: bool) -> list[str]:
    """Pad the cells of a column: words begin at its left, numbers end at its right."""
    width = max(map(len, column))
    return [
        cell.rjust(width) if _are_numbers(column[has_head:]) else cell.ljust(width)
        for cell in column
    ]


def _are_numbers(cells: Sequence[str]) -> bool:
    try:
        return all(
            float(cell.replace(",", "").replace("none", "nan") or 0) is not None for cell in cells
        )
    except ValueError:
        return False


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, str | int | float)


def _clipped(text: str, most: int) -> str:
    text = harmless(text.replace("\n", " "))
    return text if len(text) <= most else text[: most - 1] + "…"


def _escaped(text: str) -> str:
    return html.escape(harmless(text))

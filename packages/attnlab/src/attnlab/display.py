"""The display of results: a few lines at the prompt, a small table in a notebook.

@displayed
class Lens(NamedTuple): ...

A class defines its display in a method `_card`. Without one its `__str__` is shown, or else its
fields in short. Nothing large is shown whole, and no text from a file can end a tag or control a
terminal.
"""

import html
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import is_dataclass
from typing import Any, NamedTuple, TypeVar

from attnlab.errors import AttnlabError, CouldNotRun

_T = TypeVar("_T")
_LINES, _WIDTH, _LETTERS = 15, 100, 950  # of a repr
_ROWS, _COLUMNS = 20, 12  # of a table in a notebook
_SHORT_CELL, _CELL, _FOLDED_CELL, _LONGEST_WORD = (
    14,
    60,
    240,
    48,
)  # letters; a folded cell has several lines
_LISTED = 6  # items of a list that are named one by one
# And the ends of lines of Unicode.
_BIDI = (0x61C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A))
_HARMLESS = {code: chr(0x2400 + code) for code in range(32) if chr(code) not in "\n\t"}
_HARMLESS[0x7F] = "␡"
_HARMLESS |= dict.fromkeys((*range(0x80, 0xA0), *_BIDI, *range(0xD800, 0xE000)), "\ufffd")
"""Replacements of characters that control a terminal, change the order of text, or cannot be
written."""


class Card(NamedTuple):
    """The display of a result: a title, facts (name, value), and a table or lines of text."""

    title: str
    facts: Sequence[tuple[str, Any]] = ()
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[Any]] = ()
    lines: Sequence[str] = ()


def plain(value: Any) -> Any:
    """Return a result as plain values for JSON: its fields by name, tensors as lists.

    >>> plain(Card("heads", rows=[(1, 0.5)]))["rows"]
    [[1, 0.5]]
    """
    if hasattr(value, "tolist"):
        return value.tolist()
    if hasattr(value, "_asdict"):
        value = value._asdict()
    elif is_dataclass(value):
        value = vars(value)
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    return list(map(plain, value)) if isinstance(value, list | tuple) else value


def displayed(kind: type[_T]) -> type[_T]:
    """Give a class a short `__repr__`, and `_repr_html_` for notebooks unless it has its own."""
    kind.__repr__ = _repr  # type: ignore[method-assign]
    if "_repr_html_" not in vars(kind):
        kind._repr_html_ = _repr_html  # type: ignore[attr-defined]
    return kind


def short(value: Any, most: int = _CELL) -> str:
    """Write a value in few letters, at most so many: a tensor by its shape, a long list by its
    length.

    >>> short(0.123456), short(None), short((1, 2)), short(range(1000)), short("a" * 99)[-3:]
    ('0.1235', 'none', '1, 2', '1,000 items', 'aa…')
    """
    if value is None:
        return "none"
    if isinstance(value, float):
        return f"{value:.4g}"
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"{str(value.dtype).removeprefix('torch.')} ({', '.join(map(str, value.shape))})"
    is_list = isinstance(value, Mapping | Sequence) and not isinstance(value, str)
    if is_list and not hasattr(value, "_fields"):
        return _short_list(value)
    if hasattr(value, "_repr_html_") or hasattr(value, "_modules"):
        return type(value).__name__
    return _clipped(str(value), most)


def _short_list(values: Mapping[Any, Any] | Sequence[Any]) -> str:
    is_few = isinstance(values, Sequence) and len(values) <= _LISTED
    if is_few and all(map(_is_plain, values)):
        return _clipped(", ".join(map(short, values)), _CELL)
    return f"{len(values):,} item{'s' * (len(values) != 1)}"


def card_text(card: Card, lines: int | None = None) -> str:
    """Write a card as text, at most so many lines; None for all."""
    rows = card.rows[:lines]
    table_lines = [*_fact_lines(card.facts), *_table_lines(card.columns, rows, lines)]
    if lines is None:
        text_lines = [harmless(card.title), *table_lines, *map(harmless, card.lines)]
        return "\n".join(map(str.rstrip, text_lines))
    text_lines = [*folded(card.title, _WIDTH), *table_lines]
    for line in card.lines:
        text_lines += folded(line, _WIDTH)
    total = len(text_lines) + len(card.rows) - len(rows)
    kept: list[str] = []
    for line in text_lines[:lines]:
        line = _clipped(line.rstrip(), _WIDTH)
        if sum(map(len, kept)) + len(kept) + len(line) > _LETTERS:
            break
        kept.append(line)
    more = total - len(kept)
    if more:
        kept.append(f"… {more:,} more line{'s' * (more != 1)}")
    return "\n".join(kept)


def folded(text: str, width: int) -> list[str]:
    """Break a line at blanks; what goes on below is further in.

    >>> folded("  a long line", 10)
    ['  a long', '      line']
    """
    text = harmless(text.replace("\n", " ")).rstrip()
    start = " " * (len(text) - len(text.lstrip()))
    lines = textwrap.wrap(
        text.lstrip(),
        width,
        initial_indent=start,
        subsequent_indent=f"{start}    ",
        break_on_hyphens=False,
    )
    return lines or [""]


def _narrowest(cell: str) -> int:
    """Return how narrow a cell may be: short ones are not folded, and usual words not broken."""
    if len(cell) <= _SHORT_CELL:
        return len(cell)
    return min(max(map(len, cell.split()), default=0), _LONGEST_WORD)


def _fact_lines(facts: Sequence[tuple[str, Any]]) -> list[str]:
    wide = max((len(name) for name, _ in facts), default=0)
    return [f"  {name:{wide}}  {short(value)}" for name, value in facts]


def _table_lines(
    columns: Sequence[str], rows: Sequence[Sequence[Any]], lines: int | None = None
) -> list[str]:
    """Write a table; with a limit of lines it fits the prompt, its longest cells folded where there
    are lines enough, else cut."""
    most = _CELL if lines is None else _FOLDED_CELL
    table = [[short(cell, most) for cell in row] for row in (columns, *rows) if row]
    if lines is not None:
        widths = _widths_that_fit(table, _WIDTH - 2)
        whole = _folded_table(table, widths)
        if len(whole) > lines - 2:
            whole = [list(map(_clipped, row, widths)) for row in table]
        table = whole
    aligned = [_aligned(column, bool(columns)) for column in zip(*table, strict=True)]
    return ["  " + "  ".join(row) for row in zip(*aligned, strict=True)]


def _widths_that_fit(table: Sequence[Sequence[str]], width: int) -> list[int]:
    """Narrow the widest columns until a table fits, as far as no word is broken."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    least = [max(map(_narrowest, column)) for column in zip(*table, strict=True)]
    while sum(widths) + 2 * len(widths) - 2 > width:
        rooms = [most - low for most, low in zip(widths, least, strict=True)]
        if max(rooms) <= 0:
            break
        widths[max(range(len(widths)), key=lambda place: (rooms[place] > 0, widths[place]))] -= 1
    return widths


def _folded_table(table: Sequence[Sequence[str]], widths: Sequence[int]) -> list[list[str]]:
    """Fold the cells that are wider than their columns; a row may then be several."""
    lines = []
    for row in table:
        cells = []
        for cell, most in zip(row, widths, strict=True):
            cells.append(textwrap.wrap(cell, most) if len(cell) > most else [cell])
        for line in range(max(map(len, cells))):
            lines.append([cell[line] if line < len(cell) else "" for cell in cells])
    return lines


def count_words(count: int, noun: str) -> str:
    """Write a number with its noun.

    >>> count_words(1, "input"), count_words(1200, "input")
    ('1 input', '1,200 inputs')
    """
    return f"{count:,} {plural(count, noun)}"


def plural(count: int, noun: str) -> str:
    """Return the noun in the number that the count needs.

    >>> plural(1, "claim"), plural(2, "claim")
    ('claim', 'claims')
    """
    return noun if count == 1 else f"{noun}s"


def harmless(text: str) -> str:
    """Replace characters that could command a terminal or reverse the text; keep line ends and
    tabs.

    >>> harmless("\\x1b[31mred")
    '␛[31mred'
    """
    return text.translate(_HARMLESS)


def frame(rows: Iterable[Mapping[str, object]]) -> Any:
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


def card_of(result: Any) -> Card:
    """Return the card of a result, or one with the reason why it has none."""
    kind = type(result)
    try:
        if hasattr(result, "_card"):
            card: Card = result._card()
            return card
        if any("__str__" in vars(base) for base in kind.__mro__[:-1]):
            return Card(kind.__name__, lines=str(result).splitlines())
    except AttnlabError as error:
        return Card(f"{kind.__name__}: {error}")
    names = getattr(kind, "_fields", None) or getattr(kind, "__dataclass_fields__", None)
    facts = []
    for name in names or vars(result):
        if not name.startswith("_") and getattr(result, name) is not None:
            facts.append((name, getattr(result, name)))
    return Card(kind.__name__, facts)


def _repr(self: Any) -> str:
    return card_text(card_of(self), _LINES)


def _repr_html(self: Any) -> str:
    card = card_of(self)
    parts = [f"<p><b>{_escaped(card.title)}</b></p>"]
    if card.facts:
        parts.append(_facts_html(card.facts))
    if card.rows:
        parts.append(_table_html(card.columns, card.rows))
        parts.append(_left_out(len(card.rows), _ROWS, "row"))
        parts.append(_left_out(len(card.columns), _COLUMNS, "column"))
    if card.lines:
        parts.append(f"<pre>{_escaped(chr(10).join(card.lines[:_ROWS]))}</pre>")
        parts.append(_left_out(len(card.lines), _ROWS, "line"))
    return f'<div style="overflow-x:auto" tabindex="0">{"".join(parts)}</div>'  # for the keyboard


def _facts_html(facts: Sequence[tuple[str, Any]]) -> str:
    rows = ""
    for name, value in facts:
        rows += "<tr>" + _cell("th", name, "left") + _cell("td", short(value), "left") + "</tr>"
    return f"<table>{rows}</table>"


def _table_html(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    shown = [row[:_COLUMNS] for row in (columns, *rows[:_ROWS])]
    table = [[short(cell, _FOLDED_CELL) for cell in row] for row in shown]
    sides = list(map(_side_of, zip(*table, strict=True)))
    lines = []
    for tag, row in zip(["th", *["td"] * len(rows)], table, strict=False):
        lines.append("".join(map(_cell, [tag] * len(row), row, sides)))
    body = "".join(f"<tr>{line}</tr>" for line in lines[1:])
    return f"<table><thead><tr>{lines[0]}</tr></thead><tbody>{body}</tbody></table>"


def _cell(tag: str, text: str, side: str) -> str:
    tag = tag if text else "td"  # a header without words is none to who hears the page
    words = _escaped(text).replace("_", "_<wbr>")  # where a long name may be broken
    return f'<{tag} style="text-align:{side}">{words}</{tag}>'


def _side_of(column: Sequence[str]) -> str:
    """Return the side at which a column is aligned; its first cell is its name."""
    return "right" if _are_numbers(column[1:]) else "left"


def _left_out(number: int, most: int, noun: str) -> str:
    more = number - most
    if more <= 0:
        return ""
    return f"<p>… {more:,} more {noun}{'s' * (more > 1)}</p>"


def _aligned(column: Sequence[str], has_head: bool) -> list[str]:
    """Pad the cells of a column: words begin at its left, numbers end at its right."""
    width, pad = max(map(len, column)), str.ljust
    if _are_numbers(column[has_head:]):
        pad = str.rjust
    return [pad(cell, width) for cell in column]


def _are_numbers(cells: Sequence[str]) -> bool:
    try:
        for cell in cells:
            float(cell.replace(",", "").replace("none", "nan") or 0)
    except ValueError:
        return False
    return True


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, str | int | float)


def _clipped(text: str, most: int) -> str:
    text = harmless(text.replace("\n", " "))
    if len(text) > most:
        text = text[: most - 1] + "…"
    return text


def _escaped(text: str) -> str:
    return html.escape(harmless(text))


@displayed
class NumberTable(NamedTuple):
    """A table of numbers that a result can draw.

    title: of the table · label: what the numbers are, with their unit · rows, columns: their names
    · row_title, column_title: what these are, such as layer and head · values:
    `values[row][column]`, NaN where there is none.
    """

    title: str
    label: str
    rows: Sequence[str]
    columns: Sequence[str]
    row_title: str
    column_title: str
    values: Sequence[Sequence[float]]

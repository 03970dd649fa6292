"""Number formats: one style for labels of charts, in figures and on pages, and for table columns.

`wordNumber` in `report/elements.js` follows the same rules, so that a page and its figures agree.
"""

import math
import re
from collections.abc import Sequence
from typing import Any

from attnlab.errors import is_number

_NUMBER = re.compile(r"[+−-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?", re.IGNORECASE)
_PLAIN_EXPONENT = re.compile(r"-?\d(\.\d+)?e\+0\d")  # "%.1e" of numbers from 1 to below 1e10
_MAX_DECIMALS = 4  # shared by all numbers of a column
_MISSING = ("", "n/a", "–", "—", "-")


def number_words(value: float, digits: int = 3) -> str:
    """Format a number with `digits` significant digits, whole numbers in full.

    A number below 1 is never rounded up to 1.

    >>> number_words(0.5), number_words(-0.98765), number_words(12.0), number_words(17312)
    ('0.500', '−0.988', '12', '17,312')
    >>> number_words(0.1215), number_words(0.9995), number_words(0.99999999), number_words(3.16e-5)
    ('0.122', '0.9995', '0.999+', '3.16e−5')
    """
    if not math.isfinite(value):
        return "n/a"
    size = abs(value)
    if size < 1e9 and float(value).is_integer():
        return f"{int(value):,}".replace("-", "−")
    # Decimal ties round up, as a reader expects, though 0.1215 is stored as a little less.
    nudged = value * (1 + 1e-12)
    if size < 1e-4 or size >= 1e9:
        mantissa, exponent = f"{nudged:.{digits - 1}e}".split("e")
        if "." in mantissa:
            mantissa = mantissa.rstrip("0").rstrip(".")
        words = f"{mantissa}e{int(exponent)}"
    elif size >= 10**digits - 0.5:
        words = f"{round(nudged):,}"
    else:
        words = f"{nudged:#,.{digits}g}".rstrip(".")
        if size < 1 and not words.lstrip("-").startswith("0"):
            words = _below_one(nudged, digits + 1)
    return words.replace("-", "−")


def _below_one(value: float, digits: int) -> str:
    """Format a number that would round to 1 or −1 with as many more digits as it needs."""
    for more in range(digits, 6):
        words = f"{value:#.{more}g}"
        if abs(float(words)) < 1:
            return words
    return "-0.999+" if value < 0 else "0.999+"


def is_figure(cell: Any) -> bool:
    """Does a cell of a table hold a number, also as a string?

    >>> is_figure(3), is_figure("1.1e+00"), is_figure("3 of 4"), is_figure(True), is_figure("nan")
    (True, True, False, False, False)
    """
    if isinstance(cell, str):
        return _NUMBER.fullmatch(cell.strip()) is not None
    return is_number(cell)


def is_missing(cell: Any) -> bool:
    """Does a cell stand for a missing number?"""
    if isinstance(cell, str):
        text = cell.strip()
        return text in _MISSING or text.lower() == "nan"
    return cell is None


def cell_words(cell: float | str) -> str:
    """Format a numeric cell: thousands separated, fractions with at most four significant digits.

    A string keeps its digits; only its thousands and a needless exponent are changed.

    >>> cell_words(17312), cell_words(1014.2), cell_words(1.1), cell_words(0.99900847)
    ('17,312', '1,014', '1.1', '0.999')
    >>> [cell_words(cell) for cell in ("1014", "1.1e+00", "3.6e-15", "-1e4", "0.500")]
    ['1,014', '1.1', '3.6e-15', '-1e4', '0.500']
    """
    if isinstance(cell, str):
        text = cell.strip()
        if len(text) < 30 and re.fullmatch(r"-?[1-9]\d{3,}", text):
            return f"{int(text):,}"
        if _PLAIN_EXPONENT.fullmatch(text.lower()):
            return f"{float(text):,.10g}"
        return text
    words = number_words(cell, 4)
    if re.fullmatch(r"−?\d+\.\d+", words):
        return words.rstrip("0").rstrip(".")
    return words


def are_figures(cells: Sequence[Any]) -> bool:
    """Is this a column of numbers, possibly with gaps?"""
    return any(map(is_figure, cells)) and all(is_figure(cell) or is_missing(cell) for cell in cells)


def column_words(cells: Sequence[Any]) -> list[Any]:
    """Format a column of a table, all fractions with the same number of decimals.

    If that takes more than four decimals, each cell is formatted on its own.

    >>> column_words([1.752, 0.7, -0.27, None])
    ['1.752', '0.700', '−0.270', None]
    >>> column_words([12, 0.5]), column_words([0.5, 0.000241])
    (['12', '0.5'], ['0.5', '0.000241'])
    """
    if not are_figures(cells):
        return list(cells)
    words = list(cells)
    fractions, decimals = [], 0
    for place, cell in enumerate(cells):
        if is_figure(cell):
            words[place] = cell_words(cell)
        if isinstance(cell, float) and math.isfinite(cell):
            fractions.append(place)
            decimals = max(decimals, _num_decimals(words[place]))
    if not 0 < decimals <= _MAX_DECIMALS:
        return words
    for place in fractions:
        words[place] = f"{cells[place]:,.{decimals}f}".replace("-", "−")
    return words


def _num_decimals(words: str) -> int:
    if "e" in words:
        return _MAX_DECIMALS + 1
    return len(words.partition(".")[2])

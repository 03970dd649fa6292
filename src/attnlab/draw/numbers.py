"""Numbers in words: one style for the labels of charts, in pictures as on pages, and for the columns of tables.

`wordNumber` in `report/elements.js` words numbers by the same rules, so that a page and its figures never differ.
"""

import math
import re
from collections.abc import Sequence
from typing import Any

__all__ = ["are_figures", "cell_words", "column_words", "is_figure", "is_missing", "number_words"]

_NUMBER = re.compile(r"[+−-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?", re.IGNORECASE)
_PLAIN_EXPONENT = re.compile(r"-?\d(\.\d+)?e\+0\d")  # as "%.1e" writes numbers from 1 to below ten thousand million
_MOST_DECIMALS = 4  # that all numbers of a column are given, where one of them needs as many
_MISSING = ("", "n/a", "–", "—", "-")


def number_words(value: float, digits: int = 3) -> str:
    """Word a number with `digits` significant digits; whole numbers in full, none below 1 rounded up to 1.

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
    # Ties that binary fractions fall short of go up, as a reader expects: 0.1215 is a little less than it says.
    nudged = value * (1 + 1e-12)
    if size < 1e-4 or size >= 1e9:
        mantissa, exponent = f"{nudged:.{digits - 1}e}".split("e")
        words = f"{mantissa.rstrip('0').rstrip('.') if '.' in mantissa else mantissa}e{int(exponent)}"
    elif size >= 10**digits - 0.5:
        words = f"{round(nudged):,}"
    else:
        words = f"{nudged:#,.{digits}g}".rstrip(".")
        if size < 1 and not words.lstrip("-").startswith("0"):
            finer = (f"{nudged:#.{more}g}" for more in range(digits + 1, 6))
            words = next((each for each in finer if abs(float(each)) < 1), "-0.999+" if value < 0 else "0.999+")
    return words.replace("-", "−")


def is_figure(cell: Any) -> bool:
    """Say whether a cell of a table holds a number, in figures or as a string.

    >>> is_figure(3), is_figure("1.1e+00"), is_figure("3 of 4"), is_figure(True), is_figure("nan")
    (True, True, False, False, False)
    """
    if isinstance(cell, str):
        return _NUMBER.fullmatch(cell.strip()) is not None
    return isinstance(cell, int | float) and not isinstance(cell, bool)


def is_missing(cell: Any) -> bool:
    """Say whether a cell stands for a number that is not there."""
    return cell is None or (isinstance(cell, str) and (cell.strip() in _MISSING or cell.strip().lower() == "nan"))


def cell_words(cell: float | str) -> str:
    """Word a cell for which `is_figure` holds: thousands apart, and of a fraction at most four significant digits.

    What comes as a string was worded by somebody; only its thousands and an idle exponent are mended.

    >>> cell_words(17312), cell_words(1014.2), cell_words(1.1), cell_words(0.99900847)
    ('17,312', '1,014', '1.1', '0.999')
    >>> cell_words("1014"), cell_words("1.1e+00"), cell_words("3.6e-15"), cell_words("-1e4"), cell_words("0.500")
    ('1,014', '1.1', '3.6e-15', '-1e4', '0.500')
    """
    if isinstance(cell, str):
        text = cell.strip()
        if re.fullmatch(r"-?[1-9]\d{3,}", text):
            return f"{int(text):,}" if len(text) < 30 else text
        return f"{float(text):,.10g}" if _PLAIN_EXPONENT.fullmatch(text.lower()) else text
    words = number_words(cell, 4)
    return words.rstrip("0").rstrip(".") if re.fullmatch(r"−?\d+\.\d+", words) else words


def are_figures(cells: Sequence[Any]) -> bool:
    """Say whether a column is one of numbers; it may have gaps."""
    return any(map(is_figure, cells)) and all(is_figure(cell) or is_missing(cell) for cell in cells)


def column_words(cells: Sequence[Any]) -> list[Any]:
    """Word a column of a table: its fractions with as many decimals, so that the points stand below each other.

    Where they differ in size by so much that this would take more than four decimals, each is worded by itself.

    >>> column_words([1.752, 0.7, -0.27, None]), column_words([12, 0.5]), column_words([0.5, 0.000241])
    (['1.752', '0.700', '−0.270', None], ['12', '0.5'], ['0.5', '0.000241'])
    """
    if not are_figures(cells):
        return list(cells)
    words = [cell_words(cell) if is_figure(cell) else cell for cell in cells]
    fractions = {i for i, cell in enumerate(cells) if isinstance(cell, float) and math.isfinite(cell)}
    decimals = max((len(words[i].partition(".")[2]) for i in fractions), default=0)
    if not 0 < decimals <= _MOST_DECIMALS or any("e" in words[i] for i in fractions):
        return words
    return [f"{cells[i]:,.{decimals}f}".replace("-", "−") if i in fractions else each for i, each in enumerate(words)]

"""Numbers in words: rounding that never misleads, and the same words in figures and on pages."""

import random
from typing import Any

import pytest

from attnlab.draw.numbers import are_figures, cell_words, column_words, is_figure, number_words

from .documents import make_kinds_document

HARD = """0.1215 0.9995 0.99949 0.99996 0.999996 -0.9999 -0.9999999 0.5 1.0 12 99.95 99.96 999.4
999.6 1014.2 17312 -17312.4 5e8 3e10 1.23e-5 9.999e-5 0.0005 0.00915 0 -0.0 2.5 0.0125"""


@pytest.mark.parametrize("value", [0.9995, 0.99951, 0.99996, 0.999996, 0.9999999])
def test_no_share_below_one_is_rounded_up_to_one(value):
    for words in (
        number_words(value),
        str(cell_words(value)),
        number_words(-value).removeprefix("−"),
    ):
        assert words.startswith("0.999"), words


def test_pages_and_figures_word_numbers_alike(open_page):
    rng = random.Random(0)
    values = [*map(float, HARD.split())] + [
        float(f"{rng.uniform(-1, 1) * 10 ** rng.randint(-6, 6):.7g}") for _ in range(60)
    ]
    document: dict[str, Any] = make_kinds_document()
    document["sections"][1]["series"] = [
        {"name": f"{i}", "x": [1], "y": [y]} for i, y in enumerate(values)
    ]
    read = open_page(document).locator(".lines-section .legend output").all_inner_texts()
    assert read == [f"{number_words(value)} at 1" for value in values]


def test_cells_of_numbers_keep_their_digits_and_words_are_no_figures():
    words = ["1 to 2", "75.7%", "", "-", "e5", "inf", "1,024", "0x10", None, True]
    assert not any(map(is_figure, words))
    assert all(map(is_figure, [1, 0.5, "0.5", "-3", "1e-9", "+2", float("nan")]))
    texts = ("0.5000", "1.10e-07", "1e9", "007", "9.5e+02", "-12345")
    words = ["0.5000", "1.10e-07", "1e9", "007", "950", "-12,345"]
    assert [cell_words(text) for text in texts] == words
    assert are_figures(["1.5", "n/a", "–", ""])
    assert column_words([0.25, "n/a", 1.5]) == ["0.25", "n/a", "1.50"]

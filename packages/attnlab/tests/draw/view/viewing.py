"""What the view shows, read off in a browser: shorthands and the checks that tests."""

import re

from ..attention.patterns import make_pattern
from ..views import hatched, painted

PLACE = re.compile(r"Query (\d+) .* (?:→|attend to) key (\d+) ")
MEASURE = re.compile(r"(?:: |mean )([−+]?[\d.e−]+) ± ([\d.e−]+)$")


def ready(page):
    """Wait until the first head is drawn."""
    page.wait_for_selector("#view[data-ready='true']", timeout=10_000)
    return page


def reading(page):
    return str(page.locator(".attention-view .map-reading").inner_text())


def title(page):
    return str(page.locator(".map-part h2").inner_text())


def number(text):
    return float(text.replace("−", "-"))


def walk_to(page, row, column):
    """Go to a cell with the keyboard alone, from wherever the cursor is, and read it."""
    page.locator("canvas.heatmap").focus()
    page.keyboard.press("Home")
    field = page.get_by_label(re.compile("^(Query|Row)$"))
    field.fill(str(row))
    page.locator("canvas.heatmap").focus()
    page.keyboard.press("Home")
    for _ in range(column):
        page.keyboard.press("ArrowRight")
    return reading(page)


def check_cell(page, pattern, head, row, column):
    """The cell that the keyboard reaches is the one it names."""
    words = walk_to(page, row, column)
    found = PLACE.search(words)
    assert found, words
    assert (int(found[1]), int(found[2])) == (row, column), words
    weight = float(pattern.weights[head, row, column])
    if pattern.blocked is not None and column > row:
        assert words.endswith("masked."), words
        return
    measure = MEASURE.search(words)
    assert measure, words
    value, bound = number(measure[1]), number(measure[2])
    # As it is written: the bound holds for what the digits leave out, too.
    assert abs(value - weight) <= bound + 1e-7 * abs(weight), f"{words}, but {weight}"


def wait_for_title(page, words):
    page.locator(".map-part h2").get_by_text(words, exact=True).wait_for()


def corner(page):
    """Say where the map begins and how large its cells are, in pixels of the window."""
    canvas = page.locator("canvas.heatmap")
    canvas.scroll_into_view_if_needed()
    box, told = canvas.bounding_box(), canvas.evaluate("node => ({...node.dataset})")
    return box["x"] + float(told["left"]), box["y"] + float(told["top"]), float(told["cellWidth"])


def check_pointing(page, row, column):
    """The cell under the pointer is the one that is read."""
    left, top, cell = corner(page)
    page.mouse.move(left + (column + 0.5) * cell, top + (row + 0.5) * cell)
    assert reading(page).startswith(f"Query {row} ‘w{row}’ → key {column} ‘w{column}’: ")


def long_names():
    return make_pattern(queries=64, tokens=[f"token {i}" for i in range(64)])


def check_names_keep_out_of_the_corner(page):
    """No name of a row or column leaves the side of a zoomed map that is moved."""
    page.locator("canvas.heatmap").focus()
    for _ in range(4):
        page.keyboard.press("+")
    left, top, _ = corner(page)
    told = page.locator("canvas.heatmap").evaluate("node => ({...node.dataset})")
    edge = (float(told["left"]) + 4, float(told["top"]) + 4)
    page.mouse.move(left + 200, top + 200)
    page.mouse.down()
    for step in range(1, 11):  # more than the side of a cell
        page.mouse.move(left + 200 - 6 * step, top + 200 + 6 * step)
        names = [each for each in painted(page) if each["text"] not in ("key →", "← query")]
        rows = [each for each in names if each["align"] == "right"]
        columns = [each for each in names if each["isUpright"]]
        assert min(len(rows), len(columns)) > 3
        meeting = [each["text"] for each in rows if each["y"] < edge[1]]
        meeting += [each["text"] for each in columns if each["x"] < edge[0]]
        assert meeting == [], "names meet in the corner"
    page.mouse.up()


def check_masked_cell_is_hatched(page, row, column):
    """A masked cell shows lines; a weight, also zero, is one flat colour."""
    assert hatched(page, 0, row, column), "a masked cell looks like a weight of zero"

"""Checks across the keys of a document: equal lengths, valid ranges, and limits of a page.

`attnlab.draw.document` checks the form of each key first.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from attnlab.errors import WrongUsage

__all__ = ["check_agreement", "check_equal"]

_MAX_MAP_CELLS = 40_000
_MAX_CELLS = 1_000_000
_MAX_BARS = 1_000
_MAX_BOXES = 500
_MAX_ARROWS = 1_000
_MAX_PIXELS = 4_000


def check_agreement(document: Mapping[str, Any]) -> None:
    """Raise `WrongUsage` if parts of a document contradict each other or exceed a page's limits."""
    checks = {
        "lines": _check_lines,
        "bars": _check_bars,
        "maps": _check_maps,
        "diagram": _check_diagram,
        "table": _check_table,
        "passages": _check_passages,
        "trace": _check_traces,
    }
    for index, fact in enumerate(document["facts"]):
        check_equal(f"document.facts[{index}]", "a name and a value", 2, len(fact))
    places: dict[str, str] = {}
    for index, section in enumerate(document["sections"]):
        where = f"document.sections[{index}]"
        if section["kind"] in checks:
            checks[section["kind"]](section, where)
        if "figure" in section:
            name = section["figure"]
            if name in places:
                raise WrongUsage(
                    f"{where}.figure: expected a name of its own, got {name!r} as in {places[name]}"
                )
            places[name] = where


def check_equal(where: str, rule: str, expected: int, got: int) -> None:
    """Raise `WrongUsage` unless two lengths are equal."""
    if expected != got:
        raise WrongUsage(f"{where}: expected {rule}, {expected}, got {got}")


def _check_limit(where: str, what: str, most: int, got: int) -> None:
    if got > most:
        raise WrongUsage(
            f"{where}: expected at most {most:,} {what}, which a page can show, got {got:,}"
        )


def _check_lines(section: Mapping[str, Any], where: str) -> None:
    for index, series in enumerate(section["series"]):
        place = f"{where}.series[{index}]"
        check_equal(place, "as many y as x", len(series["x"]), len(series["y"]))
        _check_interval(series, len(series["y"]), "y", place)
        if "names" in series:
            check_equal(f"{place}.names", "one name per y", len(series["y"]), len(series["names"]))
        for number, band in enumerate(series.get("bands", ())):
            _check_interval(band, len(series["y"]), "y", f"{place}.bands[{number}]")


def _check_bars(section: Mapping[str, Any], where: str) -> None:
    num_groups = len(section["groups"])
    _check_limit(where, "bars", _MAX_BARS, num_groups * len(section["series"]))
    for index, series in enumerate(section["series"]):
        place = f"{where}.series[{index}]"
        check_equal(f"{place}.values", "one value per group", num_groups, len(series["values"]))
        _check_interval(series, num_groups, "value", place)


def _check_interval(series: Mapping[str, Any], length: int, what: str, where: str) -> None:
    """Check an interval: two lists, `low` and `high`, or neither."""
    if ("low" in series) != ("high" in series):
        have, miss = ("low", "high") if "low" in series else ("high", "low")
        raise WrongUsage(f"{where}: expected low and high together, got {have!r} without {miss!r}")
    if "low" not in series:
        return
    check_equal(f"{where}.low", f"one number per {what}", length, len(series["low"]))
    check_equal(f"{where}.high", f"one number per {what}", length, len(series["high"]))
    for index, (low, high) in enumerate(zip(series["low"], series["high"], strict=True)):
        if low is not None and high is not None and low > high:
            raise WrongUsage(f"{where}.low[{index}]: expected low at most high, {high}, got {low}")


def _check_maps(section: Mapping[str, Any], where: str) -> None:
    if not section["choices"]:
        raise WrongUsage(f"{where}.choices: expected one choice or more, got none")
    for index, choice in enumerate(section["choices"]):
        if not choice["maps"]:
            raise WrongUsage(f"{where}.choices[{index}].maps: expected one map or more, got none")
        for number, each in enumerate(choice["maps"]):
            _check_map(each, f"{where}.choices[{index}].maps[{number}]")
    cells = sum(
        len(row) for choice in section["choices"] for each in choice["maps"] for row in each["rows"]
    )
    _check_limit(where, "cells in all maps together", _MAX_CELLS, cells)


def _check_map(each: Mapping[str, Any], where: str) -> None:
    if not each["row_labels"] or not each["column_labels"]:
        raise WrongUsage(f"{where}: expected one row and one column or more, got none")
    check_equal(f"{where}.rows", "one row per label", len(each["row_labels"]), len(each["rows"]))
    num_columns = len(each["column_labels"])
    for index, row in enumerate(each["rows"]):
        check_equal(f"{where}.rows[{index}]", "one number per column", num_columns, len(row))
    num_cells = len(each["rows"]) * num_columns
    _check_limit(f"{where}.rows", "cells", _MAX_MAP_CELLS, num_cells)
    low, high = each["low"], each["high"]
    if low >= high:
        raise WrongUsage(f"{where}.low: expected a number below high, {high}, got {low}")
    if low < 0 and not math.isclose(high, -low):
        raise WrongUsage(
            f"{where}.high: expected two colors around 0, so high = {-low}, as low is {low}; "
            f"got {high}"
        )


def _check_diagram(section: Mapping[str, Any], where: str) -> None:
    width, height = section["width"], section["height"]
    for name in ("width", "height"):
        if not 0 < section[name] <= _MAX_PIXELS:
            raise WrongUsage(
                f"{where}.{name}: expected pixels above 0, at most {_MAX_PIXELS:,}, got "
                f"{section[name]}"
            )
    _check_limit(f"{where}.boxes", "boxes", _MAX_BOXES, len(section["boxes"]))
    _check_limit(f"{where}.arrows", "arrows", _MAX_ARROWS, len(section["arrows"]))
    for index, box in enumerate(section["boxes"]):
        place = f"{where}.boxes[{index}]"
        if box["width"] <= 0 or box["height"] <= 0:
            raise WrongUsage(
                f"{place}: expected a width and a height above 0, got {box['width']} x "
                f"{box['height']}"
            )
        corners = [[box["x"], box["y"]], [box["x"] + box["width"], box["y"] + box["height"]]]
        _check_inside(corners, width, height, place)
    for index, arrow in enumerate(section["arrows"]):
        place = f"{where}.arrows[{index}].points"
        if len(arrow["points"]) < 2:
            raise WrongUsage(f"{place}: expected two points or more, got {len(arrow['points'])}")
        for point in arrow["points"]:
            check_equal(place, "points of x and y", 2, len(point))
        _check_inside(arrow["points"], width, height, place)


def _check_inside(
    points: Sequence[Sequence[float]], width: float, height: float, where: str
) -> None:
    for x, y in points:
        if not (0 <= x <= width and 0 <= y <= height):
            raise WrongUsage(
                f"{where}: expected all of it inside the {width} x {height} picture, got a "
                f"point {x}, {y}"
            )


def _check_table(section: Mapping[str, Any], where: str) -> None:
    for index, row in enumerate(section["rows"]):
        check_equal(
            f"{where}.rows[{index}]", "one cell per column", len(section["columns"]), len(row)
        )


def _check_passages(section: Mapping[str, Any], where: str) -> None:
    for number, group in enumerate(section["groups"]):
        for index, item in enumerate(group["items"]):
            for name in ("query", "key"):
                count = len(item["tokens"])
                if item[name] >= count:
                    place = f"{where}.groups[{number}].items[{index}].{name}"
                    raise WrongUsage(f"{place}: expected one of {count} tokens, got {item[name]}")


def _check_traces(section: Mapping[str, Any], where: str) -> None:
    for index, trace in enumerate(section["traces"]):
        _check_trace(trace, f"{where}.traces[{index}]")


def _check_trace(trace: Mapping[str, Any], where: str) -> None:
    num_tokens = len(trace["tokens"])
    for index, step in enumerate(trace["steps"]):
        place = f"{where}.steps[{index}]"
        num_candidates = len(step["candidates"])
        check_equal(
            place, "one probability per candidate", num_candidates, len(step["probabilities"])
        )
        if step["position"] + 1 >= num_tokens:
            raise WrongUsage(
                f"{place}.position: expected a token after it, below {num_tokens - 1}, got "
                f"{step['position']}"
            )
    for index, head in enumerate(trace["attention"]):
        place = f"{where}.attention[{index}].rows"
        num_keys = len(head.get("key_tokens", trace["tokens"]))
        if len(head["rows"]) > num_tokens:
            raise WrongUsage(
                f"{place}: expected at most {num_tokens} rows, one per token, got "
                f"{len(head['rows'])}"
            )
        widest = max(map(len, head["rows"]), default=0)
        if widest > num_keys:
            raise WrongUsage(f"{place}: expected rows of at most {num_keys} keys, got {widest}")

"""The page of the installation has every extra, and doctor asks for what attnlab needs."""

import re
import tomllib

import extras
import pytest

from attnlab.cli.terminal import table_words

PAGE = extras.PAGE.read_text()


def table(place: str) -> list[list[str]]:
    """Return the rows of a table of the page, without its head."""
    rows = re.search(extras._PLACE.format(place), PAGE, re.S)[2].splitlines()[2:]
    return [[cell.strip(" `") for cell in row.strip("|").split("|")] for row in rows]


def test_the_page_has_each_extra_with_what_it_brings():
    shown = {name: (what, brings) for name, what, brings, _ in table("extras")}
    assert set(shown) == set(extras.extras()) == set(extras.FOR)
    for name, what in extras.FOR.items():
        brings = "the first five" if name == "all" else ", ".join(extras.packages_of(name))
        assert shown[name] == (what.strip("`"), brings)
    assert {name for name, *_ in table("packages")} == {"torch", *extras.PACKAGES}


def test_every_size_is_measured():
    sizes = [row[-1] for place in ("packages", "extras") for row in table(place)]
    assert all(re.fullmatch(r"[\d,]+ MB", size) and size != "0 MB" for size in sizes), sizes
    assert float(extras.size(["numpy"], "pip").split()[0].replace(",", "")) > 10


def test_an_extra_that_the_page_does_not_have_is_seen(monkeypatch):
    monkeypatch.setattr(extras, "FOR_DEVELOPERS", extras.FOR_DEVELOPERS - {"docs"})
    with pytest.raises(AssertionError):
        test_the_page_has_each_extra_with_what_it_brings()


def test_doctor_asks_for_the_packages_that_attnlab_needs_and_offers_those_of_the_extras():
    needed = tomllib.loads(extras.PROJECT.read_text())["project"]["dependencies"]
    versions = dict(re.match(r"([\w-]+)>=([\d.]+)", line).groups() for line in needed)
    assert table_words("needed") == versions
    offered = {name: extra for name, (extra, _) in table_words("optional").items()}
    assert set(offered.values()) == set(extras.extras()) - {"all"}
    for name, extra in offered.items():
        assert name in extras.packages_of(extra)

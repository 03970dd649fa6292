from dataclasses import dataclass

import pytest

from attnlab.draw.figures import section_figures
from attnlab.draw.page import render_page
from attnlab.draw.section import FigureSection
from attnlab.draw.sections import ReportContent
from attnlab.errors import WrongUsage


@dataclass(frozen=True, kw_only=True)
class Quotation(FigureSection):
    """Words of somebody."""

    kind = "quotation"
    look = "Mind who says it."
    template = "<blockquote>{{ section.words }}</blockquote>"
    words: str

    def picture(self):
        """Write the words on an empty figure."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(2, 1))
        figure.text(0, 0, self.words)
        return figure


def report(words):
    own = Quotation(title="Said", caption="By <nobody>.", words=words, figure="said")
    return ReportContent(title="one", subtitle="", facts=[], sections=[own])


def test_a_kind_of_section_from_outside_is_drawn_written_and_read():
    found = report("2 < 3")
    page = render_page(found)
    assert "<blockquote>2 &lt; 3</blockquote>" in page
    assert "Mind who says it." in page
    assert "By &lt;nobody&gt;." in page
    assert ReportContent.from_json(found.to_json()) == found
    assert set(section_figures(found)) == {"said.png", "said.svg"}


def test_a_kind_that_nobody_knows_is_refused_with_those_that_are_known():
    stored = report("x").to_json()
    stored["sections"][0]["kind"] = "quotations"
    with pytest.raises(WrongUsage, match=r"known kind, .*quotation, .*got str 'quotations'"):
        ReportContent.from_json(stored)

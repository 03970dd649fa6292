"""Drawing: reports, pages and figures of results.

`render_page` turns the document of a run into one self-contained interactive HTML page. Nothing
here computes results.
"""

from attnlab.draw.page import render_page

__all__ = ["render_page"]

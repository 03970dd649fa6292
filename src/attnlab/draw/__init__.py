"""Drawing: what a person sees of a run.

`render_page` turns the plain document of a run into one self-contained interactive HTML page. Nothing here
computes results; everything shown was measured before it came here.
"""

from attnlab.draw.page import render_page

__all__ = ["render_page"]

"""What the theme leaves out of its pages for people who use a keyboard or hear them.

Its captions are headings without a level, its two side columns have no names, and what scrolls
sideways cannot be reached by keyboard. A page reads the same without scripts, so all of it is
written into the page.
"""

import re

_CAPTION = re.compile(r'<p class="caption" role="heading">')
_COLUMNS = {"sidebar-drawer": "Site", "toc-drawer": "This page"}
_SCROLLS = re.compile(r'<(pre|div(?= class="table-wrapper))(?=[ >])(?![^>]*tabindex)')


_RESULTS = '<div id="search-results"'  # which stand under no heading of the page
_EMPTY_HEAD = re.compile(r'<th class="head[^"]*">(<p></p>)?</th>')


def accessible(page: str) -> str:
    """Return the HTML of a page with levels of headings, names of columns, and focus."""
    page = _CAPTION.sub('<p class="caption" role="heading" aria-level="2">', page)
    for column, name in _COLUMNS.items():
        page = page.replace(
            f'<aside class="{column}', f'<aside aria-label="{name}" class="{column}'
        )
    page = page.replace(_RESULTS, f"<h1>Search</h1>\n{_RESULTS}")
    page = _EMPTY_HEAD.sub("<td></td>", page)  # the corner of a table, which heads nothing
    return _SCROLLS.sub(r'<\1 tabindex="0"', page)

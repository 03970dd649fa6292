"""What the theme leaves out of its pages, for people who use a keyboard or hear them, and others.

Its menu shows all pages at once, its captions are headings without a level, its two side columns
have no names, and what scrolls sideways cannot be reached by keyboard. A page reads the same
without scripts, so all of it is written into the page.
"""

import re

_GROUP = re.compile(
    r'<p class="caption" role="heading">\s*<span class="caption-text">(.*?)</span></p>\s*'
    r"(<ul.*?</ul>)\s*(?=<p class=\"caption\"|</div>)",
    re.DOTALL,
)
_COLUMNS = {"sidebar-drawer": "Site", "toc-drawer": "This page"}
_SCROLLS = re.compile(r'<(pre|div(?= class="table-wrapper))(?=[ >])(?![^>]*tabindex)')


_RESULTS = '<div id="search-results"'  # which stand under no heading of the page
_EMPTY_HEAD = re.compile(r'<th class="head[^"]*">(<p></p>)?</th>')


def accessible(page: str) -> str:
    """Return the HTML of a page with levels of headings, names of columns, and focus."""
    page = folded_menu(page)
    for column, name in _COLUMNS.items():
        page = page.replace(
            f'<aside class="{column}', f'<aside aria-label="{name}" class="{column}'
        )
    page = page.replace(_RESULTS, f"<h1>Search</h1>\n{_RESULTS}")
    page = _EMPTY_HEAD.sub("<td></td>", page)  # the corner of a table, which heads nothing
    return _SCROLLS.sub(r'<\1 tabindex="0"', page)


def folded_menu(page: str) -> str:
    """Fold each group of the menu but the one of this page; on the first page, but the first."""
    groups = _GROUP.findall(page)
    is_here = [bool(re.match(r'<ul class="current"', pages)) for _, pages in groups]
    here = is_here.index(True) if True in is_here else 0

    def folded(group: re.Match[str]) -> str:
        state = " open" if (group[1], group[2]) == groups[here] else ""
        return (
            f'<details{state}><summary class="caption">{group[1]}</summary>\n{group[2]}</details>'
        )

    return _GROUP.sub(folded, page)

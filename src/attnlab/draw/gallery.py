"""The gallery: one self-contained page of many runs, with a card for each and all their claims.

Like the report it makes no request; the pictures on the cards are inlined. The filter of the table
needs no script: two radio buttons and a CSS rule.
"""

import base64
import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from attnlab.draw.claims import claim_state, judge_all, say_all
from attnlab.draw.markup import escape, make_page, plural
from attnlab.errors import WrongUsage, did_you_mean

__all__ = ["render_gallery"]

_KEYS = (
    "name",
    "href",
    "experiment",
    "title",
    "subtitle",
    "seed",
    "started",
    "state",
    "claims",
    "thumbnail",
)
_STATES = {
    "finished": "finished",
    "running": "still running: its claims are evaluated at the end",
    "unfinished": "unfinished: stopped before its claims were evaluated",
    "damaged": "damaged: one of its files cannot be read",
}
_CLAIM_KEYS = ("name", "statement", "measured", "bound", "passed")
_TALL = 0.75  # height by width above which a picture is cropped at the bottom, not shrunk
_MAX_PICTURE_BYTES = 8_000_000  # in all, so that a page of hundreds of runs opens at once


def render_gallery(title: str, runs: Sequence[Mapping[str, Any]]) -> str:
    """Render one HTML page of runs, in the order given.

    Args:
        title: the page's heading.
        runs: for each run `name`, `href` (the report's path, relative to the page and not yet
            escaped), `experiment`, `title`, `subtitle`, `seed`, `started`, `state` ("finished",
            "running", "unfinished" or "damaged"), `claims` (mappings of name, statement, measured,
            bound, passed; empty unless the run is finished) and `thumbnail` (the bytes of a PNG, or
            None). Pictures beyond 8 MB in all are left out, the last ones first.

    Raises:
        WrongUsage: a key is missing, a state is unknown, or a path is not relative.

    Example:
        >>> "No run is here yet" in render_gallery("Runs", [])
        True
    """
    for index, run in enumerate(runs):
        _check_run(run, f"runs[{index}]")
    parts = {
        "title": escape(title),
        "summary": _summary(runs),
        "claims": _claims_to_html(runs),
        "cards": "\n".join(_cards(runs)) if runs else '<p class="note">No run is here yet.</p>',
    }
    return make_page(
        "gallery.html", ["page.css", "gallery.css", "print.css"], ["theme.js", "gallery.js"], parts
    )


def _check_run(run: Mapping[str, Any], where: str) -> None:
    for key in _KEYS:
        if key not in run:
            raise WrongUsage(
                f"{where}: expected the key {key!r} in a run, got the keys {sorted(map(str, run))}"
            )
    if run["state"] not in _STATES:
        raise WrongUsage(
            f"{where}.state: expected a known state, got {run['state']!r}; "
            f"{did_you_mean(str(run['state']), _STATES)}"
        )
    # A colon before the first slash would make the path a URL with a scheme.
    if not isinstance(run["href"], str) or re.match(r"/|\\|[^/]*:", run["href"]):
        raise WrongUsage(
            f"{where}.href: expected a path relative to the page, got {str(run['href'])[:60]!r}"
        )
    if not isinstance(run["thumbnail"], bytes | None):
        raise WrongUsage(
            f"{where}.thumbnail: expected the bytes of a PNG or None, got "
            f"{type(run['thumbnail']).__name__}"
        )
    for index, claim in enumerate(run["claims"]):
        missing = [key for key in _CLAIM_KEYS if key not in claim]
        if missing:
            raise WrongUsage(f"{where}.claims[{index}]: expected the key {missing[0]!r} in a claim")


def _summary(runs: Sequence[Mapping[str, Any]]) -> str:
    if not runs:
        return "No runs."
    words = [f"{len(runs):,} {plural(len(runs), 'run')}"]
    for state in ("running", "unfinished", "damaged"):
        if count := sum(run["state"] == state for run in runs):
            words.append(f"{count:,} {state}")
    return f"{', '.join(words)}."


def _claims_to_html(runs: Sequence[Mapping[str, Any]]) -> str:
    claims = [(run, claim) for run in runs for claim in run["claims"]]
    if not claims:
        return (
            '<p class="verdict open"><span class="mark" aria-hidden="true">–</span> No claim was '
            "evaluated yet</p>"
        )
    passed = [claim["passed"] for _, claim in claims]
    failed, total = passed.count(False), len(passed)
    style, mark, _ = claim_state(judge_all(passed))
    verdict = (
        f'<p class="verdict {style}"><span class="mark" aria-hidden="true">{mark}</span> '
        f"{say_all(passed)}</p>"
    )
    # Narrow screens show rows as blocks, which are no table for screen readers without the roles.
    head = "".join(
        f'<th scope="col" role="columnheader">{name}</th>'
        for name in ("Verdict", "Run", "Claim", "Measured", "Bound")
    )
    rows = "\n".join(_claim_to_row(run, claim) for run, claim in claims)
    none = "" if failed else '<p class="note none-failed">No claim failed.</p>'
    return (
        f"{verdict}\n"
        '<fieldset class="filter"><legend>Claims shown</legend>'
        f'<label><input type="radio" name="shown" id="all" checked> all ({total:,})</label>'
        f'<label><input type="radio" name="shown" id="failed"> failed ({failed:,})</label>'
        "</fieldset>"
        '<div class="claims-scroll" tabindex="0" role="region" aria-label="All claims">'
        '<table class="claims" role="table">'
        "<caption>What the runs claim, and what was measured</caption>"
        f'<thead role="rowgroup"><tr role="row">{head}</tr></thead>'
        f'<tbody role="rowgroup">\n{rows}\n</tbody></table>'
        f"</div>{none}"
    )


def _claim_to_row(run: Mapping[str, Any], claim: Mapping[str, Any]) -> str:
    state, mark, word = claim_state(claim["passed"])
    name = f"<code>{escape(claim['name'])}</code>"
    return (
        f'<tr role="row" class="{state}"><td role="cell" class="state">'
        f'<span class="mark" aria-hidden="true">{mark}</span> {word}</td>'
        f'<td role="cell" class="run">{_link(run, escape(run["name"]))}</td>'
        f'<th role="rowheader" scope="row">{escape(claim["statement"])}{name}</th>'
        f'<td role="cell" class="figure" data-label="measured">{escape(claim["measured"])}</td>'
        f'<td role="cell" class="figure" data-label="bound">{escape(claim["bound"])}</td></tr>'
    )


def _link(run: Mapping[str, Any], words: str) -> str:
    return f'<a href="{escape(quote(run["href"], errors="replace"))}">{words}</a>'


def _cards(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    cards, bytes_left = [], _MAX_PICTURE_BYTES
    for run in runs:
        picture = run["thumbnail"] or b""
        is_shown = picture.startswith(b"\x89PNG\r\n\x1a\n") and len(picture) <= bytes_left
        if is_shown:
            bytes_left -= len(picture)
        cards.append(_card(run, picture if is_shown else None))
    return cards


def _card(run: Mapping[str, Any], picture: bytes | None) -> str:
    heading = escape(run["title"])
    if run["state"] == "finished":  # any other run has no report to open
        heading = _link(run, heading)
    subtitle = f'<p class="about">{escape(run["subtitle"])}</p>' if run["subtitle"] else ""
    facts = [
        ("run", run["name"]),
        ("experiment", run["experiment"]),
        ("seed", run["seed"]),
        ("started", run["started"]),
    ]
    pairs = "".join(f"<div><dt>{name}</dt><dd>{escape(value)}</dd></div>" for name, value in facts)
    return (
        f'<li class="card {run["state"]}">{_picture(picture, run["state"])}'
        f"<h3>{heading}</h3>{subtitle}{_card_verdict(run)}"
        f'<dl class="facts">{pairs}</dl></li>'
    )


def _picture(picture: bytes | None, state: str) -> str:
    if picture is not None:
        data = base64.b64encode(picture).decode()
        width, height = (int.from_bytes(picture[at : at + 4], "big") for at in (16, 20))
        tall = " tall" if height > _TALL * width else ""
        return f'<img class="picture{tall}" alt="" src="data:image/png;base64,{data}">'
    # A causal attention map whose weights fall with the distance from the diagonal.
    opacities = (0.9, 0.45, 0.16, 0.16, 0.16)
    cells = "".join(
        f'<rect x="{6 + 12 * key}" y="{6 + 12 * query}" width="10" height="10" rx="2" '
        f'opacity="{opacities[query - key]}"/>'
        for query in range(5)
        for key in range(query + 1)
    )
    return (
        f'<svg class="picture none {state}" viewBox="-50 0 170 70" aria-hidden="true">{cells}</svg>'
    )


def _card_verdict(run: Mapping[str, Any]) -> str:
    if run["state"] != "finished":
        return f'<p class="outcome open">{_STATES[run["state"]].capitalize()}</p>'
    passed = [claim["passed"] for claim in run["claims"]]
    if not passed:
        return '<p class="outcome open">No claims</p>'
    verdict = judge_all(passed)
    style, mark, _ = claim_state(verdict)
    words = say_all(passed)
    if not verdict:
        names = [claim["name"] for claim in run["claims"] if claim["passed"] is verdict]
        words += ": " + ", ".join(f"<code>{escape(name)}</code>" for name in names)
    return (
        f'<p class="outcome {style}"><span class="mark" aria-hidden="true">{mark}</span> '
        f"{words}</p>"
    )

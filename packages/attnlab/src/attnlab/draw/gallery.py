"""The gallery: one self-contained page of many runs, with a card for each and all their claims.

Like the report it makes no request; the pictures on the cards are inlined. The filter of the table
needs no script: two radio buttons and a CSS rule.
"""

import base64
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal
from urllib.parse import quote

from attnlab.display import plural
from attnlab.draw.claims import Claim, ClaimState, claim_state, judge_all, sum_up
from attnlab.draw.markup import make_page
from attnlab.errors import WrongUsage

RunState = Literal["finished", "running", "unfinished", "damaged"]

_STATES: dict[RunState, str] = {
    "running": "Still running: its claims are evaluated at the end",
    "unfinished": "Unfinished: stopped before its claims were evaluated",
    "damaged": "Damaged: one of its files cannot be read",
}
_MAX_PICTURE_BYTES = 8_000_000  # in all, so that a page of hundreds of runs opens at once


@dataclass(frozen=True, kw_only=True)
class GalleryRun:
    """One run of a gallery.

    Attributes:
        href: the report's path, relative to the page and not yet escaped.
        claims: empty unless the run is finished.
        thumbnail: the bytes of a PNG.
    """

    name: str
    href: str
    experiment: str
    title: str
    subtitle: str
    seed: int | str
    started: str
    state: RunState
    claims: Sequence[Claim] = ()
    thumbnail: bytes = b""

    def __post_init__(self) -> None:
        """Check that the link stays beside the page."""
        # A colon before the first slash would make the path a URL with a scheme.
        if re.match(r"/|\\|[^/]*:", self.href):
            raise WrongUsage(f"href: expected a path relative to the page, got {self.href[:60]!r}")

    @property
    def url(self) -> str:
        """The link to the report."""
        return quote(self.href, errors="replace")

    @property
    def verdict(self) -> ClaimState:
        """How many claims hold, or why the run has none."""
        if self.state != "finished":
            return ClaimState("open", "", _STATES[self.state])
        if not self.claims:
            return ClaimState("open", "", "No claims")
        return sum_up(self.claims, "")

    @property
    def lacking(self) -> list[Claim]:
        """The claims that failed, or else are undecided."""
        verdict = judge_all([claim.passed for claim in self.claims])
        return [] if verdict else [claim for claim in self.claims if claim.passed is verdict]


def render_gallery(title: str, runs: Sequence[GalleryRun]) -> str:
    """Render one HTML page of runs, in the order given.

    Pictures beyond 8 MB in all are left out, the last ones first.

    Example:
        >>> "No run is here yet" in render_gallery("Runs", [])
        True
    """
    claims = [(run, claim) for run in runs for claim in run.claims]
    listed = [(run, claim) for run, claim in claims if not claim.is_folded]
    return make_page(
        "report/gallery.html",
        ["page.css", "gallery.css", "print.css"],
        "report/gallery.js",
        title=title,
        summary=_summary(runs),
        runs=runs,
        pictures=_pictures(runs),
        claims=listed,
        claim_state=claim_state,
        verdict=sum_up([claim for _, claim in claims], "No claim was evaluated yet"),
        num_open=sum(not claim.passed for _, claim in claims),
    )


def _summary(runs: Sequence[GalleryRun]) -> str:
    if not runs:
        return "No runs."
    words = [f"{len(runs):,} {plural(len(runs), 'run')}"]
    for state in ("running", "unfinished", "damaged"):
        if count := sum(run.state == state for run in runs):
            words.append(f"{count:,} {state}")
    return f"{', '.join(words)}."


def _pictures(runs: Sequence[GalleryRun]) -> list[str]:
    """Return the picture of each run in base64; empty where there is none, or no room."""
    pictures, bytes_left = [], _MAX_PICTURE_BYTES
    for run in runs:
        is_shown = run.thumbnail.startswith(b"\x89PNG\r\n\x1a\n")
        if not is_shown or len(run.thumbnail) > bytes_left:
            pictures.append("")
            continue
        bytes_left -= len(run.thumbnail)
        pictures.append(base64.b64encode(run.thumbnail).decode())
    return pictures

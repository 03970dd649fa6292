"""What attnlab and its peers can do, side by side: docs/compare.md, written from docs/compare.toml.

python docs/compare.py
"""

import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CELLS = ROOT / "docs" / "compare.toml"
PAGE = ROOT / "docs" / "compare.md"
ANSWERS = ("yes", "partly", "no")
OURS = "attnlab"
INTRODUCTION = """\
# Compared with other libraries

<!-- search: compare, comparison, alternatives, better than transformerlens, versus, vs, \
sparse autoencoder, sparse autoencoders, sae, saes, transcoder -->

What each can do out of the box. Where a peer is ahead, the table says so. Each answer of ours leads
to what shows it. The peers' answers are ours too, from running and reading them; tell us where one
is wrong. How quick they are, side by side: [benchmarks](benchmarks.md). What their calls are here:
[coming from](coming-from.md).

{peers}

There are no sparse autoencoders (SAEs) or transcoders in attnlab, and no attribution graphs made of
them. A later release may do more. `docs/compare.py` writes this page from `docs/compare.toml`.
"""


def cells() -> tuple[dict[str, str], dict[str, list[dict[str, str | list[str]]]]]:
    """Return how each peer was looked at, and the rows of each section."""
    sections = tomllib.loads(CELLS.read_text())
    return sections.pop("peers"), sections


def faults() -> Iterator[str]:
    """Yield what is wrong: an answer missing or of another kind, a link that leads nowhere."""
    peers, sections = cells()
    for row in (row for rows in sections.values() for row in rows):
        if set(row) != {"feature", OURS, *peers}:
            yield f"{row['feature']}: has {', '.join(row)}"
            continue
        answer, link = row[OURS]
        if not (ROOT / link).exists():
            yield f"{row['feature']}: {link} is not there"
        for said in (answer, *(row[peer] for peer in peers)):
            if str(said).partition(":")[0] not in ANSWERS:
                yield f"{row['feature']}: {said!r} does not begin with {', '.join(ANSWERS)}"


def page() -> str:
    """Return the page."""
    peers, sections = cells()
    looked = "\n".join(f"- {peer} {how}." for peer, how in peers.items())
    lines = [INTRODUCTION.format(peers=looked)]
    for section, rows in sections.items():
        lines += [f"## {section}", "", f"| | {OURS} | {' | '.join(peers)} |"]
        lines.append("| --- " * (len(peers) + 2) + "|")
        for row in rows:
            answer, link = row[OURS]
            shown = [f"{_shown(answer)} {_link(link)}", *(_shown(str(row[peer])) for peer in peers)]
            lines.append(f"| {row['feature']} | {' | '.join(shown)} |")
        lines.append("")
    return "\n".join(lines)


def _shown(answer: str) -> str:
    kind, _, words = answer.partition(":")
    kind = f"**{kind}**" if kind == "yes" else kind
    return f"{kind}:{words}" if words else kind


def _link(path: str) -> str:
    """Link a page of the site as a page; a benchmark by its page; else name the file."""
    name = Path(path).name
    if path.startswith("docs/"):
        return f"([page]({name}))"
    if path.startswith("benchmarks/"):
        return "([benchmark](benchmarks.md))"
    return f"([test](../{path}))" if "/tests/" in f"/{path}" else f"([{name}](../{path}))"


if __name__ == "__main__":
    PAGE.write_text(page())
    print("\n".join(faults()) or f"wrote {PAGE.relative_to(ROOT)}")

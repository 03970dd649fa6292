"""What shows that a sentence of the pages is so: docs/evidence.md, written from docs/evidence.toml.

A claim is a sentence with a number in it, or with a word such as "never", outside code; a table of
numbers is one claim, under the words of its first row. Each has one entry: a test, a benchmark, a
program, a paper, or what kind of number it is.

    python docs/evidence.py           writes the page, and names what has no entry
"""

import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
ENTRIES = ROOT / "docs" / "evidence.toml"
PAGE = ROOT / "docs" / "evidence.md"
GENERATED = {
    "benchmarks.md",
    "changes.md",
    "commands.md",
    "compare.md",
    "evidence.md",
    "families.md",
}

# Sources other than tests: how they begin, and what they are.
SOURCES = {
    "a benchmark": ("benchmarks/", "run by hand; [its page](benchmarks.md) has date and machine"),
    "a clock": ("measured by hand", "on the date given"),
    "a command": ("attnlab ", "what it prints"),
    "a script": ("examples/|docs/", "run it again to see"),
    "a link": ("https://", "a paper, or another project's page"),
}

# A source may also say what kind of number it is, where nothing has to be shown.
KINDS = {
    "how we count": "how things are counted or written here",
    "a rule": "what is allowed; the program refuses the rest",
    "needed": "what a machine needs",
    "shown there": "the output that follows; the page's blocks are run and compared",
    "a choice": "what a setting is; not a finding",
}
ANY_PAGE = "any page"  # in place of a page, in the entries
CLAIM = re.compile(r"\d|\b(never|always|exactly|identical|cannot)\b|to the bit")
OUTSIDE = r"https://|attnlab \w+|measured by hand, \d{4}-\d\d"
NOT_PROSE = re.compile(
    r"\A---.*?^---$|^```.*?^```$|^ *:::+.*?$|^ *:[\w-]+:.*?$|^#.*?$|<!--.*?-->|<[^>]*>", re.S | re.M
)
CODE = re.compile(r"`[^`]*`|SmolLM2")  # and a name whose digit counts nothing


class Claim(NamedTuple):
    """A sentence of a page that something must show."""

    page: str  # such as docs/look.md
    sentence: str


def pages() -> list[Path]:
    """Return the pages that people read, in the order of the site."""
    docs = [*sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs").glob("*/*.md"))]
    return [ROOT / "README.md", *(page for page in docs if page.name not in GENERATED)]


def claims_of(text: str) -> Iterator[str]:
    """Yield the sentences of a page in Markdown that something must show."""
    text = NOT_PROSE.sub("", text)
    for paragraph in re.split(r"\n\s*\n|\n(?= *[-*] |\d+\. )", text):
        if paragraph.lstrip().startswith("|"):
            head, *rows = paragraph.strip().splitlines()
            if re.search(r"\d", CODE.sub("", " ".join(rows))):
                yield "table: " + " ".join(head.strip("| ").split())
            continue
        words = re.sub(r"\A(?:[-*] )?(?:\*\*)?(?:\d+\. )?", "", " ".join(paragraph.split()))
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", words)  # links
        for sentence in re.split(r"(?<=[.!?:;*]) +(?=[A-Z*\[`])", words):
            if CLAIM.search(CODE.sub("", sentence)) and not sentence.endswith("?"):
                yield sentence


def claims() -> list[Claim]:
    """Return all claims of all pages."""
    return [
        Claim(str(page.relative_to(ROOT)), sentence)
        for page in pages()
        for sentence in claims_of(page.read_text())
    ]


def entries() -> dict[str, dict[str, str | list[str]]]:
    """Return what shows each claim: by page, and by a few words of the sentence."""
    return tomllib.loads(ENTRIES.read_text())


def missing(source: str) -> str:
    """Return what is wrong with a source, or nothing."""
    if source in KINDS or re.match(OUTSIDE, source):
        return ""
    path, _, test = source.partition("::")
    if not (ROOT / path).is_file():
        return f"{path} is not there"
    if test and not re.search(rf"^(async )?def {test}\(", (ROOT / path).read_text(), re.M):
        return f"{path} has no {test}"
    return ""


def matched() -> tuple[list[tuple[Claim, list[str]]], list[str]]:
    """Return each claim with what shows it, and what is wrong: a claim without exactly one entry,
    an entry without a claim, a source that is not there."""
    by_page = entries()
    unused = {(page, words) for page, ours in by_page.items() for words in ours}
    rows, faults = [], []
    for claim in claims():
        found = [
            (page, words)
            for page in (claim.page, ANY_PAGE)
            for words in by_page.get(page, {})
            if words in claim.sentence
        ]
        if len(found) != 1:
            faults.append(f"{claim.page}: {len(found)} entries for: {claim.sentence}")
            continue
        unused.discard(found[0])
        sources = by_page[found[0][0]][found[0][1]]
        sources = [sources] if isinstance(sources, str) else sources
        faults += [f"{claim.page}: {words}" for words in map(missing, sources) if words]
        rows.append((claim, sources))
    faults += [f"{page}: no sentence has: {words}" for page, words in sorted(unused)]
    return rows, faults


def shown(source: str) -> str:
    """Return a source as the page shows it."""
    path, _, test = source.partition("::")
    if source.startswith("attnlab "):
        return f"`{source}`"
    if source in KINDS or re.match(OUTSIDE, source):
        return source
    if path.startswith("benchmarks/"):
        return f"[`{path}`](benchmarks.md)"
    name = path.removeprefix("packages/")
    return f"`{name}`" + (f", {test.removeprefix('test_').replace('_', ' ')}" if test else "")


def kind_of(source: str) -> str:
    """Return the kind of a source, a key of `KINDS` or `SOURCES`."""
    if source in KINDS:
        return source
    for kind, (beginning, _) in SOURCES.items():
        if re.match(beginning, source):
            return kind
    return "a test"


def groups() -> dict[str, list[str]]:
    """Return the pages of each group of the site's menu, the front page and README first."""
    text = (ROOT / "docs" / "index.md").read_text()
    menu = re.findall(r"^:caption: (.+?)\n:hidden:\n(.*?)^```$", text, re.S | re.M)
    first = {"Front page": ["README.md", "docs/index.md"]}
    return first | {name: [f"docs/{page}.md" for page in body.split()] for name, body in menu}


def page() -> str:
    """Return the page."""
    rows, _ = matched()
    counts = Counter(kind_of(source) for _, sources in rows for source in sources)
    lines = [INTRODUCTION.format(count=len(rows)), "| shown by | that is | sentences |"]
    lines.append("| --- | --- | --- |")
    meanings = {kind: meaning for kind, (_, meaning) in SOURCES.items()}
    for kind, meaning in {"a test": "run at every change", **meanings, **KINDS}.items():
        lines.append(f"| {kind} | {meaning} | {counts[kind]} |")
    pages = [name for names in groups().values() for name in names]
    outside = {claim.page for claim, _ in rows} - {*pages}
    assert not outside, f"in no menu of docs/index.md: {outside}"
    for group, names in groups().items():
        by_page = {name: [row for row in rows if row[0].page == name] for name in names}
        if any(by_page.values()):
            lines += ["", f"## {group}"]
        for name, its_rows in by_page.items():
            if its_rows:
                lines += folded(name, its_rows)
    return "\n".join(lines) + "\n"


def folded(name: str, rows: list[tuple[Claim, list[str]]]) -> list[str]:
    """Return the lines of one page: its title, and folded below it a table of its sentences."""
    title = re.search(r"^# (.+)$", (ROOT / name).read_text(), re.M)
    assert title, f"{name} has no title"
    words = "README" if name == "README.md" else title[1]
    words += f" ({len(rows)} sentence{'s' * (len(rows) > 1)})"
    lines = ["", "<details>", f"<summary>{words}</summary>", ""]
    if name != "README.md":
        lines += [f"[Read the page]({name.removeprefix('docs/')})", ""]
    lines += ["| it says | shown by |", "| --- | --- |"]
    for claim, sources in rows:
        sentence = re.sub(r"\*\*|^\*", "", claim.sentence).replace("|", "·")
        lines.append(f"| {sentence} | {'; '.join(map(shown, sources))} |")
    return [*lines, "", "</details>"]


INTRODUCTION = """\
# Evidence

The pages have {count} sentences with a number, or with a word such as *never*. Below, page by page,
is what shows that each is true. `docs/evidence.py` writes this page, and a test fails if a sentence
has no source, or a source is gone.
"""


def main() -> int:
    """Write the page, or say what has no source."""
    _, faults = matched()
    PAGE.write_text(page())
    print("\n".join(faults) or f"wrote {PAGE.relative_to(ROOT)}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())

"""README.md of this folder, and the figures on the first page of the repository, from results/.

    python benchmarks/page.py

`page.md.j2` is this folder's page, `why.md.j2` the five points of the repository's README. Their
words are written by hand, and every measured number comes from a result.
"""

import math
import re
from collections.abc import Callable
from pathlib import Path
from textwrap import fill

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from results import RESULTS, Row, Table, read_tables
from timing import Ratio

HERE = Path(__file__).parent
PAGE, README = HERE / "README.md", HERE.parent / "README.md"
FAMILIES = HERE.parent / "docs" / "families.md"
START, END = "<!-- make bench writes these lines: benchmarks/why.md.j2 -->", "<!-- until here -->"

COUNTS = ("none", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def figure(value: float) -> str:
    """Write a value with three digits, 1,234 and 0.123; a count as a count."""
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{digits}f}"


def times(value: float) -> str:
    """Write a ratio: 0.85, 12.3, 503."""
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def spread(found: Ratio, write: Callable[[float], str] = times) -> str:
    """Write a median with its quartiles, where there was more than one round."""
    if found.low == found.high:
        return write(found.median)
    return f"{write(found.median)} [{write(found.low)}, {write(found.high)}]"


def markdown(table: Table) -> str:
    """Write a table in Markdown, with the conditions under which it was measured."""
    names = list(dict.fromkeys(name for row in table.rows for name in row.values))
    units = {row.unit for row in table.rows}
    has_lead = any(_competes(table, row) for row in table.rows)
    has_notes = any(row.note for row in table.rows)
    head = ["", *(_title(table, name, units) for name in names)]
    head += [f"{table.ours[0]} / best peer"] * has_lead + [""] * has_notes
    lines = [_line(head), _line(["---"] * len(head))]
    for row in table.rows:
        label = row.what if len(units) == 1 else f"{row.what} ({row.unit})"
        cells = [label, *(_cell(table, row, name) for name in names)]
        if has_lead:
            cells.append(f"{spread(row.lead)} of {row.best_peer}" if row.lead else "")
        lines.append(_line(cells + [row.note] * has_notes))
    limit = f" The limit: {table.limit}." if table.limit else ""
    return "\n".join([f"**{_capital(table.what)}**.{limit}", "", *lines, "", conditions(table)])


def conditions(table: Table) -> str:
    """Say when, where, with what and beside how much other work a table was measured."""
    versions = ", ".join(f"{name} {version}" for name, version in table.versions.items())
    rounds = f"{table.rounds} interleaved rounds" if table.rounds > 1 else "one round"
    if table.others is None:
        work = "other work on the machine not recorded"
    else:
        load = " to ".join(f"{each:.1f}" for each in table.load or [])
        work = f"load {load}, {table.others:.2f} cores taken by other programs"
        work = f"**a busy machine**: {work}" if table.is_busy() else work
    threads = f"{table.threads} thread{'s' * (table.threads != 1)}"
    return (
        f"*{table.date}: {table.machine}, {table.cores} cores, {threads}; {rounds}; {work}; "
        f"{versions}.*"
    )


class Results:
    """The results as the templates ask for them."""

    def __init__(self) -> None:
        self.tables = {path.stem: read_tables(path.stem) for path in sorted(RESULTS.glob("*.json"))}

    def table(self, file: str, name: str) -> str:
        """Return a whole table in Markdown."""
        found = self.tables.get(file, {}).get(name)
        if found is None:
            return f"*Not measured yet in this form: `python benchmarks/{file}.py`.*"
        return markdown(found)

    def row(self, file: str, name: str, what: str) -> Row:
        """Return one row."""
        return self.tables[file][name].row(what)

    def headline(self, file: str, name: str, what: str) -> str:
        """Return two cells: ours over the best other, of times or sizes, and who that is.

        Below 1 ours is ahead, also where the table itself says how many times as fast; a loss is
        bold.
        """
        table = self.tables[file][name]
        row = table.row(what)
        lead = row.lead or row.ratios[table.ours[0]]
        share = 1 / lead.median if table.better == "higher" else lead.median
        said = times(share) if share >= 0.1 else f"1/{1 / share:,.0f}"
        return f"{f'**{said}**' if table.is_loss(row) else said} | {row.best_peer}"

    def contests(self, *tables: tuple[str, str]) -> str:
        """Count the rows of some tables that have a best other, and those where ours is behind."""
        held = [
            table.is_loss(row)
            for table in (self.tables[file][name] for file, name in tables)
            for row in table.rows
            if row.best_peer
        ]
        return f"{len(held)} rows; in **{sum(held)}** attnlab is behind"

    def wrong(self, contestant: str) -> str:
        """Count the compiled programs that are wrong on some input, in words."""
        rows = self.tables["compilers"]["errors"].rows
        count = sum(row.values[contestant].median > 0 for row in rows)
        return dict(enumerate(COUNTS)).get(count, f"{count}")

    def machine(self, *tables: tuple[str, str]) -> str:
        """Name the machines of some tables, with the dates, and say which were busy."""
        found = [self.tables[file][name] for file, name in tables]
        machines = sorted(
            {f"{each.machine}, {each.cores} cores, {each.date[:7]}" for each in found}
        )
        busy = "; **busy with other work**" if any(each.is_busy() for each in found) else ""
        return "; ".join(machines) + busy

    def families(self) -> str:
        """Return the number of families, which their page says."""
        found = re.search(r"(\d+) families", FAMILIES.read_text())
        assert found, f"{FAMILIES} says no number of families"
        return found[1]


def ratio(row: Row, contestant: str) -> str:
    """Write a contestant's ratio to the reference."""
    return times(row.ratios[contestant].median)


def render(template: str) -> str:
    """Fill a template with the results."""
    environment = Environment(
        loader=FileSystemLoader(HERE), undefined=StrictUndefined, trim_blocks=True
    )
    return environment.get_template(template).render(results=Results(), ratio=ratio) + "\n"


def readme_text() -> str:
    """Return the repository's README with the figures of now."""
    before, _, rest = README.read_text().partition(START)
    _, _, after = rest.partition(END)
    first, *points = (" ".join(part.split()) for part in render("why.md.j2").split("\n\n"))
    lines = "\n".join(_filled(point) for point in points)
    return f"{before}{START}\n{_filled(first)}\n\n{lines} {END}{after}"


def main() -> None:
    """Write both pages."""
    PAGE.write_text(render("page.md.j2"))
    README.write_text(readme_text())
    print(f"{PAGE}\n{README}")


def _filled(text: str) -> str:
    indent = "  " if text.startswith("-") else ""
    return fill(text, 122, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _competes(table: Table, row: Row) -> bool:
    """Is there a best peer that the cells of ours do not name already?"""
    return row.lead is not None and (row.best_peer != table.reference)


def _title(table: Table, name: str, units: set[str]) -> str:
    if len(units) == 1 and (table.reference is None or name == table.reference):
        return f"{name} ({next(iter(units))})"
    return name


def _cell(table: Table, row: Row, name: str) -> str:
    if name not in row.values:
        return ""
    said = spread(row.ratios[name]) if name in row.ratios else spread(row.values[name], figure)
    is_loss = name == table.ours[0] and table.is_loss(row)
    return f"**{said}**" if is_loss else said


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


if __name__ == "__main__":
    main()

"""The one form of a result: tables in `results/NAME.json`, from which `page.py` makes README.md.

A table says what was measured, when, on which machine, with which versions, and how busy the
machine was with other work. A row has the values of each contestant, one a round; kept are the
median and the quartiles, of the values and of their ratios to the reference, round by round.
"""

import importlib.metadata
import importlib.util
import json
import os
import platform
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import psutil
import torch

from timing import Ratio, ratio, spread

__all__ = ["RESULTS", "Row", "Table", "leave_without", "measured", "read_tables"]

RESULTS = Path(__file__).parent / "results"
NOT_MEASURED = 3  # exit status where a peer is not installed


@dataclass(frozen=True)
class Row:
    """One line of a table.

    values: each contestant's median and quartiles, in `unit`. ratios: to the reference, by round.
    lead: ours to the best peer, by round; None where there is no peer, or a count of 0.
    """

    what: str
    unit: str
    values: dict[str, Ratio]
    ratios: dict[str, Ratio] = field(default_factory=dict)
    best_peer: str | None = None
    lead: Ratio | None = None
    note: str = ""


@dataclass
class Table:
    """Rows that were measured together, and everything a reader must know to judge them.

    ours: the contestants that are attnlab, the default one first. reference: what the ratios are
    taken of. peers: those that ours is held against; by default all others, and the reference where
    there are no others. better: "lower" or "higher" of a ratio or value;
    with "higher" a ratio is the reference's time over the contestant's, "times as fast". limit:
    what physics or arithmetic allows, in a sentence. others: cores that other programs took
    meanwhile, on average; None where that was not recorded.
    """

    what: str
    ours: list[str]
    reference: str | None = None
    peers: list[str] = field(default_factory=list)
    better: str = "lower"
    rounds: int = 1
    threads: int = 1
    limit: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    date: str = ""
    machine: str = ""
    cores: int = 0
    load: list[float] | None = None
    others: float | None = None
    rows: list[Row] = field(default_factory=list)

    def add(
        self, what: str, values: Mapping[str, Sequence[float]], *, unit: str = "s", note: str = ""
    ) -> Row:
        """Add a row of the values that the rounds gave; print it."""
        kept = {name: spread(list(found)) for name, found in values.items()}
        ratios, lead, best = {}, None, None
        if self.reference is not None:
            reference = values[self.reference]
            ratios = {
                name: self._compared(found, reference)
                for name, found in values.items()
                if name != self.reference
            }
        peers = self.peers or [name for name in values if name not in [*self.ours, self.reference]]
        peers = [name for name in peers or [self.reference] if name in values]
        if peers and self.ours[0] in values:
            best = self._best(peers, kept)
            if all(map(all, (values[self.ours[0]], values[best]))):  # a count of 0 has no ratio
                lead = self._compared(values[self.ours[0]], values[best])
        row = Row(what, unit, kept, ratios, best, lead, note)
        self.rows.append(row)
        print(f"  {what}: {self._line(row)}", flush=True)
        return row

    def is_loss(self, row: Row) -> bool:
        """Is ours behind the best peer of this row?"""
        if row.best_peer is None:
            return False
        if row.lead is not None:
            ours, theirs = row.lead.median, 1.0
        else:
            ours, theirs = (row.values[name].median for name in (self.ours[0], row.best_peer))
        return ours < theirs if self.better == "higher" else ours > theirs

    def is_busy(self) -> bool:
        """Did other programs take more than a tenth of a core?"""
        return self.others is not None and self.others > 0.1

    def row(self, what: str) -> Row:
        """Return the row of a name."""
        return next(row for row in self.rows if row.what == what)

    def _compared(self, ours: Sequence[float], theirs: Sequence[float]) -> Ratio:
        if self._is_speed():
            return ratio(list(theirs), list(ours))
        return ratio(list(ours), list(theirs))

    def _is_speed(self) -> bool:
        """Values are times, and ratios say how many times as fast."""
        return self.better == "higher" and self.reference is not None

    def _best(self, peers: list[str], kept: Mapping[str, Ratio]) -> str:
        is_lower = self.better == "lower" or self._is_speed()
        return (min if is_lower else max)(peers, key=lambda name: kept[name].median)

    def _line(self, row: Row) -> str:
        cells = (
            f"{name} {row.ratios.get(name) or f'{value} {row.unit}'}"
            for name, value in row.values.items()
        )
        return "; ".join(cells) + (f"; {row.note}" if row.note else "")


@contextmanager
def measured(
    file: str,
    name: str,
    what: str,
    *,
    packages: Sequence[str] = (),
    keep: bool = True,
    **options: Any,
) -> Iterator[Table]:
    """Measure one table, and write it to `results/FILE.json` in place of the last of its name.

    packages: distributions whose versions belong to the result, beside torch. keep: write it; a
    run that only tries the program does not.
    """
    table = Table(what, threads=torch.get_num_threads(), date=f"{date.today()}", **options)
    table.machine, table.cores = _processor(), os.cpu_count() or 0
    table.versions = {each: importlib.metadata.version(each) for each in ("torch", *packages)}
    print(f"{file}, {name}: {what}", flush=True)
    load, began = os.getloadavg()[0], time.monotonic()
    busy, own = _busy_seconds(), _own_seconds()
    yield table
    elapsed = max(time.monotonic() - began, 1e-9)
    others = (_busy_seconds() - busy) - (_own_seconds() - own)
    table.load = [round(load, 2), round(os.getloadavg()[0], 2)]
    table.others = round(max(0.0, others / elapsed), 2)
    if not keep:
        return
    tables = read_tables(file) | {name: table}
    path = RESULTS / f"{file}.json"
    path.write_text(
        json.dumps({key: asdict(each) for key, each in sorted(tables.items())}, indent=1) + "\n"
    )


def read_tables(file: str) -> dict[str, Table]:
    """Read the tables of a program; none where it has not been run yet."""
    path = RESULTS / f"{file}.json"
    if not path.exists():
        return {}
    found = {}
    for name, fields in json.loads(path.read_text()).items():
        rows = [_row(each) for each in fields.pop("rows")]
        found[name] = Table(**fields, rows=rows)
    return found


def leave_without(*modules: str) -> None:
    """End the program where a peer is not installed; its last result stays, with its date."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        print(
            f"{Path(sys.argv[0]).name}: not installed here: {', '.join(missing)}. The last result "
            "stays, with its date. `make bench` installs all peers in an environment of their own.",
            file=sys.stderr,
        )
        raise SystemExit(NOT_MEASURED)


def _row(fields: dict[str, Any]) -> Row:
    for name in ("values", "ratios"):
        fields[name] = {key: Ratio(*each) for key, each in fields[name].items()}
    fields["lead"] = Ratio(*fields["lead"]) if fields["lead"] else None
    return Row(**fields)


_KINDS = {("25", "1"): "Zen 3", ("25", "17"): "Zen 4", ("26", "2"): "Zen 5"}
"""Processors by family and model, where the name hides what they are."""


def _processor() -> str:
    """Name the processor and its vectors, as far as the system tells."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    facts = {
        key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)
    }
    name = facts.get("model name", platform.processor() or platform.machine())
    if "cpu family" in facts:
        kind = facts["cpu family"], facts["model"]
        name += f" ({_KINDS.get(kind, f'family {kind[0]}, model {kind[1]}')})"
    return f"{name}, {torch.backends.cpu.get_cpu_capability()}"


def _busy_seconds() -> float:
    times = psutil.cpu_times()
    return sum(times) - times.idle - getattr(times, "iowait", 0.0) - getattr(times, "guest", 0.0)


def _own_seconds() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system

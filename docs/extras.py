"""What each extra of attnlab brings, and its size: the tables of docs/install.md.

    python docs/extras.py             measures what is installed here, and writes the tables

A size is that of the files of the packages that an extra brings and attnlab alone does not, as they
are installed in the environment that runs this; it must have all of them (`make .venv/slow.done`).
"""

import importlib.metadata
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "install.md"
PROJECT = ROOT / "packages" / "attnlab" / "pyproject.toml"
sys.path.insert(0, str(ROOT / "benchmarks"))

from start import megabytes, needs  # noqa: E402

FOR = {
    "plot": "figures as PNG, SVG and PDF, and `attnlab.plot`",
    "baseline": "the baseline of `attnlab run sentiment`",
    "text": "subword tokens, and texts in Parquet files",
    "hf": "pretrained models: folders, GGUF files, hub ids",
    "optuna": "`attnlab tune`",
    "ray": "sweeps and censuses on a Ray cluster",
    "slurm": "sweeps and censuses in jobs of SLURM",
    "notebook": "live pages in JupyterLab and marimo",
    "all": "everything but clusters and notebooks",
}
FOR_DEVELOPERS = {"test", "slow", "check", "docs", "release", "bench"}
PACKAGES = {
    "attnlab": "the library and the command line",
    "attnlab-course": "exercises and grading: `attnlab course`, `attnlab grade`",
    "attnlab-lab": "the lab in the browser: `attnlab lab`",
}
BRINGS = {  # what pip installs with each, which an installation for developers does not tell
    "attnlab": ["attnlab"],
    "attnlab-course": ["attnlab-course", "matplotlib"],
    "attnlab-lab": ["attnlab-lab", "matplotlib", "fastapi", "uvicorn"],
}

_PLACE = r"(<!-- {} -->\n)(.*?)(<!-- until here -->)"


def extras() -> dict[str, list[str]]:
    """Return the extras that users install, each with what it names."""
    told: dict[str, list[str]] = tomllib.loads(PROJECT.read_text())["project"][
        "optional-dependencies"
    ]
    return {name: lines for name, lines in told.items() if name not in FOR_DEVELOPERS}


def packages_of(extra: str) -> list[str]:
    """Return the packages that an extra names; those of `all` are those of its extras."""
    found = []
    for line in extras()[extra]:
        if inner := re.fullmatch(r"attnlab\[(.*)\]", line):
            found += [package for name in inner[1].split(",") for package in packages_of(name)]
        else:
            found.append(re.match(r"[\w.-]+", line)[0])  # type: ignore[index]
    return found


def size(names: list[str], there: str) -> str:
    """Return the size of packages with all that they need, beside what is there already."""
    for name in names:
        importlib.metadata.version(name)  # an error where it is not installed
    brought = set().union(*map(needs, names)) - needs(there)
    return f"{sum(map(_megabytes, brought)):,.0f} MB"


def _megabytes(name: str) -> float:
    """Return the size of a package; of ours, which are installed in place, that of their source."""
    source = ROOT / "packages" / name / "src"
    if not source.is_dir():
        return megabytes(name)
    return sum(file.stat().st_size for file in source.rglob("*") if file.suffix != ".pyc") / 1e6


def tables() -> dict[str, str]:
    """Return the two tables, under the words of their places."""
    head = "| package | for | size |\n| --- | --- | --- |\n"
    torch = f"| `torch` | what everything is computed with | {size(['torch'], 'pip')} |\n"
    packages = head + torch
    for name, what in PACKAGES.items():
        there = "torch" if name == "attnlab" else "attnlab"
        packages += f"| `{name}` | {what} | {size(BRINGS[name], there)} |\n"
    rows = "| extra | for | brings | size |\n| --- | --- | --- | --- |\n"
    for name, what in FOR.items():
        names = packages_of(name)
        brings = "the first five" if name == "all" else ", ".join(names)
        rows += f"| `{name}` | {what} | {brings} | {size(names, 'attnlab')} |\n"
    return {"packages": packages, "extras": rows}


def page(text: str) -> str:
    """Return the page with tables that are measured now."""
    for place, table in tables().items():
        text, count = re.subn(
            _PLACE.format(place), lambda m, t=table: m[1] + t + m[3], text, flags=re.S
        )
        if count != 1:
            raise SystemExit(f"{PAGE.name} has {count} places for the table of {place}")
    return text


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
    print(f"wrote the tables of {PAGE.relative_to(ROOT)}")

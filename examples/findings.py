"""What the worked findings share: their arguments, claims with a bound, and the report that each
leaves behind.

A finding becomes a run folder like any other: `report.html` (one page that asks the network for
nothing), its tables as CSV, its figures, its claims; `index.html` beside the folders is the gallery
of all of them.
"""

import argparse
import datetime
import math
import resource
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import small_models
import torch

from attnlab.draw.sections import ReportContent
from attnlab.experiments.claims import Claim
from attnlab.experiments.folder import free_name
from attnlab.experiments.gallery import write_gallery
from attnlab.experiments.report import Report, versions
from attnlab.pretrained.model import Pretrained
from attnlab.seeds import generator

GALLERY = Path("runs/gallery")
QUICK = "a small sample, to see that all of it works; its figures say little"


@dataclass
class Finding:
    """One finding while it is being made: claims, facts and sections in the order in which they are
    added."""

    name: str
    title: str
    subtitle: str
    options: argparse.Namespace
    claims: list[Claim] = field(default_factory=list)
    sections: list[dict[str, Any]] = field(default_factory=list)
    facts: list[list[str]] = field(default_factory=list)

    def claim(self, name: str, statement: str, measured: str, bound: str, passed: bool) -> None:
        """Add a claim, whether it holds or not."""
        self.claims.append(Claim(name, statement, measured, bound, bool(passed)))

    def asked(self, description: str | None) -> None:
        """Say what was asked: the script's own words, but for how it is called."""
        parts = (description or "").replace("`", "").split("\n\n")[2:]
        self.text("What was asked", "\n\n".join(" ".join(part.split()) for part in parts))

    def text(self, title: str, text: str) -> None:
        """Add paragraphs."""
        self.sections.append({"kind": "text", "title": title, "text": text})

    def after_a_look(self, *names: str) -> None:
        """Say which claims were worded, or their bounds set, after the same data had been seen."""
        words = ", ".join(names[:-1]) + f" and {names[-1]}" if names[1:] else names[0]
        claims, they = (
            (f"Claims {words} were", "They describe")
            if names[1:]
            else (f"Claim {words} was", "It describes")
        )
        self.text(
            "Worded after a first look",
            f"{claims} worded, or given a bound, after a first look at the same data. {they} what "
            "is there; new data would be the test.",
        )

    def table(
        self, title: str, caption: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]
    ) -> None:
        """Add a table; it is written as CSV too."""
        table = {
            "title": title,
            "caption": caption,
            "columns": list(columns),
            "rows": [list(row) for row in rows],
        }
        self.sections.append({"kind": "table", **table})

    def add(self, kind: str, title: str, caption: str, **more: Any) -> None:
        """Add a section of any other kind; see `attnlab.draw.sections`."""
        self.sections.append({"kind": kind, "title": title, "caption": caption, **more})

    def finish(self, model: Pretrained) -> Report:
        """Write the report and the gallery, and print the claims."""
        wall, work = time.perf_counter() - self.options.began, time.process_time()
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        threads = torch.get_num_threads()
        cost = (
            f"{work:.0f} s of processor time, {wall:.0f} s by the clock, {threads} "
            f"thread{'s' * (threads != 1)}"
        )
        facts = [
            ["model", model.name],
            ["parameters", f"{sum(each.numel() for each in model.foreign.parameters()):,}"],
            *self.facts,
            ["a head's name", "layer.head, both counted from 0"],
            ["in brackets", "95 % intervals"],
            ["took", f"{cost}; at most {memory / 1e9:.1f} GB of memory"],
        ]
        if self.options.quick:
            facts.append(["sample", QUICK])
        config = {
            "experiment": self.name,
            "seed": self.options.seed,
            "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "settings": {"quick": self.options.quick},
            "versions": versions(),
            "model": {"name": model.name},
        }
        plain = {
            "title": self.title,
            "subtitle": self.subtitle,
            "facts": facts,
            "sections": self.sections,
        }
        content = ReportContent.from_json(plain)
        report = Report(self.name, config, tuple(self.claims), [], content)
        folder = report.save(self.options.out or free_name(GALLERY, self.name))
        gallery = write_gallery(folder.parent)
        print(f"{report}\n{cost}\nwritten: {folder}/report.html, gallery: {gallery}")
        return report


def arguments_of(description: str, arguments: list[str] | None) -> argparse.Namespace:
    """Read what every finding takes."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(
        "--models", type=Path, default=small_models.USUAL_FOLDER, help="where models are kept"
    )
    parser.add_argument(
        "--wheels", type=Path, help="a folder with their wheels, so that nothing is downloaded"
    )
    parser.add_argument(
        "--out", type=Path, help="a new folder for the report; runs/gallery/NAME by default"
    )
    parser.add_argument("--seed", type=int, default=0, help="of what is drawn at random")
    parser.add_argument("--quick", action="store_true", help=QUICK)
    options = parser.parse_args(arguments)
    options.began = time.perf_counter()
    return options


def within(value: float, low: float, high: float, digits: int = 2) -> str:
    """Word an estimate with its interval: 0.94 [0.91, 0.96]."""
    return f"{number(value, digits)} [{number(low, digits)}, {number(high, digits)}]"


def number(value: float, digits: int = 2) -> str:
    """Word a number with a true minus, and no zero below zero: −0.07."""
    words = f"{value:.{digits}f}"
    return words.lstrip("-") if float(words) == 0 else words.replace("-", "−")


def head_name(layer: int, head: int) -> str:
    """Name a head as people do: layer and head, both from 0."""
    return f"{layer}.{head}"


def map_of_heads(values: torch.Tensor, title: str, *, signed: bool = False) -> Mapping[str, Any]:
    """Return a map (layer, head) for a section of maps."""
    size = _round_up(float(values.abs().max())) or 1.0
    return {
        "title": title,
        "rows": values.tolist(),
        "row_labels": [str(each) for each in range(values.shape[0])],
        "column_labels": [str(each) for each in range(values.shape[1])],
        "row_title": "layer",
        "column_title": "head",
        "low": -size if signed else 0.0,
        "high": size,
    }


def _round_up(value: float) -> float:
    """Return the next number with two digits that is not smaller, for the end of a scale of
    colours."""
    if not value:
        return value
    unit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return float(f"{math.ceil(value / unit - 1e-9) * unit:.2g}")


def resampled(number: int, seed: int, draws: int = 2_000) -> torch.Tensor:
    """Draw inputs with replacement for a bootstrap: (draw, number) indices."""
    return torch.randint(
        number, (draws, number), generator=generator(seed, "findings", "bootstrap")
    )


def middle(values: torch.Tensor) -> tuple[float, float]:
    """Return what 95 % of values lie between."""
    low, high = values.double().quantile(torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
    return low, high


def ranks(values: torch.Tensor) -> torch.Tensor:
    """Return the ranks of the last axis, ties sharing their mean rank."""
    below = (values[..., :, None] > values[..., None, :]).sum(-1)
    same = (values[..., :, None] == values[..., None, :]).sum(-1)
    return below.double() + (same.double() - 1.0) / 2.0


def spearman(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Return the rank correlation along the last axis."""
    both = torch.stack((ranks(one), ranks(other)))
    both = both - both.mean(-1, keepdim=True)
    return (both[0] * both[1]).sum(-1) / both.square().sum(-1).prod(0).sqrt()

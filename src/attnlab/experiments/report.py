"""Reports: what a run leaves for people and programs: claims, settings, metrics, sections, figures and the model.

The same report is what the terminal, the page and the notebook show; `save` writes it into a run folder and
`open_run` brings it back.
"""

import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import nn

from attnlab import __version__
from attnlab.draw.page import render_page
from attnlab.errors import CouldNotRun
from attnlab.experiments.claims import Claim, read_claims, verdict
from attnlab.files import explained, read_json, write_bytes, write_json, write_text
from attnlab.models.storage import describe_model, load_model, save_weights

__all__ = ["Report", "open_run", "versions"]


@dataclass(frozen=True, eq=False)
class Report:
    """One run's findings.

    Attributes:
        experiment: its name.
        config: what `config.json` holds: seed, settings, versions, the model's description.
        claims: what was claimed, measured, found.
        metrics: one mapping for each line of `metrics.jsonl`.
        document: title, facts and sections, the form that `render_page` draws.
        folder: where it is kept; None while it only lives in memory.
    """

    experiment: str
    config: Mapping[str, Any]
    claims: tuple[Claim, ...]
    metrics: Sequence[Mapping[str, Any]]
    document: Mapping[str, Any]
    folder: Path | None = None
    _model: nn.Module | None = field(default=None, repr=False)
    _figures: Mapping[str, bytes] = field(default_factory=dict, repr=False)

    @property
    def passed(self) -> bool:
        """Whether every claim holds."""
        return all(claim.passed for claim in self.claims)

    @cached_property
    def model(self) -> nn.Module:
        """The trained model, read from the folder when first asked for."""
        if self._model is not None:
            return self._model
        if self.folder is None:
            raise CouldNotRun("this report has no model and no folder to read one from.")
        return load_model(self.folder)

    @cached_property
    def figures(self) -> Mapping[str, bytes]:
        """The figures by file name, PNG and SVG; empty where matplotlib was not installed."""
        if self.folder is None:
            return self._figures
        return {path.name: path.read_bytes() for path in sorted((self.folder / "figures").glob("*"))}

    def html(self) -> str:
        """The whole report as one self-contained page."""
        claims = [claim.to_mapping() for claim in self.claims]
        return render_page({**self.document, "claims": claims})

    def save(self, folder: Path | str) -> Path:
        """Write everything into a folder; `claims.json` comes last and marks the run as finished."""
        folder = Path(folder)
        with explained(folder):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "figures").mkdir(exist_ok=True)
        save_weights(self.model, folder / "model.safetensors")
        write_json(folder / "config.json", self.config)
        if not (folder / "metrics.jsonl").exists():
            write_text(folder / "metrics.jsonl", "".join(json.dumps(line) + "\n" for line in self.metrics))
        for name, content in self.figures.items():
            write_bytes(folder / "figures" / name, content)
        write_json(folder / "report.json", self.document)
        write_text(folder / "report.html", self.html())
        write_json(folder / "claims.json", [claim.to_mapping() for claim in self.claims])
        return folder

    def __str__(self) -> str:
        lines = [f"{'passed' if c.passed else 'FAILED'}  {c.name}: {c.measured} (bound {c.bound})" for c in self.claims]
        return "\n".join([f"{self.experiment}: {verdict(self.claims)}", *lines])


def open_run(folder: Path | str) -> Report:
    """Open a finished run.

    Raises:
        CouldNotRun: no run is there, it is unfinished, or a file of it is damaged.
    """
    folder = Path(folder)
    if not (folder / "config.json").is_file():
        raise CouldNotRun(f"{folder} is not a run folder (it has no config.json); `attnlab list` shows the runs.")
    config = read_json(folder / "config.json")
    if not isinstance(config, dict) or "experiment" not in config:
        raise CouldNotRun(f"{folder} holds a model, but not a run; load it with attnlab.load(folder).")
    if not (folder / "claims.json").is_file():
        raise CouldNotRun(f"the run in {folder} is unfinished: it was stopped before its claims were judged.")
    metrics = [json.loads(line) for line in _lines(folder / "metrics.jsonl")]
    return Report(
        experiment=str(config["experiment"]),
        config=config,
        claims=read_claims(read_json(folder / "claims.json")),
        metrics=metrics,
        document=read_json(folder / "report.json"),
        folder=folder,
    )


def versions() -> dict[str, str]:
    """Name the versions that a run depends on."""
    return {
        "attnlab": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
    }


def describe_run(
    experiment: str, seed: int, settings: Mapping[str, Any], started: str, model: nn.Module
) -> dict[str, Any]:
    """Return what a run's `config.json` holds."""
    return {
        "experiment": experiment,
        "seed": seed,
        "started": started,
        "settings": dict(settings),
        "versions": versions(),
        "model": describe_model(model),
    }


def _lines(path: Path) -> list[str]:
    try:
        return [line for line in path.read_text(encoding="utf-8").split("\n") if line]
    except OSError as error:
        raise CouldNotRun(f"could not read {path}: {error.strerror}.") from None

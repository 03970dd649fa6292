"""Reports: the claims, settings, metrics, sections, figures and models of a run.

The terminal, the page and the notebook show the same report; `save` writes it into a run folder and
`open_run` reads it back.
"""

import datetime
import json
import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Self

import numpy
import torch
from torch import nn

from attnlab import __version__
from attnlab.configs import Fields
from attnlab.core.store import explained, make_folder, write_bytes, write_json, write_text
from attnlab.display import Card, displayed
from attnlab.draw import figures
from attnlab.draw.claims import claim_state, judge_all
from attnlab.draw.page import render_page
from attnlab.draw.sections import ReportContent, Table
from attnlab.errors import CouldNotRun, WrongUsage
from attnlab.experiments.claims import Claim, count_claims
from attnlab.experiments.experiment import Findings, MetricLine
from attnlab.experiments.folder import RunConfig, RunFolder, read_run, run_kind
from attnlab.experiments.registry import RunReader
from attnlab.experiments.sections import csv_text
from attnlab.models.storage import describe_model, load_model, save_model, save_weights
from attnlab.parts.linear import matrix_path_in_use
from attnlab.train.config import EngineName, LayoutName

_WITHOUT_WEIGHTS = ("sweep", "search")  # the kinds that keep results alone


@displayed
@dataclass(frozen=True, eq=False)
class Report:
    """One run's findings.

    Attributes:
        experiment: its name.
        config: what `config.json` holds: seed, settings, versions, the model's description.
        claims: each with what was measured, and whether it holds.
        metrics: one mapping for each line of `metrics.jsonl`.
        content: title, facts and sections.
        folder: where it is kept; None while it only lives in memory.
    """

    experiment: str
    config: RunConfig
    claims: tuple[Claim, ...]
    metrics: Sequence[MetricLine]
    content: ReportContent
    folder: Path | None = None
    _model: nn.Module | None = field(default=None, repr=False)
    _models: Mapping[str, nn.Module] = field(default_factory=dict, repr=False)
    _files: Mapping[str, bytes] = field(default_factory=dict, repr=False)

    @classmethod
    def of(
        cls, experiment: str, config: RunConfig, findings: Findings, metrics: Sequence[MetricLine]
    ) -> Self:
        """Make the report of findings that only live in memory."""
        parts = findings.model, findings.models, findings.files
        return cls(
            experiment, config, tuple(findings.claims), metrics, findings.content, None, *parts
        )

    @property
    def passed(self) -> bool | None:
        """True if every claim holds, False if one failed or there is none, else None: undecided."""
        if not self.claims:
            return False
        return judge_all([claim.passed for claim in self.claims])

    @property
    def exit_status(self) -> int:
        """The exit status of a command: 1 if a claim failed, else 0, undecided claims included."""
        return int(self.passed is False)

    @cached_property
    def model(self) -> nn.Module:
        """The trained model, read from the folder when first asked for."""
        model = self._model
        if model is None:
            if self.folder is None:
                raise CouldNotRun("this report has no model and no folder to read one from.")
            self.refuse_without_weights()
            model = load_model(self.folder)
        vars(model)["reader"] = self.reader
        return model

    @property
    def reader(self) -> RunReader:
        """What the run knows of its model's texts."""
        return RunReader(self.experiment, self.config["settings"], self.folder)

    def refuse_without_weights(self) -> None:
        """Raise `WrongUsage` with the command that makes the models that this report only counts.

        A sweep and a search keep the results of their models alone.
        """
        kind = run_kind(self.config)
        if kind not in ("sweep", "search"):
            return
        what, seeds = "cell" if kind == "sweep" else "trial", len(self.config[kind]["seeds"])
        raise WrongUsage(
            f"{self.folder or 'this'} holds a {kind}, which keeps no weights; make the models "
            f"of a {what} with: attnlab run {self.experiment} --seeds {seeds} --set and the "
            f"{what}'s settings."
        )

    @cached_property
    def figures(self) -> Mapping[str, bytes]:
        """The figures by file name, PNG and SVG; empty where matplotlib was not installed."""
        if self.folder is None:
            return figures.section_figures(self.content)
        files = sorted((self.folder / "figures").glob("*"))
        return {file.name: file.read_bytes() for file in files}

    @cached_property
    def models(self) -> Mapping[str, nn.Module]:
        """The run's further models by name, beside the main one; none for many experiments."""
        if self.folder is None:
            return self._models
        folders = sorted((self.folder / "models").glob("*"))
        return {folder.name: load_model(folder) for folder in folders}

    @cached_property
    def tables(self) -> Mapping[str, str]:
        """Every table of the report as CSV, by file name."""
        tables = {}
        for section in self.content.sections:
            if isinstance(section, Table):
                # All texts are quoted, since a bare \r needs quotes too.
                table = csv_text(section.columns, section.rows, quotes_texts=True)
                tables[f"{_slug(section.title)}.csv"] = table
        return tables

    def html(self) -> str:
        """The whole report as one self-contained page."""
        return render_page(replace(self.content, claims=self.claims))

    def save(self, folder: Path | str) -> Path:
        """Write everything into a new folder, and return it.

        Raises:
            CouldNotRun: the folder holds something already, or cannot be written.
        """
        with RunFolder.create(Path(folder), self.config) as made:
            self.write(made)
        return made.path

    def write(self, made: RunFolder) -> None:
        """Write everything into its folder; `claims.json` comes last and marks it as finished."""
        folder = made.path
        with explained(folder):
            (folder / "figures").mkdir(exist_ok=True)
            (folder / "tables").mkdir(exist_ok=True)
        has_model = self._model is not None or self.folder is not None
        if has_model and run_kind(self.config) not in _WITHOUT_WEIGHTS:
            save_weights(self.model, folder / "model.safetensors")
        for name, model in self.models.items():
            save_model(model, folder / "models" / name)
        for name, content in self._files.items():
            make_folder((folder / name).parent)
            write_bytes(folder / name, content)
        lines = [json.dumps(line) + "\n" for line in self.metrics]
        write_text(folder / "metrics.jsonl", "".join(lines))
        for name, content in self.figures.items():
            write_bytes(folder / "figures" / name, content)
        for name, table in self.tables.items():
            write_text(folder / "tables" / name, table)
        write_json(folder / "report.json", self.content.to_json(), indent=None)
        write_text(folder / "report.html", self.html())
        write_json(folder / "claims.json", [claim.to_mapping() for claim in self.claims])

    def _card(self) -> Card:
        facts: list[tuple[str, object]] = []
        if self.config.get("seed") is not None:
            facts.append(("seed", self.config["seed"]))
        if self.folder is not None:
            facts.append(("folder", self.folder))
        return Card(self._heading(), facts, ("", "claim", "measured", "bound"), self._rows())

    def _heading(self) -> str:
        return f"{self.experiment}: {count_claims(self.claims)}"

    def _rows(self) -> list[list[str]]:
        """Return the state of each claim, its name, what was measured, and the bound."""
        rows = []
        for claim in self.claims:
            if not claim.is_folded:
                state = claim_state(claim.passed).word
                rows.append([state, claim.name, claim.measured, claim.bound])
        return rows

    def __str__(self) -> str:
        lines = [self._heading()]
        for state, name, measured, bound in self._rows():
            lines.append(f"{state}  {name}: {measured} (bound {bound})")
        return "\n".join(lines)


def _slug(title: str) -> str:
    """Make a title a file name: `Settings, all of them` -> `settings-all-of-them`."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") or "table"


def open_run(folder: Path | str) -> Report:
    """Open a finished run.

    Raises:
        CouldNotRun: no run is there, it is unfinished, or a file of it is damaged.
    """
    folder = Path(folder)
    files = read_run(folder)
    name = files.config["experiment"]
    return Report(name, files.config, files.claims, files.metrics, files.content, folder)


def versions() -> dict[str, str]:
    """Name the versions that a run depends on."""
    return {
        "attnlab": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
    }


def begins_at() -> str:
    """Return the time at which a run begins, now, as `config.json` has it."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def describe_run(
    experiment: str,
    seed: int,
    settings: Fields,
    started: str,
    model: nn.Module | None,
    *,
    threads: int | None = None,
    layout: LayoutName = "auto",
    engine: EngineName = "auto",
) -> RunConfig:
    """Return what a run's `config.json` holds; without a model, all but its description.

    The same seed gives the same bytes only with the same threads, matrix path, layout and engine,
    hence these.
    """
    config: RunConfig = {
        "experiment": experiment,
        "seed": seed,
        "started": started,
        "settings": dict(settings),
        "versions": versions(),
        "threads": threads or torch.get_num_threads(),
        "matrix_path": matrix_path_in_use(),
        "layout": layout,
        "engine": engine,
    }
    if model is not None:
        config["model"] = describe_model(model)
    return config

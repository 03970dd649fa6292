"""Run one experiment or all of them with progress, and show which claims hold."""

import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlab.cli import terminal
from attnlab.cli.failures import writing_to
from attnlab.cli.progress import progress
from attnlab.errors import AttnlabError, WrongUsage, did_you_mean

if TYPE_CHECKING:
    from attnlab.experiments.report import Report

__all__ = ["Estimate", "print_json", "run_all", "run_one", "show_finished", "show_run", "show_task"]

_USUAL = {
    "lookup": (17, 70),
    "anatomy": (19, 45),
    "handmade": (23, 40),
    "sentiment": (21, 170),
    "sorting": (10, 35),
}
"""Seconds that each experiment takes with --quick and without, on two cores; the estimate uses
only their ratios."""


def run_one(
    name: str,
    out: Path | None,
    wanted: Mapping[str, str],
    *,
    parent: Path,
    quiet: bool,
    title: str = "",
    estimate: "Estimate | None" = None,
    **options: Any,
) -> "Report":
    """Run an experiment in `out`, or in the first free folder of `parent`.

    options: those of `registry.run`.
    """
    from attnlab.experiments import registry
    from attnlab.experiments.folder import FolderTaken, free_name

    while True:
        folder = out if out is not None else free_name(parent, name)
        try:
            title = title or f"{name}, seed {options['seed']}"
            left = None if estimate is None else estimate.left
            with writing_to(folder), progress(title, is_quiet=quiet, left=left) as observer:
                return registry.run(name, out=folder, settings=wanted, observer=observer, **options)
        except FolderTaken:
            if out is not None:
                raise
            # Another run has just taken this name; nothing was trained yet, so try the next one.


class Estimate:
    """The time until all experiments are done, from usual times and the times so far."""

    def __init__(
        self, names: Iterable[str], *, quick: bool, now: Callable[[], float] = time.monotonic
    ) -> None:
        which = 0 if quick else 1
        self._usual = [_USUAL.get(name, _USUAL["sorting"])[which] for name in names]
        self._now = now
        self._started = self._current_started = now()
        self._done = 0

    def begin(self, number: int) -> None:
        """Note that the experiment with this number, from 0, begins now."""
        self._done, self._current_started = number, self._now()

    def left(self) -> float:
        """Estimate the seconds that are left."""
        now, usual, done = self._now(), self._usual, self._done
        pace = (self._current_started - self._started) / sum(usual[:done]) if done else 1.0
        # The current experiment may take longer than usual.
        pace = max(pace, (now - self._started) / sum(usual[: done + 1]))
        left_of_current = max(0.0, pace * usual[done] - (now - self._current_started))
        return left_of_current + pace * sum(usual[done + 1 :])


def run_all(
    parent: Path,
    wanted: Mapping[str, str],
    *,
    as_json: bool,
    quiet: bool,
    quick: bool,
    claims: bool = False,
    **options: Any,
) -> int:
    """Run every experiment, also after one that could not run, and return the exit status.

    claims: print all claims as well as the final screen.
    """
    from attnlab.cli.final_screen import show_final_screen
    from attnlab.experiments import registry
    from attnlab.experiments.claims import verdict
    from attnlab.experiments.gallery import write_gallery
    from attnlab.files import explained

    settings = _settings_of_each(wanted, list(registry.EXPERIMENTS))
    for name in registry.EXPERIMENTS:  # report a wrong setting before the first one begins
        registry.config(name, settings[name], quick=quick)
    with explained(parent):  # report a folder that cannot be written once, not for each
        parent.mkdir(parents=True, exist_ok=True)
    reports: list[Report] = []
    broken: dict[str, AttnlabError] = {}
    options |= {"quick": quick, "quiet": quiet or as_json, "parent": parent}
    estimate = Estimate(registry.EXPERIMENTS, quick=quick)
    for number, name in enumerate(registry.EXPERIMENTS):
        estimate.begin(number)
        title = f"{number + 1}/{len(registry.EXPERIMENTS)} {name}"
        try:
            report = run_one(name, None, settings[name], title=title, estimate=estimate, **options)
        except AttnlabError as error:
            broken[name] = error
            terminal.complain(f"{name}: {error}", error.exit_status)
            continue
        reports.append(report)
        if not quiet and not as_json:
            terminal.note(f"{name}: {verdict(report.claims)}   {report.folder}")
    gallery = write_gallery(parent) if reports else None
    if as_json:
        failures = [{"experiment": name, "error": str(error)} for name, error in broken.items()]
        runs = [_as_mapping(report) for report in reports]
        print_json({"gallery": str(gallery or ""), "runs": runs, "not_run": failures})
    elif gallery is not None:
        if claims:
            terminal.show_all_claims([(report.experiment, report.claims) for report in reports])
        reasons = {name: str(error) for name, error in broken.items()}
        show_final_screen(reports, reasons, parent, gallery)
    if broken:
        return max(error.exit_status for error in broken.values())
    return max((report.exit_status for report in reports), default=0)


def show_run(report: "Report", *, as_json: bool) -> int:
    """Print the claims and where to look, and return the exit status."""
    from attnlab.experiments import registry

    folder = report.folder
    assert folder is not None
    if as_json:
        print_json(_as_mapping(report))
    else:
        trace = f" · attnlab trace {folder}" if registry.is_askable(report.experiment) else ""
        terminal.show_claims(report.claims)
        terminal.say(f"report   {folder / 'report.html'}")
        terminal.say(
            f"look at  attnlab open {folder}{trace} · attnlab show {folder}", is_quiet=True
        )
    return report.exit_status


def show_finished(folder: Path, *, as_json: bool = False) -> int:
    """Say that there is nothing left to run, and return the exit status of the run."""
    from attnlab.experiments.claims import verdict
    from attnlab.experiments.folder import Finished
    from attnlab.experiments.report import open_run

    report = open_run(folder)
    if as_json:
        print_json(_as_mapping(report))
    sentence = str(Finished(folder))
    if report.exit_status:
        sentence += f" Of its claims {verdict(report.claims)}, hence the exit status 1."
    return terminal.complain(sentence, report.exit_status)


def show_task(report: "Report") -> None:
    """Print the report's section on the task, if it has one: what is learned, when it is solved."""
    for section in report.document["sections"]:
        if section["kind"] == "text" and section["title"] == "The task":
            for line in section["text"].split("\n"):
                terminal.say(line, is_quiet=True)


def _settings_of_each(wanted: Mapping[str, str], names: Sequence[str]) -> dict[str, dict[str, str]]:
    """Group `experiment.key=value` settings by experiment."""
    from attnlab.experiments import registry

    settings: dict[str, dict[str, str]] = {name: {} for name in names}
    for key, value in wanted.items():
        name, dot, setting = key.partition(".")
        if not dot or not setting:
            example = "sorting.task=reverse"
            for each in reversed(names):
                if key in {option.name for option in registry.find(each).config_class.options()}:
                    example = f"{each}.{key}={value}"
            raise WrongUsage(
                "for all experiments, write a setting as experiment.key=value, such as "
                f"{example}; got {key!r}."
            )
        if name not in settings:
            raise WrongUsage(f"there is no experiment {name!r}; {did_you_mean(name, names)}")
        settings[name][setting] = value
    return settings


def _as_mapping(report: "Report") -> dict[str, Any]:
    claims = [claim.to_mapping() for claim in report.claims]
    return {"run": str(report.folder), "passed": report.passed, "claims": claims}


def print_json(value: Any, *, indent: int | None = 2) -> None:
    """Print a value as JSON."""
    sys.stdout.write(json.dumps(value, indent=indent) + "\n")  # ASCII, which every encoding has

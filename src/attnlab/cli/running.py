"""Running one experiment or all of them, with progress, and saying what holds."""

import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlab.cli import terminal
from attnlab.cli.failures import leaving
from attnlab.cli.progress import progress
from attnlab.errors import AttnlabError, WrongUsage, did_you_mean

if TYPE_CHECKING:
    from attnlab.experiments.report import Report

__all__ = ["Estimate", "print_json", "run_all", "run_one", "say_task", "show_run", "tell_finished"]

_USUAL = {"lookup": (17, 70), "anatomy": (19, 45), "handmade": (23, 40), "sentiment": (21, 170), "sorting": (10, 35)}
"""Seconds that each system takes with --quick and without, on two cores: what counts is how they compare."""


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
    """Run an experiment in the folder named, or in the first free one of the parent; options as `registry.run` has."""
    from attnlab.experiments import registry
    from attnlab.experiments.folder import FolderTaken, free_name

    while True:
        folder = out if out is not None else free_name(parent, name)
        try:
            title = title or f"{name}, seed {options['seed']}"
            left = None if estimate is None else estimate.left
            with leaving(folder), progress(title, is_quiet=quiet, left=left) as observer:
                return registry.run(name, out=folder, settings=wanted, observer=observer, **options)
        except FolderTaken:
            if out is not None:
                raise
            # Another run took this name a moment ago; nothing was trained yet, so the next one is as good.


class Estimate:
    """How long it takes until all systems are done, from what each usually takes and how long these took so far."""

    def __init__(self, names: Iterable[str], *, quick: bool, now: Callable[[], float] = time.monotonic) -> None:
        self._usual = [_USUAL.get(name, _USUAL["sorting"])[0 if quick else 1] for name in names]
        self._now, self._begun, self._done = now, now(), 0
        self._this = self._begun

    def begin(self, number: int) -> None:
        """Note that the system with this number, from 0, begins now."""
        self._done, self._this = number, self._now()

    def left(self) -> float:
        """Estimate the seconds that are left."""
        now, usual, done = self._now(), self._usual, self._done
        pace = (self._this - self._begun) / sum(usual[:done]) if done else 1.0
        pace = max(pace, (now - self._begun) / sum(usual[: done + 1]))  # this one may take longer than it should
        return max(0.0, pace * usual[done] - (now - self._this)) + pace * sum(usual[done + 1 :])


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
    """Run every experiment; one that cannot run is told at the end, and keeps the others from nothing.

    claims: print all claims too, not the closing screen alone.
    """
    from attnlab.cli.closing import show_closing
    from attnlab.experiments import registry
    from attnlab.experiments.claims import verdict
    from attnlab.experiments.gallery import write_gallery
    from attnlab.files import explained

    settings = _settings_of_each(wanted, list(registry.EXPERIMENTS))
    for name in registry.EXPERIMENTS:  # a wrong setting is told before the first of them begins
        registry.config(name, settings[name], quick=quick)
    with explained(parent):  # a place that cannot be written is told once, not by each of them
        parent.mkdir(parents=True, exist_ok=True)
    reports: list[Report] = []
    broken: dict[str, AttnlabError] = {}
    of_each: dict[str, Any] = {"quick": quick, "quiet": quiet or as_json, "parent": parent, **options}
    estimate = Estimate(registry.EXPERIMENTS, quick=quick)
    for number, name in enumerate(registry.EXPERIMENTS):
        estimate.begin(number)
        of_each["title"] = f"{number + 1}/{len(registry.EXPERIMENTS)} {name}"
        try:
            report = run_one(name, None, settings[name], estimate=estimate, **of_each)
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
        print_json({"gallery": str(gallery or ""), "runs": [*map(_as_mapping, reports)], "not_run": failures})
    elif gallery is not None:
        if claims:
            terminal.show_all_claims([(report.experiment, report.claims) for report in reports])
        show_closing(reports, {name: str(error) for name, error in broken.items()}, parent, gallery)
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
        terminal.say(f"look at  attnlab open {folder}{trace} · attnlab show {folder}", is_quiet=True)
    return report.exit_status


def tell_finished(folder: Path, *, as_json: bool = False) -> int:
    """Say that there is nothing to go on with, and return the exit status that the run had."""
    from attnlab.experiments.claims import verdict
    from attnlab.experiments.folder import Finished
    from attnlab.experiments.report import open_run

    report = open_run(folder)
    if as_json:
        print_json(_as_mapping(report))
    why = f" Of its claims {verdict(report.claims)}, hence the exit status 1." if report.exit_status else ""
    return terminal.complain(f"{Finished(folder)}{why}", report.exit_status)


def say_task(report: "Report") -> None:
    """Say what is learned, and what solved means, where a report says so."""
    for section in report.document["sections"]:
        if section["kind"] == "text" and section["title"] == "The task":
            for line in section["text"].split("\n"):
                terminal.say(line, is_quiet=True)


def _settings_of_each(wanted: Mapping[str, str], names: Sequence[str]) -> dict[str, dict[str, str]]:
    """Sort `experiment.key=value` settings by experiment."""
    from attnlab.experiments import registry

    sorted_: dict[str, dict[str, str]] = {name: {} for name in names}
    for key, value in wanted.items():
        name, dot, setting = key.partition(".")
        if not dot or not setting:
            owners = [each for each in names if key in {o.name for o in registry.find(each).config_class.options()}]
            example = f"{owners[0]}.{key}={value}" if owners else "sorting.task=reverse"
            raise WrongUsage(
                f"for all experiments a setting is written experiment.key=value, such as {example}; got {key!r}."
            )
        if name not in sorted_:
            raise WrongUsage(f"there is no experiment {name!r}; {did_you_mean(name, names)}")
        sorted_[name][setting] = value
    return sorted_


def _as_mapping(report: "Report") -> dict[str, Any]:
    claims = [claim.to_mapping() for claim in report.claims]
    return {"run": str(report.folder), "passed": report.passed, "claims": claims}


def print_json(value: Any, *, indent: int | None = 2) -> None:
    """Print a value as JSON."""
    sys.stdout.write(json.dumps(value, indent=indent) + "\n")  # in ASCII, which every encoding can say

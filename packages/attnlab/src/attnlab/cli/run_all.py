"""attnlab run all: every experiment, one screen of findings, and a gallery."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlab.cli import terminal
from attnlab.cli.options import TrainingOptions
from attnlab.cli.resolve_run import in_run_folder
from attnlab.cli.results import result_to_json
from attnlab.errors import AttnlabError, WrongUsage, did_you_mean

if TYPE_CHECKING:
    from attnlab.experiments.report import Report


class Estimate:
    """The time until all experiments are done, from usual times and the times so far."""

    def __init__(
        self, names: Iterable[str], *, full: bool, now: Callable[[], float] = time.monotonic
    ) -> None:
        usual = terminal.words("seconds")
        self._usual: list[int] = []
        for name in names:
            of_short, of_full = usual.get(name, usual["sorting"])
            self._usual.append(of_full if full else of_short)
        self._now = now
        self._started = self._current_started = now()
        self._done = 0

    def begin(self, number: int) -> None:
        """Note that the experiment with this number, from 0, begins now."""
        self._done, self._current_started = number, self._now()

    def left(self) -> float:
        """Estimate the seconds that are left."""
        now, usual, done = self._now(), self._usual, self._done
        pace = 1.0
        if done:
            pace = (self._current_started - self._started) / sum(usual[:done])
        # The current experiment may take longer than usual.
        pace = max(pace, (now - self._started) / sum(usual[: done + 1]))
        left_of_current = max(0.0, pace * usual[done] - (now - self._current_started))
        return left_of_current + pace * sum(usual[done + 1 :])


def run_all(
    parent: Path,
    wanted: Mapping[str, str],
    options: Mapping[str, Any],
    *,
    training: TrainingOptions,
    shows_claims: bool,
) -> int:
    """Run every experiment, also after one that could not run, and return the exit status.

    Args:
        parent: the folder of the run folders.
        wanted: settings as experiment.key -> value.
        options: those of `registry.run`.
        training: the options as typed.
        shows_claims: print all claims as well as the final screen.
    """
    from attnlab.cli.final_screen import show_final_screen
    from attnlab.core.store import explained
    from attnlab.experiments import registry
    from attnlab.experiments.gallery import write_gallery

    names = list(registry.EXPERIMENTS)
    settings = _settings_of_each(wanted, names)
    makes = {}
    for name in names:  # report a wrong setting before the first one begins
        registry.config(name, settings[name], full=options["full"])
        makes[name] = partial(registry.run, name, settings=settings[name], **options)
    with explained(parent):  # report a folder that cannot be written once, not for each
        parent.mkdir(parents=True, exist_ok=True)
    short = "" if options["full"] else _describe_short_run(settings)
    if short and not (training.quiet or training.as_json):
        terminal.note(short)
    reports, broken = _run_each(makes, parent, training, full=options["full"])
    gallery = write_gallery(parent) if reports else None
    if training.as_json:
        _print_json(reports, broken, gallery)
    elif gallery is not None:
        if shows_claims:
            terminal.show_all_claims(reports)
        show_final_screen(reports, broken, parent, gallery, short=short)
    return max(outcome.exit_status for outcome in broken.values() or reports)


def _describe_short_run(settings: Mapping[str, Mapping[str, str]]) -> str:
    """Name a setting of each experiment that is larger in a full run; nothing if none is."""
    from attnlab.experiments import registry

    parts = []
    for name, texts in settings.items():
        short, full = (registry.config(name, texts, full=is_full) for is_full in (False, True))
        for setting, value in short.to_mapping().items():
            full_value = full.to_mapping()[setting]
            if value != full_value:
                parts.append(f"{name} {setting} {value} of {full_value}")
                break
    if not parts:
        return ""
    return (
        f"A short run ({', '.join(parts)}); the full one decides more claims: attnlab run all "
        "--full, or make run FULL=1"
    )


def _print_json(
    reports: "Sequence[Report]", broken: "Mapping[str, AttnlabError]", gallery: Path | None
) -> None:
    failures = []
    for name, why in broken.items():
        failures.append({"experiment": name, "error": str(why)})
    runs = list(map(result_to_json, reports))
    terminal.print_json({"gallery": str(gallery or ""), "runs": runs, "not_run": failures})


def _run_each(
    makes: "Mapping[str, Callable[..., Report]]",
    parent: Path,
    training: TrainingOptions,
    *,
    full: bool,
) -> "tuple[list[Report], dict[str, AttnlabError]]":
    """Run one experiment after the other; return the reports, and why others could not run."""
    from attnlab.experiments.claims import count_claims

    reports: list[Report] = []
    broken: dict[str, AttnlabError] = {}
    is_quiet = training.quiet or training.as_json
    estimate = Estimate(makes, full=full)
    for number, (name, make) in enumerate(makes.items()):
        estimate.begin(number)
        title = f"{number + 1}/{len(makes)} {name}"
        try:
            report = in_run_folder(
                make, None, name, title, is_quiet=is_quiet, parent=parent, left=estimate.left
            )
        except AttnlabError as error:
            broken[name] = error
            terminal.complain(f"{name}: {error}", error.exit_status)
            continue
        reports.append(report)
        if not is_quiet:
            terminal.note(f"{name}: {count_claims(report.claims)}   {report.folder}")
    return reports, broken


def _settings_of_each(wanted: Mapping[str, str], names: Sequence[str]) -> dict[str, dict[str, str]]:
    """Group `experiment.key=value` settings by experiment."""
    settings: dict[str, dict[str, str]] = {name: {} for name in names}
    for key, value in wanted.items():
        name, _, setting = key.partition(".")
        if not setting:
            raise WrongUsage(
                "for all experiments, write a setting as experiment.key=value, such as "
                f"{_example_of(key, value, names)}; got {key!r}."
            )
        if name not in settings:
            raise WrongUsage(f"there is no experiment {name!r}; {did_you_mean(name, names)}")
        settings[name][setting] = value
    return settings


def _example_of(key: str, value: str, names: Sequence[str]) -> str:
    """Write a setting with the first experiment that has it."""
    from attnlab.experiments import registry

    for name in names:
        if key in {option.name for option in registry.find(name).config_class.options()}:
            return f"{name}.{key}={value}"
    return "sorting.task=reverse"

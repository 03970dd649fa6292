"""attnlab run all: every experiment, one screen of findings, and a gallery."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlab.cli import terminal
from attnlab.cli.estimate import TimeEstimate
from attnlab.cli.options import TrainingOptions
from attnlab.cli.progress import progress
from attnlab.cli.resolve_run import in_free_folder, note_other_name
from attnlab.cli.results import result_to_json
from attnlab.cli.side_by_side import Makes, Outcomes, RunOutcome, SideBySide, count_processors
from attnlab.errors import AttnlabError, WrongUsage, did_you_mean

if TYPE_CHECKING:
    from attnlab.experiments.report import Report


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
        options: those of `run`.
        training: the options as typed.
        shows_claims: print all claims as well as the final screen.
    """
    from attnlab.cli.final_screen import show_final_screen
    from attnlab.core.store import explained
    from attnlab.experiments import registry
    from attnlab.experiments.gallery import write_gallery
    from attnlab.experiments.runner import run

    names = list(registry.EXPERIMENTS)
    settings = _settings_of_each(wanted, names)
    makes = {}
    for name in names:  # report a wrong setting before the first one begins
        registry.config(name, settings[name], full=options["full"])
        makes[name] = partial(run, name, settings=settings[name], **options)
    with explained(parent):  # report a folder that cannot be written once, not for each
        parent.mkdir(parents=True, exist_ok=True)
    short = "" if options["full"] else _describe_short_run(settings)
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
    makes: Makes, parent: Path, training: TrainingOptions, *, full: bool
) -> "tuple[list[Report], dict[str, AttnlabError]]":
    """Run the experiments; return the reports, and why others could not run."""
    from attnlab.experiments.claims import count_claims

    reports: list[Report] = []
    broken: dict[str, AttnlabError] = {}
    is_quiet = training.quiet or training.as_json
    num_processes = min(count_processors(), len(makes))
    estimate = TimeEstimate(makes, full=full, num_processes=num_processes)
    if num_processes == 1:
        outcomes = _one_by_one(makes, parent, estimate, is_quiet=is_quiet)
    else:
        together = SideBySide(makes, parent, estimate, num_processes)
        outcomes = together.outcomes(is_quiet=is_quiet)
    with closing(outcomes):
        for name, outcome in outcomes:
            if isinstance(outcome, AttnlabError):
                broken[name] = outcome
                terminal.complain(f"{name}: {outcome}", outcome.exit_status)
                continue
            report, folder = outcome
            reports.append(report)
            if not is_quiet:
                note_other_name(folder, name)
                terminal.note(f"{name}: {count_claims(report.claims)}   {folder}")
    return reports, broken


def _one_by_one(makes: Makes, parent: Path, estimate: TimeEstimate, *, is_quiet: bool) -> Outcomes:
    """Run one experiment after the other in this process."""
    for number, (name, make) in enumerate(makes.items(), 1):
        estimate.begin(name)
        title = f"{number}/{len(makes)} {name}"
        outcome: RunOutcome
        try:
            with progress(title, is_quiet=is_quiet, left=estimate.left) as observer:
                outcome = in_free_folder(make, parent, name, observer)
        except AttnlabError as error:
            outcome = error
        estimate.end(name)
        yield name, outcome


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

"""`open_program` from start to finish: compile the parts, train around them, make claims."""

from attnlab.experiments.experiment import Findings, RunContext
from attnlab.experiments.open_program.cohorts import ARMS, train_cohort
from attnlab.experiments.open_program.config import OpenProgramConfig as OpenProgramConfig
from attnlab.experiments.open_program.report import TargetResult, make_claims, make_content
from attnlab.experiments.open_program.targets import SOURCES, ProgramTarget, target_of
from attnlab.programs.open_model import model_around


def run(config: OpenProgramConfig, context: RunContext) -> Findings:
    """Train models of all kinds for each program."""
    names = [name for name in SOURCES if config.only in (name, "all")]
    targets = [target_of(name, config.length_of(name)) for name in names]
    context.start(model_around(targets[0].part, targets[0].config, seed=context.seed).model)
    results = [study(target, config, context) for target in targets]
    models = {}
    for result in results:
        for arm, cohort in result.cohorts.items():
            models[f"{result.target.name}_{arm}"] = cohort.models[0]
    content = make_content(config, context.seed, results)
    return Findings(next(iter(models.values())), make_claims(results), content, models)


def study(target: ProgramTarget, config: OpenProgramConfig, context: RunContext) -> TargetResult:
    """Train models of all kinds for one program."""
    cohorts = {}
    for arm in ARMS:
        context.stage(f"{target.name}, {arm}, {config.seeds} seeds")
        cohorts[arm] = train_cohort(target, arm, config, context)
    return TargetResult(target, cohorts)

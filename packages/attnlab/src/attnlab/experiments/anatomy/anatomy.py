"""The anatomy from start to finish: the chosen experiments, one after the other, in one report."""

from collections.abc import Callable

from attnlab.draw.sections import ReportContent, Section, Text
from attnlab.experiments.anatomy import (
    causal_mask,
    complexity,
    mask_value,
    normalization,
    position,
    rank,
    score_scale,
    two_relations,
)
from attnlab.experiments.anatomy.config import WORDS, AnatomyConfig
from attnlab.experiments.anatomy.result import PartResult
from attnlab.experiments.claims import Claim
from attnlab.experiments.experiment import Findings, RunContext
from attnlab.experiments.sections import parameters_section, settings_section
from attnlab.train.loop import using_threads

PARTS: dict[str, Callable[[AnatomyConfig, RunContext], PartResult]] = {
    "scaling": score_scale.show,
    "masking": causal_mask.show,
    "mask_value": mask_value.show,
    "rank": rank.show,
    "heads": two_relations.show,
    "position": position.show,
    "normalization": normalization.show,
    "complexity": complexity.show,
}
"""The experiments, in the order of the report."""


def run(config: AnatomyConfig, context: RunContext) -> Findings:
    """Run the chosen experiments; the run's model is the encoder of `position`."""
    model = position.make_encoder("sinusoidal", context.seed, 0)
    context.start(model)
    names = [name for name in PARTS if config.only in (name, "all")]
    summaries, claims, sections = list[str](), list[Claim](), list[Section]()
    for name in names:
        context.stage(name)
        # Nearly everything is so small that one thread is quickest, and its times vary less.
        with using_threads(1):
            part = PARTS[name](config, context)
        for claim in part.claims:
            context.record({"experiment": name, "claim": claim.name, "passed": claim.passed})
        summaries.append(part.summary)
        claims += part.claims
        sections += part.sections
    content = ReportContent(
        title="Attention taken apart",
        subtitle=WORDS.text("subtitle"),
        facts=[
            ("experiments", ", ".join(name.replace("_", " ") for name in names)),
            ("draws", f"{config.draws:,}"),
            ("seeds", str(config.seeds)),
            ("intervals", "95 %"),
            ("model kept", "the encoder of position"),
        ],
        sections=[
            Text(title="What this run shows", text="\n\n".join(summaries)),
            *sections,
            parameters_section(model),
            settings_section(config),
        ],
    )
    return Findings(model, claims, content)

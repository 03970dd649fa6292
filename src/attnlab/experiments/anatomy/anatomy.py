"""The anatomy from start to finish: the chosen experiments, one after the other, in one report."""

from collections.abc import Callable

from attnlab.draw.sections import ReportContent, Text
from attnlab.experiments.anatomy.causal_mask import show as masking
from attnlab.experiments.anatomy.complexity import show as complexity
from attnlab.experiments.anatomy.config import AnatomyConfig
from attnlab.experiments.anatomy.mask_value import show as mask_value
from attnlab.experiments.anatomy.normalisation import show as normalisation
from attnlab.experiments.anatomy.position import make_encoder
from attnlab.experiments.anatomy.position import show as position
from attnlab.experiments.anatomy.rank import show as rank
from attnlab.experiments.anatomy.result import PartResult
from attnlab.experiments.anatomy.score_scale import show as scaling
from attnlab.experiments.anatomy.two_relations import show as heads
from attnlab.experiments.experiment import Findings, Run
from attnlab.experiments.sections import parameters_section, settings_section
from attnlab.train.loop import using_threads

PARTS: dict[str, Callable[[AnatomyConfig, Run], PartResult]] = {
    "scaling": scaling,
    "masking": masking,
    "mask_value": mask_value,
    "rank": rank,
    "heads": heads,
    "position": position,
    "normalisation": normalisation,
    "complexity": complexity,
}
"""The experiments, in the order of the report."""


def run(config: AnatomyConfig, context: Run) -> Findings:
    """Run the chosen experiments; the run's model is the encoder of `position`."""
    model = make_encoder("sinusoidal", context.seed, 0)
    context.start(model)
    asked = list(PARTS) if config.only == "all" else [config.only]
    found = []
    for name in asked:
        context.stage(name)
        # Nearly everything is so small that one thread is quickest, and its times vary less.
        with using_threads(1):
            part = PARTS[name](config, context)
        found.append(part)
        for claim in part.claims:
            context.record({"experiment": name, "claim": claim.name, "passed": claim.passed})
    content = ReportContent(
        title="Attention taken apart",
        subtitle="softmax(QKᵀ/√d_k + mask) V, one property at a time, each measured over many "
        "random draws.",
        facts=[
            ("experiments", ", ".join(name.replace("_", " ") for name in asked)),
            ("draws", f"{config.draws:,}"),
            ("seeds", str(config.seeds)),
            ("intervals", "95 %"),
            ("model kept", "the encoder of position"),
        ],
        sections=[
            Text(
                title="What this run shows",
                text="\n\n".join(part.summary for part in found),
            ),
            *(section for part in found for section in part.sections),
            parameters_section(model),
            settings_section(config),
        ],
    )
    return Findings(model, [claim for part in found for claim in part.claims], content)

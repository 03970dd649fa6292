"""The maps of the report: eight panels of a head on an input, and the score tables of heads."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from attnlab.design import Design, score_table
from attnlab.draw.sections import Arrow, Box, Diagram, Heatmap, MapChoice, Maps, Tone
from attnlab.experiments.handmade.cohorts import Cohort
from attnlab.models.single_head import SingleHead
from attnlab.parts.numpy_transformer import NumpyTransformer
from attnlab.tasks.vectors import VectorTask

_INPUTS = {
    "identity": ("CAB", "AABBCC", "ABCABC"),
    "copy_first": ("CAB", "ABBB", "BCAC"),
    "unique": ("CAC", "ABCA", "AB"),
}
_NOTES = {
    "identity": "Each letter attends to the same letters at any position, and returns itself.",
    "copy_first": "Every position attends to position 1 and returns its letter.",
    "unique": "A repeated letter attends to the same letter elsewhere, whose value is -1; a single "
    "letter attends to CLS, whose value is +1.",
}
_LEAST_SCALE = 1e-9  # of a map around 0, which may be 0 throughout


def panels_section(pairs: Sequence[tuple[Design, Cohort]]) -> Maps:
    """Show the eight panels of each design and of a learned head, for some inputs of each task."""
    return Maps(
        figure="panels",
        title="By hand and learned, panel by panel",
        caption="Choose a task and an input. Km, Qm and Vm map it to keys K, queries Q and values "
        "V; attention is softmax(Q Kᵀ/√d_qk), and the output is attention V. The colors of each "
        "panel are scaled to its own range, which is in its title. The matrices by hand and the "
        "learned ones look nothing alike, nor do K and Q; the outputs are those of the task.",
        choices=[
            _panels_choice(design, cohort, text)
            for design, cohort in pairs
            for text in _INPUTS[design.task.rule]
        ],
    )


def _panels_choice(design: Design, cohort: Cohort, text: str) -> MapChoice:
    task = design.task
    ids = task.parse(text)
    x = task.vectors(ids, torch.float64).numpy()
    heads = {"by hand": design.reference()}
    if cohort.finite:
        matrices = cohort.finite[0].matrices()
        heads["learned"] = NumpyTransformer(
            *(None if each is None else each.numpy() for each in matrices)  # type: ignore[arg-type]
        )
    names = {
        "tokens": _numbered(task.tokens(ids), task),
        "features": _features(task, len(design.Km)),
        "outputs": ["sign"] if task.rule == "unique" else list(task.names),
    }
    panels = [head.panels(x).maps(who, **names) for who, head in heads.items()]
    maps = [Heatmap(**each) for side_by_side in zip(*panels, strict=True) for each in side_by_side]
    return MapChoice(label=f"{task.rule}: {task.text(ids)}", note=_NOTES[task.rule], maps=maps)


def head_section(design: Design) -> Diagram:
    """Draw the head with the widths of a design that has positions."""
    task, size = design.task, len(design.Km[0])
    width, longest = len(design.Km), f"up to {task.row_length}"

    def box(x: float, y: float, title: str, note: str, tone: Tone = "plain") -> Box:
        return Box(
            x=x,
            y=y,
            width=150,
            height=52,
            title=title,
            note=note,
            tone=tone,
        )

    boxes = [
        box(10, 80, "x", f"tokens, {longest} × {task.input_dim}", "quiet"),
        box(10, 160, "pos", f"places, {longest} × {width - task.input_dim}", "quiet"),
        box(220, 20, "Q = [x ; pos] Qm", f"Qm {width} × {size}", "accent"),
        box(220, 120, "K = [x ; pos] Km", f"Km {width} × {size}", "accent"),
        box(220, 220, "V = [x ; pos] Vm", f"Vm {width} × {task.output_dim}", "accent"),
        box(430, 70, f"scores Q Kᵀ/√{size}", "query × key"),
        box(640, 70, "attention", "softmax over the keys"),
        box(640, 220, "output", "attention V"),
    ]
    arrows = [
        [(160, start), (190, start), (190, end), (220, end)]
        for start in (106, 186)
        for end in (46, 146, 246)
    ]
    arrows += [
        [(370, 46), (400, 46), (400, 88), (430, 88)],
        [(370, 146), (400, 146), (400, 104), (430, 104)],
    ]
    arrows += [[(580, 96), (640, 96)], [(715, 122), (715, 220)], [(370, 246), (640, 246)]]
    return Diagram(
        figure="head",
        title="One head, nothing else",
        caption=f"The head with the widths of {task.rule}. A design is three matrices, Qm, Km, Vm: "
        "what a query asks for, what a key offers, and what is passed on. No residual "
        "stream, norm, bias or mask.",
        width=800,
        height=290,
        boxes=boxes,
        arrows=[Arrow(points=points) for points in arrows],
    )


def comparison_section(pairs: Sequence[tuple[Design, Cohort]]) -> Maps:
    """Show Km, which cannot be compared between heads, and score tables, which can."""
    return Maps(
        figure="score_tables",
        title="What can be compared",
        caption="First Km of the design and of some learned heads: they have little in common, "
        "since Km R with Qm R⁻ᵀ is the same head for any invertible R. Then the score table of "
        "each, x Qm Kmᵀ xᵀ/√d_qk for every possible query and key, each row less its mean: "
        "attention depends on nothing else of the matrices. Blank: two different tokens are never "
        "at one position.",
        choices=[_comparison_choice(design, cohort) for design, cohort in pairs],
    )


def _comparison_choice(design: Design, cohort: Cohort) -> MapChoice:
    task = design.task
    heads: list[tuple[str, SingleHead]] = [("by hand", design.model())]
    heads += [(f"learned {index}", head) for index, head in enumerate(cohort.finite[:3], 1)]
    maps = []
    for who, head in heads:
        Km = head.matrices().Km.double()
        channels = [str(channel + 1) for channel in range(Km.shape[1])]
        rows = _features(task, len(Km))
        maps.append(_signed(f"Km, {who}", Km, rows, channels, "feature", "channel"))
    for who, head in heads:
        table = score_table(head.matrices(), task)
        maps.append(
            _signed(
                f"scores, {who}", table.scores.double(), table.queries, table.keys, "query", "key"
            )
        )
    return MapChoice(
        label=cohort.title,
        note="" if design.pos is None else "Letters carry their position, counted from 1.",
        maps=maps,
    )


def _signed(
    title: str,
    values: Tensor,
    rows: Sequence[str],
    columns: Sequence[str],
    row_title: str,
    column_title: str,
) -> Heatmap:
    largest = max(float(values.nan_to_num().abs().max()), _LEAST_SCALE)
    unit = 10.0 ** (math.floor(math.log10(largest)) - 1)
    largest = math.ceil(largest / unit) * unit  # two digits, so that the scale is readable
    return Heatmap(
        title=f"{title}: ±{largest:g}",
        rows=[
            [None if math.isnan(value) else float(f"{value:.3g}") for value in row]
            for row in values.tolist()
        ],
        row_labels=list(rows),
        column_labels=list(columns),
        row_title=row_title,
        column_title=column_title,
        low=-largest,
        high=largest,
    )


def _features(task: VectorTask, width: int) -> list[str]:
    """Name the rows of Km, Qm and Vm: the tokens, then the channels of the position."""
    return [*task.names, *(f"p{channel + 1}" for channel in range(width - task.input_dim))]


def _numbered(tokens: Sequence[str], task: VectorTask) -> list[str]:
    start = 0 if task.has_cls else 1
    return [
        token if token == "CLS" else f"{token}{place}" for place, token in enumerate(tokens, start)
    ]

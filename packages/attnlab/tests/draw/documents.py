"""Documents to draw: made up, yet of the size and form of real ones."""

import itertools
import math
import random
from typing import Any

from attnlab.draw.json_form import from_json
from attnlab.draw.sections import ReportContent, Section

PAYLOADS = [
    "<script>window.canary = 1</script>",
    "</script><script>window.canary = 2</script>",
    "\"><img src=x onerror='window.canary = 3'>",
    "<!--<script>",
    "&lt;b&gt; \u2028 \u2029 ' \" `${window.canary = 4}` $title",
]


def content_of(document):
    return ReportContent.from_json(document)


def section_of(section):
    return from_json(Section, section, "section")


def make_section(kind, title, caption="", **parts):
    return {"kind": kind, "title": title, "caption": caption, **parts}


def make_table(columns, rows, title="table"):
    return make_section("table", title, columns=columns, rows=rows)


def report_of(*sections, title="report"):
    """A document of these sections, without facts and claims."""
    parts = {"subtitle": "", "facts": [], "claims": []}
    return {"title": title, **parts, "sections": list(sections)}


def softmax_row(rng, length, peak):
    scores = [rng.gauss(0, 0.8) + (4.0 if i == peak else 0.0) for i in range(length)]
    total = sum(map(math.exp, scores))
    return [math.exp(score) / total for score in scores]


def make_trace(letters, alphabet, num_heads, rng):
    ordered = sorted(letters)
    tokens = [*letters, "SEP", *ordered]
    steps = []
    for k, letter in enumerate(ordered):
        chances = softmax_row(rng, len(alphabet), alphabet.index(letter))
        choice = alphabet[max(range(len(alphabet)), key=chances.__getitem__)]
        position = len(letters) + k
        steps.append(make_step(position, alphabet, chances, choice))
    attention = []
    for head in range(num_heads):
        places = range(len(tokens) - 1)
        rows = [softmax_row(rng, i + 1, (3 * i + head) % (i + 1)) for i in places]
        attention.append(make_head(f"layers.{head // 2}.attention.weights", rows, head % 2))
    return {"input": letters, "tokens": tokens, "steps": steps, "attention": attention}


def make_step(position, candidates, probabilities, choice):
    chances = {"candidates": candidates, "probabilities": probabilities}
    return {"position": position, **chances, "choice": choice}


def make_head(site, rows, head=0, **more):
    return {"site": site, "head": head, "rows": rows, **more}


def make_document(num_wrong=0, num_steps=15000):
    """A sorter that looks like a finished run; `num_wrong` of its inputs come out wrong."""
    rng = random.Random(0)
    floor = 0.3662
    inputs = [list(letters) for letters in itertools.product("abc", repeat=3)]
    items = []
    for i, letters in enumerate(inputs):
        is_wrong = i in (5, 11, 16, 21)[:num_wrong]
        ordered = sorted(letters)
        output = ordered[::-1] if is_wrong else ordered
        sure = 0.61 if is_wrong else 1 - rng.random() ** 3 * 0.02
        answer = {"input": letters, "output": output, "expected": ordered}
        items.append({**answer, "correct": not is_wrong, "confidence": sure})
    x = list(range(num_steps))
    held_out = x[::500]
    y, losses = (
        [floor + 1.9 * math.exp(-step / 1300) for step in steps] for steps in (x, held_out)
    )
    claims = [
        {
            "name": f"claim_{number}",
            "statement": f"claim {number} is so",
            "measured": f"{len(inputs) - num_wrong}/27",
            "bound": "27/27",
            "passed": not (num_wrong and number == 0),
        }
        for number in range(6)
    ]
    facts = {"seed": 0, "parameters": 480, "steps": "15,000", "device": "cpu", "took": "41 s"}
    text = (
        "The model reads three letters and a separator, then writes them in order.\n\nIt never "
        "sees the answer: at each step it looks back over the letters and picks one."
    )
    sections = [
        {"kind": "text", "title": "What is going on", "text": text},
        make_section(
            "lines",
            "Learning",
            "The loss falls until nothing is left to learn: the floor is what a perfect sorter "
            "pays for letters it cannot foresee.",
            x_label="step",
            y_label="loss (nats)",
            series=[
                {"name": "training loss", "x": x, "y": y},
                {"name": "all 27 inputs", "x": held_out, "y": losses},
            ],
            levels=[{"name": "floor 0.366", "y": floor}],
            y_log=False,
        ),
        make_section(
            "verdicts",
            "Every input",
            "All 27 inputs there are. Choose one to follow it below.",
            items=items,
        ),
        make_section(
            "trace",
            "Step by step",
            "Follow one input through the model: where each head looks, and what is picked.",
            traces=[make_trace(letters, ["a", "b", "c"], 2, rng) for letters in inputs],
        ),
        make_section(
            "table",
            "Heads taken away",
            "How many of the 27 inputs still come out sorted.",
            columns=["what is zeroed", "sorted inputs", "loss"],
            rows=[["nothing", 27, 0.3733], ["head 0", 9, 1.2041], ["head 1", 11, math.nan]],
        ),
    ]
    return {
        "title": "sorting",
        "subtitle": "One layer with two heads learns to sort three letters, and shows how.",
        "facts": [list(fact) for fact in facts.items()],
        "claims": claims,
        "sections": sections,
    }


def make_cross_document():
    """A tiny translator: one self head, one cross head over the source, gaps, many candidates."""
    source = ["the", "cat", "sleeps", "<end>"]
    tokens = ["BOS", "le", "chat", "dort"]
    candidates = [f"word{i}" for i in range(20)] + ["le", "chat", "dort"]
    steps = []
    for i, word in enumerate(tokens[1:]):
        last = [0.9 if candidate == word else 0.05 for candidate in candidates[20:]]
        steps.append(make_step(i, candidates, [0.0] * 19 + [None, *last], word))
    self_rows = [[1.0], [0.25, 0.75], [math.nan, 0.5, 0.5]]
    cross_rows = [[0.125, 0.625, 0.125, 0.125], [0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.5, 0.5]]
    attention = [
        make_head("layers.0.attention.weights", self_rows),
        make_head("layers.0.cross_attention.weights", cross_rows, key_tokens=source),
    ]
    trace = {"input": source, "tokens": tokens, "steps": steps, "attention": attention}
    caption = "Self-attention and cross-attention."
    return report_of(make_section("trace", "Translation", caption, traces=[trace]))


def edited(path, value, document=None):
    """A small document with one place changed, or taken away where `value` is `...`."""
    document = make_document(num_steps=10) if document is None else document
    *parents, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    node: Any = document
    for part in parents:
        node = node[part]
    if value is ...:
        del node[last]
    else:
        node[last] = value
    return document


def make_map(title, rows, names, axes=("query", "key"), high=1.0, low=0.0):
    """A map of rows: the names of its rows and columns, and the titles of its axes."""
    labels = {"row_labels": names[0], "column_labels": names[1]}
    titles = {"row_title": axes[0], "column_title": axes[1]}
    return {"title": title, "rows": rows, **labels, **titles, "low": low, "high": high}


def make_kinds_document():
    """One section each of bars, banded lines, maps and a diagram, small enough to redo by hand."""
    words = ["the", "cat", "sat"]
    causal = [[1.0, None, None], [0.25, 0.75, None], [0.5, 0.125, 0.375]]
    signed, sides = [[-2.0, 0.5], [2.0, math.nan]], (["first", "second"], ["d0", "d1"])
    weights = make_map("weights", causal, (words, words))
    scores = make_map("scores", signed, sides, ("query", "dimension"), 2.0, -2.0)
    uniform = {**weights, "rows": [[1 / 3] * 3] * 3}
    seen = {"values": [0.96, 0.5], "low": [0.94, 0.4], "high": [0.98, 0.6]}
    longer = {"values": [0.9, None], "low": [0.88, 0.1], "high": [0.92, 0.2]}
    bars = make_section(
        "bars",
        "Parts taken away",
        "Mean of five seeds.",
        y_label="accuracy",
        groups=["full model", "no positions"],
        series=[{"name": "seen lengths", **seen}, {"name": "longer", **longer}],
        levels=[{"name": "chance", "y": 0.25}],
        figure="parts",
    )
    ends = {"low": [0.9, 0.65, 0.5, 0.25], "high": [1.0, 0.85, 0.6, 0.75]}
    lines = make_section(
        "lines",
        "Accuracy by length",
        "Mean of five seeds.",
        x_label="length",
        y_label="accuracy",
        series=[{"name": "rotary", "x": [8, 16, 32, 64], "y": [1.0, 0.75, None, 0.5], **ends}],
        levels=[{"name": "chance", "y": 0.125}],
        x_log=True,
        figure="length",
    )
    maps = make_section(
        "maps",
        "Weights and scores",
        "One sentence at a time.",
        choices=[
            {"label": "the cat sat", "note": "Each word looks back.", "maps": [weights, scores]},
            {"label": "uniform", "note": "All look everywhere.", "maps": [uniform]},
        ],
        figure="maps",
    )
    diagram = make_section(
        "diagram",
        "A block",
        "What goes where.",
        width=460,
        height=260,
        boxes=[
            make_box(110, 60, 200, 50, title="Feed-forward", tone="plain"),
            make_box(110, 140, 200, 50, title="Attention", tone="accent"),
            make_box(160, 225, 100, 30, title="input", tone="quiet"),
        ],
        arrows=[
            {"points": [[210, 225], [210, 190]]},
            {"points": [[210, 140], [210, 110]]},
            {"points": [[210, 205], [400, 205], [400, 125], [210, 125]], "dashed": True},
        ],
    )
    return report_of(bars, lines, maps, diagram, title="kinds")


def make_box(x, y, width, height, **more):
    return {"x": x, "y": y, "width": width, "height": height, **more}

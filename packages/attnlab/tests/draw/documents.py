"""Documents to draw: made up, yet of the size and form of real ones.

A sorter of three letters with all 27 inputs, two heads and 15000 steps of loss; a tiny translator;
and one section of every further kind.
"""

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


def content_of(document: dict[str, Any]) -> ReportContent:
    return ReportContent.from_json(document)


def section_of(section: dict[str, Any]) -> Any:
    return from_json(Section, section, "section")


def softmax_row(rng: random.Random, length: int, peak: int) -> list[float]:
    scores = [rng.gauss(0, 0.8) + (4.0 if i == peak else 0.0) for i in range(length)]
    total = sum(map(math.exp, scores))
    return [math.exp(score) / total for score in scores]


def make_trace(
    letters: list[str], alphabet: list[str], num_heads: int, rng: random.Random
) -> dict[str, Any]:
    ordered = sorted(letters)
    tokens = [*letters, "SEP", *ordered]
    steps = []
    for k, letter in enumerate(ordered):
        chances = softmax_row(rng, len(alphabet), alphabet.index(letter))
        steps.append(
            {
                "position": len(letters) + k,
                "candidates": alphabet,
                "probabilities": chances,
                "choice": alphabet[max(range(len(alphabet)), key=chances.__getitem__)],
            }
        )
    attention = [
        {
            "site": f"layers.{head // 2}.attention.weights",
            "head": head % 2,
            "rows": [
                softmax_row(rng, i + 1, (3 * i + head) % (i + 1)) for i in range(len(tokens) - 1)
            ],
        }
        for head in range(num_heads)
    ]
    return {"input": letters, "tokens": tokens, "steps": steps, "attention": attention}


def make_document(num_wrong: int = 0, num_steps: int = 15000) -> dict[str, Any]:
    """A sorter that looks like a finished run; `num_wrong` of its inputs come out wrong."""
    rng = random.Random(0)
    floor = 0.3662
    inputs = [list(letters) for letters in itertools.product("abc", repeat=3)]
    items = []
    for i, letters in enumerate(inputs):
        is_wrong = i in (5, 11, 16, 21)[:num_wrong]
        ordered = sorted(letters)
        items.append(
            {
                "input": letters,
                "output": ordered[::-1] if is_wrong else ordered,
                "expected": ordered,
                "correct": not is_wrong,
                "confidence": 0.61 if is_wrong else 1 - rng.random() ** 3 * 0.02,
            }
        )
    x = list(range(num_steps))
    y = [
        floor
        + 1.9 * math.exp(-step / 1300)
        + abs(rng.gauss(0, 0.03 + 0.25 * math.exp(-step / 2500)))
        for step in x
    ]
    held_out = list(range(0, num_steps, 500))
    right = len(inputs) - num_wrong
    claims = [
        (
            "all_inputs_sorted",
            "every one of the 27 inputs comes out sorted",
            f"{right}/27",
            "27/27",
            not num_wrong,
        ),
        (
            "loss_at_floor",
            "the loss ends within 0.02 nats of the smallest possible",
            "0.0071",
            "≤ 0.02",
            True,
        ),
        (
            "heads_are_sharp",
            "each head puts at least 0.9 of its weight on one letter",
            "0.934",
            "≥ 0.9",
            True,
        ),
        ("rows_sum_to_one", "every attention row sums to one", "1.2e-07", "≤ 1e-06", True),
        ("nothing_looks_ahead", "no weight on a later token", "0", "= 0", True),
        (
            "needs_both_heads",
            "with either head zeroed it fails on some input",
            "9/27 and 11/27",
            "< 27/27",
            True,
        ),
    ]
    names = ("name", "statement", "measured", "bound", "passed")
    return {
        "title": "sorting",
        "subtitle": (
            "One layer with two heads learns to sort three letters, and shows how it does it."
        ),
        "facts": [
            ["seed", 0],
            ["parameters", 480],
            ["steps", "15,000"],
            ["device", "cpu"],
            ["took", "41 s"],
        ],
        "claims": [dict(zip(names, claim, strict=True)) for claim in claims],
        "sections": [
            {
                "kind": "text",
                "title": "What is going on",
                "text": "The model reads three letters and a separator, then writes them in "
                "order.\n\nIt never sees the answer: at each step it looks back over the "
                "letters and picks one.",
            },
            {
                "kind": "lines",
                "title": "Learning",
                "caption": "The loss falls until nothing is left to learn: the floor is what a "
                "perfect sorter pays for letters it cannot foresee.",
                "x_label": "step",
                "y_label": "loss (nats)",
                "series": [
                    {"name": "training loss", "x": x, "y": y},
                    {
                        "name": "all 27 inputs",
                        "x": held_out,
                        "y": [floor + 1.8 * math.exp(-step / 1250) + 0.004 for step in held_out],
                    },
                ],
                "levels": [{"name": "floor 0.366", "y": floor}],
                "y_log": False,
            },
            {
                "kind": "verdicts",
                "title": "Every input",
                "caption": "All 27 inputs there are. Choose one to follow it below.",
                "items": items,
            },
            {
                "kind": "trace",
                "title": "Step by step",
                "caption": "Follow one input through the model: where each head looks, and what is "
                "picked.",
                "traces": [make_trace(letters, ["a", "b", "c"], 2, rng) for letters in inputs],
            },
            {
                "kind": "table",
                "title": "Heads taken away",
                "caption": "How many of the 27 inputs still come out sorted.",
                "columns": ["what is zeroed", "sorted inputs", "loss"],
                "rows": [
                    ["nothing", 27, 0.3733],
                    ["head 0", 9, 1.2041],
                    ["head 1", 11, float("nan")],
                ],
            },
        ],
    }


def make_cross_document() -> dict[str, Any]:
    """A tiny translator: one self head, one cross head over the source, gaps, and many
    candidates."""
    document = make_document(num_steps=10)
    source = ["the", "cat", "sleeps", "<end>"]
    tokens = ["BOS", "le", "chat", "dort"]
    candidates = [f"word{i}" for i in range(20)] + ["le", "chat", "dort"]
    steps = [
        {
            "position": i,
            "candidates": candidates,
            "probabilities": [0.0] * 19
            + [None]
            + [0.9 if c == tokens[i + 1] else 0.05 for c in candidates[20:]],
            "choice": tokens[i + 1],
        }
        for i in range(3)
    ]
    self_rows = [[1.0], [0.25, 0.75], [float("nan"), 0.5, 0.5]]
    cross_rows = [[0.125, 0.625, 0.125, 0.125], [0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.5, 0.5]]
    document["sections"] = [
        {
            "kind": "trace",
            "title": "Translation",
            "caption": "Self-attention and cross-attention.",
            "traces": [
                {
                    "input": source,
                    "tokens": tokens,
                    "steps": steps,
                    "attention": [
                        {"site": "layers.0.attention.weights", "head": 0, "rows": self_rows},
                        {
                            "site": "layers.0.cross_attention.weights",
                            "head": 0,
                            "rows": cross_rows,
                            "key_tokens": source,
                        },
                    ],
                }
            ],
        }
    ]
    return document


def edited(path: str, value: Any, document: dict[str, Any] | None = None) -> dict[str, Any]:
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


def make_kinds_document() -> dict[str, Any]:
    """One section each of bars, banded lines, maps and a diagram, small enough to redo by hand."""
    words = ["the", "cat", "sat"]
    causal = [[1.0, None, None], [0.25, 0.75, None], [0.5, 0.125, 0.375]]
    signed = [[-2.0, 0.5], [2.0, float("nan")]]
    weights = {
        "title": "weights",
        "rows": causal,
        "row_labels": words,
        "column_labels": words,
        "row_title": "query",
        "column_title": "key",
        "low": 0.0,
        "high": 1.0,
    }
    scores = {
        "title": "scores",
        "rows": signed,
        "row_labels": ["first", "second"],
        "column_labels": ["d0", "d1"],
        "row_title": "query",
        "column_title": "dimension",
        "low": -2.0,
        "high": 2.0,
    }
    uniform = {**weights, "rows": [[1 / 3] * 3] * 3}
    bars = {
        "kind": "bars",
        "title": "Parts taken away",
        "caption": "Mean of five seeds.",
        "y_label": "accuracy",
        "groups": ["full model", "no positions"],
        "series": [
            {
                "name": "seen lengths",
                "values": [0.96, 0.5],
                "low": [0.94, 0.4],
                "high": [0.98, 0.6],
            },
            {"name": "longer", "values": [0.9, None], "low": [0.88, 0.1], "high": [0.92, 0.2]},
        ],
        "levels": [{"name": "chance", "y": 0.25}],
        "figure": "parts",
    }
    lines = {
        "kind": "lines",
        "title": "Accuracy by length",
        "caption": "Mean of five seeds.",
        "x_label": "length",
        "y_label": "accuracy",
        "series": [
            {
                "name": "rotary",
                "x": [8, 16, 32, 64],
                "y": [1.0, 0.75, None, 0.5],
                "low": [0.9, 0.65, 0.5, 0.25],
                "high": [1.0, 0.85, 0.6, 0.75],
            }
        ],
        "levels": [{"name": "chance", "y": 0.125}],
        "x_log": True,
        "figure": "length",
    }
    maps = {
        "kind": "maps",
        "title": "Weights and scores",
        "caption": "One sentence at a time.",
        "choices": [
            {"label": "the cat sat", "note": "Each word looks back.", "maps": [weights, scores]},
            {"label": "uniform", "note": "All look everywhere.", "maps": [uniform]},
        ],
        "figure": "maps",
    }
    diagram = {
        "kind": "diagram",
        "title": "A block",
        "caption": "What goes where.",
        "width": 460,
        "height": 260,
        "boxes": [
            {"x": 60, "y": 20, "width": 300, "height": 180, "title": "Layer", "note": "twice"},
            {
                "x": 110,
                "y": 60,
                "width": 200,
                "height": 50,
                "title": "Feed-forward",
                "tone": "plain",
            },
            {
                "x": 110,
                "y": 140,
                "width": 200,
                "height": 50,
                "title": "Attention",
                "note": "2 heads",
                "tone": "accent",
            },
            {"x": 160, "y": 225, "width": 100, "height": 30, "title": "input", "tone": "quiet"},
        ],
        "arrows": [
            {"points": [[210, 225], [210, 190]], "label": "vectors"},
            {"points": [[210, 140], [210, 110]]},
            {
                "points": [[210, 205], [400, 205], [400, 125], [210, 125]],
                "dashed": True,
                "label": "+",
            },
        ],
        "figure": "block",
    }
    return {
        "title": "kinds",
        "subtitle": "",
        "facts": [],
        "claims": [],
        "sections": [bars, lines, maps, diagram],
    }

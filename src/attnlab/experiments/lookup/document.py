"""What a run of look-up shows: the report's head, and the sections of the fixed table."""

import math
from typing import Any

import torch

from attnlab.draw.markup import plural
from attnlab.experiments.intervals import mean_interval
from attnlab.experiments.lookup.config import NAME, LookupConfig
from attnlab.experiments.lookup.fixed import KINDS, FixedFound, Member
from attnlab.experiments.lookup.recall import Recalled
from attnlab.experiments.lookup.recall_document import recall_facts, recall_sections, recall_words
from attnlab.experiments.lookup.traces import attention_maps, trace_sources
from attnlab.experiments.lookup.wording import difference_text, range_text
from attnlab.experiments.sections import parameters_section, settings_section
from attnlab.look.trace import Trace
from attnlab.models.encoder_decoder import EncoderDecoder
from attnlab.models.parameters import count_from_model
from attnlab.tasks import lookup as task

__all__ = ["make_document"]

_MOST_WEIGHTS = 100_000  # attention weights that a page holds in all
_MOST_ROWS = 500  # of a table
_MOST_GROUPS = 64  # heads drawn as bars


def make_document(
    config: LookupConfig,
    seed: int,
    main: EncoderDecoder,
    *,
    fixed: FixedFound | None,
    recalled: list[Recalled],
) -> dict[str, Any]:
    """Lay out the report."""
    words, sections = [], list[dict[str, Any]]()
    facts = [["seed", str(seed)], ["parameters", f"{sum(count_from_model(main).values()):,}"]]
    subtitles = []
    if fixed is not None:
        words += _fixed_words(fixed)
        facts += _fixed_facts(config, fixed)
        sections += _fixed_sections(main, fixed)
        subtitles.append(
            f"An encoder–decoder of {sum(count_from_model(main).values()):,} parameters learns three facts from "
            f"shuffled words, by an encoder that is told no order."
        )
    if recalled:
        words += recall_words(config, recalled)
        facts += recall_facts(config, recalled)
        sections += recall_sections(config, recalled)
        subtitles.append("Facts that are new in every sample must be read, and that takes bound or ordered words.")
    return {
        "title": NAME,
        "subtitle": " ".join(subtitles),
        "facts": facts,
        "sections": [
            {"kind": "text", "title": "What this shows", "text": "\n\n".join(words)},
            *sections,
            parameters_section(main),
            settings_section(config),
        ],
    }


def _fixed_words(fixed: FixedFound) -> list[str]:
    single = max(each.difference32 for each in fixed.scrambled)
    double = max(each.difference64 for each in fixed.scrambled)
    changed = sum(each.outputs_changed for each in fixed.scrambled)
    same = "Every one of the 120 orders of the words of every source gives the same output."
    if changed:
        same = f"Of all orders of the words of every source, {changed:,} do not give the same output."
    heads = torch.cat([masses.mean[:, 0] for masses in fixed.masses])  # (seed · head, kind), looking from [SOS]
    more_value = int((heads[:, 1] > heads[:, 0]).sum())
    key, value = (mean_interval(_by_seed(fixed, 0, kind)).value for kind in (0, 1))
    verdict = "That is so" if more_value == len(heads) else "Measured, it is not so"
    return [
        "The encoder is told no positions, so what it holds is a set of words, and the decoder can find things in it "
        f"by content alone. {same} The "
        f"logits differ by {single:.0e} at most in float32 and {double:.0e} in float64 (sums added up in another "
        f"order are rounded otherwise).{_control_words(fixed)}",
        "One would think that the heads of the cross-attention look at the value, to copy it. "
        f"{verdict}: looking from [SOS], {more_value} of {len(heads)} heads give more weight to the value than to the "
        f"key ({len(heads) - more_value} the other way round); the key gets {key:.2f} on average and the value "
        f"{value:.2f}, where an even spread over five words would give 0.20. There are only three sets of words, "
        f"{_seen_sets(fixed)} in training, and each holds a word that no other has: to recognise the set would be "
        "enough.",
        _probe_words(fixed),
    ]


def _control_words(fixed: FixedFound) -> str:
    """Say what an encoder makes of the order that it is told."""
    found = fixed.controls_scrambled
    if not found:
        return ""
    least, most = (pick(each.difference64 for each in found) for pick in (min, max))
    moved, of = sum(each.outputs_changed for each in found), sum(each.num_orders for each in found)
    changes = f"and {moved:,} of {of:,} decoded outputs change." if moved else "though no decoded output changes."
    return f" Told positions, the encoder does see the order: the logits move by {range_text(least, most)}, {changes}"


def _seen_sets(fixed: FixedFound) -> str:
    """Say how many of the three sets of words the models were trained on."""
    seen = [len(torch.unique(task.key_of(member.split.train))) for member in fixed.members]
    return "all of them" if min(seen) == len(task.FACTS) else f"{min(seen)} of them at least"


def _probe_words(fixed: FixedFound) -> str:
    """Say from the answers to mismatched pairs whether the value is copied or the key looked up."""
    follow, own, other = (sum(getattr(each, name) for each in fixed.probed) for name in _PROBED)
    number = follow + own + other
    pairs = len(fixed.probed)
    words = (
        f"Is the value copied then, or is the table kept in the weights? Pairs that no fact has tell: {pairs} keys "
        f"with a value that is not theirs, put to {len(fixed.members)} {plural(len(fixed.members), 'model')}. Of "
        f"{number} answers {follow} are the value shown, {own} the key's own, which does not stand there, and {other} "
        "something else. "
    )
    if follow == number:
        return words + "So here the value that is shown is copied."
    if own == number:
        return words + "So here the key decides, by a table kept in the weights."
    return words + "So both happen: in training the two ways give the same answers, and nothing prefers one of them."


_PROBED = ("follow_shown", "say_own", "other")


def _fixed_facts(config: LookupConfig, fixed: FixedFound) -> list[list[str]]:
    own = _epochs(config, fixed.members[:1])
    ended = f"this run's model {own:g} of {config.epochs} {plural(config.epochs, 'epoch')}"
    if len(fixed.members) > 1:
        others = _epochs(config, fixed.members[1:])
        ended += f", the others {others:g} at most"
        if config.patience is not None and others < config.epochs:
            ended += (
                f" (every validation sample right in {config.patience} {plural(config.patience, 'epoch')} in a row)"
            )
    ended += "; no padding" if config.pad_to is None else f"; padded to {config.pad_to} tokens"
    first = fixed.members[0]
    return [
        ["models", f"{len(fixed.members)} {plural(len(fixed.members), 'seed')}, {len(fixed.controls)} of the control"],
        ["data", f"{config.samples:,} samples, of 72 distinct sources; {len(first.split.test):,} for the test"],
        ["training", ended],
    ]


def _epochs(config: LookupConfig, members: list[Member]) -> float:
    """The most epochs that any of these models was trained for."""
    steps = [member.trained.metrics[-1]["step"] for member in members if member.trained is not None]
    return max(steps, default=0) / config.steps_per_epoch()


def _fixed_sections(main: EncoderDecoder, fixed: FixedFound) -> list[dict[str, Any]]:
    sources = task.all_sources()
    weights_each = main.config.num_layers * main.config.num_heads * 2 * (sources.shape[1] + 2)
    traces = trace_sources(main, sources)
    shown = traces[: max(1, _MOST_WEIGHTS // weights_each)]
    return [
        {
            "kind": "trace",
            "figure": "trace",
            "figure_input": task.EXAMPLE.split(),
            "title": "Step by step",
            "caption": (
                "Choose a source and step through its answer. At each step the decoder looks back over what it has "
                "said (attention), and over the words of the source (cross-attention, whose rows are over those)."
            ),
            # Of inputs equally varied the page opens with the last, and the maps with the first: let these be the same.
            "traces": [each.to_mapping() for each in (*shown[1:], shown[0])],
        },
        {
            "kind": "maps",
            "figure": "cross-attention",
            "title": "Cross-attention",
            "caption": (
                "Each head of the decoder: encoder tokens from left to right, decoder tokens downwards. Sources with "
                "the same words in another order have the same weights, each word keeping its own."
            ),
            "choices": attention_maps(shown),
        },
        _mass_bars(fixed),
        _mass_table(fixed),
        _probe_table(fixed),
        _scramble_table(fixed),
        _verdicts(traces),
        *_curves(fixed),
    ]


def _mass_bars(fixed: FixedFound) -> dict[str, Any]:
    own = fixed.masses[0].mean[:_MOST_GROUPS, 0]
    series = []
    for kind, name in enumerate(KINDS[:3]):
        value, low, high = mean_interval(_by_seed(fixed, 0, kind))
        none = [None] * len(own)
        series.append(
            {
                "name": name,
                "values": [*(float(head[kind]) for head in own), value],
                "low": [*none, None if math.isnan(low) else low],
                "high": [*none, None if math.isnan(high) else high],
            }
        )
    return {
        "kind": "bars",
        "figure": "masses",
        "title": "Where the cross-attention goes",
        "caption": (
            "Weight that each head of this run's model gives to the key, the value, and the other three words "
            "together when it looks from [SOS], on average over the test samples; and the mean over all heads and "
            f"{len(fixed.masses)} {plural(len(fixed.masses), 'seed')}, with its 95 % interval over "
            "the seeds. Padding gets exactly 0."
        ),
        "y_label": "share of the weight",
        "groups": [*(f"head {head}" for head in range(len(own))), "all heads, all seeds"],
        "series": series,
        "levels": [{"name": "one word of five, evenly", "y": 0.2}],
    }


def _mass_table(fixed: FixedFound) -> dict[str, Any]:
    rows = [
        [member.number, head, *(round(float(mean[head, row, kind]), 4) for row in range(2) for kind in range(3))]
        for member, mean in ((member, masses.mean) for member, masses in zip(fixed.members, fixed.masses, strict=True))
        for head in range(len(mean))
    ]
    more = ""
    if len(rows) > _MOST_ROWS:
        more = f" The first {_MOST_ROWS} of {len(rows):,} heads."
    return {
        "kind": "table",
        "title": "Every head of every seed",
        "caption": (
            "The same for each head, seen from [SOS], where the value is to be said, and from the value, where [EOS] "
            "is. Seed 0 is this run's model; heads are counted through the layers. Of different seeds, heads of the "
            f"same number have nothing in common.{more}"
        ),
        "columns": ["seed", "head", *(f"{row}: {kind}" for row in ("[SOS]", "value") for kind in KINDS[:3])],
        "rows": rows[:_MOST_ROWS],
    }


def _probe_table(fixed: FixedFound) -> dict[str, Any]:
    return {
        "kind": "table",
        "title": "A key beside a value that is not its own",
        "caption": (
            "No fact has these pairs, and no training showed them. How many of the models answer with the value that "
            "is shown, with the one that the table has for the key, or with something else."
        ),
        "columns": ["key", "value shown", "the key's own", "says the value shown", "says the key's own", "other"],
        "rows": [list(each) for each in fixed.probed],
    }


def _scramble_table(fixed: FixedFound) -> dict[str, Any]:
    rows = [
        [
            name,
            index,
            each.outputs_changed,
            each.num_orders,
            *(map(difference_text, (each.difference32, each.difference64))),
        ]
        for name, found in (("no positions", fixed.scrambled), ("told positions (control)", fixed.controls_scrambled))
        for index, each in enumerate(found)
    ]
    return {
        "kind": "table",
        "title": "Every order of the words",
        "caption": (
            "All 120 orders of each of the 72 sources against the source as it was: decoded outputs that differ, and "
            "the largest difference between two logits, computed in float32 and in float64."
        ),
        "columns": ["encoder", "seed", "outputs changed", "of", "logits, float32", "logits, float64"],
        "rows": rows[:_MOST_ROWS],
    }


def _verdicts(traces: list[Trace]) -> dict[str, Any]:
    sources = task.all_sources()
    wanted = [task.words(row) for row in task.target_output(task.answer(sources))]
    items = [
        {
            "input": list(trace.input),
            "output": [step.choice for step in trace.steps],
            "expected": expected,
            "correct": [step.choice for step in trace.steps] == expected,
            "confidence": min(step.probabilities[task.VOCABULARY.index(step.choice)] for step in trace.steps),
        }
        for trace, expected in zip(traces, wanted, strict=True)
    ]
    return {
        "kind": "verdicts",
        "title": f"All {len(items)} sources",
        "caption": "Every distinct source, with the model's answer and the least probability among its choices.",
        "items": items,
    }


def _curves(fixed: FixedFound) -> list[dict[str, Any]]:
    trained = fixed.members[0].trained
    if trained is None:
        return []
    series = []
    for name, figure in (("training", "loss"), ("validation", "validation_loss")):
        lines = [line for line in trained.metrics if figure in line]
        series.append({"name": name, "x": [line["step"] for line in lines], "y": [line[figure] for line in lines]})
    return [
        {
            "kind": "lines",
            "figure": "loss",
            "title": "Loss",
            "caption": "Mean cross-entropy of the target's two tokens, teacher-forced; this run's model.",
            "x_label": "step",
            "y_label": "loss (nats per token)",
            "series": series,
            "y_log": True,
        }
    ]


def _by_seed(fixed: FixedFound, row: int, kind: int) -> list[float]:
    """Return the mean over each model's heads of the weight that goes to one kind of word."""
    return [float(masses.mean[:, row, kind].mean()) for masses in fixed.masses]

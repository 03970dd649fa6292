"""The report of look-up: its head, and the sections of the fixed table."""

import math

import torch

from attnlab.core.stats import mean_interval
from attnlab.draw.numbers import plural
from attnlab.draw.sections import (
    Bars,
    BarSeries,
    Level,
    Lines,
    Maps,
    ReportContent,
    Scalar,
    Section,
    ShownTrace,
    Table,
    Text,
    Traces,
    Verdict,
    Verdicts,
)
from attnlab.experiments.lookup.config import NAME, LookupConfig
from attnlab.experiments.lookup.fixed_table import KINDS, FixedFound, Member
from attnlab.experiments.lookup.format import difference_text, range_text
from attnlab.experiments.lookup.recall import Recalled
from attnlab.experiments.lookup.recall_report import recall_facts, recall_sections, recall_words
from attnlab.experiments.lookup.traces import attention_maps, trace_sources
from attnlab.experiments.sections import metric_series, parameters_section, settings_section
from attnlab.look.trace import Trace
from attnlab.models.encoder_decoder import EncoderDecoder
from attnlab.models.parameters import count_from_model
from attnlab.tasks import lookup as task

_MOST_WEIGHTS = 100_000  # attention weights that a page holds in all
_MOST_ROWS = 500  # of a table
_MOST_GROUPS = 64  # heads drawn as bars


def make_content(
    config: LookupConfig,
    seed: int,
    main: EncoderDecoder,
    *,
    fixed: FixedFound | None,
    recalled: list[Recalled],
) -> ReportContent:
    """Make the report's content."""
    words: list[str] = []
    sections: list[Section] = []
    facts = [("seed", str(seed)), ("parameters", f"{sum(count_from_model(main).values()):,}")]
    subtitles = []
    if fixed is not None:
        words += _fixed_words(fixed)
        facts += _fixed_facts(config, fixed)
        sections += _fixed_sections(main, fixed)
        subtitles.append(
            f"An encoder–decoder of {sum(count_from_model(main).values()):,} parameters learns "
            "three facts from shuffled words; its encoder has no positions."
        )
    if recalled:
        words += recall_words(config, recalled)
        facts += recall_facts(config, recalled)
        sections += recall_sections(config, recalled)
        subtitles.append(
            "Facts that are new in every sample must be read, which takes bound or ordered words."
        )
    return ReportContent(
        title=NAME,
        subtitle=" ".join(subtitles),
        facts=facts,
        sections=[
            Text(title="What this shows", text="\n\n".join(words)),
            *sections,
            parameters_section(main),
            settings_section(config),
        ],
    )


def _fixed_words(fixed: FixedFound) -> list[str]:
    single = max(each.difference32 for each in fixed.scrambled)
    double = max(each.difference64 for each in fixed.scrambled)
    changed = sum(each.outputs_changed for each in fixed.scrambled)
    same = "Every one of the 120 orders of the words of every source gives the same output."
    if changed:
        same = f"{changed:,} orders of the words of a source do not give the same output."
    # (seed · head, kind), for the query at [SOS].
    heads = torch.cat([masses.mean[:, 0] for masses in fixed.masses])
    more_value = int((heads[:, 1] > heads[:, 0]).sum())
    key, value = (mean_interval(_by_seed(fixed, 0, kind)).value for kind in (0, 1))
    verdict = "That is so" if more_value == len(heads) else "Measured, it is not so"
    return [
        "The encoder has no positions, so its output is a set of words, and the decoder "
        f"can find things in it by content alone. {same} The logits differ by {single:.0e} at "
        f"most in float32 and {double:.0e} in float64 (the order of a sum changes its "
        f"rounding).{_control_words(fixed)}",
        "One would expect the heads of the cross-attention to copy the value. "
        f"{verdict}: for the query at [SOS], {more_value} of {len(heads)} heads give more weight "
        f"to the value than to the key ({len(heads) - more_value} the other way round); the key "
        f"gets {key:.2f} on average and the value {value:.2f}, where uniform weights over five "
        f"words would give 0.20. There are only three sets of words, {_seen_sets(fixed)} in "
        "training, and each holds a word that no other has, so recognizing it would be enough.",
        _probe_words(fixed),
    ]


def _control_words(fixed: FixedFound) -> str:
    """Report by how much an encoder with positions sees the order."""
    found = fixed.controls_scrambled
    if not found:
        return ""
    least, most = (pick(each.difference64 for each in found) for pick in (min, max))
    moved, of = sum(each.outputs_changed for each in found), sum(each.num_orders for each in found)
    changes = "though no decoded output changes."
    if moved:
        changes = f"and {moved:,} of {of:,} decoded outputs change."
    return (
        " With positions the encoder does see the order: the logits change by "
        f"{range_text(least, most)}, {changes}"
    )


def _seen_sets(fixed: FixedFound) -> str:
    """Say how many of the three sets of words occur in training."""
    seen = [len(torch.unique(task.key_of(member.split.train))) for member in fixed.members]
    return "all of them" if min(seen) == len(task.FACTS) else f"{min(seen)} of them at least"


def _probe_words(fixed: FixedFound) -> str:
    """Conclude from the answers to mismatched pairs: is the value copied, or the key looked up?"""
    follow = sum(each.follow_shown for each in fixed.probed)
    own = sum(each.say_own for each in fixed.probed)
    other = sum(each.other for each in fixed.probed)
    number = follow + own + other
    pairs = len(fixed.probed)
    words = (
        "Is the value copied then, or is the table in the weights? Mismatched pairs tell: "
        f"{pairs} keys with a value that is not theirs, put to {len(fixed.members)} "
        f"{plural(len(fixed.members), 'model')}. Of {number} answers {follow} are the value "
        f"shown, {own} the key's own, which is not in the input, and {other} something else. "
    )
    if follow == number:
        return words + "So here the value shown is copied."
    if own == number:
        return words + "So here the key decides, by a table in the weights."
    return words + "So both happen: in training they give the same answers."


def _fixed_facts(config: LookupConfig, fixed: FixedFound) -> list[tuple[str, str]]:
    own = _epochs(config, fixed.members[:1])
    ended = f"this run's model {own:g} of {config.epochs} {plural(config.epochs, 'epoch')}"
    if len(fixed.members) > 1:
        others = _epochs(config, fixed.members[1:])
        ended += f", the others {others:g} at most"
        if config.patience is not None and others < config.epochs:
            ended += (
                f" (every validation sample right in {config.patience} "
                f"{plural(config.patience, 'epoch')} in a row)"
            )
    ended += "; no padding" if config.pad_to is None else f"; padded to {config.pad_to} tokens"
    first = fixed.members[0]
    return [
        (
            "models",
            f"{len(fixed.members)} {plural(len(fixed.members), 'seed')}, "
            f"{len(fixed.controls)} of the control",
        ),
        (
            "data",
            f"{config.samples:,} samples, of 72 distinct sources; {len(first.split.test):,} "
            "for the test",
        ),
        ("training", ended),
    ]


def _epochs(config: LookupConfig, members: list[Member]) -> float:
    """Return the largest number of epochs of these models' trainings."""
    steps = [member.trained.metrics[-1]["step"] for member in members if member.trained is not None]
    return max(steps, default=0) / config.steps_per_epoch()


def _fixed_sections(main: EncoderDecoder, fixed: FixedFound) -> list[Section]:
    sources = task.all_sources()
    weights_each = main.config.num_layers * main.config.num_heads * 2 * (sources.shape[1] + 2)
    traces = trace_sources(main, sources)
    shown = traces[: max(1, _MOST_WEIGHTS // weights_each)]
    return [
        Traces(
            figure="trace",
            figure_input=task.EXAMPLE.split(),
            title="Step by step",
            caption="Choose a source and step through its answer. At each step the decoder "
            "attends to the tokens it has produced (self-attention) and to the words of the "
            "source (cross-attention).",
            # The page opens with the last of equally varied inputs, and the maps with the first:
            # make these the same.
            traces=[ShownTrace.of(each) for each in (*shown[1:], shown[0])],
        ),
        Maps(
            figure="cross-attention",
            title="Cross-attention",
            caption="Each head of the decoder: encoder tokens from left to right, decoder tokens "
            "downwards. Sources with the same words in another order have the same weights, "
            "each word keeping its own.",
            choices=attention_maps(shown),
        ),
        _mass_bars(fixed),
        _mass_table(fixed),
        _probe_table(fixed),
        _scramble_table(fixed),
        _verdicts(traces),
        *_curves(fixed),
    ]


def _mass_bars(fixed: FixedFound) -> Bars:
    own = fixed.masses[0].mean[:_MOST_GROUPS, 0]
    series = []
    for kind, name in enumerate(KINDS[:3]):
        value, low, high = mean_interval(_by_seed(fixed, 0, kind))
        none = [None] * len(own)
        series.append(
            BarSeries(
                name=name,
                values=[*(float(head[kind]) for head in own), value],
                low=[*none, None if math.isnan(low) else low],
                high=[*none, None if math.isnan(high) else high],
            )
        )
    return Bars(
        figure="masses",
        title="Where the cross-attention goes",
        caption="Attention weight of each head of this run's model on the key, the value, and the "
        "other three words together for the query at [SOS], on average over the test "
        f"samples; and the mean over all heads and {len(fixed.masses)} "
        f"{plural(len(fixed.masses), 'seed')}, with its 95 % interval over the seeds. Padding "
        "gets exactly 0.",
        y_label="attention weight",
        groups=[*(f"head {head}" for head in range(len(own))), "all heads, all seeds"],
        series=series,
        levels=[Level(name="one word of five, evenly", y=0.2)],
    )


def _mass_table(fixed: FixedFound) -> Table:
    rows = [
        [
            member.number,
            head,
            *(round(float(mean[head, row, kind]), 4) for row in range(2) for kind in range(3)),
        ]
        for member, mean in (
            (member, masses.mean)
            for member, masses in zip(fixed.members, fixed.masses, strict=True)
        )
        for head in range(len(mean))
    ]
    more = ""
    if len(rows) > _MOST_ROWS:
        more = f" The first {_MOST_ROWS} of {len(rows):,} heads."
    return Table(
        title="Every head of every seed",
        caption="The same for each head, for the query at [SOS], which predicts the value, and at "
        "the value, which predicts [EOS]. Seed 0 is this run's model; heads are counted through "
        f"the layers. Heads of the same number in different seeds have nothing in common.{more}",
        columns=[
            "seed",
            "head",
            *(f"{row}: {kind}" for row in ("[SOS]", "value") for kind in KINDS[:3]),
        ],
        rows=rows[:_MOST_ROWS],
    )


def _probe_table(fixed: FixedFound) -> Table:
    return Table(
        title="A key beside a value that is not its own",
        caption="These pairs are in no fact and in no training. How many of the models answer "
        "with the value shown, with the key's value in the table, or with something else.",
        columns=[
            "key",
            "value shown",
            "the key's own",
            "says the value shown",
            "says the key's own",
            "other",
        ],
        rows=[list(each) for each in fixed.probed],
    )


def _scramble_table(fixed: FixedFound) -> Table:
    rows: list[list[Scalar]] = [
        [
            name,
            index,
            each.outputs_changed,
            each.num_orders,
            *(map(difference_text, (each.difference32, each.difference64))),
        ]
        for name, found in (
            ("no positions", fixed.scrambled),
            ("with positions (control)", fixed.controls_scrambled),
        )
        for index, each in enumerate(found)
    ]
    return Table(
        title="Every order of the words",
        caption="All 120 orders of each of the 72 sources compared with the source itself: decoded "
        "outputs that differ, and the largest difference of a logit, in float32 and in "
        "float64.",
        columns=[
            "encoder",
            "seed",
            "outputs changed",
            "of",
            "logits, float32",
            "logits, float64",
        ],
        rows=rows[:_MOST_ROWS],
    )


def _verdicts(traces: list[Trace]) -> Verdicts:
    sources = task.all_sources()
    wanted = [task.words(row) for row in task.target_output(task.answer(sources))]
    items = [
        Verdict(
            input=list(trace.input),
            output=[step.choice for step in trace.steps],
            expected=expected,
            correct=[step.choice for step in trace.steps] == expected,
            confidence=min(
                step.probabilities[task.VOCABULARY.index(step.choice)] for step in trace.steps
            ),
        )
        for trace, expected in zip(traces, wanted, strict=True)
    ]
    return Verdicts(
        title=f"All {len(items)} sources",
        caption="Every distinct source, with the model's answer and the least probability "
        "among its choices.",
        items=items,
    )


def _curves(fixed: FixedFound) -> list[Section]:
    trained = fixed.members[0].trained
    if trained is None:
        return []
    return [
        Lines(
            figure="loss",
            title="Loss",
            caption="Mean cross-entropy of the target's two tokens, teacher-forced; this run's "
            "model.",
            x_label="step",
            y_label="loss (nats per token)",
            series=[
                metric_series("training", trained.metrics, "loss"),
                metric_series("validation", trained.metrics, "validation_loss"),
            ],
            y_log=True,
        )
    ]


def _by_seed(fixed: FixedFound, row: int, kind: int) -> list[float]:
    """Return the mean weight over each model's heads on one kind of word."""
    return [float(masses.mean[:, row, kind].mean()) for masses in fixed.masses]

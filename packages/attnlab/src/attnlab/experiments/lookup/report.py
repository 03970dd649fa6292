"""The report of look-up: the sections of the fixed table, and those of facts that are new."""

import math
from collections.abc import Iterable, Iterator, Sequence

from attnlab.core.stats import Interval, mean_interval
from attnlab.display import plural
from attnlab.draw import sections as draw
from attnlab.experiments.lookup.config import NAME, WORDS, LookupConfig
from attnlab.experiments.lookup.fixed_table import KINDS, FixedTable
from attnlab.experiments.lookup.recall import Recalled
from attnlab.experiments.lookup.summary import subtitle, summary
from attnlab.experiments.lookup.traces import trace_sources
from attnlab.experiments.sections import (
    finite_or_none,
    metric_series,
    parameters_section,
    rounded,
    settings_section,
)
from attnlab.experiments.words import Numbers
from attnlab.look.heads import head_at
from attnlab.look.trace import Trace
from attnlab.models.encoder_decoder import EncoderDecoder
from attnlab.tasks import lookup as task

_MOST_WEIGHTS = 100_000  # attention weights that a page holds in all
_MOST_ROWS = 500  # of a table
_MOST_GROUPS = 64  # heads drawn as bars


def make_content(
    config: LookupConfig,
    seed: int,
    main: EncoderDecoder,
    *,
    table: FixedTable | None,
    readers: list[Recalled],
    numbers: Numbers,
) -> draw.ReportContent:
    """Make the report's content; `numbers` are those of the claims."""
    facts = {"seed": str(seed), "parameters": f"{numbers['parameters']:,}"}
    sections: list[draw.Section] = [draw.Text(title="What this shows", text=summary(numbers))]
    if table is not None:
        facts |= _table_facts(config, numbers)
        sections += _table_sections(main, table, numbers)
    if readers:
        facts |= _reader_facts(config, numbers["readers"])
        sections += _reader_sections(config, readers, numbers)
    return draw.ReportContent(
        title=NAME,
        subtitle=subtitle(numbers),
        facts=list(facts.items()),
        sections=[*sections, parameters_section(main), settings_section(config)],
    )


def _table_facts(config: LookupConfig, numbers: Numbers) -> dict[str, str]:
    table = numbers["table"]
    (first, *others), patience = table["epochs"], config.patience
    training = f"this run's model {first:g} of {config.epochs} {plural(config.epochs, 'epoch')}"
    if others:
        training += f", the others {max(others):g} at most"
        if patience and max(others) < config.epochs:
            epochs = f"{patience} {plural(patience, 'epoch')}"
            training += f" (every validation sample right in {epochs} in a row)"
    padding = f"padded to {config.pad_to} tokens" if config.pad_to else "no padding"
    seeds = f"{table['number']:,} {plural(table['number'], 'seed')}"
    return {
        "models": f"{seeds}, {numbers['control']['number']:,} of the control",
        "data": f"{config.samples:,} samples, of 72 distinct sources; {table['tested']:,} for the "
        "test",
        "training": f"{training}; {padding}",
    }


def _reader_facts(config: LookupConfig, readers: Sequence[Numbers]) -> dict[str, str]:
    steps = ", ".join(f"{reader['variant']} {reader['steps']:,}" for reader in readers)
    number = readers[0]["number"]
    return {
        "new facts": f"{config.recall_facts} of {config.recall_keys:,} keys and "
        f"{config.recall_values:,} values",
        "steps on new facts": f"{steps} at most; {number:,} {plural(number, 'seed')} each",
    }


def _table_sections(
    main: EncoderDecoder, table: FixedTable, numbers: Numbers
) -> Iterator[draw.Section]:
    sources, metrics = task.all_sources(), table.models[0].metrics
    weights_each = main.config.num_layers * main.config.num_heads * 2 * (sources.shape[1] + 2)
    shown = trace_sources(main, sources[: max(1, _MOST_WEIGHTS // weights_each)])
    yield draw.Traces(
        figure="trace",
        figure_input=task.EXAMPLE.split(),
        # The page opens with the last of equally varied inputs, which is to be the example.
        traces=list(map(draw.shown_trace, (*shown[1:], shown[0]))),
        **WORDS.texts("traces"),
    )
    yield draw.Maps(
        figure="cross-attention", choices=list(map(_attention_maps, shown)), **WORDS.texts("maps")
    )
    yield _mass_bars(table, numbers)
    yield _heads_table(table, numbers)
    series = [
        metric_series("training", metrics, "loss"),
        metric_series("validation", metrics, "validation_loss"),
    ]
    yield draw.Lines(figure="loss", series=series, y_log=True, **WORDS.texts("loss"))


def _attention_maps(trace: Trace) -> draw.MapChoice:
    """Draw the cross-attention of each head, (decoder token, encoder token)."""
    label, said = " ".join(trace.input), " ".join(trace.choices)
    titles, maps = ("decoder token", "encoder token"), []
    for head in trace.attention:
        if head.key_tokens is not None:
            title, queries = f"Head {head_at(head.site, head.head)}", trace.tokens[: len(head.rows)]
            rows = rounded(head.rows)
            maps.append(draw.Heatmap.of_weights(title, rows, queries, head.key_tokens, titles))
    return draw.MapChoice(label=label, note=f"{label} → {said}", maps=maps)


def _heads_table(table: FixedTable, numbers: Numbers) -> draw.Table:
    rows = []
    for model in table.models:
        for head, masses in enumerate(model.masses[:, :, :3].flatten(1).tolist()):
            rows.append([model.number, head, *(round(mass, 4) for mass in masses)])
    heads, cut = numbers["table"]["heads"], ""
    if heads > _MOST_ROWS:
        cut = f" The first {_MOST_ROWS} of {heads:,} heads."
    return draw.Table(rows=rows[:_MOST_ROWS], **WORDS.texts("heads", {"cut": cut}))


def _mass_bars(table: FixedTable, numbers: Numbers) -> draw.Bars:
    masses = table.models[0].masses[:_MOST_GROUPS, 0]
    series = []
    for kind, name in enumerate(KINDS[:3]):
        value, low, high = mean_interval(table.weights_on(kind))
        heads = [(weight, None, None) for weight in masses[:, kind].tolist()]
        ends = [*heads, (value, finite_or_none(low), finite_or_none(high))]
        series.append(draw.BarSeries.of_intervals(name, ends))
    return draw.Bars(
        figure="masses",
        groups=[*(f"head {head}" for head in range(len(masses))), "all heads, all seeds"],
        series=series,
        levels=[draw.Level(name="one word of five, evenly", y=0.2)],
        **WORDS.texts("masses", numbers),
    )


def _reader_sections(
    config: LookupConfig, readers: Sequence[Recalled], numbers: Numbers
) -> Iterator[draw.Section]:
    chance = 1 / config.recall_facts
    new = _within(reader.new for reader in readers)
    held_out = _within(reader.held_out for reader in readers)
    yield draw.Bars(
        figure="recall",
        groups=[reader.variant for reader in readers],
        series=[
            draw.BarSeries.of_intervals("new facts", new),
            draw.BarSeries.of_intervals("pairs never seen in training", held_out),
        ],
        levels=[draw.Level(name=f"chance 1/{config.recall_facts} = {chance:.3f}", y=chance)],
        **WORDS.texts("recall", numbers),
    )
    unordered = [reader for reader in readers if reader.variant != "ordered"]
    if unordered:
        yield _capacity_lines(unordered, numbers)


def _capacity_lines(readers: Sequence[Recalled], numbers: Numbers) -> draw.Lines:
    """Draw the accuracy of models without positions by number of facts."""
    tested, series = list(readers[-1].by_facts), []
    for reader in readers:
        shares = _within(reader.by_facts.values())
        series.append(draw.Series.of_intervals(reader.variant, list(reader.by_facts), shares))
    series.append(draw.Series(name="chance 1/k", x=tested, y=[1 / number for number in tested]))
    words = WORDS.texts("capacity", {**numbers, "most": max(tested)})
    return draw.Lines(figure="capacity", series=series, x_log=True, **words)


def _within(figures: Iterable[list[float]]) -> Iterator[Interval]:
    """Yield the mean of shares and its interval, clipped to 0 and 1; one value is its interval."""
    for mean, low, high in map(mean_interval, figures):
        if math.isnan(low):
            yield Interval(mean, mean, mean)
        else:
            yield Interval(mean, max(low, 0.0), min(high, 1.0))

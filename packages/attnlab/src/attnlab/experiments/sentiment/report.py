"""The report of `sentiment`: accuracies and baselines, data, curves, attention maps, figures."""

import dataclasses
import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor

from attnlab.core.stats import Interval
from attnlab.draw import sections as draw
from attnlab.experiments.experiment import RunContext
from attnlab.experiments.sections import parameters_section, settings_section
from attnlab.experiments.sentiment import inspection, pictures
from attnlab.experiments.sentiment.classes import class_sections
from attnlab.experiments.sentiment.comparison import accuracy_of
from attnlab.experiments.sentiment.config import NAME, WORDS, ModelName, SentimentConfig
from attnlab.experiments.sentiment.data import Data
from attnlab.experiments.sentiment.fit import Prepared, SplitOutcome, TrainedModel
from attnlab.experiments.sentiment.interpretation import interpretation_section
from attnlab.experiments.sentiment.sentiment_claims import majority_accuracy
from attnlab.models.parameters import count_from_model
from attnlab.tasks.tokenizers import UNK, PartTokenizer, clean, words_of

_MOST_CLASSES_NAMED = 8
_MOST_CLASSES_LISTED = 20
_NO_BAR = (None, None, None)  # of a baseline that found no words in a split


def make_content(
    config: SentimentConfig, context: RunContext, data: Data, outcomes: Sequence[SplitOutcome]
) -> draw.ReportContent:
    """Make the report's content."""
    fair, main = outcomes[0], config.main
    model, prepared = fair.models[main][0].model, fair.prepared[main]
    repeated = _text_with_repeat(fair, main)
    shown = inspection.texts_to_show(fair, main, config.show)
    named = dataclasses.replace(config, data=_data_name(config))
    classes = ", ".join(data.classes) if len(data.classes) <= 6 else f"{len(data.classes):,}"
    numbers = {
        "name": main,
        "seed": context.seed,
        "config": named,
        "size": sum(count_from_model(model).values()),
        "counts": "; ".join(f"{what}: {count:,}" for what, count in data.counts),
        "classes": classes,
        "num_training": len(data.fair.split.train),
        "num_test": data.fair.num_test,
    }
    return draw.ReportContent(
        title=NAME,
        subtitle=_subtitle(data, fair),
        facts=list(WORDS.texts("facts", numbers).items()),
        sections=[
            _accuracy_section(outcomes),
            draw.Table(
                rows=list(itertools.chain(*map(_result_rows, outcomes))), **WORDS.texts("results")
            ),
            *class_sections(data.classes, fair),
            interpretation_section(data, outcomes),
            _data_section(data, fair),
            *_curve_sections(outcomes, main),
            *(_attention_section(name, main, fair, shown) for name in fair.models),
            _words_section(fair),
            pictures.architecture_section(model, prepared),
            pictures.recurrence_section(prepared, [text for text, _ in shown]),
            pictures.positions_section(model, prepared, repeated or shown[0][0]),
            parameters_section(model),
            settings_section(named),
        ],
    )


def _subtitle(data: Data, fair: SplitOutcome) -> str:
    number = data.fair.num_test
    scores = ", ".join(f"{name} {fair.accuracy(name)}" for name in fair.answers)
    few = f"; {number:,} test texts are too few to tell models apart" if data.is_built_in else ""
    return (
        "A mini transformer (mini) and a model that starts from counts (best) put texts into "
        f"{len(data.classes):,} classes. Accuracy on {number:,} texts they never saw: "
        f"{scores}{few}."
    )


def _data_name(config: SentimentConfig) -> str | None:
    """Return the file's name without its folders, which are private, or owner/name on the hub."""
    if config.data is not None and Path(config.data).is_file():
        return Path(config.data).name
    return config.data


def _accuracy_section(outcomes: Sequence[SplitOutcome]) -> draw.Bars:
    groups = []
    for outcome in outcomes:
        leak = "leaks" if outcome.arrangement.shared else "no text shared"
        groups.append(f"split {outcome.arrangement.name} ({leak})")
    series = []
    for name in outcomes[0].answers:
        known = [
            outcome.accuracy(name) if name in outcome.answers else _NO_BAR for outcome in outcomes
        ]
        series.append(draw.BarSeries.of_intervals(name, known))
    fair = outcomes[0].arrangement.split
    majority = majority_accuracy(fair.train, fair.test)
    return draw.Bars(
        groups=groups,
        series=series,
        levels=[draw.Level(name="always the most frequent class", y=majority)],
        **WORDS.texts("accuracy", {"num_trainings": len(outcomes[0].models["mini"])}),
    )


def _result_rows(outcome: SplitOutcome) -> Iterator[list[draw.Scalar]]:
    """Yield accuracy, interval, spread over the trainings, and size."""
    where = outcome.arrangement.name
    for name, trained in outcome.models.items():
        size = sum(count_from_model(trained[0].model).values())
        lines: dict[str, Tensor] = {name: outcome.correct[name]}
        if name == "best":
            lines["best, before training"] = outcome.correct_before("best")
        for what, correct in lines.items():
            accuracy, shares = accuracy_of(correct), correct.double().mean(1)
            spread = f"{shares.min():.1%} to {shares.max():.1%}"
            yield [where, what, str(accuracy), accuracy.ends, spread, size]
    for baseline in outcome.baselines:
        accuracy = outcome.accuracy(baseline.name)
        size = baseline.num_parameters
        yield [where, baseline.name, str(accuracy), accuracy.ends, "one training", size]


def _data_section(data: Data, fair: SplitOutcome) -> draw.Table:
    split = data.fair.split
    rows: list[list[draw.Scalar]] = [[what, count] for what, count in data.counts]
    for name, part in zip(("training", "validation", "test"), split, strict=True):
        counts, named = Counter(row.label for row in part), data.classes[:_MOST_CLASSES_NAMED]
        shares = ", ".join(f"{name} {counts[name]:,}" for name in named)
        if len(data.classes) > _MOST_CLASSES_NAMED:
            shares += ", …"
        rows.append([f"{name} texts", f"{len(part):,} ({shares})"])
    sizes = Counter(row.label for row in split.train).most_common()
    rows.append(["largest class over smallest, training", f"{sizes[0][1] / sizes[-1][1]:.2f}"])
    majority = majority_accuracy(split.train, split.test)
    rows.append([f"accuracy of always {sizes[0][0]}", f"{majority:.1%}"])
    ids = torch.cat([text_ids[1:] for text_ids in fair.prepared["mini"].test.ids])
    share = int((ids == UNK).sum()) / max(1, len(ids))
    rows.append(["test words unknown to mini", f"{share:.1%}"])
    rows += map(_cut_texts, fair.prepared.values())
    rows.append(["texts in training and held out", data.fair.shared])
    return draw.Table(rows=rows, **WORDS.texts("data", {"said": data.said}))


def _cut_texts(prepared: Prepared) -> list[draw.Scalar]:
    """Count the texts that are too long for a model."""
    tokenizer, cut, total = prepared.tokenizer, 0, 0
    for row in itertools.chain(*prepared.arrangement.split):
        cut += tokenizer.count(row.text) > tokenizer.max_length
        total += 1
    what = f"texts longer than {prepared.name} reads ({tokenizer.max_length:,} tokens), cut"
    return [what, f"{cut:,} of {total:,}"]


def _curve_sections(outcomes: Sequence[SplitOutcome], main: ModelName) -> Iterator[draw.Lines]:
    """Yield the loss and the accuracy of the main model after each epoch."""
    number = len(outcomes[0].models[main])
    for figure, held in (("loss", "validation_loss"), ("accuracy", "accuracy")):
        series = []
        for outcome in outcomes:
            where, trainings = f", split {outcome.arrangement.name}", outcome.models[main]
            series.append(_curve(f"training{where}", f"train_{figure}", trainings))
            series.append(_curve(f"validation{where}", held, trainings))
        yield draw.Lines(
            title=f"{figure.capitalize()} of {main}",
            figure=f"{figure}-{main}",
            y_label="loss (nats)" if figure == "loss" else figure,
            series=series,
            **WORDS.texts("curves", {"number": number}),
        )


def _curve(title: str, figure: str, trained: Sequence[TrainedModel]) -> draw.Series:
    """Draw the mean and the range of a figure after each epoch, of the trainings that got there."""
    curves = [[line[figure] for line in model.epochs] for model in trained]
    spread = []
    for place in range(max(map(len, curves))):
        values = [curve[place] for curve in curves if place < len(curve)]
        spread.append(Interval(sum(values) / len(values), min(values), max(values)))
    return draw.Series.of_intervals(title, range(1, len(spread) + 1), spread)


def _attention_section(
    name: ModelName, main: ModelName, fair: SplitOutcome, shown: Sequence[tuple[str, str | None]]
) -> draw.Maps:
    prepared, model = fair.prepared[name], fair.models[name][0].model
    choices = []
    for text, label in shown:
        trace = inspection.ask_text(model, prepared.tokenizer, prepared.classes, text).trace()
        step = trace.steps[0]
        note = f"Verdict: {step.choice} with probability {max(step.probabilities):.3f}"
        if label is not None:
            note += ", which is right" if label == step.choice else f", but it is {label}"
        maps = inspection.maps_of(trace)
        choices.append(draw.MapChoice(label=clean(text), note=f"{note}.", maps=maps))
    return draw.Maps(
        figure="attention" if name == main else None,
        choices=choices,
        **WORDS.texts("attention", {"name": name, "unknown": inspection.UNKNOWN_WORDS}),
    )


def _words_section(fair: SplitOutcome) -> draw.Table:
    prepared = fair.prepared["best"]
    assert isinstance(prepared.tokenizer, PartTokenizer)
    parts = inspection.strongest_parts(fair.models["best"][0].model, prepared.tokenizer)
    rows: list[list[str]] = []
    for label, names in zip(prepared.classes, parts[:_MOST_CLASSES_LISTED], strict=False):
        rows.append([label, " · ".join(names)])
    return draw.Table(rows=rows, **WORDS.texts("strongest"))


def _text_with_repeat(fair: SplitOutcome, main: ModelName) -> str | None:
    """Return a short text in which a word occurs twice, of the test if possible."""
    most = min(14, fair.prepared[main].tokenizer.max_length - 1)
    for row in itertools.chain(*reversed(fair.arrangement.split)):
        words = words_of(row.text)
        if len(set(words)) < len(words) <= most:
            return row.text
    return None

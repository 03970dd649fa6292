"""The report of `sentiment`: accuracies and baselines, data, curves, attention maps, figures."""

import dataclasses
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from attnlab.core.stats import Interval
from attnlab.draw.sections import (
    Bars,
    BarSeries,
    Level,
    Lines,
    MapChoice,
    Maps,
    ReportContent,
    Scalar,
    Series,
    Table,
    Text,
)
from attnlab.experiments.experiment import Run
from attnlab.experiments.sections import parameters_section, settings_section
from attnlab.experiments.sentiment.classes import class_sections
from attnlab.experiments.sentiment.comparison import (
    accuracy_interval,
    difference_interval,
    in_words,
    mcnemar,
    points,
)
from attnlab.experiments.sentiment.config import NAME, ModelName, SentimentConfig
from attnlab.experiments.sentiment.data import Data
from attnlab.experiments.sentiment.fit import TrainedModel
from attnlab.experiments.sentiment.inspection import (
    UNKNOWN_WORDS,
    ask_text,
    correct_without_attention,
    maps_of,
    strongest_parts,
    texts_to_show,
)
from attnlab.experiments.sentiment.pictures import (
    architecture_section,
    positions_section,
    recurrence_sections,
)
from attnlab.experiments.sentiment.sentiment_claims import Outcome, majority_accuracy
from attnlab.models.parameters import count_from_model
from attnlab.tasks.tokenizers import UNK, PartTokenizer, clean, words_of

_OVERFITTING = 0.10  # of accuracy, between training and validation
_FEWEST_TO_JUDGE = 100  # validation texts below which such a gap could be chance


def make_content(
    config: SentimentConfig, context: Run, data: Data, outcomes: Sequence[Outcome]
) -> ReportContent:
    """Make the report's content."""
    fair, main = outcomes[0], config.main
    model = fair.models[main][0].model
    shown = texts_to_show(fair.prepared[main], fair.models[main][0], config.show)
    scores = [f"{_share_of(fair.correct(name))} of {name}'s" for name in fair.models]
    scores += [f"{_share_of(each.correct)} of {each.name}'s" for each in fair.baselines]
    told = ""
    if data.is_built_in:
        told = f"; {data.fair.num_judged} test texts are too few to tell models apart"
    classes = ", ".join(data.classes) if len(data.classes) <= 6 else f"{len(data.classes):,}"
    return ReportContent(
        title=NAME,
        subtitle=f"A mini transformer and a model that starts from counts put texts into "
        f"{len(data.classes)} classes. On {data.fair.num_judged:,} texts they never saw, "
        f"{', '.join(scores)} are right{told}.",
        facts=[
            ("seed", str(context.seed)),
            ("data", _data_name(config) or "built-in verdicts"),
            ("classes", classes),
            ("training texts", f"{len(data.fair.split.train):,}"),
            ("test texts", f"{data.fair.num_judged:,}"),
            ("trainings of each model", str(config.seeds)),
            ("parameters", f"{sum(count_from_model(model).values()):,} ({main})"),
        ],
        sections=[
            _accuracy_section(data, outcomes),
            _result_table(data, outcomes),
            *class_sections(data, fair),
            _reading_section(config, data, outcomes),
            _data_section(config, data, fair),
            *_curve_sections(outcomes),
            *(_attention_section(name, main, fair, shown) for name in fair.models),
            _words_section(fair),
            architecture_section(model, fair.prepared[main]),
            *recurrence_sections(model, fair.prepared[main], [text for text, _ in shown]),
            positions_section(
                model, fair.prepared[main], _text_with_repeat(data, fair, main, shown[0][0])
            ),
            parameters_section(model),
            settings_section(dataclasses.replace(config, data=_data_name(config))),
        ],
    )


def make_content_of_one(
    config: SentimentConfig, context: Run, data: Data, outcome: Outcome
) -> ReportContent:
    """Make the content of a report on one training."""
    name, prepared = config.main, outcome.prepared[config.main]
    found = outcome.models[name][0]
    shown = texts_to_show(prepared, found, config.show)
    interval = accuracy_interval(found.correct)
    return ReportContent(
        title=f"{NAME}: {name}",
        subtitle=f"One training of {name}: {_percent(interval.value)} of {data.fair.num_judged:,} "
        f"texts that it never saw are right ({_percent(interval.low)} to "
        f"{_percent(interval.high)}, 95 % interval).",
        facts=[
            ("seed", str(context.seed)),
            ("data", _data_name(config) or "built-in verdicts"),
            ("training texts", f"{len(data.fair.split.train):,}"),
            ("parameters", f"{sum(count_from_model(found.model).values()):,}"),
        ],
        sections=[
            _data_section(config, data, outcome),
            *_curve_sections([outcome]),
            _attention_section(name, name, outcome, shown),
            architecture_section(found.model, prepared),
            parameters_section(found.model),
            settings_section(dataclasses.replace(config, data=_data_name(config))),
        ],
    )


def _data_name(config: SentimentConfig) -> str | None:
    """Return the file's name without its folders, which are private, or owner/name on the hub."""
    if config.data is not None and Path(config.data).is_file():
        return Path(config.data).name
    return config.data


def _percent(share: float) -> str:
    return f"{share:.1%}"


def _share_of(correct: Tensor) -> str:
    return _percent(float(correct.double().mean()))


def _accuracy_section(data: Data, outcomes: Sequence[Outcome]) -> Bars:
    groups = [
        f"split {each.name}" + (" (leaks)" if each.shared else " (no text shared)")
        for each in data.arrangements
    ]
    measured = [_intervals(outcome) for outcome in outcomes]
    series = []
    for name in measured[0]:
        intervals = [each.get(name, (None, None, None)) for each in measured]
        series.append(BarSeries.of_intervals(name, intervals))
    fair = data.fair.split
    return Bars(
        title="Accuracy",
        caption="Accuracy on held-out texts, mean of "
        f"{len(outcomes[0].models['mini'])} trainings for the two models, with its 95 % "
        "interval over the distinct texts.",
        y_label="accuracy",
        figure="accuracy",
        groups=groups,
        series=series,
        levels=[
            Level(
                name="always the most frequent class",
                y=majority_accuracy(fair.train, fair.test),
            )
        ],
    )


def _intervals(outcome: Outcome) -> dict[str, Interval]:
    """Return the accuracy of each model and baseline that was trained on this split."""
    found: dict[str, Interval] = {
        name: accuracy_interval(outcome.correct(name).double().mean(0)) for name in outcome.models
    }
    return found | {
        baseline.name: accuracy_interval(baseline.correct) for baseline in outcome.baselines
    }


def _result_table(data: Data, outcomes: Sequence[Outcome]) -> Table:
    rows: list[list[Scalar]] = []
    for arrangement, outcome in zip(data.arrangements, outcomes, strict=True):
        for name, found in outcome.models.items():
            size = sum(count_from_model(found[0].model).values())
            each = [model.accuracy for model in found]
            about = _about(data, outcome, outcome.correct(name), each, size)
            rows.append([arrangement.name, name, *about])
            if name == "best":
                before = outcome.correct_before("best")
                each = [float(model.correct_before.double().mean()) for model in found]
                about = _about(data, outcome, before, each, size)
                rows.append([arrangement.name, "best, before training", *about])
        for baseline in outcome.baselines:
            about = [*_shown(baseline.correct), "one training", baseline.num_parameters, ""]
            rows.append([arrangement.name, baseline.name, *about])
    names = " and ".join(baseline.name for baseline in outcomes[0].baselines) or "no baseline"
    return Table(
        title="Accuracies and sizes",
        caption="Accuracies on the test texts, with 95 % intervals. The gain is in points over "
        f"{names}, on the same texts (mean of the trainings, 95 % interval over texts and "
        "trainings; p: McNemar's test of the first training, over texts alone).",
        columns=[
            "split",
            "model",
            "accuracy",
            "95 % interval",
            "lowest to highest training",
            "parameters",
            "gain",
        ],
        rows=rows,
    )


def _about(
    data: Data, outcome: Outcome, correct: Tensor, each: Sequence[float], size: int
) -> list[Scalar]:
    """Return accuracy, interval, spread over the trainings, size, and gain over the baselines."""
    spread = f"{_percent(min(each))} to {_percent(max(each))}"
    gain = "too few texts to tell"
    if not data.is_built_in:
        gain = "; ".join(_gain(correct, baseline.correct) for baseline in outcome.baselines)
    return [*_shown(correct.double().mean(0)), spread, size, gain]


def _shown(correct: Tensor) -> tuple[str, str]:
    """Write an accuracy and its interval."""
    interval = accuracy_interval(correct)
    return _percent(interval.value), f"{_percent(interval.low)} to {_percent(interval.high)}"


def _gain(correct: Tensor, baseline: Tensor) -> str:
    """Write a gain over a baseline, with its interval and the p of the first training."""
    gain = difference_interval(correct, baseline)
    ends = f"{gain.low * 100:+.1f} to {gain.high * 100:+.1f}"
    return f"{gain.value * 100:+.1f} ({ends}, p {mcnemar(correct[0], baseline):.2g})"


def _reading_section(config: SentimentConfig, data: Data, outcomes: Sequence[Outcome]) -> Text:
    """Interpret the numbers in words."""
    fair = outcomes[0]
    said = []
    if data.is_built_in:
        said.append(
            f"{data.fair.num_judged} distinct test texts are too few to tell, and here they "
            "choose the epoch too, so no claim of skill is decided. Use real texts with --set "
            "data=FILE text=COLUMN label=COLUMN."
        )
    for arrangement, outcome in list(zip(data.arrangements, outcomes, strict=True))[1:]:
        said.append(
            f"The split by row is a trap: {arrangement.shared:,} of its "
            f"{arrangement.num_judged:,} held-out texts are also in training, since each text "
            "is repeated. On that split mini has an accuracy of "
            f"{_share_of(outcome.correct('mini'))}; on texts it never saw, it has "
            f"{_share_of(fair.correct('mini'))}."
        )
    for baseline in () if data.is_built_in else fair.baselines:
        gain = difference_interval(fair.correct("best"), baseline.correct)
        said.append(
            f"The best model against {baseline.name}, {baseline.about}: {points(gain)} on the "
            f"same texts, {in_words(gain)}."
        )
    if not data.is_built_in:
        said.append(_sources_of_skill(fair))
    num_validation = len({clean(row.text) for row in data.fair.split.validation})
    for name, found in fair.models.items():
        said.append(_overfitting_words(name, found, num_validation))
    said.append(
        "Training: AdamW, which is Adam with a decoupled weight decay of "
        f"{config.weight_decay:g}, at a rate of "
        f"{config.learning_rate:g}, with the gradient's norm clipped to 1.0; the token vectors of "
        "mini start with spread 1/√d_model, so that the embedding's factor √d_model makes it 1."
    )
    return Text(title="Interpretation", text="\n\n".join(said))


def _sources_of_skill(fair: Outcome) -> str:
    """Report the accuracy gained by counting, training and attention."""
    before = fair.correct_before("best")
    gain = difference_interval(fair.correct("best"), before)
    said = (
        f"The best model's accuracy is {_share_of(before)} before any training, by naive Bayes "
        "over counts of words, beginnings of words and pairs of words. Training adds "
        f"{points(gain)}, {in_words(gain)}."
    )
    for name, found in fair.models.items():
        without = torch.stack(
            [correct_without_attention(each, fair.prepared[name]) for each in found]
        )
        said += (
            f" Without attention (its output set to 0) {name} has an accuracy of "
            f"{_share_of(without)}; attention adds "
            f"{points(difference_interval(fair.correct(name), without))}."
        )
    return said


def _overfitting_words(name: ModelName, found: Sequence[TrainedModel], num_validation: int) -> str:
    """Report the gap between training and validation after the last epoch, mean over trainings."""
    last = [each.epochs[-1] for each in found]
    seen = sum(line["train_accuracy"] for line in last) / len(last)
    held = sum(line["accuracy"] for line in last) / len(last)
    gap = seen - held
    if num_validation < _FEWEST_TO_JUDGE:
        judged = f"{num_validation} validation texts are too few to tell"
    elif gap > _OVERFITTING:
        judged = "overfitting"
    else:
        judged = "no overfitting to speak of"
    epochs = sorted(len(each.epochs) for each in found)
    steps = [[line["step"] for line in each.epochs] for each in found]
    kept = sorted(
        own.index(each.trained.best_step) + 1 for own, each in zip(steps, found, strict=True)
    )
    return (
        f"{name}: after {_range(epochs)} epochs {_percent(seen)} of the training texts and "
        f"{_percent(held)} of the validation texts are right (mean of {len(found)} trainings), a "
        f"gap of {gap * 100:.1f} points ({judged}). The saved weights are those of the best "
        f"validation, after epoch {_range(kept)}."
    )


def _range(ordered: Sequence[int]) -> str:
    return str(ordered[0]) if ordered[0] == ordered[-1] else f"{ordered[0]} to {ordered[-1]}"


def _data_section(config: SentimentConfig, data: Data, fair: Outcome) -> Table:
    split = data.fair.split
    rows: list[list[Any]] = [[what, count] for what, count in data.counts]
    for name, part in zip(("training", "validation", "test"), split, strict=True):
        counts = Counter(row.label for row in part)
        shares = ", ".join(f"{label} {counts[label]:,}" for label in data.classes[:8])
        if len(data.classes) > 8:
            shares += ", …"
        rows.append([f"{name} texts", f"{len(part):,} ({shares})"])
    sizes = Counter(row.label for row in split.train).most_common()
    rows.append(["largest class over smallest, training", f"{sizes[0][1] / sizes[-1][1]:.2f}"])
    majority = _percent(majority_accuracy(split.train, split.test))
    rows.append([f"accuracy of always {sizes[0][0]}", majority])
    if "mini" in fair.prepared:
        ids = [number for each in fair.prepared["mini"].test.ids for number in each[1:].tolist()]
        rows.append(["test words unknown to mini", _percent(ids.count(UNK) / max(1, len(ids)))])
    for name, each in fair.prepared.items():
        texts = [row.text for part in split for row in part]
        cut = sum(each.tokenizer.count(text) > each.tokenizer.max_length for text in texts)
        rows.append(
            [
                f"texts longer than {name} reads ({each.tokenizer.max_length:,} tokens), cut",
                f"{cut:,} of {len(texts):,}",
            ]
        )
    rows.append(["texts in training and held out", data.fair.shared])
    return Table(
        title="The data",
        caption=f"{data.said} Vocabularies come from the training texts alone.",
        columns=["what", "how much"],
        rows=rows,
    )


def _curve_sections(outcomes: Sequence[Outcome]) -> list[Lines]:
    fair = outcomes[0]
    sections = []
    for name in fair.models:
        for figure, words in (("loss", "loss (nats)"), ("accuracy", "accuracy")):
            series = []
            for outcome in outcomes:
                where = ""
                if len(outcomes) > 1:
                    where = f", split {outcome.prepared[name].arrangement.name}"
                held = "validation_loss" if figure == "loss" else "accuracy"
                series.append(_curve(f"training{where}", f"train_{figure}", outcome.models[name]))
                series.append(_curve(f"validation{where}", held, outcome.models[name]))
            sections.append(
                Lines(
                    title=f"{figure.capitalize()} of {name}",
                    caption=f"After each epoch, mean of {len(fair.models[name])} trainings; bands "
                    "from the lowest to the highest. Where validation gets worse while "
                    "training improves, a model overfits.",
                    figure=f"{figure}-{name}" if name == "mini" else None,
                    x_label="epoch",
                    y_label=words,
                    series=series,
                )
            )
    return sections


def _curve(title: str, figure: str, found: Sequence[TrainedModel]) -> Series:
    values: list[list[float]] = []  # of each epoch, from the trainings that went so far
    for each in found:
        for number, line in enumerate(each.epochs):
            if number == len(values):
                values.append([])
            values[number].append(line[figure])
    spread = [(sum(each) / len(each), min(each), max(each)) for each in values]
    return Series.of_intervals(title, range(1, len(values) + 1), spread)


def _attention_section(
    name: ModelName, main: ModelName, fair: Outcome, shown: Sequence[tuple[str, str | None]]
) -> Maps:
    prepared, model = fair.prepared[name], fair.models[name][0].model
    choices = []
    for text, label in shown:
        trace = ask_text(model, prepared.tokenizer, prepared.classes, text).trace()
        step = trace.steps[0]
        note = f"Verdict: {step.choice} with probability {max(step.probabilities):.3f}"
        if label is not None:
            note += ", which is right" if label == step.choice else f", but it is {label}"
        choices.append(MapChoice(label=clean(text), note=f"{note}.", maps=maps_of(trace)))
    return Maps(
        title=f"Attention of {name}",
        caption=f"Each head of each layer of {name}: a row shows the attention weights of the "
        f"token on the left on the tokens above. {UNKNOWN_WORDS}",
        figure="attention" if name == main else None,
        choices=choices,
    )


def _words_section(fair: Outcome) -> Table:
    prepared = fair.prepared["best"]
    assert isinstance(prepared.tokenizer, PartTokenizer)
    parts = strongest_parts(fair.models["best"][0].model, prepared.tokenizer)
    return Table(
        title="Strongest words of each class",
        caption="The words, pairs of words and beginnings (with a dash) whose vectors add most to "
        "the best model's logit of each class, without attention.",
        columns=["class", "strongest first"],
        rows=[
            [label, " · ".join(names)]
            for label, names in list(zip(prepared.classes, parts, strict=True))[:20]
        ],
    )


def _text_with_repeat(data: Data, fair: Outcome, main: ModelName, otherwise: str) -> str:
    """Return a short text in which a word occurs twice, from the test texts if possible."""
    for row in (row for part in reversed(data.fair.split) for row in part):
        words = words_of(row.text)
        if len(set(words)) < len(words) <= min(14, fair.prepared[main].tokenizer.max_length - 1):
            return row.text
    return otherwise

"""The interpretation of a run of sentiment: its paragraphs, with this run's numbers."""

from collections.abc import Sequence

import torch

from attnlab.draw.sections import Text
from attnlab.experiments.sections import range_words
from attnlab.experiments.sentiment import inspection
from attnlab.experiments.sentiment.comparison import accuracy_of, gain_over
from attnlab.experiments.sentiment.config import ModelName
from attnlab.experiments.sentiment.data import Data
from attnlab.experiments.sentiment.fit import SplitOutcome, TrainedModel
from attnlab.tasks.tokenizers import clean

_OVERFITTING = 0.10  # of accuracy, between training and validation
_FEWEST_TO_JUDGE = 100  # validation texts below which such a gap could be chance


def interpretation_section(data: Data, outcomes: Sequence[SplitOutcome]) -> Text:
    """Interpret the numbers in words."""
    fair, paragraphs = outcomes[0], []
    if data.is_built_in:
        paragraphs.append(
            f"{data.fair.num_test:,} distinct test texts are too few to tell, and here they choose "
            "the epoch too, so no claim of skill is decided. Use real texts with --set data=FILE "
            "text=COLUMN label=COLUMN."
        )
    for outcome in outcomes[1:]:
        leaky = outcome.arrangement
        paragraphs.append(
            f"The split by row is a trap: {leaky.shared:,} of its {leaky.num_test:,} held-out "
            "texts are also in training, since each text is repeated. On that split mini has an "
            f"accuracy of {outcome.accuracy('mini')}; on texts it never saw, it has "
            f"{fair.accuracy('mini')}."
        )
    if not data.is_built_in:
        paragraphs += _gains(fair)
    num_validation = len({clean(row.text) for row in data.fair.split.validation})
    for name, trained in fair.models.items():
        paragraphs.append(describe_epochs(name, trained, num_validation))
    return Text(title="Interpretation", text="\n\n".join(paragraphs))


def _gains(fair: SplitOutcome) -> list[str]:
    """Say what the best model gains over the baselines, by training, and by attention."""
    best, before = fair.correct["best"], fair.correct_before("best")
    paragraphs = []
    for baseline in fair.baselines:
        gain = gain_over(best, fair.correct[baseline.name])
        paragraphs.append(
            f"The best model against {baseline.name}, {baseline.recipe.about}: {gain} on the same "
            f"texts, {gain.in_words}."
        )
    added = gain_over(best, before)
    sentences = [
        f"The best model's accuracy is {accuracy_of(before)} before any training, by naive Bayes "
        "over counts of words, beginnings of words and pairs of words. Training adds "
        f"{added}, {added.in_words}."
    ]
    for name, trained in fair.models.items():
        test = fair.prepared[name].test
        right = [inspection.correct_without_attention(model.model, test) for model in trained]
        without = torch.stack(right)
        sentences.append(
            f"Without attention (its output set to 0) {name} has an accuracy of "
            f"{accuracy_of(without)}; attention adds {gain_over(fair.correct[name], without)}."
        )
    return [*paragraphs, " ".join(sentences)]


def describe_epochs(name: ModelName, trained: Sequence[TrainedModel], num_validation: int) -> str:
    """Report the gap between training and validation after the last epoch, mean over trainings."""
    last = [model.epochs[-1] for model in trained]
    seen = sum(line["train_accuracy"] for line in last) / len(last)
    held = sum(line["accuracy"] for line in last) / len(last)
    judgment = "no overfitting to speak of"
    if num_validation < _FEWEST_TO_JUDGE:
        judgment = f"{num_validation:,} validation texts are too few to tell"
    elif seen - held > _OVERFITTING:
        judgment = "overfitting"
    epochs = range_words([len(model.epochs) for model in trained])
    return (
        f"{name}: after {epochs} epochs {seen:.1%} of the training texts and {held:.1%} of the "
        f"validation texts are right (mean of {len(trained)} trainings), a gap of "
        f"{(seen - held) * 100:.1f} points ({judgment}). The saved weights are those of the best "
        f"validation, after epoch {range_words(list(map(_best_epoch, trained)))}."
    )


def _best_epoch(trained: TrainedModel) -> int:
    """Return the epoch, counted from 1, after which the best weights were kept."""
    steps = [line["step"] for line in trained.epochs]
    return steps.index(trained.trained.best_step) + 1

"""The claims about splits and, on real data, accuracy."""

from collections import Counter
from collections.abc import Sequence

import torch

from attnlab.core.stats import is_above
from attnlab.draw.claims import judge_all
from attnlab.experiments.claims import Claim
from attnlab.experiments.sentiment.baseline import TrainedBaseline
from attnlab.experiments.sentiment.comparison import accuracy_of, gain_over
from attnlab.experiments.sentiment.data import Arrangement, Data
from attnlab.experiments.sentiment.fit import SplitOutcome
from attnlab.tasks.texts import LabeledText, shared_texts

_ABOVE_ZERO = "interval above 0; undecided if it holds 0"


def evaluate_claims(data: Data, outcomes: Sequence[SplitOutcome]) -> list[Claim]:
    """Evaluate all claims; the first outcome is that of the split without leaks."""
    fair = outcomes[0]
    claims = [baseline_claim(data, fair, baseline) for baseline in fair.baselines]
    if not data.is_built_in:  # whose test texts choose the epoch too
        claims.append(_beats_the_majority(data, fair))
    if len(outcomes) > 1:
        claims.append(_repeated_rows_leak(outcomes[1].arrangement))
    return [*claims, _split_shares_no_text(data)]


def baseline_claim(data: Data, fair: SplitOutcome, baseline: TrainedBaseline) -> Claim:
    """Claim that the best model beats a baseline; one training alone decides nothing."""
    best = fair.correct["best"]
    num_trainings, num_texts = best.shape
    gain = gain_over(best, fair.correct[baseline.name])
    texts = f"{num_texts:,} test texts that no training saw"
    if data.is_built_in:
        texts = f"{num_texts} held-out texts, which choose the epoch too, so this stays undecided"
    alone = ""
    if num_trainings == 1:
        alone = "; one training says nothing about others, so this stays undecided"
    return Claim(
        f"best_beats_{baseline.recipe.key}",
        f"the best model is right more often than {baseline.name}, {baseline.recipe.about}, on "
        f"the same {texts} (mean of {num_trainings} trainings, 95 % interval over texts and "
        f"trainings){alone}",
        f"{fair.accuracy('best')} against {fair.accuracy(baseline.name)}: {gain}",
        _ABOVE_ZERO,
        is_above(gain, 0.0) if num_trainings > 1 and not data.is_built_in else None,
    )


def _beats_the_majority(data: Data, fair: SplitOutcome) -> Claim:
    """Claim that each model is better than always naming the most frequent class."""
    most = majority_class(data.fair.split.train)
    always = torch.tensor([row.label == most for row in data.fair.split.test])
    measured, passed = [f"{accuracy_of(always)} always {most}"], []
    for name in fair.models:
        gain = gain_over(fair.correct[name], always)
        measured.append(f"{name} {fair.accuracy(name)}, {gain}")
        passed.append(is_above(gain, 0.0))
    return Claim(
        "beats_the_majority",
        f"both models are right more often than the most frequent class, {most}, on the same "
        f"{len(always):,} test texts that no training saw (mean of the trainings, 95 % interval)",
        "; ".join(measured),
        _ABOVE_ZERO,
        judge_all(passed),
    )


def _repeated_rows_leak(leaky: Arrangement) -> Claim:
    return Claim(
        "repeated_rows_leak",
        "a split by row of repeated texts leaks: held-out texts are in training too, so its "
        "accuracy is memorization",
        f"{leaky.shared:,} of the {leaky.num_test:,} held-out texts are also in training",
        "at least 1",
        leaky.shared > 0,
    )


def _split_shares_no_text(data: Data) -> Claim:
    split = data.fair.split
    pairs = [(split.train, split.validation), (split.train, split.test)]
    if not data.is_built_in:  # there the test texts also choose the epoch, as the report says
        pairs.append((split.validation, split.test))
    shared = sum(shared_texts(one, other) for one, other in pairs)
    return Claim(
        "split_shares_no_text",
        "no text, compared by its letters and digits, is in two parts of the split",
        f"{shared:,} shared",
        "0 shared",
        shared == 0,
        is_self_check=True,
    )


def majority_class(rows: Sequence[LabeledText]) -> str:
    """Return the most frequent class."""
    return Counter(row.label for row in rows).most_common(1)[0][0]


def majority_accuracy(train: Sequence[LabeledText], test: Sequence[LabeledText]) -> float:
    """Return the accuracy of always naming the most frequent class of the training texts."""
    most = majority_class(train)
    return sum(row.label == most for row in test) / len(test)

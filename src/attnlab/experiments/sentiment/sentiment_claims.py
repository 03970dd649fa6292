"""The claims about padding, weights, splits, counts, tokenizers and, on real data, accuracy."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from attnlab.core.stats import is_above
from attnlab.draw.claims import judge_all
from attnlab.experiments.claims import Claim
from attnlab.experiments.sentiment.baseline import Baseline
from attnlab.experiments.sentiment.comparison import difference_interval, points
from attnlab.experiments.sentiment.config import ModelName
from attnlab.experiments.sentiment.data import Data
from attnlab.experiments.sentiment.fit import Prepared, TrainedModel
from attnlab.experiments.sentiment.inspection import padding_changes, sum_weights
from attnlab.experiments.sentiment.leak_control import EPOCHS, LeakControl
from attnlab.models.parameters import count_from_config, count_from_model
from attnlab.tasks.texts import LabelledText, shared_texts
from attnlab.tasks.tokenizers import (
    SPECIALS,
    UNK,
    PartTokenizer,
    TextTokenizer,
    clean,
    open_tokenizer,
    words_of,
)

_TOLERANCE = 1e-5
_BOUND = "interval above 0; undecided if it holds 0"


@dataclass(frozen=True)
class Outcome:
    """The results on one split: each model's trainings, and the baselines."""

    prepared: dict[ModelName, Prepared]
    models: dict[ModelName, list[TrainedModel]]
    baselines: list[Baseline]

    def correct(self, name: ModelName) -> Tensor:
        """Return which test texts each training answers right: (trainings, texts)."""
        return torch.stack([each.correct for each in self.models[name]])

    def correct_before(self, name: ModelName) -> Tensor:
        """Return the same before any training: (trainings, texts)."""
        return torch.stack([each.correct_before for each in self.models[name]])


def evaluate_claims(
    data: Data, outcomes: Sequence[Outcome], unseen: LeakControl | None
) -> list[Claim]:
    """Evaluate all claims; the first outcome is that of the split without leaks."""
    fair = outcomes[0]
    claims = [
        _padding_claim(fair),
        _weights_claim(fair),
        _split_claim(data),
        *([_unseen_claim(unseen)] if unseen is not None else []),
        *([_leak_claim(data)] if len(data.arrangements) > 1 else []),
        _parameters_claim(fair),
        _tokenizer_claim(fair),
    ]
    comparisons = [_baseline_claim(data, fair, baseline) for baseline in fair.baselines]
    return [*comparisons, *claims, *_skill_claims(data, fair)]


def evaluate_claims_of_one(data: Data, outcome: Outcome) -> list[Claim]:
    """Evaluate the claims about one model alone, on the split without leaks."""
    claims = [
        _padding_claim(outcome),
        _weights_claim(outcome),
        _split_claim(data),
        _parameters_claim(outcome),
    ]
    return [*claims, *_skill_claims(data, outcome)]


def majority_class(rows: Sequence[LabelledText]) -> str:
    """Return the most frequent class."""
    return Counter(row.label for row in rows).most_common(1)[0][0]


def majority_accuracy(train: Sequence[LabelledText], test: Sequence[LabelledText]) -> float:
    """Return the accuracy of always naming the most frequent class of the training texts."""
    most = majority_class(train)
    return sum(row.label == most for row in test) / len(test)


def _padding_claim(fair: Outcome) -> Claim:
    found = {
        name: padding_changes(each[0].model, fair.prepared[name])
        for name, each in fair.models.items()
    }
    first, pads = next(iter(found.values())), [each.num_pads for each in found.values()]
    difference = max(each.difference for each in found.values())
    turned = sum(each.turned for each in found.values())
    return Claim(
        "padding_changes_nothing",
        "the verdict does not depend on the padding: attention masks PAD and the mean leaves it "
        f"out ({_who(fair)}, {first.num_texts:,} texts, cut to half of the maximal length, "
        f"{first.num_paddings} lengths of padding each)",
        f"logits at most {difference:.1e} apart, {turned} verdicts changed, "
        f"{_listed(found, pads)} PAD added",
        f"{_TOLERANCE:.0e}, 0 changed, some PAD in each",
        difference <= _TOLERANCE and turned == 0 and min(pads) > 0,
    )


def _weights_claim(fair: Outcome) -> Claim:
    found = [sum_weights(each[0].model, fair.prepared[name]) for name, each in fair.models.items()]
    pads = [each.num_pads for each in found]
    from_one = max(each.from_one for each in found)
    on_padding = max(each.on_padding for each in found)
    return Claim(
        "weights_add_up",
        "every row of weights of every head and layer sums to 1 and gives PAD nothing, in padded "
        f"batches of {_who(fair)} ({sum(each.num_rows for each in found):,} rows)",
        f"at most {from_one:.1e} from 1, {on_padding:g} on PAD, {_listed(fair.models, pads)} "
        "PAD seen",
        f"{_TOLERANCE:.0e}, exactly 0, some PAD in each",
        from_one <= _TOLERANCE and on_padding == 0.0 and min(pads) > 0,
    )


def _who(fair: Outcome) -> str:
    return "both models" if len(fair.models) > 1 else "the model"


def _listed(names: Iterable[str], counts: Sequence[int]) -> str:
    return " and ".join(f"{name} {count:,}" for name, count in zip(names, counts, strict=True))


def _split_claim(data: Data) -> Claim:
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
    )


def _unseen_claim(unseen: LeakControl) -> Claim:
    return Claim(
        "test_is_never_seen",
        "nothing that is learned or chosen depends on the test texts: with "
        f"{unseen.num_exchanged:,} of them replaced by nonsense with other labels, a short "
        f"training of each model ({unseen.num_training:,} of the training texts, {EPOCHS} epochs) "
        "has the same tokenizer, initial weights, losses, best step and weights to the byte",
        ", ".join(unseen.differences) + " differ" if unseen.differences else "nothing differs",
        "nothing differs",
        not unseen.differences,
    )


def _leak_claim(data: Data) -> Claim:
    leaky = data.arrangements[1]
    return Claim(
        "repeated_rows_leak",
        "a split by row of repeated texts leaks: held-out texts are in training too, so its "
        "accuracy is memorization",
        f"{leaky.shared:,} of the {leaky.num_judged:,} held-out texts are also in training",
        "at least 1",
        leaky.shared > 0,
    )


def _parameters_claim(fair: Outcome) -> Claim:
    models = [each[0].model for each in fair.models.values()]
    by_config = [count_from_config(model.config) for model in models]
    by_model = [count_from_model(model) for model in models]
    return Claim(
        "parameters_counted",
        f"the parameters of each part of {_who(fair)}, counted by arithmetic, are those the "
        "models hold",
        " and ".join(f"{sum(counts.values()):,}" for counts in by_model),
        " and ".join(f"{sum(counts.values()):,}" for counts in by_config),
        by_config == by_model,
    )


def _tokenizer_claim(fair: Outcome) -> Claim:
    rows = [row for part in fair.prepared["mini"].arrangement.split for row in part][:2_000]
    lost = sum(not _comes_back(fair.prepared["mini"].tokenizer, row.text) for row in rows)
    changed = 0
    for prepared in fair.prepared.values():
        again = open_tokenizer(json.loads(json.dumps(prepared.tokenizer.to_mapping())))
        changed += sum(again.ids(row.text) != prepared.tokenizer.ids(row.text) for row in rows)
    return Claim(
        "tokenizer_round_trip",
        "ids turn back into the words they came from, up to unknown words and the cut, and "
        f"tokenizers saved and opened again give the same ids ({len(rows):,} texts)",
        f"{lost} lost, {changed} changed by saving",
        "0 and 0",
        lost == 0 and changed == 0,
    )


def _comes_back(tokenizer: TextTokenizer, text: str) -> bool:
    """Does decoding return the words of a text, with `<UNK>` for words not in the vocabulary?"""
    mapping = tokenizer.to_mapping()
    assert not isinstance(tokenizer, PartTokenizer)
    back = tokenizer.decode(tokenizer.encode(text))  # type: ignore[attr-defined]
    if mapping["kind"] == "subword":
        is_whole = tokenizer.count(text) <= tokenizer.max_length and UNK not in tokenizer.ids(text)
        return back == clean(text) or not is_whole
    known = set(mapping["words"])
    expected = [
        word if word in known else SPECIALS[UNK] for word in words_of(text, mapping["splits"])
    ]
    return bool(back == " ".join(expected[: tokenizer.max_length - 1]))


def _skill_claims(data: Data, fair: Outcome) -> list[Claim]:
    """Claim that models beat the majority; not if the test texts choose the epoch too."""
    return [] if data.is_built_in else [_majority_claim(data, fair)]


def _majority_claim(data: Data, fair: Outcome) -> Claim:
    split = data.fair.split
    most = majority_class(split.train)
    always = torch.tensor([row.label == most for row in split.test])
    gains = {name: difference_interval(fair.correct(name), always) for name in fair.models}
    measured = [f"{_percent(always)} always {most}"]
    for name, gain in gains.items():
        measured.append(f"{name} {_percent(fair.correct(name))}, {points(gain)}")
    return Claim(
        "beats_the_majority",
        f"{_who(fair)} {'are' if len(fair.models) > 1 else 'is'} right more often than the most "
        f"frequent class, {most}, on the same {len(always):,} test texts that no training saw "
        "(mean of the trainings, 95 % interval)",
        "; ".join(measured),
        _BOUND,
        judge_all([is_above(gain, 0.0) for gain in gains.values()]),
    )


def _baseline_claim(data: Data, fair: Outcome, baseline: Baseline) -> Claim:
    best = fair.correct("best")
    gain = difference_interval(best, baseline.correct)
    can_tell = len(best) > 1 and not data.is_built_in
    texts = "test texts that no training saw"
    if data.is_built_in:
        texts = "held-out texts, which choose the epoch too, so this stays undecided"
    lone = ""
    if len(best) == 1:
        lone = "; one training says nothing about others, so this stays undecided"
    return Claim(
        f"best_beats_{baseline.key}",
        f"the best model is right more often than {baseline.name}, {baseline.about}, on the same "
        f"{len(baseline.correct):,} {texts} (mean of {len(best)} trainings, 95 % interval over "
        f"texts and trainings){lone}",
        f"{_percent(best)} against {_percent(baseline.correct)}: {points(gain)}",
        _BOUND,
        is_above(gain, 0.0) if can_tell else None,
    )


def _percent(correct: Tensor) -> str:
    return f"{float(correct.double().mean()):.1%}"

"""What may be claimed of a run: about padding, weights, splits, counts, tokenizers, and, on real data, accuracy."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from attnlab.experiments.claims import Claim
from attnlab.experiments.intervals import Interval, mean_interval, share_interval
from attnlab.experiments.sentiment.baseline import Baseline
from attnlab.experiments.sentiment.config import ModelName
from attnlab.experiments.sentiment.data import Data
from attnlab.experiments.sentiment.looking import padding_changes, weigh
from attnlab.experiments.sentiment.training import Prepared, TrainedModel
from attnlab.experiments.sentiment.unseen import EPOCHS, Unseen
from attnlab.models.parameters import count_from_config, count_from_model
from attnlab.tasks.texts import LabelledText, shared_texts
from attnlab.tasks.tokenizers import SPECIALS, UNK, PartTokenizer, TextTokenizer, clean, open_tokenizer

__all__ = [
    "Outcome",
    "accuracy_interval",
    "difference_interval",
    "judge_claims",
    "judge_one",
    "majority_accuracy",
    "mcnemar",
    "points",
]

_TOLERANCE = 1e-5


class Outcome(NamedTuple):
    """All that was trained on one split: each model's trainings, and the baselines."""

    prepared: dict[ModelName, Prepared]
    models: dict[ModelName, list[TrainedModel]]
    baselines: list[Baseline]

    def mean_correct(self, name: ModelName) -> Tensor:
        """Return, for each test text, in which share of the trainings it came out right: (texts,)."""
        return torch.stack([each.correct.double() for each in self.models[name]]).mean(0)

    def mean_before(self, name: ModelName) -> Tensor:
        """Return the same for the models as they were before any training: (texts,)."""
        return torch.stack([each.correct_before.double() for each in self.models[name]]).mean(0)


def judge_claims(data: Data, outcomes: Sequence[Outcome], unseen: Unseen | None) -> list[Claim]:
    """Say what holds; the first outcome is that of the split without leaks."""
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
    if data.can_tell:
        claims.append(_majority_claim(data, fair))
        claims += [_baseline_claim(fair)] if fair.baselines else []
    return claims


def judge_one(data: Data, outcome: Outcome) -> list[Claim]:
    """Say what holds of one model by itself, on the split without leaks."""
    claims = [_padding_claim(outcome), _weights_claim(outcome), _split_claim(data), _parameters_claim(outcome)]
    return [*claims, _majority_claim(data, outcome)] if data.can_tell else claims


def accuracy_interval(correct: Tensor) -> Interval:
    """Return an accuracy with its 95 % interval, from each text's share of trainings that got it right: (texts,)."""
    accuracy, total = float(correct.double().mean()), len(correct)
    interval = share_interval(round(accuracy * total), total)
    return Interval(accuracy, min(interval.low, accuracy), max(interval.high, accuracy))


def difference_interval(one: Tensor, other: Tensor) -> Interval:
    """Return how much more often one is right than the other on the same texts, with its 95 % interval (paired)."""
    return mean_interval((one.double() - other.double()).tolist())


def mcnemar(one: Tensor, other: Tensor) -> float:
    """Return the two-sided exact p of McNemar's test: could texts that only one of two got right be a coin's fall?"""
    wins, losses = int((one & ~other).sum()), int((~one & other).sum())
    total = wins + losses
    logs = torch.lgamma(torch.arange(total + 2, dtype=torch.float64))  # lgamma(n + 1) = log n!
    smaller = torch.arange(min(wins, losses) + 1)
    tail = (
        logs[total + 1] - logs[smaller + 1] - logs[total - smaller + 1] - total * torch.log(torch.tensor(2.0).double())
    )
    return min(1.0, 2 * float(tail.exp().sum()))


def majority_accuracy(train: Sequence[LabelledText], test: Sequence[LabelledText]) -> float:
    """Return how often the most frequent class of the training texts is right."""
    most = Counter(row.label for row in train).most_common(1)[0][0]
    return sum(row.label == most for row in test) / len(test)


def _padding_claim(fair: Outcome) -> Claim:
    found = {name: padding_changes(each[0].model, fair.prepared[name]) for name, each in fair.models.items()}
    first, pads = next(iter(found.values())), [each.num_pads for each in found.values()]
    difference, turned = max(each.difference for each in found.values()), sum(each.turned for each in found.values())
    return Claim(
        "padding_changes_nothing",
        f"the verdict does not depend on the padding: nobody looks at PAD and the mean leaves it out ({_who(fair)}, "
        f"{first.num_texts:,} texts, cut to half of what a model reads, {first.num_paddings} lengths of padding each)",
        f"logits at most {difference:.1e} apart, {turned} verdicts turned, {_listed(found, pads)} PAD added",
        f"{_TOLERANCE:.0e}, 0 turned, some PAD in each",
        difference <= _TOLERANCE and turned == 0 and min(pads) > 0,
    )


def _weights_claim(fair: Outcome) -> Claim:
    found = [weigh(each[0].model, fair.prepared[name]) for name, each in fair.models.items()]
    pads = [each.num_pads for each in found]
    from_one, on_padding = max(each.from_one for each in found), max(each.on_padding for each in found)
    return Claim(
        "weights_add_up",
        f"every row of weights of every head and layer sums to 1 and gives PAD nothing, in padded batches of "
        f"{_who(fair)} ({sum(each.num_rows for each in found):,} rows)",
        f"at most {from_one:.1e} from 1, {on_padding:g} on PAD, {_listed(fair.models, pads)} PAD seen",
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
    if not data.is_built_in:  # where what judges also chooses the epoch, as the report says
        pairs.append((split.validation, split.test))
    shared = sum(shared_texts(one, other) for one, other in pairs)
    return Claim(
        "split_shares_no_text",
        "no text, compared by its letters and digits, is on two sides of the split that the models are judged on",
        f"{shared:,} shared",
        "0 shared",
        shared == 0,
    )


def _unseen_claim(unseen: Unseen) -> Claim:
    return Claim(
        "test_is_never_seen",
        f"nothing that is learnt or chosen depends on the test texts: with {unseen.num_exchanged:,} of them replaced "
        f"by nonsense of other labels, a short training of each model ({unseen.num_training:,} of the training texts, "
        f"{EPOCHS} epochs) has byte for byte the same tokenizer, initial weights, losses, best step and weights",
        ", ".join(unseen.differences) + " differ" if unseen.differences else "nothing differs",
        "nothing differs",
        not unseen.differences,
    )


def _leak_claim(data: Data) -> Claim:
    leaky = data.arrangements[1]
    return Claim(
        "repeated_rows_leak",
        "a split by row of repeated texts leaks: held-out texts were seen in training, so its accuracy is memory",
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
        f"the parameters of each part of {_who(fair)}, counted by arithmetic, are those the models hold",
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
        f"ids turn back into the text they came from, up to unknown words and the cut, and tokenizers saved and opened "
        f"again give the same ids ({len(rows):,} texts)",
        f"{lost} lost, {changed} changed by saving",
        "0 and 0",
        lost == 0 and changed == 0,
    )


def _comes_back(tokenizer: TextTokenizer, text: str) -> bool:
    """Say whether decoding gives the text back, with `<UNK>` for words that the vocabulary has not."""
    mapping = tokenizer.to_mapping()
    assert not isinstance(tokenizer, PartTokenizer)
    back = tokenizer.decode(tokenizer.encode(text))  # type: ignore[attr-defined]
    if mapping["kind"] == "subword":
        is_whole = tokenizer.count(text) <= tokenizer.max_length and UNK not in tokenizer.ids(text)
        return back == clean(text) or not is_whole
    known = set(mapping["words"])
    expected = [word if word in known else SPECIALS[UNK] for word in clean(text).split()]
    return bool(back == " ".join(expected[: tokenizer.max_length - 1]))


def _majority_claim(data: Data, fair: Outcome) -> Claim:
    split, total = data.fair.split, data.fair.num_judged
    majority = majority_accuracy(split.train, split.test)
    intervals = {name: accuracy_interval(fair.mean_correct(name)) for name in fair.models}
    alone = {
        name: sum(accuracy_interval(each.correct).low > majority for each in found)
        for name, found in fair.models.items()
    }
    return Claim(
        "beats_the_majority",
        f"{_who(fair)} {'are' if len(fair.models) > 1 else 'is'} right more often than the most frequent class, by the "
        f"low end of the 95 % interval "
        f"({total:,} test texts that no training saw; mean of the trainings, and how many of them do so alone)",
        ", ".join(
            f"{name} {each.value:.1%} (from {each.low:.1%}; {alone[name]} of {len(fair.models[name])} trainings)"
            for name, each in intervals.items()
        ),
        f"above {majority:.1%}",
        all(each.low > majority for each in intervals.values()),
    )


def _baseline_claim(fair: Outcome) -> Claim:
    baseline, best = fair.baselines[0], fair.models["best"]
    gain = difference_interval(fair.mean_correct("best"), baseline.correct)
    start = difference_interval(fair.mean_before("best"), baseline.correct)
    training = difference_interval(fair.mean_correct("best"), fair.mean_before("best"))
    alone = sum(difference_interval(each.correct, baseline.correct).low > 0 for each in best)
    return Claim(
        "best_beats_tfidf",
        f"the best model is right more often than {baseline.name} on the same {len(baseline.correct):,} test texts "
        f"(mean of {len(best)} trainings, paired 95 % interval); of the gain, {start.value * 100:+.1f} points are "
        f"there before any training, by naive Bayes over words, beginnings and pairs; training adds {points(training)}",
        f"{points(gain)}; {alone} of {len(best)} trainings alone",
        "interval above 0",
        gain.low > 0,
    )


def points(difference: Interval) -> str:
    """Write a difference of accuracies in points, with its interval."""
    return f"{difference.value * 100:+.1f} points ({difference.low * 100:+.1f} to {difference.high * 100:+.1f})"

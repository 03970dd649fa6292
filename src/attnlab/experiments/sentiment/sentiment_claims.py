"""The claims about padding, weights, splits, counts, tokenizers and, on real data, accuracy."""

import dataclasses
import itertools
import json
from collections import Counter
from collections.abc import Mapping, Sequence

import torch

from attnlab.core.stats import is_above
from attnlab.draw.claims import judge_all
from attnlab.experiments.claims import Claim
from attnlab.experiments.sentiment import controls
from attnlab.experiments.sentiment.baseline import Baseline
from attnlab.experiments.sentiment.comparison import accuracy_of, gain_over
from attnlab.experiments.sentiment.config import WORDS
from attnlab.experiments.sentiment.data import Data
from attnlab.experiments.sentiment.fit import Outcome
from attnlab.experiments.words import Numbers
from attnlab.models.parameters import count_from_config, count_from_model
from attnlab.tasks import tokenizers
from attnlab.tasks.texts import LabelledText, shared_texts

_TOLERANCE = 1e-5
_MOST_TOKENIZED = 2_000  # texts that are encoded and decoded


def evaluate_claims(
    data: Data, outcomes: Sequence[Outcome], unseen: controls.LeakControl | None = None
) -> list[Claim]:
    """Evaluate all claims; the first outcome is that of the split without leaks.

    That outcome may hold one model alone, which then stands for itself.
    """
    fair = outcomes[0]
    padding, sums = controls.padding_changes(fair), controls.sum_weights(fair)
    shared = _shared(data)
    models = [each[0].model for each in fair.models.values()]
    by_config = [count_from_config(model.config) for model in models]
    by_model = list(map(count_from_model, models))
    numbers: Numbers = {
        "are_both": len(models) > 1,
        "tolerance": _TOLERANCE,
        "padding": padding,
        "num_paddings": len(controls.PADDINGS),
        "pads_added": _listed(padding.pads),
        "sums": sums,
        "pads_seen": _listed(sums.pads),
        "shared": shared,
        "held": _sums(by_model),
        "counted": _sums(by_config),
    }
    passed: dict[str, bool | None] = {
        "padding_changes_nothing": _changes_nothing(padding),
        "weights_add_up": _add_up(sums),
        "split_shares_no_text": shared == 0,
    }
    if unseen is not None:
        numbers["unseen"] = unseen
        passed["test_is_never_seen"] = not unseen.differences
    if len(outcomes) > 1:
        numbers["leaky"] = leaky = outcomes[1].arrangement
        passed["repeated_rows_leak"] = leaky.shared > 0
    passed["parameters_counted"] = by_config == by_model
    if len(models) > 1:
        lost, changed, number = _round_trip(fair)
        numbers |= {"lost": lost, "changed": changed, "num_tokenized": number}
        passed["tokenizer_round_trip"] = lost == changed == 0
    if not data.is_built_in:  # whose test texts choose the epoch too
        majority = _majority_numbers(data, fair)
        numbers |= majority
        passed["beats_the_majority"] = majority["all_gain"]
    comparisons = [baseline_claim(data, fair, baseline) for baseline in fair.baselines]
    return [*comparisons, *WORDS.claims(numbers, passed)]


def _sums(counts: Sequence[Mapping[str, int]]) -> str:
    return " and ".join(f"{sum(each.values()):,}" for each in counts)


def _changes_nothing(padding: controls.PaddingEffect) -> bool:
    is_same = padding.difference <= _TOLERANCE and padding.turned == 0
    return is_same and min(padding.pads.values()) > 0


def _add_up(sums: controls.WeightSums) -> bool:
    is_one = sums.from_one <= _TOLERANCE and sums.on_padding == 0.0
    return is_one and min(sums.pads.values()) > 0


def _majority_numbers(data: Data, fair: Outcome) -> Numbers:
    """Compare each model with always naming the most frequent class."""
    most = majority_class(data.fair.split.train)
    always = torch.tensor([row.label == most for row in data.fair.split.test])
    gains, passed = [], []
    for name in fair.models:
        gain = gain_over(fair.correct[name], always)
        gains.append((name, fair.accuracy(name), gain))
        passed.append(is_above(gain, 0.0))
    return {
        "most": most,
        "always": accuracy_of(always),
        "num_test": len(always),
        "gains": gains,
        "all_gain": judge_all(passed),
    }


def baseline_claim(data: Data, fair: Outcome, baseline: Baseline) -> Claim:
    """Claim that the best model beats a baseline; one training alone decides nothing."""
    best = fair.correct["best"]
    gain = gain_over(best, fair.correct[baseline.name])
    numbers = {
        "baseline": baseline,
        "is_built_in": data.is_built_in,
        "num_trainings": len(best),
        "num_texts": best.shape[1],
        "best": fair.accuracy("best"),
        "other": fair.accuracy(baseline.name),
        "gain": gain,
    }
    passed = is_above(gain, 0.0) if len(best) > 1 and not data.is_built_in else None
    (claim,) = WORDS.claims(numbers, {"best_beats": passed})
    return dataclasses.replace(claim, name=f"best_beats_{baseline.key}")


def majority_class(rows: Sequence[LabelledText]) -> str:
    """Return the most frequent class."""
    return Counter(row.label for row in rows).most_common(1)[0][0]


def majority_accuracy(train: Sequence[LabelledText], test: Sequence[LabelledText]) -> float:
    """Return the accuracy of always naming the most frequent class of the training texts."""
    most = majority_class(train)
    return sum(row.label == most for row in test) / len(test)


def _shared(data: Data) -> int:
    """Count the texts that are in two parts of the split."""
    split = data.fair.split
    pairs = [(split.train, split.validation), (split.train, split.test)]
    if not data.is_built_in:  # there the test texts also choose the epoch, as the report says
        pairs.append((split.validation, split.test))
    return sum(shared_texts(one, other) for one, other in pairs)


def _listed(counts: Mapping[str, int]) -> str:
    return " and ".join(f"{name} {count:,}" for name, count in counts.items())


def _round_trip(fair: Outcome) -> tuple[int, int, int]:
    """Count the texts that mini's tokenizer loses, those that change by saving, and all."""
    rows = list(itertools.chain(*fair.arrangement.split))[:_MOST_TOKENIZED]
    lost = sum(not _comes_back(fair.prepared["mini"].tokenizer, row.text) for row in rows)
    changed = 0
    for prepared in fair.prepared.values():
        again = tokenizers.open_tokenizer(json.loads(json.dumps(prepared.tokenizer.to_mapping())))
        changed += sum(again.ids(row.text) != prepared.tokenizer.ids(row.text) for row in rows)
    return lost, changed, len(rows)


def _comes_back(tokenizer: tokenizers.TextTokenizer, text: str) -> bool:
    """Does decoding return the words of a text, with `<UNK>` for words not in the vocabulary?"""
    mapping = tokenizer.to_mapping()
    assert not isinstance(tokenizer, tokenizers.PartTokenizer)
    back = tokenizer.decode(tokenizer.encode(text))  # type: ignore[attr-defined]
    if mapping["kind"] == "subword":
        is_cut = tokenizer.count(text) > tokenizer.max_length
        return back == tokenizers.clean(text) or is_cut or tokenizers.UNK in tokenizer.ids(text)
    known, words = set(mapping["words"]), tokenizers.words_of(text)
    expected = [word if word in known else tokenizers.SPECIALS[tokenizers.UNK] for word in words]
    return bool(back == " ".join(expected[: tokenizer.max_length - 1]))

"""The claims about padding, weights, splits, counts, tokenizers and, on real data, accuracy."""

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
from attnlab.experiments.sentiment.data import Arrangement, Data
from attnlab.experiments.sentiment.fit import Outcome
from attnlab.tasks import tokenizers
from attnlab.tasks.texts import LabelledText, shared_texts

_ABOVE_ZERO = "interval above 0; undecided if it holds 0"
_TOLERANCE = 1e-5
_MOST_TOKENIZED = 2_000  # texts that are encoded and decoded


def evaluate_claims(
    data: Data, outcomes: Sequence[Outcome], unseen: controls.LeakControl | None = None
) -> list[Claim]:
    """Evaluate all claims; the first outcome is that of the split without leaks.

    That outcome may hold one model alone, which then stands for itself.
    """
    fair = outcomes[0]
    claims = [baseline_claim(data, fair, baseline) for baseline in fair.baselines]
    if not data.is_built_in:  # whose test texts choose the epoch too
        claims.append(_beats_the_majority(data, fair))
    if len(outcomes) > 1:
        claims.append(_repeated_rows_leak(outcomes[1].arrangement))
    claims += [_padding_changes_nothing(fair), _weights_add_up(fair), _split_shares_no_text(data)]
    if unseen is not None:
        claims.append(_test_is_never_seen(unseen))
    if len(fair.models) > 1:
        claims.append(_tokenizer_round_trip(fair))
    return claims


def baseline_claim(data: Data, fair: Outcome, baseline: Baseline) -> Claim:
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
        f"best_beats_{baseline.key}",
        f"the best model is right more often than {baseline.name}, {baseline.about}, on the same "
        f"{texts} (mean of {num_trainings} trainings, 95 % interval over texts and trainings)"
        f"{alone}",
        f"{fair.accuracy('best')} against {fair.accuracy(baseline.name)}: {gain}",
        _ABOVE_ZERO,
        is_above(gain, 0.0) if num_trainings > 1 and not data.is_built_in else None,
    )


def _beats_the_majority(data: Data, fair: Outcome) -> Claim:
    """Claim that each model is better than always naming the most frequent class."""
    most = majority_class(data.fair.split.train)
    always = torch.tensor([row.label == most for row in data.fair.split.test])
    measured, passed = [f"{accuracy_of(always)} always {most}"], []
    for name in fair.models:
        gain = gain_over(fair.correct[name], always)
        measured.append(f"{name} {fair.accuracy(name)}, {gain}")
        passed.append(is_above(gain, 0.0))
    models = "both models are" if len(fair.models) > 1 else "the model is"
    return Claim(
        "beats_the_majority",
        f"{models} right more often than the most frequent class, {most}, on the same "
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


def _padding_changes_nothing(fair: Outcome) -> Claim:
    padding = controls.padding_changes(fair)
    is_same = padding.difference <= _TOLERANCE and padding.turned == 0
    return Claim(
        "padding_changes_nothing",
        "the verdict does not depend on the padding: attention masks PAD and the mean leaves it "
        f"out ({_models_of(fair)}, {padding.num_texts:,} texts, cut to half of the maximal length, "
        f"{len(controls.PADDINGS)} lengths of padding each)",
        f"logits at most {padding.difference:.1e} apart, {padding.turned:,} verdicts changed, "
        f"{_listed(padding.pads)} PAD added",
        f"{_TOLERANCE:.0e}, 0 changed, some PAD in each",
        is_same and min(padding.pads.values()) > 0,
        is_self_check=True,
    )


def _weights_add_up(fair: Outcome) -> Claim:
    sums = controls.sum_weights(fair)
    is_one = sums.from_one <= _TOLERANCE and sums.on_padding == 0.0
    return Claim(
        "weights_add_up",
        "every row of weights of every head and layer sums to 1 and gives PAD nothing, in padded "
        f"batches of {_models_of(fair)} ({sums.num_rows:,} rows)",
        f"at most {sums.from_one:.1e} from 1, {sums.on_padding:g} on PAD, {_listed(sums.pads)} PAD "
        "seen",
        f"{_TOLERANCE:.0e}, exactly 0, some PAD in each",
        is_one and min(sums.pads.values()) > 0,
        is_self_check=True,
    )


def _models_of(fair: Outcome) -> str:
    return "both models" if len(fair.models) > 1 else "the model"


def _listed(counts: Mapping[str, int]) -> str:
    return " and ".join(f"{name} {count:,}" for name, count in counts.items())


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


def _test_is_never_seen(unseen: controls.LeakControl) -> Claim:
    measured = "nothing differs"
    if unseen.differences:
        measured = f"{', '.join(unseen.differences)} differ"
    return Claim(
        "test_is_never_seen",
        f"nothing that is learned or chosen depends on the test texts: with {unseen.num_exchanged} "
        "of them replaced by nonsense with other labels, a short training of each model "
        f"({unseen.num_training} of the training texts, {unseen.num_epochs} epochs) has the same "
        "tokenizer, initial weights, losses, best step and weights to the byte",
        measured,
        "nothing differs",
        not unseen.differences,
        is_self_check=True,
    )


def _tokenizer_round_trip(fair: Outcome) -> Claim:
    """Claim that mini's tokenizer loses no text, and that saving changes no tokenizer."""
    rows = list(itertools.chain(*fair.arrangement.split))[:_MOST_TOKENIZED]
    lost = sum(not _comes_back(fair.prepared["mini"].tokenizer, row.text) for row in rows)
    changed = 0
    for prepared in fair.prepared.values():
        again = tokenizers.open_tokenizer(json.loads(json.dumps(prepared.tokenizer.to_mapping())))
        changed += sum(again.ids(row.text) != prepared.tokenizer.ids(row.text) for row in rows)
    return Claim(
        "tokenizer_round_trip",
        "ids turn back into the words they came from, up to unknown words and the cut, and "
        f"tokenizers saved and opened again give the same ids ({len(rows):,} texts)",
        f"{lost:,} lost, {changed:,} changed by saving",
        "0 and 0",
        lost == changed == 0,
        is_self_check=True,
    )


def majority_class(rows: Sequence[LabelledText]) -> str:
    """Return the most frequent class."""
    return Counter(row.label for row in rows).most_common(1)[0][0]


def majority_accuracy(train: Sequence[LabelledText], test: Sequence[LabelledText]) -> float:
    """Return the accuracy of always naming the most frequent class of the training texts."""
    most = majority_class(train)
    return sum(row.label == most for row in test) / len(test)


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

"""Split texts without a leak, and fill batches up to their longest text."""

# %% [course]
from functools import partial

import numpy as np

from attnlab_course.exercise import Case, Check, Exercise, Failure
from attnlab_course.material.pictures import draw_lines

# %% [markdown]
# # Batches
#
# A model is trained on one part of the texts and validated on another. That is only fair if no
# text is in both. A small data set in which every text stands ten times is a trap: split at
# random, nearly every validation text has been trained on, and the accuracy means nothing. So split
# the distinct texts, and let their copies follow. The picture shows how many validation texts a
# random split of the copies has already shown to the model.
#
# ![leak](batches.svg)
#
# **Write** two functions.
#
# `split_texts(texts, labels, share, seed)` returns two lists of positions, training and validation.
#
# * `texts` are strings, some of them equal; equal texts have equal labels. `labels` are integers.
# * Every position from 0 to the last is in one of the two lists, once: copies are kept.
# * Equal texts are in the same list.
# * Stratified: for each label, validation gets `share` of its distinct texts. In the checks this is
#   a whole number.
# * Which texts they are is drawn at random from `seed` alone (`random.Random(seed)`, say): the same
#   seed gives the same split, also in another run of Python; other seeds give others.
#
# `make_batches(rows, labels, size)` returns a list of batches `(ids, mask, labels)`.
#
# | | |
# | --- | --- |
# | `rows` | a list of lists of token ids, of different lengths, none empty, without PAD |
# | `ids` | (batch, longest), int64: the rows, filled up with PAD (id 0) at their end |
# | `mask` | (batch, longest), boolean; **True = a real token** |
# | `labels` | (batch,), int64 |
#
# * `longest` is the longest row of this batch, not of all.
# * The rows stay in their order, `size` in a batch; the last batch has what is left.
# * `rows` and the lists in it stay as they are.
#
# Two functions and a class are given, by which the checks look at other runs and at `rows`.

# %%
import random

import torch

PAD = 0


def split_texts(texts, labels, share, seed):
    """Return the positions of the training and of the validation texts."""
    # >>> solution
    rng = random.Random(seed)
    held_out = set()
    for label in sorted(set(labels)):
        marked = zip(texts, labels, strict=True)
        distinct = sorted({text for text, mark in marked if mark == label})
        rng.shuffle(distinct)
        held_out.update(distinct[: round(share * len(distinct))])
    training = [n for n, text in enumerate(texts) if text not in held_out]
    validation = [n for n, text in enumerate(texts) if text in held_out]
    return training, validation
    # <<< solution


def make_batches(rows, labels, size):
    """Return a list of batches (ids, mask, labels)."""
    # >>> solution
    batches = []
    for start in range(0, len(rows), size):
        part = rows[start : start + size]
        longest = max(len(row) for row in part)
        ids = torch.full((len(part), longest), PAD)
        mask = torch.zeros(len(part), longest, dtype=torch.bool)
        for n, row in enumerate(part):
            ids[n, : len(row)] = torch.tensor(row)
            mask[n, : len(row)] = True
        batches.append((ids, mask, torch.tensor(labels[start : start + size])))
    return batches
    # <<< solution


# %%
# Given: leave this cell as it is.
class Renamed(str):
    """A text that Python files elsewhere in a set, as it does with any text in another run."""

    def __hash__(self):
        return hash(("another run", str(self)))


def split_in_another_run(texts, labels, share, seed):
    """Split texts as if Python had been started anew."""
    return split_texts(list(map(Renamed, texts)), labels, share, seed)


def rows_after(rows, labels, size):
    """Make batches, and return the rows as they are afterwards."""
    make_batches(rows, labels, size)
    return rows


# %% [hints]
# 1. If a text stands ten times and the copies are split at random, how likely is it that all ten
#    are on one side?
# 2. Decide for each distinct text, once, and label by label. Then give each position to the side
#    of its text.
# 3. `set` finds distinct texts, but its order changes from run to run: sort them before the
#    seed's generator shuffles.
# 4. For a batch: take `size` rows, find the longest, begin with ids full of PAD and a mask full
#    of False, and write each row and its True values at the left.

# %% [mistakes]
# Of homework whose data set has ten copies of each text.
# ## copies on both sides: The positions are split and not the texts, so copies of one text are in
# training and in validation: the validation accuracy measures memory.
# -     training = [n for n, text in enumerate(texts) if text not in held_out]
# -     validation = [n for n, text in enumerate(texts) if text in held_out]
# -     return training, validation
# +     order = list(range(len(texts)))
# +     rng.shuffle(order)
# +     cut = round(share * len(texts))
# +     return order[cut:], order[:cut]
# ## not stratified: The texts are drawn without looking at their labels, so that a label can be
# rarer in validation than in training.
# -     for label in sorted(set(labels)):
# -         marked = zip(texts, labels, strict=True)
# -         distinct = sorted({text for text, mark in marked if mark == label})
# -         rng.shuffle(distinct)
# -         held_out.update(distinct[: round(share * len(distinct))])
# +     everything = sorted(set(texts))
# +     rng.shuffle(everything)
# +     held_out.update(everything[: round(share * len(everything))])
# ## order of a set: The texts are drawn from a set, whose order changes from run to run of Python:
# the seed alone does not fix the split.
# - distinct = sorted({text
# + distinct = list({text
# ## inverted mask: The mask is the wrong way round: it is True at PAD. True stands for a real
# token.
# - mask[n, : len(row)] = True
# + mask[n, len(row) :] = True
# ## last batch dropped: What is left over at the end is dropped; the last batch may be smaller.
# - range(0, len(rows), size)
# + range(0, len(rows) - size + 1, size)

# %% [course]
WORDS = ["fine", "dull", "warm", "slow", "bright", "thin", "brave", "flat"]


def sample_data(random, counts, copies):
    """Sample distinct texts for each label, each with its copies, mixed."""
    distinct = []
    for label, count in enumerate(counts):
        for number in range(count):
            distinct.append((f"{WORDS[random.integers(8)]} film {label} {number}", label))
    data = [distinct[place] for place in random.permutation(len(distinct) * copies) % len(distinct)]
    return [text for text, _ in data], [label for _, label in data]


def form_failure(answer, count):
    """Say that an answer is no pair of lists of positions; None where it is."""
    if not isinstance(answer, list) or list(map(type, answer)) != [list, list]:
        return Failure("expected two lists of positions, training and validation")
    if not all(type(place) is int and 0 <= place < count for part in answer for place in part):
        return Failure(f"expected positions from 0 to {count - 1}")
    return None


def whole(training, validation, texts, labels, share):
    """Ask for every position once, and for parts of the right sizes."""
    if len(set(training) | set(validation)) < len(training) + len(validation):
        return Failure("a position is in the lists twice")
    missing = len(texts) - len(training) - len(validation)
    if missing:
        return Failure(f"{missing} of {len(texts)} positions are in neither list")
    if len(validation) > len(training):
        words = f"{len(validation)} of {len(texts)} positions are for validation"
        return Failure(words, "the parts are swapped")
    return None


def leak(training, validation, texts, labels, share):
    """Ask for no text on both sides."""
    both = {texts[n] for n in training} & {texts[n] for n in validation}
    if both:
        words = f"{len(both)} of {len(set(texts))} texts are in both parts, such as {min(both)!r}"
        return Failure(words, "copies on both sides")
    return None


def strata(training, validation, texts, labels, share):
    """Ask for the share of each label's distinct texts."""
    for label in sorted(set(labels)):
        count = len({text for text, mark in zip(texts, labels, strict=True) if mark == label})
        chosen = len({texts[n] for n in validation if labels[n] == label})
        if chosen != round(share * count):
            words = f"validation has {chosen} of the {count} texts of label {label}"
            return Failure(f"{words}, not {share:.0%}", "not stratified")
    return None


def split_case(random, counts, copies, share, criterion, words):
    """Sample texts to split, and judge one property of the split."""
    texts, labels = sample_data(random, counts, copies)

    def judge(answer):
        failure = form_failure(answer, len(texts))
        return failure or criterion(*answer, texts, labels, share)

    args = (texts, labels, share, int(random.integers(1000)))
    return Case("split_texts", args, judge=judge, words=words)


def every_position(random):
    """Texts that are all distinct, then copies."""
    yield split_case(random, (5, 5), 1, 0.2, whole, "where all texts are distinct")
    yield split_case(random, (5, 5), 3, 0.2, whole, "where every text stands three times")


def no_leak(random):
    """Texts that stand ten times."""
    yield split_case(random, (10, 10), 10, 0.2, leak, "where every text stands ten times")


def stratified(random):
    """Labels of different frequency, all texts distinct: no leak is possible."""
    for _ in range(4):  # a split that is not stratified may be right by chance
        words = "with 10, 20, 10 and 10 distinct texts of four labels"
        yield split_case(random, (10, 20, 10, 10), 1, 0.3, strata, words)


def seeds(random):
    """One split twice, then with another seed, then as another run of Python would make it."""
    texts, labels = sample_data(random, (20, 20), 1)
    seed, splits = int(random.integers(1000)), []

    def begin(answer):
        splits.append(answer)
        return form_failure(answer, len(texts))

    def same(words, mistake, answer):
        return None if answer in splits else Failure(words, mistake)

    def other(answer):
        return Failure("another seed gave the same split") if answer in splits else None

    args = (texts, labels, 0.3, seed)
    yield Case("split_texts", args, judge=begin)
    judge = partial(same, "the same seed gave two splits", "seed not used")
    yield Case("split_texts", args, judge=judge, words="for the second time with the same seed")
    yield Case("split_texts", (*args[:3], seed + 1), judge=other, words="with another seed")
    words = "the same seed gave another split where the order of a set is another one"
    judge = partial(same, words, "order of a set")
    yield Case("split_in_another_run", args, judge=judge, words="with the same seed")


def batch_case(random, lengths, size, words=""):
    """Ask for batches of rows of these lengths."""
    rows = [random.integers(1, 30, size=length).tolist() for length in lengths]
    labels = random.integers(2, size=len(rows)).tolist()
    labels[:2] = [1, 0][: len(rows)]
    return Case("make_batches", (rows, labels, size), words=words)


def one_batch(random):
    """All rows in one batch."""
    yield batch_case(random, (2, 1), 2)
    yield batch_case(random, (2, 5, 3), 3)


def several(random):
    """Batches whose longest rows differ."""
    yield batch_case(random, (2, 4, 1, 2), 2, words="with two batches")


def rest(random):
    """A last batch that is not full, all rows of one length."""
    yield batch_case(random, (3, 3, 3, 3, 3), 2, words="with five rows, two in a batch")


def rows_kept(random):
    """The rows after they were made batches of."""
    made = batch_case(random, (2, 4, 1), 2)
    yield Case("rows_after", made.args, expected=made.args[0])


def draw_picture(names):
    """Draw the share of validation texts that were trained on, against the number of copies."""
    rng, copies, seen = np.random.default_rng(4), range(1, 11), []
    for count in copies:
        cut = 4 * count
        orders = [rng.permutation(20 * count) % 20 for _ in range(40)]
        seen.append(np.mean([np.isin(order[:cut], order[cut:]).mean() * 100 for order in orders]))
    axes = ("copies of each text", "validation texts trained on, %")
    curves = {"copies split at random": seen}
    return draw_lines("20 texts, 20 % for validation", axes, copies, curves, from_zero=True)


EXERCISE = Exercise(
    "Batches without a leak",
    level=2,
    minutes=30,
    needs=("tokenizer", "padding_mask"),
    checks=(
        Check("batch", "fills a batch up and says what is real", one_batch, points=2),
        Check("no leak", "keeps copies of a text on one side", no_leak, points=2),
        Check("all positions", "gives every position to one side", every_position),
        Check("several batches", "fills up to the longest row of each batch", several),
        Check("stratified", "takes the share of each label", stratified),
        Check("seed", "draws from the seed alone", seeds),
        Check("last batch", "keeps what is left for the last batch", rest),
        Check("rows", "leaves the rows as they are", rows_kept, side=True),
    ),
    picture=draw_picture,
)

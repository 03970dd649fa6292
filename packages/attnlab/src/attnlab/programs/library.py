"""The programs of RASP's paper and library, and of Tracr's, in this language.

>>> from attnlab.programs.interpreter import interpret
>>> interpret(reverse("abc"), "abac")
['c', 'a', 'b', 'a']
"""

from collections.abc import Sequence as Items

from attnlab.programs.language import (
    Program,
    Selector,
    Sequence,
    aggregate,
    apply,
    best,
    everything,
    indices,
    select,
    selector_width,
    tokens,
    total,
    where,
)
from attnlab.programs.values import Value

Alphabet = Items[Value]

FILLER = "."
"""What a position holds that has nothing to say."""

same = select(tokens, tokens, "==")
before = select(indices, indices, "<")
after = select(indices, indices, ">")
so_far = select(indices, indices, "<=")
length = selector_width(everything)
has_earlier = selector_width(same & before) > 0
how_often = selector_width(same)
is_first = ~has_earlier


def shifted(by: int, values: Sequence = tokens, default: Value = FILLER) -> Sequence:
    """Move values to the right by so many positions."""
    return aggregate(select(indices, indices - by, "=="), values, default)


def sorted_by(earlier: Selector, values: Sequence = tokens) -> Sequence:
    """Put values in order: `earlier` selects the keys that come before the query."""
    return aggregate(select(selector_width(earlier), indices, "=="), values)


def length_of(alphabet: Alphabet) -> Program:
    """Give the number of tokens, at every position."""
    return Program(length, alphabet, "length")


def reverse(alphabet: Alphabet) -> Program:
    """Give the tokens from the last to the first."""
    mirrored = select(indices, length - 1 - indices, "==")
    return Program(aggregate(mirrored, tokens), alphabet, "reverse")


def hist(alphabet: Alphabet) -> Program:
    """Give how often this token occurs."""
    return Program(how_often, alphabet, "hist")


def double_hist(alphabet: Alphabet) -> Program:
    """Give how many distinct tokens occur as often as this one."""
    alike = select(how_often, how_often, "==") & select(is_first, True, "==")
    return Program(selector_width(alike), alphabet, "double_hist")


def seen_before(alphabet: Alphabet) -> Program:
    """Mark tokens that occurred before."""
    return Program(has_earlier, alphabet, "seen_before")


def previous_count(alphabet: Alphabet) -> Program:
    """Give how often this token occurred before."""
    return Program(selector_width(same & before), alphabet, "previous_count")


def sort(alphabet: Alphabet) -> Program:
    """Give the tokens in order; equal ones keep theirs."""
    return Program(sorted_by(select(tokens, tokens, "<") | (same & before)), alphabet, "sort")


def sort_unique(alphabet: Alphabet) -> Program:
    """Put tokens that differ in order; where some are equal, a filler stands for the rest."""
    place = selector_width(select(tokens, tokens, "<"))
    tokens_in_order = aggregate(select(place, indices, "=="), tokens, default=FILLER)
    return Program(tokens_in_order, alphabet, "sort_unique")


def sort_by_frequency(alphabet: Alphabet) -> Program:
    """Give the tokens from the most frequent to the rarest, equals in their order."""
    more = select(how_often, how_often, ">")
    return Program(
        sorted_by(more | (select(how_often, how_often, "==") & before)),
        alphabet,
        "sort_by_frequency",
    )


def most_frequent_first(alphabet: Alphabet) -> Program:
    """Give each distinct token once, the most frequent first, then fillers."""
    firsts = select(is_first, True, "==")
    more = select(how_often, how_often, ">") | (select(how_often, how_often, "==") & before)
    place = selector_width(firsts & more)
    distinct = aggregate(select(place, indices, "==") & firsts, tokens, default=FILLER)
    return Program(distinct, alphabet, "most_frequent_first")


def fraction_so_far(alphabet: Alphabet, token: Value) -> Program:
    """Give the share of a token among the tokens so far."""
    return Program(aggregate(so_far, tokens == token), alphabet, "fraction_so_far")


def majority_so_far(alphabet: Alphabet, token: Value) -> Program:
    """Mark positions at which a token is more than half of the tokens so far."""
    return Program(aggregate(so_far, tokens == token) > 0.5, alphabet, "majority_so_far")


def pair_balance(alphabet: Alphabet = "()x") -> Program:
    """Give the share of "(" less that of ")" so far."""
    opened, closed = aggregate(so_far, tokens == "("), aggregate(so_far, tokens == ")")
    return Program(opened - closed, alphabet, "pair_balance")


def dyck_1(alphabet: Alphabet = "()") -> Program:
    """Classify each prefix of brackets: True if balanced, Possible, or False forever."""
    step = where(tokens == "(", 1, where(tokens == ")", -1, 0))
    balance = aggregate(so_far, step)
    was_below = aggregate(so_far, balance < 0) > 0
    verdict = where(was_below, "F", where(balance == 0, "T", "P"))
    return Program(verdict, alphabet, "dyck_1")


def dyck_2(alphabet: Alphabet = "(){}") -> Program:
    """Classify prefixes of two kinds of brackets: True if balanced, Possible, or False."""
    return _dyck(alphabet, "dyck_2")


def dyck_3(alphabet: Alphabet = "(){}[]") -> Program:
    """Classify prefixes of three kinds of brackets: True if balanced, Possible, or False."""
    return _dyck(alphabet, "dyck_3")


def _dyck(brackets: Alphabet, name: str) -> Program:
    """Classify each prefix of pairs of brackets, such as "(){}"."""
    closing = dict(zip(brackets[::2], brackets[1::2], strict=True))
    is_open = tokens.map(lambda token: token in closing)
    balance = total(so_far, where(is_open, 1, -1))
    depth = balance + where(is_open, 0, 1)
    partner = select(depth, depth, "==") & select(is_open, True, "==") & before
    opened = aggregate(best(partner, indices), tokens, default=FILLER)
    is_wrong = apply(
        lambda mine, other: mine not in closing and closing.get(other) != mine, tokens, opened
    )
    is_broken = aggregate(so_far, is_wrong) > 0
    verdict = where(is_broken, "F", where(balance == 0, "T", "P"))
    return Program(verdict, brackets, name)


def shuffle_dyck_2(alphabet: Alphabet = "(){}") -> Program:
    """Tell whether each of two kinds of brackets is balanced on its own, in the whole input."""
    kinds = []
    for opening, closing in ("()", "{}"):
        step = where(tokens == opening, 1, where(tokens == closing, -1, 0))
        is_below = aggregate(so_far, step) < 0
        kinds.append((aggregate(everything, step) == 0) & (aggregate(everything, is_below) == 0))
    return Program(kinds[0] & kinds[1], alphabet, "shuffle_dyck_2")


def count(alphabet: Alphabet, token: Value) -> Program:
    """Give how often a token occurs."""
    return Program(selector_width(select(tokens, token, "==")), alphabet, "count")


def contains(alphabet: Alphabet, token: Value) -> Program:
    """Tell whether a token occurs."""
    return Program(selector_width(select(tokens, token, "==")) > 0, alphabet, "contains")


def has_focus(alphabet: Alphabet) -> Program:
    """Tell whether a selector selects anything: here, whether this token comes again."""
    return Program(aggregate(same & after, 1, default=0) > 0, alphabet, "has_focus")


def indicator(alphabet: Alphabet, token: Value) -> Program:
    """Give 1 where a token stands, and 0 elsewhere."""
    return Program(where(tokens == token, 1, 0), alphabet, "indicator")


def minimum(alphabet: Alphabet = (0, 1, 2)) -> Program:
    """Give the smaller of each number and the one before it, which is 0 for the first."""
    return Program(apply(min, tokens, shifted(1, tokens, 0)), alphabet, "minimum")


def maximum(alphabet: Alphabet = (0, 1, 2)) -> Program:
    """Give the larger of each number and the one before it, which is 0 for the first."""
    return Program(apply(max, tokens, shifted(1, tokens, 0)), alphabet, "maximum")


def average(alphabet: Alphabet = (0, 1, 2)) -> Program:
    """Give the mean of all tokens, which are numbers."""
    return Program(aggregate(everything, tokens), alphabet, "average")


def running_sum(alphabet: Alphabet = (0, 1, 2)) -> Program:
    """Give the sum of the tokens so far, which are numbers."""
    return Program(total(so_far, tokens), alphabet, "running_sum")


def shift(alphabet: Alphabet, by: int = 1) -> Program:
    """Move the tokens to the right, fillers first."""
    return Program(shifted(by), alphabet, "shift")


def load_from(alphabet: Alphabet, place: int = 1) -> Program:
    """Give the token of one position everywhere; a filler where the input is too short."""
    loaded = aggregate(select(indices, place, "=="), tokens, default=FILLER)
    return Program(loaded, alphabet, "load_from")


def mark_first(alphabet: Alphabet, token: Value) -> Program:
    """Mark where a token stands for the first time."""
    return Program((tokens == token) & is_first, alphabet, "mark_first")


def mark_last(alphabet: Alphabet, token: Value) -> Program:
    """Mark where a token stands for the last time."""
    is_last = selector_width(same & after) == 0
    return Program((tokens == token) & is_last, alphabet, "mark_last")


def next_identical(alphabet: Alphabet) -> Program:
    """Give the position at which this token comes next; -1 where it does not."""
    position = aggregate(best(same & after, -indices), indices, default=-1)
    return Program(position, alphabet, "next_identical")


def smallest(alphabet: Alphabet = (0, 1, 2)) -> Program:
    """Give the smallest of all tokens."""
    return Program(aggregate(best(everything, -tokens), tokens), alphabet, "smallest")


def largest(alphabet: Alphabet = (0, 1, 2)) -> Program:
    """Give the largest of all tokens."""
    return Program(aggregate(best(everything, tokens), tokens), alphabet, "largest")


def induction(alphabet: Alphabet) -> Program:
    """Give the token that followed this one when it last occurred."""
    last = aggregate(best(same & before, indices), indices, default=-9)
    following = aggregate(select(indices, last + 1, "=="), tokens, default=FILLER)
    return Program(following, alphabet, "induction")


def detect(alphabet: Alphabet, pattern: str) -> Program:
    """Mark where a pattern of tokens ends."""
    matches = tokens == pattern[-1]
    for back, token in enumerate(reversed(pattern[:-1]), start=1):
        matches = matches & (shifted(back) == token)
    return Program(matches, alphabet, "detect")


def count_rarer(alphabet: Alphabet, times: int) -> Program:
    """Give how many positions hold a token that occurs fewer times than this."""
    return Program(selector_width(select(how_often, times, "<")), alphabet, "count_rarer")


def add_neighbors(alphabet: Alphabet = (0, 1, 2)) -> Program:
    """Give each number plus the one before it, modulo the size of the alphabet."""
    size = len(alphabet)
    sums = apply(lambda one, two: (one + two) % size, tokens, shifted(1, tokens, 0))
    return Program(sums, alphabet, "add_neighbors")


def addition(alphabet: Alphabet = "01+") -> Program:
    """Add two binary numbers of as many digits, such as 01+11: the digits of the sum in the places
    of the second, the last carry in that of the plus, and fillers before."""
    digit = tokens.map(lambda token: {"0": 0, "1": 1}.get(token, 0))
    plus = aggregate(best(select(tokens, "+", "=="), indices), indices, default=-1)
    other = aggregate(select(indices, indices - plus - 1, "=="), digit, default=0)
    both = digit + other
    is_second = indices > plus
    keeps = select(both, 1, "!=") & select(is_second, True, "==") & after
    decided = aggregate(best(keeps, -indices), both, default=0)
    carry = where(decided == 2, 1, 0)
    digits = where(is_second, (both + carry) % 2, where(tokens == "+", carry, FILLER))
    return Program(digits, alphabet, "addition")

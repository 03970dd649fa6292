"""The library's programs in plain Python, written without the language: what each must give."""

from collections import Counter
from fractions import Fraction


def length(w):
    return [len(w)] * len(w)


def reverse(w):
    return list(w)[::-1]


def hist(w):
    return [Counter(w)[c] for c in w]


def double_hist(w):
    counts = Counter(w)
    return [sum(counts[d] == counts[c] for d in counts) for c in w]


def seen_before(w):
    return [c in w[:i] for i, c in enumerate(w)]


def previous_count(w):
    return [list(w[:i]).count(c) for i, c in enumerate(w)]


def sort(w):
    return sorted(w)


def sort_unique(w):
    found = {sum(d < c for d in w): c for c in w}
    return [found.get(i, ".") for i in range(len(w))]


def sort_by_frequency(w):
    counts = Counter(w)
    return [w[i] for i in sorted(range(len(w)), key=lambda i: (-counts[w[i]], i))]


def most_frequent_first(w):
    counts = Counter(w)
    order = sorted(counts, key=lambda c: (-counts[c], w.index(c)))
    return [*order, *"." * (len(w) - len(order))]


def fraction_so_far(w, token="a"):
    return [Fraction(list(w[: i + 1]).count(token), i + 1) for i in range(len(w))]


def majority_so_far(w, token="a"):
    return [2 * list(w[: i + 1]).count(token) > i + 1 for i in range(len(w))]


def pair_balance(w):
    return [Fraction(w[: i + 1].count("(") - w[: i + 1].count(")"), i + 1) for i in range(len(w))]


def dyck_1(w):
    verdicts, depth, broken = [], 0, False
    for c in w:
        depth += {"(": 1, ")": -1}[c]
        broken = broken or depth < 0
        verdicts.append("F" if broken else "PT"[depth == 0])
    return verdicts


def dyck_2(w):
    return dyck(w, ("()", "{}"))


def dyck_3(w):
    return dyck(w, ("()", "{}", "[]"))


def dyck(w, pairs):
    verdicts, stack, broken = [], [], False
    for c in w:
        if c in [pair[0] for pair in pairs]:
            stack.append(c)
        elif not stack or stack.pop() + c not in pairs:
            broken = True
        verdicts.append("F" if broken else "PT"[not stack])
    return verdicts


def shuffle_dyck_2(w):
    good = True
    for opening, closing in ("()", "{}"):
        depth = 0
        for c in w:
            depth += (c == opening) - (c == closing)
            good = good and depth >= 0
        good = good and depth == 0
    return [good] * len(w)


def count(w, token="a"):
    return [w.count(token)] * len(w)


def contains(w, token="a"):
    return [token in w] * len(w)


def has_focus(w):
    return [c in w[i + 1 :] for i, c in enumerate(w)]


def indicator(w, token="a"):
    return [int(c == token) for c in w]


def minimum(w):
    return [min(c, w[i - 1] if i else 0) for i, c in enumerate(w)]


def maximum(w):
    return [max(c, w[i - 1] if i else 0) for i, c in enumerate(w)]


def average(w):
    return [Fraction(sum(w), len(w))] * len(w)


def running_sum(w):
    return [sum(w[: i + 1]) for i in range(len(w))]


def shift(w, by=1):
    return [w[i - by] if i >= by else "." for i in range(len(w))]


def load_from(w, place=1):
    return [w[place] if place < len(w) else "."] * len(w)


def mark_first(w, token="a"):
    return [c == token and token not in w[:i] for i, c in enumerate(w)]


def mark_last(w, token="a"):
    return [c == token and token not in w[i + 1 :] for i, c in enumerate(w)]


def next_identical(w):
    return [next((j for j in range(i + 1, len(w)) if w[j] == c), -1) for i, c in enumerate(w)]


def smallest(w):
    return [min(w)] * len(w)


def largest(w):
    return [max(w)] * len(w)


def induction(w):
    found = []
    for i, c in enumerate(w):
        last = max((j for j in range(i) if w[j] == c), default=None)
        found.append("." if last is None else w[last + 1])
    return found


def detect(w, pattern="abc"):
    return ["".join(w[: i + 1]).endswith(pattern) for i in range(len(w))]


def count_rarer(w, times=2):
    return [sum(w.count(c) < times for c in w)] * len(w)


def add_neighbors(w, size=3):
    return [(c + (w[i - 1] if i else 0)) % size for i, c in enumerate(w)]


def addition(w):
    """Of two binary numbers of as many digits: the sum, its carry at the plus, fillers before."""
    one, _, two = "".join(w).partition("+")
    total = bin(int(one, 2) + int(two, 2))[2:].zfill(len(one) + 1)
    return [*"." * len(one), *(int(digit) for digit in total)]


def rover(w):
    """Facts and rules by set algebra, such as "a<A,x<A:x#B,a<B?": three rounds of all rules."""
    *clauses, question = "".join(w).rstrip("?").split(",")
    no = {"<": "#", "#": "<"}
    known = {(clause[2], clause[1]) for clause in clauses if ":" not in clause}
    rules = [
        ((one[2], one[1]), (two[2], two[1]))
        for one, two in (clause.split(":") for clause in clauses if ":" in clause)
    ]
    rules += [((b, no[is_b]), (a, no[is_a])) for (a, is_a), (b, is_b) in rules]
    for _ in range(3):
        known |= {conclusion for premise, conclusion in rules if premise in known}
    asked, opposite = (question[2], question[1]), (question[2], no[question[1]])
    verdict = "T" if asked in known else "?"
    if verdict == "?" and opposite in known:
        verdict = "F"
    return [verdict] * len(w)

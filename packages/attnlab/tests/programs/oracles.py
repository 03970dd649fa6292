"""The library's programs in plain Python, written without the language: what each must give."""

from collections import Counter
from fractions import Fraction


def double_hist(w):
    counts = Counter(w)
    return [sum(counts[d] == counts[c] for d in counts) for c in w]


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


def induction(w):
    found = []
    for i, c in enumerate(w):
        last = max((j for j in range(i) if w[j] == c), default=None)
        found.append("." if last is None else w[last + 1])
    return found


def addition(w):
    """Of two binary numbers of as many digits: the sum, its carry at the plus, fillers before."""
    one, _, two = "".join(w).partition("+")
    total = bin(int(one, 2) + int(two, 2))[2:].zfill(len(one) + 1)
    return [*"." * len(one), *(int(digit) for digit in total)]


ORACLES = {
    "length": lambda w: [len(w)] * len(w),
    "reverse": lambda w: list(w)[::-1],
    "hist": lambda w: [Counter(w)[c] for c in w],
    "double_hist": double_hist,
    "seen_before": lambda w: [c in w[:i] for i, c in enumerate(w)],
    "previous_count": lambda w: [list(w[:i]).count(c) for i, c in enumerate(w)],
    "sort": sorted,
    "sort_unique": sort_unique,
    "sort_by_frequency": sort_by_frequency,
    "most_frequent_first": most_frequent_first,
    "fraction_so_far": lambda w: [
        Fraction(list(w[: i + 1]).count("a"), i + 1) for i in range(len(w))
    ],
    "majority_so_far": lambda w: [2 * list(w[: i + 1]).count("a") > i + 1 for i in range(len(w))],
    "pair_balance": lambda w: [
        Fraction(w[: i + 1].count("(") - w[: i + 1].count(")"), i + 1) for i in range(len(w))
    ],
    "dyck_1": lambda w: dyck(w, ("()",)),
    "dyck_2": lambda w: dyck(w, ("()", "{}")),
    "dyck_3": lambda w: dyck(w, ("()", "{}", "[]")),
    "shuffle_dyck_2": shuffle_dyck_2,
    "count": lambda w: [w.count("a")] * len(w),
    "contains": lambda w: ["a" in w] * len(w),
    "has_focus": lambda w: [c in w[i + 1 :] for i, c in enumerate(w)],
    "indicator": lambda w: [int(c == "a") for c in w],
    "minimum": lambda w: [min(c, w[i - 1] if i else 0) for i, c in enumerate(w)],
    "maximum": lambda w: [max(c, w[i - 1] if i else 0) for i, c in enumerate(w)],
    "average": lambda w: [Fraction(sum(w), len(w))] * len(w),
    "running_sum": lambda w: [sum(w[: i + 1]) for i in range(len(w))],
    "shift": lambda w: [w[i - 1] if i >= 1 else "." for i in range(len(w))],
    "load_from": lambda w: [w[1] if len(w) > 1 else "."] * len(w),
    "mark_first": lambda w: [c == "a" and "a" not in w[:i] for i, c in enumerate(w)],
    "mark_last": lambda w: [c == "a" and "a" not in w[i + 1 :] for i, c in enumerate(w)],
    "next_identical": lambda w: [
        next((j for j in range(i + 1, len(w)) if w[j] == c), -1) for i, c in enumerate(w)
    ],
    "smallest": lambda w: [min(w)] * len(w),
    "largest": lambda w: [max(w)] * len(w),
    "induction": induction,
    "detect": lambda w: ["".join(w[: i + 1]).endswith("abc") for i in range(len(w))],
    "count_rarer": lambda w: [sum(w.count(c) < 2 for c in w)] * len(w),
    "add_neighbors": lambda w: [(c + (w[i - 1] if i else 0)) % 3 for i, c in enumerate(w)],
    "addition": addition,
}

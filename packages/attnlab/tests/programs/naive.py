"""The language once more, for one input, in loops: what the interpreter is compared with."""

from fractions import Fraction

from attnlab.programs.language import (
    Aggregate,
    Best,
    Compared,
    Constant,
    Indices,
    Joined,
    Map,
    Tokens,
    Width,
)


def evaluate(each, word):
    """Return a sequence's value at every position of a word."""
    places = range(len(word))
    if isinstance(each, Tokens):
        return list(word)
    if isinstance(each, Indices):
        return list(places)
    if isinstance(each, Constant):
        return [each.value for _ in places]
    if isinstance(each, Map):
        columns = [evaluate(argument, word) for argument in each.arguments]
        return [each.function(*(column[place] for column in columns)) for place in places]
    chosen = selected(each.selector, word)
    if isinstance(each, Width) and each.values is None:
        return [sum(row) for row in chosen]
    values = evaluate(each.values, word)
    gathered = [[values[key] for key in places if chosen[query][key]] for query in places]
    if isinstance(each, Width):
        return [sum(map(Fraction, found)) for found in gathered]
    assert isinstance(each, Aggregate)
    return [mean(found, each) for found in gathered]


def mean(found, each):
    if not found:
        assert each.has_default
        return each.default
    if isinstance(found[0], str):
        assert len(set(found)) == 1
        return found[0]
    return sum(map(Fraction, found)) / len(found)


def selected(selector, word):
    """Return which keys each query selects, as lists of truth values."""
    places = range(len(word))
    if isinstance(selector, Compared):
        keys, queries = evaluate(selector.keys, word), evaluate(selector.queries, word)
        return [[bool(selector.holds(keys[k], queries[q])) for k in places] for q in places]
    if isinstance(selector, Best):
        inner, scores = selected(selector.selector, word), evaluate(selector.scores, word)
        rows = []
        for q in places:
            highest = max((scores[k] for k in places if inner[q][k]), default=None)
            rows.append([inner[q][k] and scores[k] == highest for k in places])
        return rows
    assert isinstance(selector, Joined)
    parts = [selected(part, word) for part in selector.parts]
    if selector.name == "~":
        return [[not parts[0][q][k] for k in places] for q in places]
    if selector.name == "&":
        return [[parts[0][q][k] and parts[1][q][k] for k in places] for q in places]
    return [[parts[0][q][k] or parts[1][q][k] for k in places] for q in places]

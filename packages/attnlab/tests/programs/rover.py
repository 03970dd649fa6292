"""A program of many steps: what follows from facts and rules (T, F, or ?)."""

from collections.abc import Sequence as Items
from functools import partial

from attnlab.programs import Program, aggregate, apply, select, tokens, where
from attnlab.programs.language import Sequence
from attnlab.programs.library import FILLER, shifted


def rover() -> Program:
    """Answer what follows of facts and rules: T, F, or ? if neither does.

    "a<A" says that the thing a is in the set A, and "a#A" that it is not; "x<A:x#B", that nothing
    in A is in B. The last clause is the question, as in "a<A,x<A:x#B,a<B?", which is F. Up
    to three rules are applied after each other, from the left and from the right.
    """
    literal, who = apply(_literal, shifted(1), tokens), shifted(2)
    of_thing = apply(lambda who, text: text if who == "a" else "", who, literal)
    of_rule = apply(lambda who, text: text if who == "x" else "", who, literal)
    rule = apply(_rule, tokens, shifted(1, of_rule, ""), shifted(-3, of_rule, ""))
    is_asked = shifted(-1) == "?"
    question = apply(_collected, *_are_said(where(is_asked, of_thing, "")))
    known = apply(_collected, *_are_said(where(is_asked, "", of_thing)))
    for _ in range(3):
        conclusions = _are_said(apply(_conclusions, rule, known))
        known = apply(_added, known, *conclusions)
    return Program(apply(_answer, question, known), "axAB<#:,?", "rover")


_LITERALS = ("A<", "A#", "B<", "B#")


def _literal(is_in: str, name: str) -> str:
    """Return what is said of a set, at its name; nothing where it is none."""
    if f"{name}{is_in}" in _LITERALS:
        return f"{name}{is_in}"
    return ""


def _rule(token: str, one: str, other: str) -> tuple[str, ...]:
    """Return what a rule says, at its colon: a literal, and the one that follows from it."""
    if token == ":" and one and other:
        return one, other
    return ()


def _are_said(said: Sequence) -> list[Sequence]:
    """Say of each literal whether it is said at any position."""
    said_anywhere: list[Sequence] = []
    for literal in _LITERALS:
        is_said = said.map(partial(_holds, literal))
        said_anywhere.append(aggregate(select(is_said, True, "=="), "yes", default="no"))
    return said_anywhere


def _holds(literal: str, words: Items[str]) -> bool:
    return literal in words


def _collected(*are_said: str) -> tuple[str, ...]:
    pairs = zip(_LITERALS, are_said, strict=True)
    return tuple(literal for literal, word in pairs if word == "yes")


def _added(known: Items[str], *are_said: str) -> tuple[str, ...]:
    return tuple(sorted({*known, *_collected(*are_said)}))


def _conclusions(rule: Items[str], known: Items[str]) -> tuple[str, ...]:
    """Return what a rule adds to what is known, read from the left and from the right."""
    if not rule:
        return ()
    one, other = rule
    conclusions = []
    if one in known:
        conclusions.append(other)
    if _opposite(other) in known:
        conclusions.append(_opposite(one))
    return tuple(sorted(conclusions))


def _opposite(literal: str) -> str:
    return literal[0] + {"<": "#", "#": "<"}[literal[1]]


def _answer(question: Items[str], known: Items[str]) -> str:
    """Return T if what is asked is known, F if its opposite is."""
    if not question:
        return FILLER
    if set(question) <= set(known):
        return "T"
    if any(_opposite(literal) in known for literal in question):
        return "F"
    return "?"

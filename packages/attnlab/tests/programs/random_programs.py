"""Random programs: sequences and selectors of limited depth, that have a meaning on every input."""

import operator
import random
from fractions import Fraction

from attnlab.programs.domains import Domains
from attnlab.programs.interpreter import ProgramValues, are_numbers, every_input
from attnlab.programs.language import (
    Program,
    ProgramError,
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

ALPHABETS = ("ab", "abc", (0, 1, 2), (-1, 2), (True, False))
LONGEST = 4


class Maker:
    """Makes one program from a seed."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.pick = self.random.choice
        self.alphabet = self.pick(ALPHABETS)
        self.made = [tokens, indices]

    def program(self, depth):
        return Program(self.sequence(depth), self.alphabet, "random")

    def values(self, sequence):
        return Domains(Program(sequence, self.alphabet), LONGEST).values(sequence)

    def sequence(self, depth):
        if depth == 0 or (len(self.made) > 2 and self.random.random() < 0.2):
            return self.pick(self.made)
        kinds = [self.map_one, self.map_two, *[self.count, self.mean] * 2, self.add_up]
        found = self.pick(kinds)(depth - 1)
        self.made.append(found)
        return found

    def number(self, depth):
        found = self.sequence(depth)
        values = self.values(found)
        if are_numbers(values):
            return found
        table = {value: self.random.randrange(-2, 4) for value in values}
        return found.map(table.__getitem__)

    def map_one(self, depth):
        found = self.sequence(depth)
        values = self.values(found)
        results = self.pick([(True, False), ("x", "y", "z"), (0, 1, 5), (-1, Fraction(1, 2))])
        table = {value: self.pick(results) for value in values}
        return found.map(table.__getitem__)

    def map_two(self, depth):
        one, two = self.sequence(depth), self.sequence(depth)
        if are_numbers(self.values(one)) and are_numbers(self.values(two)):
            kind = self.pick([operator.add, operator.sub, operator.lt, operator.eq, max, min])
            if kind in (operator.add, operator.sub, operator.lt):
                return kind(one, two)
            return apply(kind, one, two)
        if self.random.random() < 0.5:
            return where(one == self.pick(self.values(one)), two, one)
        return apply(lambda a, b: a == b, one, two)

    def selector(self, depth):
        shape = self.random.random()
        if depth and shape < 0.45:
            one, two = self.selector(depth - 1), self.selector(depth - 1)
            return one & two if self.random.random() < 0.6 else one | two
        if depth and shape < 0.55:
            return ~self.selector(depth - 1)
        if shape < 0.6:
            return everything
        one = self.sequence(min(depth, 1))
        if self.random.random() < 0.4:
            return select(one, self.pick(self.values(one)), self.pick(["==", "!="]))
        two = self.pick([one, one, self.sequence(min(depth, 1))])
        both = [*self.values(one), *self.values(two)]
        if are_numbers(both) or all(isinstance(value, str) for value in both):
            return select(one, two, self.pick(["==", "!=", "<", "<=", ">", ">="]))
        return select(one, two, self.pick(["==", "!="]))

    def count(self, depth):
        return selector_width(self.selector(min(depth, 2)))

    def add_up(self, depth):
        values = self.pick([indices, tokens == self.alphabet[0], self.number(min(depth, 1))])
        return total(self.selector(min(depth, 2)), values)

    def mean(self, depth):
        selector = self.selector(min(depth, 2))
        shape = self.random.random()
        if shape < 0.35:
            chosen = best(selector, self.pick([indices, -indices]))
            values = self.sequence(depth)
            default = self.pick(self.values(values))
            return aggregate(chosen, values, default)
        if shape < 0.5:
            by = self.pick([-1, 1, 2])
            return aggregate(select(indices, indices - by, "=="), tokens, self.alphabet[0])
        return aggregate(selector, self.number(min(depth, 1)), self.pick([0, 1, -1]))


def random_program(seed):
    """Return a program; None where the seed makes one without a meaning, or too large."""
    maker = Maker(seed)
    try:
        program = maker.program(1 + seed % 5)
        Domains(program, LONGEST).values(program.output)
        for length in range(1, LONGEST + 1):
            for ids in every_input(program, length):
                ProgramValues(program, ids).of(program.output)
    except ProgramError:
        return None
    return program

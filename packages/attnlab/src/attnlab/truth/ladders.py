"""The circuits of the suite, in five ladders: their programs, lengths and decoys.

Programs give words or letters, never numbers, so that every circuit has classes to choose from.
"""

import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from attnlab.edits.effects.metrics import IGNORED
from attnlab.errors import WrongUsage, did_you_mean
from attnlab.programs import (
    Program,
    aggregate,
    best,
    compile_program,
    everything,
    indices,
    library,
    select,
    tokens,
    total,
    where,
)
from attnlab.programs import selector_width as width_of
from attnlab.programs.language import Sequence
from attnlab.programs.library import (
    after,
    before,
    has_earlier,
    how_often,
    length,
    same,
    shifted,
    so_far,
)
from attnlab.programs.whole_domain import whole_domain
from attnlab.truth.circuits import Circuit, network_of
from attnlab.truth.decoys import HeadPlace, add_decoy
from attnlab.truth.lookups import Lookup, lookup_domain, lookup_network
from attnlab.truth.network import HeadKind, Network, put_together, shuffle_heads

LADDERS = ("content", "position", "counting", "composition", "encoder-decoder")

_DRAW = 318
"""Which of many draws: one in which neither the first head nor the last is used more often."""

_LETTERS: dict[str, HeadKind] = {
    "s": "sharp",
    "r": "random",
    "x": "suppressor",
    "t": "twin",
    "b": "backup",
}


@dataclass(frozen=True)
class CircuitSpec:
    """A circuit to build; decoys: letters, each a decoy of `_LETTERS`, added in this order."""

    name: str
    ladder: str
    decoys: str
    made_of: Program | Lookup
    longest: int = 4


def _words(sequence: Sequence) -> Sequence:
    return sequence.map(str)


def _content() -> list[tuple[str, Sequence, str, int, str]]:
    has = {token: width_of(select(tokens, token, "==")) > 0 for token in "abc"}
    follows = tokens.map({"a": "b", "b": "c", "c": "a"}.__getitem__)
    is_a = tokens == "a"
    opposite = select(tokens, tokens.map({"a": "b", "b": "a"}.__getitem__), "==")
    largest, smallest = best(everything, tokens), best(everything, -tokens)
    return [
        ("largest", aggregate(largest, _words(tokens)), "012", 4, "ss"),
        ("smallest", aggregate(smallest, _words(tokens)), "012", 4, "sr"),
        ("largest-of-four", aggregate(largest, _words(tokens)), "0123", 3, "srx"),
        ("has-a", _words(has["a"]), "abc", 4, "ssr"),
        ("has-b", _words(has["b"]), "abc", 4, "srb"),
        ("majority-a", _words(aggregate(everything, is_a) > 0.5), "ab", 5, "ssx"),
        ("half-a", _words(aggregate(everything, is_a) >= 0.5), "ab", 5, "srt"),
        ("partner", aggregate(select(tokens, follows, "=="), tokens, "."), "abc", 4, "srx"),
        ("has-opposite", _words(width_of(opposite) > 0), "ab", 5, "ssb"),
        ("where-c", _last_place("c"), "abc", 4, "srt"),
        ("where-a", _last_place("a"), "ab", 5, ""),
        ("share-of-a", _words(aggregate(everything, is_a)), "ab", 4, "rr"),
    ]


def _last_place(token: str) -> Sequence:
    return aggregate(best(select(tokens, token, "=="), indices), _words(indices), "none")


def _position() -> list[tuple[str, Sequence, str, int, str]]:
    def at(place: int) -> Sequence:
        return aggregate(select(indices, place, "=="), tokens, ".")

    is_a = tokens == "a"
    return [
        ("shift", shifted(1), "abc", 4, "ss"),
        ("shift-two", shifted(2), "abc", 4, "sr"),
        ("shift-back", shifted(-1), "abc", 4, "srt"),
        ("first", at(0), "abc", 4, "ssr"),
        ("second", at(1), "abc", 4, "srx"),
        ("third", at(2), "abc", 4, "st"),
        ("repeats", _words(tokens == shifted(1)), "abc", 4, "sr"),
        ("rises", _words(shifted(1, tokens, "a") < tokens), "abc", 4, "sx"),
        ("majority-so-far", _words(aggregate(so_far, is_a) > 0.5), "ab", 5, "srt"),
        ("all-a-so-far", _words(aggregate(so_far, is_a) == 1), "ab", 5, "ssr"),
        ("number-so-far", _words(width_of(so_far & select(tokens, "a", "=="))), "ab", 5, "ssrb"),
        ("after-ab", _words(library.detect("ab", "ab").output), "ab", 5, ""),
    ]


def _counting() -> list[tuple[str, Sequence, str, int, str]]:
    number_of_a = width_of(select(tokens, "a", "=="))
    smaller = width_of(select(tokens, tokens, "<"))
    earlier = width_of(same & before)
    return [
        ("hist", _words(how_often), "abc", 4, "ssr"),
        ("count-a", _words(number_of_a), "ab", 5, "ssr"),
        ("odd-a", _words(number_of_a.map(lambda count: count % 2)), "ab", 5, "ssrb"),
        ("two-a", _words(number_of_a >= 2), "abc", 4, "srt"),
        ("rank", _words(smaller), "abc", 4, "srx"),
        ("earlier", _words(earlier), "abc", 4, "st"),
        ("seen-before", _words(has_earlier), "abc", 4, "srb"),
        ("first-a", _words((tokens == "a") & ~has_earlier), "abc", 4, "ssr"),
        ("last-a", _words((tokens == "a") & (width_of(same & after) == 0)), "abc", 4, "ssx"),
        ("others", _words(width_of(select(tokens, tokens, "!="))), "abc", 4, "srb"),
        ("later", _words(width_of(same & after)), "ab", 5, "sstb"),
        ("sum", _words(total(everything, tokens)), "01", 4, ""),
    ]


def _composition() -> list[tuple[str, Sequence, str, int, str]]:
    step = where(tokens == "(", 1, -1)
    balance = aggregate(so_far, step)
    is_broken = aggregate(so_far, balance < 0) > 0
    last_but_one = aggregate(select(indices, length - 2, "=="), tokens, ".")
    return [
        ("reverse", library.reverse("abc").output, "abc", 4, "sss"),
        ("reverse-two", library.reverse("ab").output, "ab", 5, "ssrb"),
        ("sort", library.sort("abc").output, "abc", 4, "ssr"),
        ("sort-two", library.sort("ab").output, "ab", 5, "ssx"),
        ("sort-unique", library.sort_unique("abc").output, "abc", 4, "srx"),
        ("induction", library.induction("abc").output, "abc", 4, "ss"),
        ("induction-two", library.induction("ab").output, "ab", 5, "st"),
        ("last-but-one", last_but_one, "abc", 4, "ssx"),
        ("dyck", where(is_broken, "broken", "fine"), "()", 5, "ssr"),
        ("ends-aab", _words(library.detect("ab", "aab").output), "ab", 5, "srx"),
        ("ends-abc", _words(library.detect("abc", "abc").output), "abc", 4, "st"),
        ("double-hist", _words(library.double_hist("ab").output), "ab", 4, ""),
        ("by-frequency", library.sort_by_frequency("ab").output, "ab", 4, "sr"),
    ]


def _lookups() -> list[tuple[Lookup, str]]:
    def mod(size: int, by: int) -> Callable[[int], int]:
        return lambda place: (place + by) % size

    return [
        (Lookup("copy", 3, 4, lambda place: place), "sss"),
        (Lookup("mirror", 3, 4, lambda place: 3 - place), "ssr"),
        (Lookup("next", 3, 4, mod(4, 1)), "ssrx"),
        (Lookup("previous", 2, 6, mod(6, -1)), "ssrt"),
        (Lookup("swap", 2, 6, lambda place: place ^ 1), "ssb"),
        (Lookup("double", 3, 4, lambda place: 2 * place % 4), "ssrb"),
        (Lookup("always-first", 3, 4, lambda place: 0), "ssx"),
        (Lookup("always-last", 4, 3, lambda place: 2), "ssrt"),
        (Lookup("half", 3, 4, lambda place: place // 2), ""),
        (Lookup("what-follows", 4, 4, step=1), "sss"),
        (Lookup("what-precedes", 5, 5, step=-1), "ssrx"),
        (Lookup("two-after", 5, 5, step=2), "srt"),
        (Lookup("copy-moved", 3, 4, lambda place: min(place, 2), step=1), "srb"),
    ]


def specs() -> dict[str, CircuitSpec]:
    """Return every circuit of the suite by its name."""
    circuit_specs = []
    groups = (_content(), _position(), _counting(), _composition())
    for ladder, programs in zip(LADDERS, groups, strict=False):
        for name, output, letters, longest, decoys in programs:
            alphabet = tuple(int(letter) if letter.isdigit() else letter for letter in letters)
            program = Program(output, alphabet, name)
            circuit_specs.append(CircuitSpec(name, ladder, decoys, program, longest))
    for lookup, decoys in _lookups():
        circuit_specs.append(CircuitSpec(lookup.name, LADDERS[-1], decoys, lookup))
    return {spec.name: spec for spec in circuit_specs}


def circuit_names(ladder: str | None = None) -> list[str]:
    """List the circuits, of all ladders or one.

    Raises:
        WrongUsage: there is no such ladder.
    """
    if ladder is not None and ladder not in LADDERS:
        raise WrongUsage(f"there is no ladder {ladder!r}; {did_you_mean(ladder, LADDERS)}")
    return [name for name, spec in specs().items() if ladder in (None, spec.ladder)]


def build_circuit(name: str) -> Circuit:
    """Make a circuit of the suite, always with the same numbers.

    Args:
        name: such as "induction-1"; `circuit_names()` lists all.

    Returns:
        the `Circuit`: model, inputs, right answers and the purpose of each head.

    Raises:
        WrongUsage: there is no such circuit.
    """
    known = specs()
    if name not in known:
        raise WrongUsage(f"there is no circuit {name!r}; {did_you_mean(name, known)}")
    return circuit_of_spec(known[name])


def circuit_of_spec(spec: CircuitSpec) -> Circuit:
    """Make a circuit: the program, and decoys beside it, with the heads in random order."""
    inputs: object
    if isinstance(spec.made_of, Lookup):
        network, target = lookup_network(spec.made_of), HeadPlace(1, 0, 0, is_cross=True)
        inputs, answers = lookup_domain(spec.made_of)
    else:
        compiled = compile_program(spec.made_of, spec.longest)
        network, target = network_of(compiled)
        inputs, answers = whole_domain(spec.made_of, compiled, compiled.values, IGNORED)
    random = np.random.default_rng(zlib.crc32(f"{_DRAW} {spec.name}".encode()))
    for number, letter in enumerate(spec.decoys):
        spot = target
        if letter in "sr" and number > 0:  # the first is beside a head of the program
            places = _places(network)
            spot = places[random.integers(len(places))]
        add_decoy(network, _LETTERS[letter], spot, random)
        if letter == "b":  # alone in its layer it could be compared with nothing
            add_decoy(network, "sharp", replace(target, layer=target.layer + 1), random)
    shuffle_heads(network, random)
    model, kinds = put_together(network)
    return Circuit(spec.name, spec.ladder, network, model, inputs, answers, kinds)


def _places(network: Network) -> list[HeadPlace]:
    """List the attentions, each by its first head."""
    spots = []
    for index, stack in enumerate(network.stacks):
        for number in range(len(stack.layers)):
            spots.append(HeadPlace(index, number, 0))
            if index > 0:
                spots.append(HeadPlace(index, number, 0, is_cross=True))
    return spots

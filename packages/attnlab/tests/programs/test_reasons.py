"""Why a compiled head looks at a key: the largest term is of what its line selects by.

A case is a query of an input and a key that a head of a library program attends to there. The
variables are those of the blueprint, from which the weights were written; the terms are read off
the model. Inputs of up to two tokens are all tried, longer ones in a sample.
"""

from itertools import product
from random import Random

import pytest

from attnlab.look.head_scores import HeadScores, _Seen
from attnlab.look.inputs import Call
from attnlab.look.streams import streams_of
from attnlab.programs import compiler, library
from tests.sampling import sampled

from .test_programs import CASES, inputs_of

PROGRAMS = {name: program for name, (program, _) in CASES.items()}
PROGRAMS["addition"] = library.addition()
del PROGRAMS["indicator"]  # it selects nothing, so its model has no head
SAMPLE = ("reverse", "induction", "sort_by_frequency")
_LONGEST, _SAMPLED = 5, 5
_NOTHING = 1e-9  # a score of 0 has no largest term


def compiled_with_heads(program, monkeypatch):
    """Compile a program; return it, and the heads of its blueprint by name."""
    seen, assemble = [], compiler.assemble

    def keep(views, *given, **named):
        seen.append(views.blueprint)
        return assemble(views, *given, **named)

    monkeypatch.setattr(compiler, "assemble", keep)
    compiled = compiler.compile_program(program, _LONGEST)
    heads = {}
    for head in seen[-1].heads:
        layer = head.block.slot // 2
        number = sum(name.startswith(f"{layer}.") for name in heads)
        heads[f"{layer}.{number}"] = head
    return compiled, heads


def variables(head, heads):
    """The pairs of parts of the stream whose product is the score of a head, channel by channel."""
    names = {head.block: f"head {name}" for name, head in heads.items()}

    def writer(block):
        if block.slot == -1:
            return "tokens" if block.name in ("tokens", "bos") else "positions"
        return names.get(block, f"feed-forward {block.slot // 2}")

    def writers(view, channel):
        written = {writer(block) for block, matrix in view.parts if matrix[channel].any()}
        return written or {"bias"}

    pairs = set()
    for channel in range(len(head.queries.constant)):
        pairs |= set(product(writers(head.queries, channel), writers(head.keys, channel)))
    return pairs


def inputs_tried(program):
    yield from inputs_of(program, 2)
    random = Random(0)
    for length in range(3, _LONGEST + 1):
        for _ in range(_SAMPLED):
            tokens = [random.choice(program.alphabet) for _ in range(length)]
            yield tokens if isinstance(tokens[0], int) else "".join(tokens)


def largest_terms(compiled, name, tokens):
    """Yield the parts and size of the largest term of each cell that a head attends to."""
    layer, number = map(int, name.split("."))
    part, model = f"layers.{layer}.attention", compiled.model
    score = HeadScores(
        model, Call.of(compiled.ids([tokens])), streams_of(model, part), part, number
    )
    weights = score.seen.recording[f"{part}.weights"][0, number]
    first = int(compiled.has_bos)
    for query in range(first, len(weights)):
        row = weights[query]
        keys = [key for key in range(first, len(row)) if row[key] >= 0.5 * row.max()]
        for cell in score.cells(query, keys) if keys else ():
            size = cell.terms.abs()
            row, column = divmod(int(size.argmax()), size.shape[1])
            assert abs(float(cell.terms.sum()) - cell.score) <= 1e-5 * max(1.0, abs(cell.score))
            parts = score.query_parts[row], score.key_parts[column]
            # an embedding that is of tokens alone is not taken apart
            yield tuple(part.replace("embedding", "tokens") for part in parts), float(size.max())


def checked(program, monkeypatch):
    """Return the numbers of cases, of these with a score of 0, and the others that are wrong."""
    compiled, heads = compiled_with_heads(program, monkeypatch)
    cases, nothing, wrong = 0, 0, []
    for name, head in heads.items():
        expected = variables(head, heads)
        for tokens in inputs_tried(program):
            for pair, size in largest_terms(compiled, name, tokens):
                cases += 1
                if size < _NOTHING:
                    nothing += 1
                elif pair not in expected:
                    wrong.append((name, compiled.heads[name], tokens, pair, expected))
    return cases, nothing, wrong


@pytest.mark.parametrize("name", sampled(PROGRAMS, SAMPLE))
def test_the_largest_term_is_of_the_variables_that_the_program_selects_by(name, monkeypatch):
    cases, nothing, wrong = checked(PROGRAMS[name], monkeypatch)
    assert cases > nothing
    assert not wrong


def test_a_part_that_is_taken_for_another_is_caught(monkeypatch):
    plain = _Seen.written

    def turned(self, stream, positions):
        writers, parts = plain(self, stream, positions)
        return [*writers[1:], writers[0]], parts

    monkeypatch.setattr(_Seen, "written", turned)
    _, _, wrong = checked(PROGRAMS["induction"], monkeypatch)
    assert wrong

"""The compiler: a program becomes an ordinary encoder, whose weights are computed, not trained."""

import operator
from functools import partial

import numpy as np
import torch

from attnlab.errors import WrongUsage, type_words
from attnlab.programs.aggregates import add_up, gather, is_single, weight_of_bos
from attnlab.programs.blueprint import View, constant_view, whole
from attnlab.programs.check import read_answers
from attnlab.programs.compiled_program import CompiledProgram
from attnlab.programs.domains import Domains
from attnlab.programs.hidden_units import join, read_off
from attnlab.programs.interpreter import ProgramValues, every_input, sequences_of
from attnlab.programs.language import (
    Aggregate,
    Best,
    Constant,
    Indices,
    Map,
    Program,
    Selector,
    Sequence,
    Tokens,
    Width,
)
from attnlab.programs.lines import ProgramError
from attnlab.programs.matrices import assemble
from attnlab.programs.reachable_values import MAX_TRIED, ReachableValues
from attnlab.programs.values import are_numbers, numbered, value_key
from attnlab.programs.views import TooCoarse, ViewForm, Views, min_gap

_AFFINE = (operator.add, operator.sub, operator.mul, operator.neg)
_TIGHT = 0.999  # of a tolerance, so that no rounding tips the scale
_LONGEST = 1_000  # tokens: attention of all to all, in a model of several heads
_COMPARED = 32  # inputs of a length that are compared after compiling
_HALVINGS = 40  # of the error allowed to each head, until the output is within its tolerance


def compile_program(
    program: Program,
    longest: int,
    *,
    tolerance: float = 1e-3,
    dtype: torch.dtype = torch.float64,
    causal: bool = False,
) -> CompiledProgram:
    """Turn a program into a model for all inputs of 1 to `longest` tokens.

    Args:
        program: what to compute, and over which tokens.
        longest: tokens of the longest input.
        tolerance: how far a number, or a part of a symbol's one-hot vector, may be from what the
            program says; never more than half the distance of two numbers.
        dtype: of the model's numbers, float32 or float64.
        causal: make a model in which no position sees a later one.

    Returns:
        the `CompiledProgram`: a model with the program's weights, which takes tokens and gives
        answers.

    Raises:
        ProgramError: the program may select nothing without saying what then, takes too many
            values, or selects what a model of this kind cannot; the line, and the reason.

    >>> from attnlab.programs import Program, select, selector_width, tokens
    >>> how_often = Program(selector_width(select(tokens, tokens, "==")), "abc")
    >>> compile_program(how_often, 5)(list("abac"))
    [2, 1, 2, 1]
    """
    if not isinstance(program, Program):
        got = type_words(program)
        raise WrongUsage(f'expected a Program, such as Program(output, "abc"); got {got}.')
    if not (isinstance(longest, int) and 1 <= longest <= _LONGEST):
        raise WrongUsage(
            f"longest must be a number of tokens, from 1 to {_LONGEST:,}; got {longest!r}."
        )
    if not 1e-9 <= tolerance <= 0.2:
        raise WrongUsage(f"tolerance must be from 1e-9 to 0.2; got {tolerance!r}.")
    if dtype not in (torch.float32, torch.float64):
        raise WrongUsage(f"dtype must be torch.float32 or torch.float64; got {dtype!r}.")
    make = partial(_compile, tolerance=tolerance, dtype=dtype, causal=causal)
    try:
        return make(Domains(program, longest))
    except ProgramError:  # which may be for values that no input has
        return make(Domains(program, longest, ReachableValues(program, longest)))


def _compile(
    domains: Domains, *, tolerance: float, dtype: torch.dtype, causal: bool
) -> CompiledProgram:
    """Make the model of the program of these domains."""
    program = domains.program
    _check_defaults(domains)
    _check_meaning(domains, causal=causal)
    values = domains.values(program.output)
    if are_numbers(values):
        tolerance = min(tolerance, _TIGHT * min_gap(list(map(float, values))) / 2)
    for halving in range(_HALVINGS):
        allowed = _TIGHT * tolerance * 0.5**halving
        views = Views(domains, allowed, torch.finfo(dtype).eps, _make)
        try:
            output = views.output()
        except TooCoarse:
            continue
        if output.error <= tolerance:
            assembled = assemble(views, output, causal=causal)
            compiled = CompiledProgram(
                model=assembled.model.to(dtype),
                name=program.name,
                alphabet=tuple(program.alphabet),
                values=values,
                longest=domains.longest,
                tolerance=tolerance,
                has_bos=views.has_bos,
                heads=assembled.heads,
                ways=assembled.ways,
                stream=assembled.stream,
                error=output.error,
            )
            _check_numbers(compiled, program)
            return compiled
    reason = f"no gain of float64 makes this accurate to {tolerance}."
    raise ProgramError(program.output.line, reason)


def _make(views: Views, node: Sequence, form: ViewForm) -> View:
    """Make the view of a sequence."""
    base = views.domains.base(node)
    if base is None:
        return constant_view(views.table(node, form)[0])
    if form == "number" and isinstance(node, Map):
        affine = _affine(views, node)
        if affine is not None:
            return affine
    if base is node:
        return _make_base(views, node, form)
    if views.has_one_hot(base):
        return views.one_hot(base).through(views.table(node, form).T)
    return _read_off(views, base, node, form)


def _make_base(views: Views, base: Sequence, form: ViewForm) -> View:
    """Make the view of a sequence that is its own base."""
    if isinstance(base, Map):
        return join(views, base, form)
    has_one_hot = views.has_one_hot(base)
    if has_one_hot and form == "number":
        return views.one_hot(base).through(views.table(base, form).T)
    if isinstance(base, Tokens | Indices):
        return whole(views.blueprint.input(repr(base), len(views.domains.values(base))))
    if isinstance(base, Aggregate) and (has_one_hot or form == "number"):
        return gather(views, base, form)
    if isinstance(base, Width) and form == "number" and not is_single(views, base):
        return add_up(views, base)
    return _read_off(views, base, base, form)


def _read_off(views: Views, base: Sequence, node: Sequence, form: ViewForm) -> View:
    """Read a table of an aggregate or a width off the number that its head writes."""
    values = views.domains.values(base)
    rows = views.table(node, form)
    if isinstance(base, Width) and is_single(views, base):
        if base not in views.weights:
            views.weights[base] = weight_of_bos(views, views.cases(base.selector)[0], base)
        view = views.weights[base]
        return read_off(views, view, [1 / (1 + value) for value in values], rows, node, form)
    numbers = list(map(float, values))
    return read_off(views, views.number(base), numbers, rows, node, form)


def _affine(views: Views, node: Map) -> View | None:
    """Return a sum, a difference or a multiple of numbers, without hidden units."""
    if node.function not in _AFFINE or views.is_linear(node):
        return None
    if node.function is operator.neg:
        return views.number(node.arguments[0]).through(-np.eye(1))
    one, two = node.arguments
    if not are_numbers(views.domains.values(one) + views.domains.values(two)):
        return None
    if node.function is operator.add:
        return views.number(one).plus(views.number(two))
    if node.function is operator.sub:
        return views.number(one).plus(views.number(two), -1.0)
    if isinstance(two, Constant):
        one, two = two, one
    if not isinstance(one, Constant):
        return None
    return views.number(two).through(np.array([[float(one.value)]]))


def _check_defaults(domains: Domains) -> None:
    """Refuse an aggregate without a default that may select nothing."""
    for node in sequences_of(domains.program.output):
        if not isinstance(node, Aggregate) or node.has_default:
            continue
        if domains.may_be_empty(node.selector):
            reason = (
                "a query may select nothing here, or there are too many inputs to be sure that it "
                "never does; give a value for this with default=."
            )
            raise ProgramError(node.line, reason)


def _check_meaning(domains: Domains, *, causal: bool) -> None:
    """Evaluate the program on all short inputs, so that one without a meaning is refused."""
    program, nodes = domains.program, sequences_of(domains.program.output)
    selectors = list[Selector]()
    for node in nodes:
        if causal and isinstance(node, Aggregate | Width):
            selectors.append(node.selector)
    for selector in selectors[:]:
        if isinstance(selector, Best):
            selectors.append(selector.selector)
    tried = 0
    for length in range(1, domains.longest + 1):
        tried += len(program.alphabet) ** length
        if tried > MAX_TRIED:
            _check_surely_causal(domains, selectors)
            return
        for ids in every_input(program, length):
            meaning = ProgramValues(program, ids)
            meaning.of(program.output)
            _check_causal(meaning, selectors)


def _check_causal(meaning: ProgramValues, selectors: list[Selector]) -> None:
    for selector in selectors:
        selected = meaning.selected(selector)
        if (selected & ~np.tri(selected.shape[-1], dtype=np.bool_)).any():
            reason = f"{selector!r} selects a later position; a causal model cannot."
            raise ProgramError(selector.line, reason)


def _check_surely_causal(domains: Domains, selectors: list[Selector]) -> None:
    for selector in selectors:
        if not domains.looks_back(selector):
            raise ProgramError(
                selector.line,
                f"{selector!r} might select a later position (there are too many inputs to "
                'try); join it with & select(indices, indices, "<=").',
            )


def _check_numbers(compiled: CompiledProgram, program: Program) -> None:
    """Compare the model with the program on some inputs: its dtype may be too coarse."""
    random = np.random.default_rng(0)
    places = numbered(compiled.values)
    for length in {1, min(3, compiled.longest), compiled.longest}:
        ids = random.integers(0, len(compiled.alphabet), (_COMPARED, length))
        expected = ProgramValues(program, ids).of(program.output)
        columns = np.array([places.get(value_key(value), -1) for value in expected.values])[
            expected.codes
        ]
        logits = compiled.logits(compiled.with_bos(torch.from_numpy(ids))).double().numpy()
        nothing = np.zeros_like(logits)
        answers, sure = read_answers(logits, nothing, compiled.numbers, compiled.tolerance)
        if (answers != columns).any() or not (sure > 0).all():
            reason = "rounding makes this model wrong; take float64, or coarser numbers."
            raise ProgramError(program.output.line, reason)

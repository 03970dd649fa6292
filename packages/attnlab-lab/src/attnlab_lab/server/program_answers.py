"""What a program means on an example, line by line, and what a model made of it attends to. A part
of the process with torch. Its text may come with a link: it is read, and never run as Python.
"""

import time
from collections.abc import Callable
from typing import Any

import torch

from attnlab.errors import CouldNotRun, WrongUsage
from attnlab.look.recording import record
from attnlab.programs import CompiledProgram, Program, ProgramError, compile_program, prove_program
from attnlab.programs.domains import Domains
from attnlab.programs.interpreter import ProgramValues, ids_of, sequences_of
from attnlab.programs.language import Aggregate, Selector, Sequence, Width, tokens
from attnlab.programs.program_text import TextLine, read_lines, read_program
from attnlab_lab.server.heads import PackedHead, packed_heads

_MOST_TOKENS = 8  # of an alphabet
_LONGEST = 10
_MOST_INPUTS = 100_000
_MOST_VALUES = 2_000  # of all lines together: the model is about as wide
_SECONDS = 40.0  # for a model and its proof
_MOST_WORDS = 12  # letters of a value that are shown


def _steps(text: str, alphabet: str, example: str) -> dict[str, object]:
    """Return the value of each line at every position of an example, or why it has none."""
    meaning = _meaning(alphabet, example)
    lines = [_shown(line, meaning) for line in read_lines(text, alphabet)]
    return {"alphabet": list(alphabet), "tokens": list(example), "lines": lines}


def _shown(line: TextLine, meaning: ProgramValues) -> dict[str, object]:
    described: dict[str, object] = {"number": line.line.number, "name": line.name}
    if line.error is not None:
        return described | {"error": line.error.reason}
    try:
        if isinstance(line.value, Selector):
            return described | {"selected": meaning.selected(line.value)[0].tolist()}
        if isinstance(line.value, Sequence):
            return described | {"values": list(map(_word, meaning.of(line.value).row(0)))}
    except ProgramError as error:
        if error.line == line.line:
            return described | {"error": error.reason}
        return described | {"error": f"no value, for line {error.line.number} has none."}
    return described | {"values": [_word(line.value)] * meaning.ids.shape[1]}


def _word(value: object) -> str:
    words = str(value)
    if len(words) <= _MOST_WORDS:
        return words
    return f"{words[: _MOST_WORDS - 1]}…"


def _prove(text: str, alphabet: str, example: str, longest: int) -> dict[str, object]:
    """Make a model of a program, prove it, and record its heads on an example; or say which line
    is refused, and why."""
    meaning = _meaning(alphabet, example)
    try:
        return _proved(read_program(text, alphabet), meaning, longest)
    except ProgramError as error:
        return {"refused": error.reason, "number": error.line.number}


def _proved(program: Program, meaning: ProgramValues, longest: int) -> dict[str, object]:
    _check_size(program, longest, meaning.ids.shape[1])
    started = time.monotonic()
    compiled = compile_program(program, longest)

    def check_time(done: int, inputs: int) -> None:
        if time.monotonic() > started + _SECONDS:
            raise CouldNotRun(
                f"after {_SECONDS:g} seconds {done:,} of {inputs:,} inputs were tried, and this "
                "room gives up: take shorter inputs, or attnlab compile in a terminal."
            )

    proof = prove_program(compiled, program, longest=longest, progress=check_time)
    seconds = time.monotonic() - started
    config = compiled.model.config
    return {
        "tokens": [program.alphabet[id] for id in meaning.ids[0]],
        "hasBos": compiled.has_bos,
        "model": {
            "layers": config.num_layers,
            "heads": config.num_heads,
            "width": config.head_width,
            "stream": config.d_model,
            "hidden": config.inner_width,
        },
        "lines": _lines(compiled, program, meaning),
        "verdict": str(proof).partition("\n")[0],
        "proof": proof.to_mapping(),
        "seconds": seconds,
    }


def _meaning(alphabet: str, example: str) -> ProgramValues:
    if not 1 <= len(alphabet) <= _MOST_TOKENS or any(
        not letter.isprintable() for letter in alphabet
    ):
        raise WrongUsage(
            f"an alphabet here has 1 to {_MOST_TOKENS} distinct letters, each a token; got "
            f"{len(alphabet)}."
        )
    if len(example) > _LONGEST:
        raise WrongUsage(f"an example here has at most {_LONGEST} letters; got {len(example)}.")
    program = Program(tokens, alphabet)
    return ProgramValues(program, ids_of(program, example))


def _check_size(program: Program, longest: int, example: int) -> None:
    """Refuse a proof of too many inputs, and a model that takes too much memory."""
    if not 1 <= longest <= _LONGEST:
        raise WrongUsage(f"the longest input here has 1 to {_LONGEST} tokens; got {longest}.")
    if example > longest:
        raise WrongUsage(
            f"the example has {example} letters, and the longest input {longest}: shorten the one, "
            "or lengthen the other."
        )
    letters = len(program.alphabet)
    inputs = sum(letters**length for length in range(1, longest + 1))
    if inputs > _MOST_INPUTS:
        raise CouldNotRun(
            f"{letters} letters and up to {longest} tokens make {inputs:,} inputs, and this room "
            f"tries at most {_MOST_INPUTS:,}: take fewer, or attnlab compile in a terminal."
        )
    domains = Domains(program, longest)
    values = sum(len(domains.values(sequence)) for sequence in sequences_of(program.output))
    if values > _MOST_VALUES:
        raise CouldNotRun(
            f"the lines of this program may have {values:,} values together, and this room makes "
            f"models for at most {_MOST_VALUES:,}: attnlab compile makes larger ones."
        )


def _lines(
    compiled: CompiledProgram, program: Program, meaning: ProgramValues
) -> list[dict[str, object]]:
    """List the lines that have heads, each with what it selects and what its heads attend to."""
    with record(compiled.model, ["*weights", "*scores"]) as recording:
        compiled.logits(compiled.with_bos(torch.from_numpy(meaning.ids)))
    heads: dict[str, list[PackedHead]] = {}
    for head in packed_heads(recording):
        if head["name"] in compiled.heads:
            heads.setdefault(compiled.heads[head["name"]], []).append(head)
    lines: dict[str, dict[str, Any]] = {}
    for sequence in sequences_of(program.output):
        name, line = str(sequence.line), sequence.line
        if isinstance(sequence, Aggregate | Width) and name in heads:
            facts = {"number": line.number, "source": line.source, "heads": heads[name]}
            selected = meaning.selected(sequence.selector)[0].tolist()
            selectors = lines.setdefault(name, {**facts, "selectors": []})["selectors"]
            selectors.append({"words": sequence.selector.words, "selected": selected})
    return list(lines.values())


WORK: dict[str, Callable[..., object]] = {"program_steps": _steps, "prove_program": _prove}

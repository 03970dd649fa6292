"""attnlab compile: a program in a Python file becomes a model, proved on every input."""

import runpy
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlab.cli.options import AsJson, Switch, WholeNumber
from attnlab.cli.progress import counting
from attnlab.cli.terminal import note, print_json, say, say_lines, show_table
from attnlab.errors import AttnlabError, CouldNotRun, WrongUsage, did_you_mean

if TYPE_CHECKING:
    from attnlab.programs import Program


def compile_(
    file: Path,
    /,
    *,
    name: str | None = None,
    length: WholeNumber = 6,
    tolerance: float = 1e-3,
    example: str | None = None,
    float32: Switch = False,
    causal: Switch = False,
    out: Path | None = None,
    resume: Switch = False,
    as_json: AsJson = False,
) -> int:
    """Compile a program: show each step on an example, make the model, prove it on every input.

    Exit status 0 if it is proved, 1 if an input fails or rounding may change an answer.

    Parameters
    ----------
    file
        A Python file that makes an `attnlab.programs.Program`, such as examples/programs/sort.py of
        the sources.
    name
        Which program, where the file makes several: the name of its variable.
    length
        Tokens of the longest input.
    tolerance
        How far a number may be from what the program says.
    example
        An input to show each step on, its tokens with blanks between them or none; by default the
        alphabet.
    float32
        Make a model of 32 bits rather than 64.
    causal
        Make a model in which no position sees a later one.
    out
        A folder to create: the model, the certificate, and check.py, which checks it again with
        NumPy alone. The same command goes on with a folder that is unfinished.
    resume
        Go on with the proof that was interrupted in --out; refused where there is none.
    as_json
        Print the model's facts and the proof as JSON.
    """
    import torch

    from attnlab.programs import compile_program, prove_program
    from attnlab.programs.proof import write_certificate

    program = _program(file, name)
    check_out(out, resume=resume)
    _check_length(length)
    dtype = torch.float32 if float32 else torch.float64
    if not as_json:
        _show_steps(program, _tokens(program, example, length), str(file))
    with folder_of_proof(out) as state:
        compiled = compile_program(program, length, tolerance=tolerance, dtype=dtype, causal=causal)
        with counting(f"{program.name}, inputs tried", is_quiet=as_json) as tell:
            proof = prove_program(compiled, program, progress=tell, state=state)
        if out is not None:
            compiled.save(out)
            if proof.is_sure:
                write_certificate(proof, out)
    if as_json:
        print_json(proof.to_mapping())
    else:
        say_lines(f"\n{compiled.explain()}\n\n{proof}")
        if out is not None:
            say(f"model    {out}")
        show_certificate(out, is_sure=proof.is_sure)
    return int(not proof.is_sure)


def _check_length(length: int) -> None:
    if length < 1:
        raise WrongUsage(f"--length is a number of tokens, at least 1; got {length}.")


def show_certificate(folder: Path | None, *, is_sure: bool) -> None:
    """Print how to check a certificate, or that there is none, if a folder was written."""
    if folder is None:
        return
    if is_sure:
        say(f"check    python {folder / 'check.py'}")
    else:
        say("no certificate was written")


def check_out(out: Path | None, *, resume: bool) -> None:
    """Refuse a folder that is finished, or of something else, before anything is computed."""
    from attnlab.programs.proof_folder import check_proof_folder

    if out is not None:
        check_proof_folder(out, must_be_there=resume)
    elif resume:
        raise WrongUsage("--resume goes on with the proof in --out; name that folder.")


@contextmanager
def folder_of_proof(out: Path | None) -> Iterator[Path | None]:
    """Write into the folder of a proof; if interrupted, print how it goes on."""
    from attnlab.programs.proof_folder import STATE, proof_folder

    if out is None:
        yield None
        return
    try:
        with proof_folder(out) as state:
            yield state
    except KeyboardInterrupt:
        if (out / STATE).is_file():
            note("the same command goes on with the proof.")
        raise


def _program(file: Path, name: str | None) -> "Program":
    """Run a file, and return the program that it makes."""
    from attnlab.programs import Program

    programs = {key: value for key, value in _made_by(file).items() if isinstance(value, Program)}
    if not programs:
        raise WrongUsage(
            f"{file} makes no program; write one, such as: program = Program(output, 'abc')."
        )
    if name is None:
        name = "program"
        if len(programs) == 1:
            (name,) = programs
        elif name not in programs:
            listed = ", ".join(programs)
            raise WrongUsage(f"{file} makes several programs; choose one with --name: {listed}.")
    if name not in programs:
        raise WrongUsage(f"{file} makes no program {name!r}; {did_you_mean(name, programs)}.")
    return programs[name]


def _made_by(file: Path) -> Mapping[str, object]:
    """Run a file as Python does, with its own folder to import from."""
    if not file.is_file():
        raise CouldNotRun(f"there is no file {file}.")
    sys.path.insert(0, str(file.parent))
    try:
        return runpy.run_path(str(file))
    except AttnlabError:
        raise
    except SystemExit:
        raise WrongUsage(f"{file} ends itself before it makes a program.") from None
    except Exception as error:
        place = _place_of(error, str(file))
        raise WrongUsage(f"{place}  {type(error).__name__}: {error}") from None
    finally:
        sys.path.remove(str(file.parent))


def _place_of(error: Exception, file: str) -> str:
    """Return a file with the line in which it failed, if that is known."""
    calls = traceback.extract_tb(error.__traceback__)
    lines = [call.lineno for call in calls if call.filename == file]
    if isinstance(error, SyntaxError) and error.filename == file:
        lines.append(error.lineno)
    return f"{file}:{lines[-1]}" if lines else file


def _tokens(program: "Program", example: str | None, length: int) -> list[Any]:
    known = {str(token): token for token in program.alphabet}
    if example is None:
        return list(islice(cycle(program.alphabet), min(length, 6)))
    words = example.split()
    if len(words) == 1 and words[0] not in known:
        words = list(words[0])
    for word in words:
        if word not in known:
            raise WrongUsage(f"the tokens are {', '.join(known)}; --example has {word!r}.")
    return [known[word] for word in words]


def _show_steps(program: "Program", tokens: list[Any], file: str) -> None:
    """Show the value of each line of the file at every position of an example."""
    from attnlab.programs import steps_of

    cells = []
    for line, values in steps_of(program, tokens).lines().items():
        if line.file == file:
            cells.append([str(line.number), line.source, *map(str, values)])
    if cells:
        show_table(["line", "", *map(str, tokens)], cells)

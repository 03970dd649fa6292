"""The inputs of a proof, in parts, with the right answers.

For a program they are all inputs up to a length, with an answer at every token; for a sequence
task, all prompts, with the answer after each.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnlab import seeds
from attnlab.display import displayed
from attnlab.errors import WrongUsage
from attnlab.models import Decoder
from attnlab.models.storage import describe_model
from attnlab.programs import check
from attnlab.programs.compiled_program import CompiledProgram
from attnlab.programs.interpreter import Codes, ProgramValues
from attnlab.programs.language import Program
from attnlab.programs.values import Value, numbered, value_key
from attnlab.tasks.sequences import SEPARATOR, SequenceTask

Numbers = NDArray[np.float64]

_SAMPLED = 500  # inputs of each length that is not tried in full


@dataclass(frozen=True)
class ProofBatch:
    """Some inputs of one length.

    Attributes:
        rows: the model's inputs, ids (input, place).
        right: the number of the right answer's logit (input, answer); -1 where none is right.
    """

    rows: Tensor
    right: Codes


@displayed
@dataclass(frozen=True)
class WrongAnswer:
    """The first input that fails, a shortest one.

    tokens: the input · position: from 0, the first token (or the first of the answer to a prompt) ·
    expected, got: what the program says there, and the model.
    """

    tokens: tuple[Value, ...]
    position: int
    expected: Value
    got: Value

    def __str__(self) -> str:
        words = " ".join(map(str, self.tokens))
        got = self.got
        if value_key(got) == value_key(self.expected):
            got = f"{got}, but not clearly"
        return f"{words}, position {self.position}: expected {self.expected}; got {got}"


class ProgramInputs:
    """All inputs of a program of 1 to `longest` tokens; None for as many as the model takes.

    Attributes:
        name: of the program or the task.
        shortest, longest: tokens of an input.
        proved_to: the length up to which every input is tried.
        inputs, searched: the number of these inputs, and of others that are tried.
        numbers: the possible values of an answer that is a number; None for a logit for each
            answer.
        tolerance: the largest error of a number.
    """

    def __init__(
        self, compiled: CompiledProgram, program: Program, longest: int | None, max_inputs: int
    ) -> None:
        if longest is None:
            longest = compiled.longest
        is_other = value_key(tuple(program.alphabet)) != value_key(compiled.alphabet)
        if is_other or not 1 <= longest <= compiled.longest:
            raise WrongUsage(
                f"the model takes 1 to {compiled.longest} of the tokens {compiled.alphabet}; got "
                f"{longest} of {tuple(program.alphabet)}."
            )
        self.compiled, self.program = compiled, program
        self.model, self.name = compiled.model, program.name
        self.numbers, self.tolerance = compiled.numbers, compiled.tolerance
        self.shortest, self.longest = 1, longest
        size = len(program.alphabet)
        counts = np.cumsum(float(size) ** np.arange(1, longest + 1))
        self.proved_to = int((counts <= max_inputs).sum())
        self.inputs = sum(size**length for length in range(1, self.proved_to + 1))
        self.searched = _SAMPLED * (longest - self.proved_to)
        self._places = numbered(compiled.values)

    def inputs_in_parts(self) -> Iterator[tuple[Codes, bool]]:
        """Yield every input up to `proved_to`, then some of each length, drawn at random: ids
        (input, position), and whether they are drawn."""
        size, width = len(self.program.alphabet), check.width_of(describe_model(self.model))
        for length in range(1, self.proved_to + 1):
            for ids in check.inputs_of(size, length, width):
                yield ids, False
        random = np.random.default_rng(0)
        for length in range(self.proved_to + 1, self.longest + 1):
            yield random.integers(0, size, (_SAMPLED, length)), True

    @property
    def words(self) -> str:
        """The meaning and tolerance of the answers; the program is known by them."""
        compiled = self.compiled
        meaning = (compiled.alphabet, compiled.values, compiled.tolerance, compiled.has_bos)
        return repr((meaning, self.longest, self.proved_to, self.searched))

    def part(self, ids: Codes) -> ProofBatch:
        """Return the model's rows, BOS before the inputs, and what the program says of them."""
        expected = ProgramValues(self.program, ids).of(self.program.output)
        # Where a value that the model cannot give occurs, the model is wrong.
        places = [self._places.get(value_key(value), -1) for value in expected.values]
        rows = self.compiled.with_bos(torch.from_numpy(ids))
        return ProofBatch(rows, np.array(places)[expected.codes])

    def of_answers(self, logits: Numbers) -> Numbers:
        """Leave out BOS."""
        return logits[:, int(self.compiled.has_bos) :]

    def wrong(self, part: ProofBatch, number: int, place: int, got: int) -> WrongAnswer:
        """Return the program's value and the model's."""
        ids = part.rows[number, int(self.compiled.has_bos) :].numpy()
        expected = ProgramValues(self.program, ids[None]).of(self.program.output).row(0)[place]
        tokens = tuple(self.program.alphabet[code] for code in ids)
        return WrongAnswer(tokens, place, expected, self.compiled.values[got])


class TaskInputs:
    """All prompts of a sequence task, each with its answer but for the last letter.

    A greedy answer is right when each of its letters is the likeliest after the right ones before
    it, so one pass over whole rows decides. The separator is no letter, and is not counted.
    """

    def __init__(self, model: Decoder, task: SequenceTask, max_inputs: int) -> None:
        vocabulary, longest = model.config.vocab_size, model.config.max_length
        needed = task.row_length - 1
        if vocabulary != len(task.vocabulary) or longest < needed:
            raise WrongUsage(
                f"{task.rule} has {len(task.vocabulary)} tokens and rows of {needed}; the model "
                f"takes {vocabulary} tokens in rows of up to {longest}."
            )
        self.model, self.task = model, task
        self.name = f"{task.rule}, {task.letters} letters"
        self.numbers, self.tolerance = None, 0.0
        self.shortest = self.longest = task.prompt_length
        self.proved_to, self.inputs, self.searched = 0, 0, _SAMPLED
        if task.num_prompts <= max_inputs and task.is_listable:
            self.proved_to, self.inputs, self.searched = task.prompt_length, task.num_prompts, 0

    def inputs_in_parts(self) -> Iterator[tuple[Codes, bool]]:
        """Yield every prompt, or some that are drawn at random."""
        if not self.inputs:
            yield self.task.sample(_SAMPLED, seeds.generator(0, "proof")).numpy(), True
            return
        for prompts in check.prompts_of(task_mapping(self.task), describe_model(self.model)):
            yield prompts, False

    @property
    def words(self) -> str:
        """The task, and how many of its prompts are tried."""
        return repr((self.task, self.inputs))

    def part(self, ids: Codes) -> ProofBatch:
        """Write whole rows, and cut the last letter off."""
        rows = self.task.rows(torch.from_numpy(ids))
        right = rows[:, self.task.prompt_length + 1 :].numpy() - SEPARATOR - 1
        return ProofBatch(rows[:, :-1], right)

    def of_answers(self, logits: Numbers) -> Numbers:
        """Take the letters' logits, from the separator on."""
        return logits[:, self.task.prompt_length :, SEPARATOR + 1 :]

    def wrong(self, part: ProofBatch, number: int, place: int, got: int) -> WrongAnswer:
        """Return the right letter and the model's; place 0 is the answer's first."""
        letters = self.task.vocabulary[SEPARATOR + 1 :]
        prompt = tuple(self.task.tokens(part.rows[number, : self.task.prompt_length]))
        return WrongAnswer(prompt, place, letters[part.right[number, place]], letters[got])


ProofInputs = ProgramInputs | TaskInputs
"""The inputs of a proof, and the right answers."""


def task_mapping(task: SequenceTask) -> check.Task:
    """Return the content of `task.json` for a task."""
    return {
        "rule": task.rule,
        "letters": task.letters,
        "length": task.length,
        "prompt_length": task.prompt_length,
        "answer_length": task.answer_length,
    }

"""Letters in, letters out: sort, reverse, copy, add, and induction, over any alphabet and length.

A row of the task is `prompt SEP answer`, such as `c a b SEP a b c`. The domain is enumerable, so
that a model can be evaluated on all of it; and because prompts are uniform over the domain, the
lowest possible loss is known.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from attnlab.errors import WrongUsage, require_known
from attnlab.shapes import require_integer

SequenceRule = Literal["sort", "reverse", "copy", "add", "induction"]

SEPARATOR = 0
"""The id of SEP; the letters follow it."""

_ALPHABET = "abcdefghijklmnopqrstuvwxyz"
_MAX_ENUMERATED = 5_000_000


@dataclass(frozen=True)
class SequenceTask:
    """One rule over one alphabet.

    Args:
        rule: what makes the answer from the prompt. sort, reverse, copy: `length` letters to as
            many. add: two numbers of `length` digits (a = 0, b = 1, …) to their sum, of length + 1
            digits. induction: `length` letters, the last of which occurred before, to the letter
            that followed it then.
        letters: size of the alphabet, 1 to 26.
        length: letters of a prompt (of each number, for add).

    >>> task = SequenceTask("sort", letters=3, length=3)
    >>> task.text(task.answer(task.parse("cab").unsqueeze(0))[0])
    'abc'
    """

    rule: SequenceRule = "sort"
    letters: int = 3
    length: int = 3

    def __post_init__(self) -> None:
        require_known("task", self.rule, get_args(SequenceRule))
        require_integer("letters", self.letters)
        require_integer("length", self.length, low=1 + (self.rule == "induction"))
        if self.letters > len(_ALPHABET):
            raise WrongUsage(f"letters must be at most 26, a to z; got {self.letters}.")
        if self.rule == "add" and self.letters < 2:
            raise WrongUsage("add needs at least 2 letters, the digits of its numbers; got 1.")

    @property
    def vocabulary(self) -> tuple[str, ...]:
        """The name of each token id."""
        return ("SEP", *_ALPHABET[: self.letters])

    @property
    def prompt_length(self) -> int:
        """Letters before the separator."""
        return 2 * self.length if self.rule == "add" else self.length

    @property
    def answer_length(self) -> int:
        """Letters after the separator."""
        return {"add": self.length + 1, "induction": 1}.get(self.rule, self.length)

    @property
    def row_length(self) -> int:
        """Tokens of a whole row, the separator included."""
        return self.prompt_length + 1 + self.answer_length

    @property
    def num_prompts(self) -> int:
        """How many different prompts there are."""
        everything = int(self.letters**self.prompt_length)
        if self.rule == "induction":  # less those whose last letter is new
            return everything - int(self.letters * (self.letters - 1) ** (self.length - 1))
        return everything

    @property
    def loss_floor(self) -> float:
        """The lowest mean cross-entropy, in nats a token, of any causal predictor on whole rows.

        The prompt's letters after the first cannot be known beforehand: together they hold the
        entropy of the prompt less that of its first letter. Everything after them can be known.
        """
        return (math.log(self.num_prompts) - math.log(self.letters)) / (self.row_length - 1)

    def answer(self, prompts: Tensor) -> Tensor:
        """Apply the rule: ids (batch, prompt_length) -> (batch, answer_length)."""
        letters = _RULES[self.rule](self, prompts)
        if letters.shape[-1] != self.answer_length:
            raise WrongUsage(
                f"the rule {self.rule!r} answers with {letters.shape[-1]} letters, and "
                f"SequenceTask.answer_length says {self.answer_length}; name the rule there."
            )
        return letters

    def rows(self, prompts: Tensor) -> Tensor:
        """Write whole rows: (batch, prompt_length) -> (batch, row_length)."""
        separator = prompts.new_full((prompts.shape[0], 1), SEPARATOR)
        return torch.cat((prompts, separator, self.answer(prompts)), -1)

    def sample(self, batch_size: int, generator: torch.Generator) -> Tensor:
        """Draw prompts uniformly from the domain: (batch_size, prompt_length)."""
        shape = (batch_size, self.prompt_length)
        if self.rule == "induction":  # some are not in the domain
            shape = (2 * batch_size, self.prompt_length)
        kept = torch.empty(0, self.prompt_length, dtype=torch.int64)
        while len(kept) < batch_size:
            sampled = torch.randint(1, self.letters + 1, shape, generator=generator)
            kept = torch.cat((kept, self._in_domain(sampled)))
        return kept[:batch_size]

    @property
    def is_listable(self) -> bool:
        """Whether the whole domain can be listed at once."""
        return bool(self.letters**self.prompt_length <= _MAX_ENUMERATED)

    def all_prompts(self) -> Tensor:
        """List every prompt once, in alphabetical order: (num_prompts, prompt_length)."""
        if not self.is_listable:
            raise WrongUsage(
                f"{self.letters}**{self.prompt_length} prompts are more than the "
                f"{_MAX_ENUMERATED:,} that can be listed at once; evaluate a sample of them."
            )
        letters = range(1, self.letters + 1)
        prompts = torch.tensor(list(itertools.product(letters, repeat=self.prompt_length)))
        return self._in_domain(prompts)

    def _in_domain(self, prompts: Tensor) -> Tensor:
        if self.rule != "induction":
            return prompts
        return prompts[(prompts[:, :-1] == prompts[:, -1:]).any(-1)]

    def prompts_to_evaluate(
        self, max_prompts: int, generator: torch.Generator
    ) -> tuple[Tensor, bool]:
        """Return all prompts if there are at most `max_prompts`, else a sample of that size; and
        whether these are all."""
        if self.num_prompts <= max_prompts and self.is_listable:
            return self.all_prompts(), True
        return self.sample(max_prompts, generator), False

    def parse(self, text: str) -> Tensor:
        """Read a typed prompt, (length,); blanks and commas do not matter, nor does case."""
        letters = typed_letters(text.lower(), " ,+")
        known = self.vocabulary[1:]
        if len(letters) != self.prompt_length or not set(letters) <= set(known):
            wanted = f"{self.prompt_length} letter"
            if self.prompt_length > 1:
                wanted += "s"
            raise WrongUsage(
                f"expected {wanted} from {known[0]} to {known[-1]}, "
                f"such as {self.example!r}; got {text!r}."
            )
        prompt = torch.tensor(list(map(self.vocabulary.index, letters)))
        if self.rule == "induction" and not bool((prompt[:-1] == prompt[-1]).any()):
            raise WrongUsage(
                "expected the last letter to occur among the others before, such as "
                f"{self.example!r}; got {text!r}."
            )
        return prompt

    @property
    def example(self) -> str:
        """A prompt as a person would type it."""
        prompt = [self.letters - index % self.letters for index in range(self.prompt_length)]
        if self.rule == "induction":
            prompt[-1] = prompt[0]
        return self.text(prompt)

    def text(self, tokens: Tensor | Sequence[int]) -> str:
        """Write ids (length,) as a person reads them."""
        return "".join(self.tokens(tokens))

    def tokens(self, tokens: Tensor | Sequence[int]) -> list[str]:
        """Name each id."""
        return [self.vocabulary[int(token)] for token in tokens]


def typed_letters(text: str, between: str) -> list[str]:
    """Return the letters of a typed text, without the separators in `between`."""
    return [letter for letter in text if letter not in between]


def _add(task: SequenceTask, prompts: Tensor) -> Tensor:
    first, second = prompts[:, : task.length] - 1, prompts[:, task.length :] - 1
    carry = torch.zeros_like(first[:, :1])
    digits = []
    for place in reversed(range(task.length)):
        total = first[:, place : place + 1] + second[:, place : place + 1] + carry
        digits.append(total % task.letters)
        carry = total // task.letters
    return torch.cat([carry, *reversed(digits)], -1) + 1


def _induction(task: SequenceTask, prompts: Tensor) -> Tensor:
    before = prompts[:, :-1] == prompts[:, -1:]
    place = torch.arange(task.length - 1)
    latest = torch.where(before, place, -1).amax(-1, keepdim=True)
    return prompts.gather(-1, latest + 1)


_RULES: dict[str, Callable[[SequenceTask, Tensor], Tensor]] = {
    "sort": lambda task, prompts: prompts.sort(-1).values,
    "reverse": lambda task, prompts: prompts.flip(-1),
    "copy": lambda task, prompts: prompts.clone(),
    "add": _add,
    "induction": _induction,
}

"""Vectors in, vectors out: the three tasks that one head can solve with weights written by hand.

Tokens are one-hot vectors, the letters A, B, C, … and, for `unique`, CLS in front. Every sequence
up to the longest is an input, so that a design can be proved on all of them:

    identity    CAB      the token itself                                       attends by content
    copy_first  CAB      the first token, everywhere                            attends by position
    unique      CLS CAC  +1 where a token occurs once, -1 where it is repeated  attends by both
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from attnlab.errors import WrongUsage, require_known
from attnlab.shapes import require_integer
from attnlab.tasks.sequences import typed_letters

VectorRule = Literal["identity", "copy_first", "unique"]

PADDING = -1
"""Stands after the end of a shorter sequence; its vector is zero."""

_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_USUAL_LONGEST = {"identity": 6, "copy_first": 4, "unique": 4}
_MAX_INPUTS = 200_000


@dataclass(frozen=True)
class VectorTask:
    """One rule over all sequences of letters from length 1 to the longest.

    Args:
        rule: identity, copy_first or unique.
        letters: size of the alphabet.
        longest: letters of the longest input (CLS not counted).

    >>> task = VectorTask("unique", letters=3, longest=4)
    >>> task.num_inputs, task.target(task.parse("CAC").unsqueeze(0)).flatten().tolist()
    (120, [0.0, -1.0, 1.0, -1.0])
    """

    rule: VectorRule
    letters: int = 3
    longest: int = 4

    def __post_init__(self) -> None:
        require_known("task", self.rule, get_args(VectorRule))
        require_integer("letters", self.letters, low=2)
        require_integer("longest", self.longest, low=2)
        if self.letters > len(_ALPHABET):
            raise WrongUsage(f"letters must be at most 26, A to Z; got {self.letters}.")
        # 2**18 sequences are too many already
        if self.longest > 17 or self.num_inputs > _MAX_INPUTS:
            raise WrongUsage(
                f"{self.letters} letters up to {self.longest} long make more than "
                f"{_MAX_INPUTS:,} inputs, too many to check each; take fewer letters or a "
                "smaller longest."
            )

    @property
    def has_cls(self) -> bool:
        """Is CLS the first token? Its output is ignored."""
        return self.rule == "unique"

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The name of each token id."""
        letters = tuple(_ALPHABET[: self.letters])
        if self.has_cls:
            return (*letters, "CLS")
        return letters

    @property
    def input_dim(self) -> int:
        """Width of an input vector."""
        return len(self.names)

    @property
    def output_dim(self) -> int:
        """Width of a target vector: 1 where the target is a sign."""
        return 1 if self.rule == "unique" else self.letters

    @property
    def row_length(self) -> int:
        """Tokens of the longest input, CLS included."""
        return self.longest + self.has_cls

    @property
    def num_inputs(self) -> int:
        """How many different inputs there are."""
        return sum(self.letters**length for length in range(1, self.longest + 1))

    def inputs_by_length(self) -> list[Tensor]:
        """List every input once, shortest first, each length in alphabetical order: ids (inputs,
        length)."""
        inputs = []
        for length in range(1, self.longest + 1):
            letters = itertools.product(range(self.letters), repeat=length)
            inputs.append(self._with_cls(torch.tensor(list(letters))))
        return inputs

    def sample(self, number: int, generator: torch.Generator) -> Tensor:
        """Draw inputs, each length equally often, letters uniform: ids (number, row_length),
        PADDING after the end."""
        lengths = torch.randint(1, self.longest + 1, (number, 1), generator=generator)
        letters = torch.randint(self.letters, (number, self.longest), generator=generator)
        return self._with_cls(letters.masked_fill(torch.arange(self.longest) >= lengths, PADDING))

    def vectors(self, ids: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """Write ids as one-hot vectors: (..., length) -> (..., length, input_dim); PADDING as
        zeros."""
        return F.one_hot(ids + 1, self.input_dim + 1)[..., 1:].to(dtype)

    def target(self, ids: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return the target: (batch, length) -> (batch, length, output_dim); 0 where `counted` is
        False."""
        if self.rule == "identity":
            return self.vectors(ids, dtype)
        if self.rule == "copy_first":
            first = self.vectors(ids[:, :1], dtype)
            return first * self.counted(ids).unsqueeze(-1)
        times = (ids.unsqueeze(-1) == ids.unsqueeze(-2)).sum(-1)
        sign = torch.where(times == 1, 1.0, -1.0).to(dtype)
        return (sign * self.counted(ids)).unsqueeze(-1)

    def counted(self, ids: Tensor) -> Tensor:
        """Return where the output counts (no CLS, no PADDING): (batch, length) boolean."""
        return (ids >= 0) & (ids < self.letters)

    def right_keys(self, ids: Tensor) -> Tensor:
        """Return the keys that each query ought to attend to: (batch, length) -> (batch, query,
        key) boolean.

        identity: at the same letter. copy_first: at the first position. unique: at the other places
        of the same letter, or, where there are none, at CLS.
        """
        same = ids.unsqueeze(-1) == ids.unsqueeze(-2)
        place = torch.arange(ids.shape[-1])
        if self.rule == "identity":
            return same
        if self.rule == "copy_first":
            return (place == 0).expand_as(same)
        others = same & (place.unsqueeze(-1) != place)
        return torch.where(others.any(-1, keepdim=True), others, place == 0)

    def clearance(self, output: Tensor, ids: Tensor) -> Tensor:
        """Return how clearly each output that counts means its target: (batch, length); above 0 is
        right, 0 is wrong.

        The right component less the largest of the others; for unique, output times target. Where
        nothing counts it is infinite, and NaN stays NaN.
        """
        target = self.target(ids, output.dtype)
        if self.rule == "unique":
            clear = (output * target).squeeze(-1)
        else:
            others = output.masked_fill(target == 1, float("-inf")).amax(-1)
            clear = (output * target).sum(-1) - others
        return clear.masked_fill(~self.counted(ids), float("inf"))

    def error(self, output: Tensor, ids: Tensor) -> Tensor:
        """Return the largest |output - target| of each position: (batch, length); 0 where nothing
        counts."""
        distance = (output - self.target(ids, output.dtype)).abs().amax(-1)
        return distance.masked_fill(~self.counted(ids), 0.0)

    @property
    def example(self) -> str:
        """An input as a person would type it."""
        letters = "CAC" if self.letters >= 3 else "BAB"
        return letters[: self.longest]

    def parse(self, text: str) -> Tensor:
        """Read a typed input without CLS, (length,); blanks and commas do not matter, nor does
        case."""
        letters = typed_letters(text.upper(), " ,")
        known = self.names[: self.letters]
        if not 1 <= len(letters) <= self.longest or not set(letters) <= set(known):
            raise WrongUsage(
                f"expected 1 to {self.longest} letters from {known[0]} to {known[-1]}, such as "
                f"{self.example!r}; got {text[:40]!r}."
            )
        return self._with_cls(torch.tensor(list(map(known.index, letters))))

    def tokens(self, ids: Tensor | Sequence[int]) -> list[str]:
        """Name each id, PADDING left out."""
        return [self.names[int(token)] for token in ids if int(token) != PADDING]

    def text(self, ids: Tensor | Sequence[int]) -> str:
        """Write ids (length,) as a person reads them: `CAC`, or `CLS CAC`."""
        names = self.tokens(ids)
        return f"CLS {''.join(names[1:])}" if self.has_cls else "".join(names)

    def _with_cls(self, letters: Tensor) -> Tensor:
        return F.pad(letters, (1, 0), value=self.letters) if self.has_cls else letters


def vector_task(name: str | VectorTask) -> VectorTask:
    """Return one of the three usual tasks by its name: three letters, up to 6, 4 and 4 long.

    >>> [vector_task(name).num_inputs for name in ("identity", "copy_first", "unique")]
    [1092, 120, 120]
    """
    if isinstance(name, VectorTask):
        return name
    require_known("task", name, _USUAL_LONGEST)
    return VectorTask(name, longest=_USUAL_LONGEST[name])  # type: ignore[arg-type]

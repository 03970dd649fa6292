"""The members of a population in blocks: one block in memory, or 1,024 members a block in a folder.

`blocks/00007.safetensors` holds the best weights of a block's members, stacked, (member, …), and
`blocks/00007.parquet` a row for each of them: the results, and every number of the training as a
list over its steps. Both are written in one piece, the Parquet last; it names the checksum of the
weights. What reads all members reads one column at a time.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from attnlab.core.row_files import pack_columns, read_columns
from attnlab.core.store import digest_of, pack, read_tensors, refusing_damage, write_bytes
from attnlab.errors import CouldNotRun, typed
from attnlab.experiments.report import versions
from attnlab.train.history import Evaluation, History

BLOCKS = "blocks"
"""The folder of the blocks, in that of the population."""

_NOTED = ("loss", "gradient_norm", "learning_rate")

Columns = dict[str, Any]
"""Values by their names: a list or a tensor, (member,), or a tensor, (member, step)."""


@dataclass(frozen=True, eq=False)
class MemberBlock:
    """Members that were trained together.

    seeds: one for each. history: of the training. weights: the best of each, name -> (member, …).
    solved: which had solved the problem at each evaluated step, (member, step). layout: what held
    them in memory.
    """

    seeds: Sequence[int]
    history: History
    weights: Mapping[str, Tensor]
    solved: Tensor
    layout: str

    @property
    def facts(self) -> dict[str, Any]:
        """The names of its numbers, their steps, and the versions that computed them."""
        history = self.history
        evaluation = next(chain.from_iterable(history.evaluations), Evaluation((), {}))
        return {
            "steps": history.steps,
            "evaluated_steps": history.evaluated_steps,
            "scores": len(evaluation.score),
            "figures": history.figures(),
            "layout": self.layout,
            "versions": versions(),
        }

    @cached_property
    def columns(self) -> Columns:
        """A value of each member, or a row of values over the steps, NaN after its end."""
        history = self.history
        best = []
        for member, fault in enumerate(history.faults):
            best.append(history.best(member) if fault is None else None)
        columns: Columns = {
            "seed": list(self.seeds),
            "solved_at": first_steps(self.solved, history.evaluated_steps),
            "best_step": [evaluated and evaluated[0] for evaluated in best],
            "ended_at": history.ends,
            "diverged": [fault or "" for fault in history.faults],
        }
        for name in history.figures():
            values = [evaluated[1].figures[name] if evaluated else math.nan for evaluated in best]
            columns[name] = torch.tensor(values, dtype=torch.float64)
        ends = [math.inf if end is None else end for end in history.ends]
        is_over = torch.tensor(history.steps) > torch.tensor(ends).unsqueeze(1)
        noted = (history.losses, history.norms, history.rates)
        for name, notes in zip(_NOTED, noted, strict=True):
            if notes:
                columns[f"{name}_by_step"] = torch.stack(notes, 1).masked_fill(is_over, math.nan)
        return columns | self._evaluation_columns() | {"solved_by_step": self.solved}

    def _evaluation_columns(self) -> Columns:
        """The numbers of all evaluations by step, (member, step), NaN after a member's end."""
        history, names = self.history, _evaluation_names(self.facts)
        shape = (len(self.seeds), len(history.evaluated_steps), len(names))
        values = torch.full(shape, math.nan, dtype=torch.float64)
        for member, evaluations in enumerate(history.evaluations):
            rows = [[*evaluation.score, *evaluation.figures.values()] for evaluation in evaluations]
            if rows:
                values[member, : len(rows)] = torch.tensor(rows, dtype=torch.float64)
        return dict(zip(names, values.unbind(-1), strict=True))

    def pack(self, number: int) -> dict[str, bytes]:
        """Return its two files by their names, the Parquet last."""
        weights = pack(self.weights)
        facts = {**self.facts, "weights": digest_of(weights)}
        table = pack_columns(self.columns, facts)
        return {f"{number:05}.safetensors": weights, f"{number:05}.parquet": table}


class MemoryBlocks:
    """The one block of a population in memory."""

    def __init__(self, block: MemberBlock) -> None:
        self._block = block
        self.size, self.facts = len(block.seeds), block.facts

    def __len__(self) -> int:
        return 1

    def __getitem__(self, number: int) -> MemberBlock:
        return (self._block,)[number]

    def column(self, name: str) -> Iterator[Any]:
        """Yield the values of one name."""
        yield self._block.columns[name]


class StoredBlocks:
    """The blocks of a population in its folder; a block is opened when its members are asked for.

    folder: the population's. seeds: one for each member. size: members of a block; the last may
    have fewer.
    """

    def __init__(self, folder: Path, seeds: Sequence[int], size: int) -> None:
        self._folder, self._seeds, self.size = folder, seeds, size
        self._open = lru_cache(maxsize=2)(self._read_whole)

    def __len__(self) -> int:
        return math.ceil(len(self._seeds) / self.size)

    def __getitem__(self, number: int) -> MemberBlock:
        return self._open(number)

    def seeds_of(self, number: int) -> Sequence[int]:
        """Return the seeds of a block."""
        return self._seeds[number * self.size : (number + 1) * self.size]

    def is_there(self, number: int) -> bool:
        """Was a block written?"""
        return self._file(number, "parquet").is_file()

    @cached_property
    def facts(self) -> dict[str, Any]:
        """The facts of the block that was trained for the most steps."""
        facts = [self._read(number, [])[1] for number in range(len(self))]
        return max(facts, key=lambda block: len(block["steps"]))

    def column(self, name: str) -> Iterator[Any]:
        """Yield the values of one name, block by block.

        Raises:
            CouldNotRun: a block is missing or damaged, or holds other members.
        """
        for number in range(len(self)):
            columns, _ = self._read(number, [name])
            yield columns.get(name, torch.empty(len(self.seeds_of(number)), 0))

    def check(self, number: int) -> tuple[Columns, dict[str, Any]]:
        """Read a whole block, and return its table and its facts.

        Raises:
            CouldNotRun: it is missing or damaged, or holds other members.
        """
        columns, facts = self._read(number)
        file = self._file(number, "safetensors")
        with self._explained(number):
            if not file.is_file() or digest_of(file) != facts["weights"]:
                raise CouldNotRun(f"{file} is missing, or not the one that was written")
        return columns, facts

    def write(self, files: Mapping[str, bytes]) -> int:
        """Write the files of a block, as `MemberBlock.pack` returns them; return its number."""
        for name, content in files.items():
            write_bytes(self._folder / BLOCKS / name, content)
        return int(name.partition(".")[0])

    def _file(self, number: int, kind: str) -> Path:
        return self._folder / BLOCKS / f"{number:05}.{kind}"

    def _read(
        self, number: int, names: Sequence[str] | None = None
    ) -> tuple[Columns, dict[str, Any]]:
        with self._explained(number):
            wanted = None if names is None else ["seed", *names]
            columns, facts = read_columns(self._file(number, "parquet"), wanted)
            if columns.get("seed") != list(self.seeds_of(number)):
                raise CouldNotRun("its rows are those of other seeds")
            return columns, facts

    @contextmanager
    def _explained(self, number: int) -> Iterator[None]:
        """Name the block that cannot be read, and say what to do."""
        try:
            yield
        except CouldNotRun as error:
            seeds = self.seeds_of(number)
            state = "damaged" if self.is_there(number) else "missing"
            raise CouldNotRun(
                f"block {number} of the population in {self._folder} is {state}, the seeds "
                f"{seeds[0]:,} to {seeds[-1]:,}: {str(error).rstrip('.')}. No number is taken of "
                "the others alone. To train it again, to the same bytes, remove claims.json and "
                f"type: attnlab resume {typed(self._folder)}"
            ) from None

    def _read_whole(self, number: int) -> MemberBlock:
        columns, facts = self.check(number)
        weights = read_tensors(self._file(number, "safetensors"))
        with self._explained(number), refusing_damage("its table"):
            history = _history_of(columns, facts)
            solved = columns.get("solved_by_step", torch.empty(history.num_members, 0))
            return MemberBlock(self.seeds_of(number), history, weights, solved, facts["layout"])


def _evaluation_names(facts: Mapping[str, Any]) -> list[str]:
    """Name the columns of all numbers of an evaluation."""
    scores = [f"score_{place}" for place in range(facts["scores"])]
    return [f"{name}_by_step" for name in (*scores, *facts["figures"])]


def _history_of(columns: Columns, facts: Mapping[str, Any]) -> History:
    """Restore the history of a block from its table."""
    history = History(len(columns["seed"]))
    history.steps, history.evaluated_steps = facts["steps"], facts["evaluated_steps"]
    history.ends = columns["ended_at"]
    history.faults = [text or None for text in columns["diverged"]]
    if history.steps:
        lists = (history.losses, history.norms, history.rates)
        for name, notes in zip(_NOTED, lists, strict=True):
            notes.extend(columns[f"{name}_by_step"].unbind(1))
    if not history.evaluated_steps:
        return history
    values = torch.stack([columns[name] for name in _evaluation_names(facts)], -1)
    counts = torch.isfinite(values[..., -1]).sum(1).tolist()
    for evaluations, rows, count in zip(history.evaluations, values.tolist(), counts, strict=True):
        for row in rows[:count]:
            figures = dict(zip(facts["figures"], row[facts["scores"] :], strict=True))
            evaluations.append(Evaluation(tuple(row[: facts["scores"]]), figures))
    return history


def padded(rows: Tensor, length: int) -> Tensor:
    """Lengthen rows over the steps of a block that ended early: as at its end where they say
    whether a member has solved the problem, else NaN."""
    more = length - rows.shape[1]
    if not more:
        return rows
    if rows.dtype == torch.bool and rows.shape[1]:
        return torch.cat((rows, rows[:, -1:].expand(-1, more)), 1)
    return torch.cat((rows, torch.full((len(rows), more), math.nan)), 1)


def solved_at_each_step(history: History, is_solved: Callable[[Evaluation], bool]) -> Tensor:
    """Return which members had solved the problem at each evaluated step, (member, step).

    A member that stopped early stays as it was; one that diverged solved nothing.
    """
    solved = torch.zeros(history.num_members, len(history.evaluated_steps), dtype=torch.bool)
    for index, evaluations in enumerate(history.evaluations):
        if history.faults[index] is None:
            for step, evaluation in enumerate(evaluations):
                solved[index, step:] = is_solved(evaluation)
    return solved


def first_steps(solved: Tensor, steps: Sequence[int]) -> list[int | None]:
    """Return for each member the first of these steps at which it had solved the problem."""
    if not steps:
        return [None] * len(solved)
    firsts = solved.int().argmax(1).tolist()
    members = zip(firsts, solved.any(1).tolist(), strict=True)
    return [steps[first] if has_solved else None for first, has_solved in members]

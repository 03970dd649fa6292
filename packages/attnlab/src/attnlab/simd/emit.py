"""From parts to C++: each stage a nest of loops, its inner part written out so that what is read
once serves twice."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from attnlab.errors import not_none
from attnlab.simd.program import Stage
from attnlab.simd.rows import RowLoop, reduce_of, sizes_of
from attnlab.simd.terms import Apply, Buffer, ElementRead, Reduce, Scalar, Term, reads

_MOST_SUMS = 24  # of 32 vector registers; the others hold what is multiplied
_MOST_WRITTEN = 160  # operations of a stage that are written out
_POINTERS = {
    "parameter": "P",
    "member": "Q",
    "batch": "X",
    "gradient": "G",
    "loss": "loss",
    "temporary": "T",
}
_DEAR = ("exp", "log", "log1p", "tanh", "erf", "sigmoid", "erfc")
_SIGNS = {"add": "+", "sub": "-", "mul": "*", "div": "/"}


def emitted(parts: Sequence[RowLoop]) -> tuple[str, int]:
    """Write the function `gradient`; return it and how many elements of scratch memory it needs."""
    scratch = _allocated(parts)
    constants: dict[Buffer, str] = {}
    body: list[str] = []
    for part in parts:
        if part.rows > 1:
            body.append(f"for (int row = 0; row < {part.rows}; ++row) {{")
        for stage in part.stages:
            body += _Stage(stage, constants).lines()
        if part.rows > 1:
            body.append("}")
    tables = []
    for buffer, name in constants.items():
        tables += _table(name, buffer)
    head = (
        "static void gradient(const V *__restrict P, const V *__restrict Q, const V *__restrict "
        "X, V *__restrict G,\n                     V *__restrict loss, V *__restrict T, int64_t "
        "*wrong) {"
    )
    return "\n".join([*tables, head, *body, "}", ""]), scratch


def erfc_series(terms: int) -> list[float]:
    """Return the Chebyshev coefficients of log(erfc(x) exp(x²) / t), t = 2 / (2 + x), over t from 0
    to 1."""
    nodes = torch.arange(terms, dtype=torch.float64).add(0.5).mul(math.pi / terms)
    t = (nodes.cos() + 1) / 2
    values = (torch.special.erfcx(2 / t - 2) / t).log()
    return [float(2 / terms * (values * (k * nodes).cos()).sum()) for k in range(terms)]


def _table(name: str, buffer: Buffer) -> list[str]:
    numbers = not_none(buffer.values).double().tolist()
    values, ids = map(_number, numbers), map(_id, numbers)
    return [
        f"static const R {name}[] = {{{', '.join(values)}}};",
        f"static const int {name}_ids[] = {{{', '.join(ids)}}};",
    ]


def _number(x: float) -> str:
    if math.isnan(x):
        return "R(NAN)"
    if x == math.inf:
        return "R(INFINITY)"
    if x == -math.inf:
        return "-R(INFINITY)"
    return f"R({x!r})"


def _id(x: float) -> str:
    return str(int(x)) if x.is_integer() else "0"


# Memory.


@dataclass
class _Life:
    first: int
    last: int
    size: int


def _allocated(parts: Sequence[RowLoop]) -> int:
    """Give each temporary buffer a place, used again by others after its last use; return the size
    of all."""
    lives: dict[Buffer, _Life] = {}
    seen: dict[Buffer, set[int]] = {}
    spans = []
    now = 0
    for index, part in enumerate(parts):
        spans.append((now, now + len(part.stages)))
        for stage in part.stages:
            now += 1
            for read in (stage.target, *reads(stage.term), *reads(stage.target)):
                if read.buffer.kind == "temporary":
                    life = lives.setdefault(read.buffer, _Life(now, now, 0))
                    life.last = now
                    life.size = max(life.size, _extent(read, sizes_of(stage), part.rows))
                    seen.setdefault(read.buffer, set()).add(index)
    for buffer, where in seen.items():
        if len(where) > 1:  # every row of a loop that it lasts through may need it
            life, begin, end = lives[buffer], min(where), max(where)
            if parts[begin].rows > 1:
                life.first = spans[begin][0] + 1
            if parts[end].rows > 1:
                life.last = spans[end][1]
    return _placed(lives)


def _placed(lives: dict[Buffer, _Life]) -> int:
    """Give each buffer the first gap that is large enough; return the size of all."""
    placed: list[tuple[Buffer, _Life]] = []
    top = 0
    for buffer, life in sorted(lives.items(), key=lambda item: item[1].first):
        start = 0
        for other, its in sorted(placed, key=lambda item: item[0].start):
            if its.last < life.first:
                continue
            if start + life.size <= other.start:
                break
            start = max(start, other.start + its.size)
        buffer.start = start
        top = max(top, start + life.size)
        placed.append((buffer, life))
    return top


def _extent(read: ElementRead, sizes: Sequence[int], rows: int) -> int:
    last = read.offset + read.pick * (read.pick_size - 1) + read.row * (rows - 1)
    for step, size in zip(read.strides, sizes, strict=False):
        last += step * (size - 1)
    return last + 1


# Loops.


class _Stage:
    """Writes one stage."""

    def __init__(self, stage: Stage, constants: dict[Buffer, str]) -> None:
        self._stage, self._constants = stage, constants
        self._reduce = reduce_of(stage.term)
        self._sizes = sizes_of(stage)
        self._rank = len(stage.shape)
        self._tile = self._chosen_tile()
        self._locals: dict[str, str] = {}
        self._num_locals = 0
        self._lines = ["{"]
        self._sum = ""

    def lines(self) -> list[str]:
        """Return the text."""
        opened = sum(map(self._open, range(self._rank)))
        points = list(itertools.product(*map(range, self._tile)))
        if self._reduce is not None:
            self._add_up(self._reduce, points)
        self._locals = {}
        for number, point in enumerate(points):
            self._sum = f"s{number}"
            self._lines.append(self._stored(self._text(self._stage.term, point), point))
        return [*self._lines, *["}"] * (opened + 1)]

    def _add_up(self, reduce: Reduce, points: Sequence[tuple[int, ...]]) -> None:
        """Write the loops that make a sum, or a maximum, for each point: s0, s1, …"""
        neutral, line = 0.0, "s{number} += {found};"
        if reduce.name == "max":
            neutral, line = -math.inf, "s{number} = maximum({found}, s{number});"
        for number in range(len(points)):
            self._lines.append(f"V s{number} = splat({_number(neutral)});")
        opened = sum(map(self._open, range(self._rank, len(self._sizes))))
        for number, point in enumerate(points):
            text = self._text(reduce.term, point)
            self._lines.append(line.format(number=number, found=text))
        self._lines += ["}"] * opened

    def _open(self, axis: int) -> int:
        size, step = self._sizes[axis], self._tile[axis]
        if step == size:
            return 0
        self._lines.append(f"for (int i{axis} = 0; i{axis} < {size}; i{axis} += {step}) {{")
        return 1

    def _chosen_tile(self) -> tuple[int, ...]:
        """Choose how much of each axis is written out: the fewest reads for each element, within
        the registers."""
        stage = self._stage
        term, most = stage.term, 8
        if self._reduce is not None:
            term, most = self._reduce.term, _MOST_SUMS
        most = max(1, min(most, _MOST_WRITTEN // max(_operations(term), 1)))
        if stage.is_sum and stage.target.where is not None:
            most = 1  # two places that ids name may be one
        choices = [_divisors(size, most) for size in stage.shape]
        best, chosen = math.inf, (1,) * self._rank
        for tile in itertools.product(*choices):
            count = math.prod(tile)
            score = (_loads(term, tile) + 0.5) / count
            if count <= most and score < best:
                best, chosen = score, tile
        return (*chosen, *[1] * (len(self._sizes) - self._rank))

    def _stored(self, text: str, point: Sequence[int]) -> str:
        target, sign = self._stage.target, "="
        if self._stage.is_sum:
            sign = "+="
        if target.where is None:
            return f"{self._place(target, point)} {sign} {text};"
        pointer = f"&{self._place(target, point)}"
        if target.where.buffer.kind == "constant":
            return f"({pointer})[{self._id(target, point)}] {sign} {text};"
        assert self._stage.is_sum
        return f"add_picked({pointer}, {self._id(target, point)}, {target.pick}, {text});"

    def _text(self, term: Term, point: Sequence[int]) -> str:
        """Return the name of a local variable that holds a term's value."""
        if isinstance(term, Scalar):
            return f"splat({_number(term.value)})"
        if isinstance(term, Reduce):
            return self._sum
        if isinstance(term, ElementRead):
            return self._local(self._read(term, point))
        arguments = [self._text(argument, point) for argument in term.arguments]
        if term.name in _SIGNS:
            return self._local(f"{arguments[0]} {_SIGNS[term.name]} {arguments[1]}")
        return self._local(f"{term.name}({', '.join(arguments)})")

    def _read(self, read: ElementRead, point: Sequence[int]) -> str:
        if read.buffer.kind == "constant" and read.where is None:
            return f"splat({self._place(read, point)})"
        if read.where is None:
            return self._place(read, point)
        if read.where.buffer.kind == "constant":
            return f"(&{self._place(read, point)})[{self._id(read, point)}]"
        return f"picked(&{self._place(read, point)}, {self._id(read, point)}, {read.pick})"

    def _id(self, read: ElementRead, point: Sequence[int]) -> str:
        where = not_none(read.where)
        if where.buffer.kind == "constant":
            name, address = self._name(where.buffer), self._address(where, point)
            return f"{name}_ids[{address}] * {read.pick}"
        return self._local(f"places({self._place(where, point)}, {read.pick_size}, wrong)")

    def _place(self, read: ElementRead, point: Sequence[int]) -> str:
        return f"{self._name(read.buffer)}[{self._address(read, point)}]"

    def _name(self, buffer: Buffer) -> str:
        if buffer.kind != "constant":
            return _POINTERS[buffer.kind]
        return self._constants.setdefault(buffer, f"c{len(self._constants)}")

    def _address(self, read: ElementRead, point: Sequence[int]) -> str:
        start, terms = read.offset + read.buffer.start, []
        for axis, step in enumerate(read.strides):
            start += step * point[axis]
            if step and self._tile[axis] != self._sizes[axis]:
                terms.append(f"{step} * i{axis}")
        if read.row:
            terms.append(f"{read.row} * row")
        return " + ".join([*terms, str(start)])

    def _local(self, text: str) -> str:
        if text not in self._locals:
            self._num_locals += 1
            self._locals[text] = f"v{self._num_locals}"
            self._lines.append(f"const auto {self._locals[text]} = {text};")
        return self._locals[text]


def _operations(term: Term) -> int:
    if isinstance(term, Reduce):
        return _operations(term.term)
    if not isinstance(term, Apply):
        return 1
    cost = 8 if term.name in _DEAR else 1
    return cost + sum(map(_operations, term.arguments))


def _loads(term: Term, tile: Sequence[int]) -> float:
    """Return how many numbers a tile reads; one of a table costs less."""
    loads = 0.0
    for read in reads(term):
        price = 0.3 if read.buffer.kind == "constant" else 1.0
        for size, stride in zip(tile, read.strides, strict=False):
            if stride:
                price *= size
        loads += price
    return loads


def _divisors(size: int, most: int) -> list[int]:
    return [n for n in range(1, min(size, most) + 1) if size % n == 0]

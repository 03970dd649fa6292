"""One row of the batch at a time: which stages can share one loop over the rows.

Computed stage by stage, every tensor would be written out for all rows and read again. Computed row
by row, what lies between two stages is one row's share, which stays in the nearest cache; only sums
over rows (gradients, the loss) are kept from row to row.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from attnlab.errors import not_none
from attnlab.simd.program import Stage
from attnlab.simd.terms import (
    Apply,
    Buffer,
    ElementRead,
    Reduce,
    Scalar,
    Term,
    contiguous,
    reads,
    with_reads,
)


@dataclass
class RowLoop:
    """Stages that run one after the other, `rows` times over."""

    rows: int
    stages: list[Stage]


_GIVEN = ("batch", "constant")


def by_rows(stages: Sequence[Stage]) -> list[RowLoop]:
    """Put the stages into parts, with as much work as possible in one loop over rows."""
    sizes = Counter[int]()
    for stage in stages:
        if stage.shape and 1 < stage.shape[0] <= 65_536:
            sizes[stage.shape[0]] += _work(stage)
    best, most = [RowLoop(1, _grouped(stages))], 0
    for rows, _ in sizes.most_common(4):
        parts = _Rows(stages, rows).parts()
        for part in parts:
            work = sum(map(_work, part.stages)) * rows
            if part.rows > 1 and work > most:
                best, most = parts, work
    return best


def reduce_of(term: Term) -> Reduce | None:
    """Return the sum in a term, of which there is at most one."""
    if isinstance(term, Apply):
        for argument in term.arguments:
            reduce = reduce_of(argument)
            if reduce is not None:
                return reduce
    return term if isinstance(term, Reduce) else None


@dataclass(frozen=True)
class _Axis:
    """The axis of a stage that the rows are the leading part of: its place (sums' axes come last),
    and the rest."""

    place: int
    rest: int


@dataclass
class _Placed:
    stage: Stage
    time: int
    axis: _Axis | None = None


class _Rows:
    """Places stages in time: 1, 3, … are loops over rows, 0, 2, … what comes between them.

    A buffer is `sliced` when it is made row by row: then the rows are apart by so many elements in
    it.
    """

    def __init__(self, stages: Sequence[Stage], rows: int) -> None:
        self.rows = rows
        self.sliced: dict[Buffer, int] = {}
        self.made: dict[Buffer, int] = {}
        self.placed: list[_Placed] = []
        self.waiting: dict[Buffer, list[Stage]] = {}
        self.given: set[Buffer] = set()
        for stage in stages:
            for read in _all_reads(stage):
                if read.buffer.kind in _GIVEN:
                    self.given.add(read.buffer)
        self.early = _early(stages, self.given, rows)
        self._place_in_order(stages)

    def parts(self) -> list[RowLoop]:
        """Return the stages as they will run."""
        kept_whole = self._kept_whole()
        last = max(placed.time for placed in self.placed)
        parts = []
        for time in range(last + 1):
            stages = [
                self._final(placed, kept_whole) for placed in self.placed if placed.time == time
            ]
            if stages:
                parts.append(RowLoop(self.rows if time % 2 else 1, _grouped(stages)))
        return parts

    def _place_in_order(self, stages: Sequence[Stage]) -> None:
        left = Counter(stage.target.buffer for stage in stages)
        for stage in stages:
            buffer = stage.target.buffer
            left[buffer] -= 1
            is_begun = buffer in self.sliced or buffer in self.made or self._has_sliced(stage)
            if is_begun or not left[buffer]:
                self._place(stage)
            else:  # zeros, to which the rows will be added
                self.waiting.setdefault(buffer, []).append(stage)

    def _has_sliced(self, stage: Stage) -> bool:
        return any(read.buffer in self.sliced for read in _all_reads(stage))

    def _place(self, stage: Stage) -> None:
        waiting = self.waiting.pop(stage.target.buffer, [])
        if stage in self.early:
            self.given.add(stage.target.buffer)
            self._add_whole([*waiting, stage])
            return
        axis = self._axis(stage) or self._axis_of_waiting(stage, waiting)
        if axis is None:
            self._add_whole([*waiting, stage])
        elif axis.place >= len(stage.shape):
            self._add_whole(waiting)
            self._place_sum(stage, axis)
        elif self._sums_rows(stage, axis):
            self._add_whole(waiting)
            self._add_total(stage, axis)
        elif not self._place_sliced(stage, axis, waiting):
            self._add_whole([*waiting, stage])

    def _axis_of_waiting(self, stage: Stage, waiting: Sequence[Stage]) -> _Axis | None:
        """Find the axis of a stage where another part of the same buffer begins the rows."""
        for other in waiting:
            first = self._first_axis(other)
            if first is not None:
                return self._axis(stage, other.target.strides[0] * first.rest)
        return None

    def _place_sliced(self, stage: Stage, axis: _Axis, waiting: Sequence[Stage]) -> bool:
        """Make a buffer row by row, with the stages that wait to fill it; False if that cannot
        be."""
        apart = stage.target.strides[axis.place] * axis.rest
        self.sliced[stage.target.buffer] = apart
        placed = []
        for other in waiting:
            other_axis = self._axis(other, apart)
            if other_axis is None:
                del self.sliced[stage.target.buffer]
                return False
            placed.append((other, other_axis))
        for other, other_axis in (*placed, (stage, axis)):
            self._add(other, other_axis)
        return True

    def _place_sum(self, stage: Stage, axis: _Axis) -> None:
        """Place a sum over rows."""
        reduce = reduce_of(stage.term)
        if reduce is not None and (reduce is not stage.term or stage.is_sum):
            self._place_split(stage, reduce)
        else:
            self._add_total(stage, axis)

    def _place_split(self, stage: Stage, reduce: Reduce) -> None:
        """A sum over rows is complete only after the loop, and so is what is made of it."""
        total = Buffer("temporary", math.prod(stage.shape))
        place = ElementRead(total, contiguous(stage.shape))
        self._place(Stage(stage.shape, place, reduce))
        self._place(replace(stage, term=_exchanged(stage.term, reduce, place)))

    def _add_whole(self, stages: Sequence[Stage]) -> None:
        """Place stages outside of the loops over rows."""
        for stage in stages:
            self._add(stage, None)

    def _add(self, stage: Stage, axis: _Axis | None) -> None:
        time = self._first_time(stage, is_in_loop=axis is not None)
        self.placed.append(_Placed(stage, time, axis))
        self._note_made(stage.target.buffer, time)

    def _add_total(self, stage: Stage, axis: _Axis) -> None:
        """Place what every row adds to: it starts from zeros, and is there after the loop."""
        time = self._first_time(stage, is_in_loop=True)
        if not stage.is_sum:
            self.placed.append(_Placed(Stage(stage.shape, stage.target, Scalar(0.0)), time - 1))
        self.placed.append(_Placed(replace(stage, is_sum=True), time, axis))
        self._note_made(stage.target.buffer, time + 1)

    def _first_time(self, stage: Stage, *, is_in_loop: bool) -> int:
        time = 0
        for read in _all_reads(stage):
            time = max(time, self.made.get(read.buffer, 0))
        # No stage reads gradients, and each writes a gradient of its own.
        if stage.target.buffer.kind != "gradient":
            time = max(time, self.made.get(stage.target.buffer, 0))
        return time + (time % 2 != is_in_loop)

    def _note_made(self, buffer: Buffer, time: int) -> None:
        self.made[buffer] = max(time, self.made.get(buffer, 0))

    def _sums_rows(self, stage: Stage, axis: _Axis) -> bool:
        return stage.is_sum and stage.target.strides[axis.place] == 0

    def _axis(self, stage: Stage, apart: int | None = None) -> _Axis | None:
        """Find the axis of a stage that goes through the rows of all that it reads."""
        apart = self.sliced.get(stage.target.buffer, apart)
        inputs = [read for read in _all_reads(stage) if read.buffer in self.sliced]
        if not inputs and apart is None:
            return self._first_axis(stage)
        for place, size in enumerate(sizes_of(stage)):
            axis = _Axis(place, size // self.rows)
            if size % self.rows == 0 and self._keeps_rows_apart(stage, axis, inputs, apart):
                return axis
        return None

    def _keeps_rows_apart(
        self, stage: Stage, axis: _Axis, inputs: Sequence[ElementRead], apart: int | None
    ) -> bool:
        """Does one row of the result need one row of each input, or is it a sum over them?"""
        reduce, sizes = reduce_of(stage.term), sizes_of(stage)
        is_own = axis.place < len(stage.shape)
        if not is_own and reduce is not None and reduce.name != "add":
            return False
        for read in inputs:
            if self._one_row(read, sizes, axis, self.sliced[read.buffer]) is None:
                return False
        if not is_own or self._sums_rows(stage, axis):
            return apart is None
        between = stage.target.strides[axis.place] * axis.rest
        if apart not in (None, between):
            return False
        return self._one_row(stage.target, sizes, axis, between) is not None

    def _first_axis(self, stage: Stage) -> _Axis | None:
        """Where rows begin: the first axis, if something that is given for each row is read along
        it."""
        if not stage.shape or stage.shape[0] % self.rows or isinstance(stage.term, Scalar):
            return None
        axis, step = _Axis(0, stage.shape[0] // self.rows), stage.target.strides[0]
        if not any(read.buffer in self.given and read.strides[0] for read in _all_reads(stage)):
            return None
        if self._sums_rows(stage, axis):
            return axis
        if self._one_row(stage.target, stage.shape, axis, step * axis.rest) is None:
            return None
        return axis

    def _one_row(
        self, read: ElementRead, sizes: Sequence[int], axis: _Axis, apart: int
    ) -> ElementRead | None:
        """Turn a read of all rows into a read of one row's share, which lies by itself; None if
        rows would mix."""
        if axis.place >= len(read.strides) or apart == 0:
            return None
        if read.strides[axis.place] * axis.rest != apart:
            return None
        # An address is (outer · rows + row) · apart + inner; every step must belong to one of them.
        outer, inner = divmod(read.offset, apart)
        if outer % self.rows:
            return None
        offset = outer // self.rows * apart + inner
        own_sizes = [*_with(tuple(sizes[: len(read.strides)]), axis.place, axis.rest)]
        steps = []
        for step, size in zip(
            (*read.strides, read.pick), (*own_sizes, read.pick_size), strict=True
        ):
            if size <= 1:
                step = 0
            elif step < apart:
                inner += step * (size - 1)
            elif step % (apart * self.rows):
                return None
            else:
                step //= self.rows
            steps.append(step)
        if inner >= apart:
            return None
        *strides, pick = steps
        return replace(read, strides=tuple(strides), offset=offset, pick=pick)

    def _kept_whole(self) -> set[Buffer]:
        """Find what is made row by row but needed elsewhere than in the same loop, as gradients
        are."""
        loops: dict[Buffer, set[int]] = {}
        for placed in self.placed:
            for read in (*_all_reads(placed.stage), placed.stage.target):
                if read.buffer in self.sliced:
                    loops.setdefault(read.buffer, set()).add(placed.time)
        buffers = set()
        for buffer, times in loops.items():
            if len(times) > 1 or buffer.kind != "temporary":
                buffers.add(buffer)
        return buffers

    def _final(self, placed: _Placed, kept_whole: set[Buffer]) -> Stage:
        stage, axis = placed.stage, placed.axis
        if axis is None:
            return stage
        sizes = sizes_of(stage)

        def changed(read: ElementRead) -> ElementRead:
            apart = self.sliced.get(read.buffer)
            if apart is None or read.buffer in kept_whole:
                return _row_of(read, axis)
            return not_none(self._one_row(read, sizes, axis, apart))

        target = with_reads(stage.target, changed)
        term = with_reads(stage.term, changed)
        assert isinstance(target, ElementRead)
        if axis.place < len(stage.shape):
            shape = _with(stage.shape, axis.place, axis.rest)
            return replace(stage, shape=shape, target=target, term=term)
        reduce = not_none(reduce_of(term))
        inner_sizes = _with(reduce.sizes, axis.place - len(stage.shape), axis.rest)
        changed_term = _exchanged(term, reduce, replace(reduce, sizes=inner_sizes))
        return replace(stage, target=target, term=changed_term)


def _row_of(read: ElementRead, axis: _Axis) -> ElementRead:
    """Read one row of what is there whole."""
    if axis.place >= len(read.strides):
        return replace(read, row=0)
    stride, strides = read.strides[axis.place], read.strides
    if axis.rest == 1:
        strides = _with(strides, axis.place, 0)
    return replace(read, strides=strides, row=stride * axis.rest)


def _with(numbers: tuple[int, ...], place: int, number: int) -> tuple[int, ...]:
    """Exchange one of them."""
    return (*numbers[:place], number, *numbers[place + 1 :])


def _early(stages: Sequence[Stage], given: set[Buffer], rows: int) -> set[Stage]:
    """Find what is computed before the loop, since every row needs the sum of all: how many tokens
    count, say.

    It must be known without the model, as must all that it is made of.
    """
    known, found = set(given), list[tuple[Stage, set[Buffer]]]()
    for stage in stages:
        inputs = {read.buffer for read in _all_reads(stage)}
        if inputs and inputs <= known and not stage.is_sum:
            known.add(stage.target.buffer)
            found.append((stage, inputs))
    early, wanted = set[Stage](), set[Buffer]()
    for stage, inputs in reversed(found):
        is_total = not stage.shape or stage.shape[0] % rows > 0
        if is_total or stage.target.buffer in wanted:
            early.add(stage)
            wanted |= inputs
    return early


def _all_reads(stage: Stage) -> Iterable[ElementRead]:
    yield from reads(stage.term)
    if stage.target.where is not None:
        yield stage.target.where


def _exchanged(term: Term, old: Reduce, new: Term) -> Term:
    if term is old:
        return new
    if isinstance(term, Apply):
        arguments = tuple(_exchanged(argument, old, new) for argument in term.arguments)
        return replace(term, arguments=arguments)
    return term


def sizes_of(stage: Stage) -> tuple[int, ...]:
    """Return the sizes of a stage's loops, those of its sum last."""
    reduce = reduce_of(stage.term)
    return stage.shape if reduce is None else stage.shape + reduce.sizes


def _work(stage: Stage) -> int:
    return math.prod(sizes_of(stage))


def _grouped(stages: Sequence[Stage]) -> list[Stage]:
    """Move each sum for a gradient to where its last input is made, so that nothing waits for it in
    the cache."""
    made: dict[Buffer, int] = {}
    places: dict[Stage, int] = {}
    for place, stage in enumerate(stages):
        if stage.target.buffer.kind == "gradient" or stage.is_sum:
            place = max(made.get(read.buffer, -1) for read in (*_all_reads(stage), stage.target))
        places[stage] = place
        made[stage.target.buffer] = max(place, made.get(stage.target.buffer, -1))
    return sorted(stages, key=places.__getitem__)

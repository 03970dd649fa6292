"""Join the steps of a cached generation: what one pass over all tokens would have shown.

Self-attention becomes one triangle, its rows as long as what each query could see; cross-attention
a panel of all queries over the same keys; everything else is laid end to end. Where a beam search
has put the rows in another order, each row is followed back to where it came from; where a cache
has let go of old keys, the others keep their places.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import torch
from torch import Tensor

from attnlab.errors import WrongUsage
from attnlab.look.recording.budget import Budget
from attnlab.look.recording.contents import Passed, Store
from attnlab.look.recording.kept_call import KeptCall, KeptMask, Made, working_bytes
from attnlab.look.recording.selection import Pick
from attnlab.look.recording.tokens import Read, first_key

__all__ = ["joined", "joined_store"]


def joined_store(store: Store) -> Store:
    """Return a store in which the last generation is one pass."""
    if not store.passed:
        raise WrongUsage(
            "nothing has been recorded yet; run the model inside the recording's context."
        )
    reads = list(store.reads)
    numbers: dict[int, int] = {}  # of the last step's reading -> of the joined one
    passed = {}
    for site in store.passed:
        whole = joined(store, site)
        for number in (whole.query, whole.key):
            if number is not None and number not in numbers:
                numbers[number] = len(reads)
                reads.append(_joined_read(reads, number))
        query, key = (
            None if number is None else numbers[number] for number in (whole.query, whole.key)
        )
        passed[site] = [replace(whole, query=query, key=key)]
    return replace(store, passed=passed, reads=reads)


def joined(store: Store, site: str) -> Passed:
    """Join the steps of the last generation at one site.

    Raises:
        WrongUsage: they do not fit together.
    """
    steps = _steps(store, site)
    if len(steps) == 1:
        return steps[0]
    name = site.rpartition(".")[2]
    if any(step.shape() is None for step in steps):
        raise WrongUsage(f"{site} was reduced; what is kept of single steps cannot be joined.")
    last, firsts = steps[-1], [_first_key(store, step, name) for step in steps]
    if name in ("key", "value"):
        if not any(firsts):
            return last
        return replace(
            last, held=_all_keys([step.value(site, store.budget) for step in steps], store, steps)
        )
    mask = (
        _joined_mask([step.mask for step in steps], firsts)
        if name in ("weights", "scores", "mask")
        else None
    )
    if isinstance(last.held, KeptMask):
        return replace(last, held=mask, mask=mask)
    if mask is not None and (call := _joined_call(site, steps, mask, store, firsts)) is not None:
        return replace(last, held=Made(call, last.held.what), mask=mask)
    return replace(
        last, held=_laid_out(site, name, steps, store.budget, firsts), mask=mask, gradient=None
    )


def _steps(store: Store, site: str) -> list[Passed]:
    entries = store.of(site)
    steps = [entries[-1]]
    for entry in reversed(entries[:-1]):
        number = steps[-1].query
        before = None if number is None else store.reads[number].before
        if before is None or entry.query != before:
            break
        steps.append(entry)
    first = steps[-1].query
    if first is not None and store.reads[first].offset:
        raise WrongUsage(
            f"the steps at {site} cannot be joined: the first {store.reads[first].offset} "
            "positions passed unrecorded. Record a generation from its beginning; one that "
            "guesses ahead and goes back, as with prompt lookup or an assistant, has no steps "
            "that follow one another."
        )
    steps = _in_the_last_order(store, site, steps)
    return steps[::-1]


def _in_the_last_order(store: Store, site: str, steps: Sequence[Passed]) -> list[Passed]:
    """Reorder the rows of earlier steps as in the last one; steps begin with the last."""
    found, rows = [], None
    for step in steps:
        found.append(
            step if rows is None else Pick(site, None, None, rows, store.budget).passed(step)
        )
        read = None if step.query is None else store.reads[step.query]
        if read is not None and read.rows is not None:
            rows = [
                read.row_before(row) for row in (range(read.shape[0]) if rows is None else rows)
            ]
    return found


def _first_key(store: Store, step: Passed, name: str) -> int:
    """Return the position of the first key of a step."""
    if (
        name not in ("key", "value", "weights", "scores", "mask")
        or step.query is None
        or step.key != step.query
    ):
        return 0
    read, shape = store.reads[step.query], step.shape()
    assert shape is not None
    num_keys = (
        step.held.num_keys
        if isinstance(step.held, KeptMask)
        else shape[-2 if name in ("key", "value") else -1]
    )
    return first_key(read.offset + read.shape[1], num_keys, read.offset)


def _all_keys(keys: Sequence[Tensor], store: Store, steps: Sequence[Passed]) -> Tensor:
    """Concatenate the new keys of each step, if the last one no longer holds all."""
    lengths = [store.reads[step.query].shape[1] for step in steps if step.query is not None]
    found = torch.cat(
        [each[..., -length:, :] for each, length in zip(keys, lengths, strict=True)], -2
    )
    store.budget.made(found)
    return found


def _joined_read(reads: Sequence[Read], number: int) -> Read:
    chain = [reads[number]]
    while chain[-1].before is not None:
        chain.append(reads[chain[-1].before])
    chain.reverse()
    if len(chain) == 1:
        return chain[0]
    rows = [list(range(chain[-1].shape[0]))]
    for read in reversed(chain[1:]):
        rows.append([read.row_before(row) for row in rows[-1]])
    ids, real = [], []
    for read, own in zip(chain, reversed(rows), strict=True):
        ids += [] if read.ids is None else [read.ids[own]]
        real.append(
            torch.ones(len(own), read.shape[1], dtype=torch.bool)
            if read.real is None
            else read.real[own]
        )
    return chain[-1]._replace(
        ids=torch.cat(ids, 1) if len(ids) == len(chain) else None,
        shape=(chain[-1].shape[0], sum(read.shape[1] for read in chain)),
        offset=chain[0].offset,
        real=torch.cat(real, 1) if any(read.real is not None for read in chain) else None,
        before=None,
        rows=None,
    )


def _joined_mask(given: Sequence[KeptMask | None], firsts: Sequence[int]) -> KeptMask:
    kept = [mask for mask in given if mask is not None]
    assert len(kept) == len(given)
    last, queries = kept[-1], sum(mask.num_queries for mask in kept)
    num_keys = last.num_keys + firsts[-1]
    if not any(firsts) and all(
        mask.num_keys == num_keys and _is_one_row(mask, last) for mask in kept
    ):
        return last._replace(num_queries=queries)  # a panel: all look at the same keys
    if not any(firsts) and _is_triangle(kept) and all(isinstance(mask.mask, str) for mask in kept):
        return last._replace(num_queries=queries)
    rows = [mask.part() for mask in kept]
    dtypes = {row.dtype for row in rows if row is not None and row.is_floating_point()}
    dtype = max(dtypes, key=lambda each: each.itemsize, default=torch.bool)
    hidden = False if dtype == torch.bool else float("-inf")
    parts = []
    for mask, row, first in zip(kept, rows, firsts, strict=True):
        allowed = (
            torch.ones(1, 1, mask.num_queries, mask.num_keys, dtype=torch.bool)
            if row is None
            else row
        )
        if dtype != allowed.dtype == torch.bool:
            allowed = (
                torch.zeros(allowed.shape, dtype=dtype)
                .to(allowed.device)
                .masked_fill(~allowed, hidden)
            )
        parts.append(
            torch.nn.functional.pad(
                allowed, (first, num_keys - first - mask.num_keys), value=hidden
            )
        )
    batch, head = (max(part.shape[axis] for part in parts) for axis in (0, 1))
    whole = torch.cat([part.expand(batch, head, -1, -1) for part in parts], 2)
    axes = max((mask.mask.dim() for mask in kept if isinstance(mask.mask, Tensor)), default=2)
    whole = whole.flatten(0, 4 - axes) if axes < 4 else whole
    return last._replace(mask=whole, num_queries=queries, num_keys=num_keys)


def _is_one_row(mask: KeptMask, other: KeptMask) -> bool:
    """Are two masks the same for all queries?"""
    if isinstance(mask.mask, Tensor) and isinstance(other.mask, Tensor):
        return mask.mask.shape[-2] == 1 and torch.equal(mask.mask, other.mask)
    return mask.mask is None and other.mask is None


def _is_triangle(masks: Sequence[KeptMask]) -> bool:
    first = masks[0].num_keys == masks[0].num_queries
    return first and all(
        after.num_keys == before.num_keys + after.num_queries for before, after in pairwise(masks)
    )


def _joined_call(
    site: str, steps: Sequence[Passed], mask: KeptMask, store: Store, firsts: Sequence[int]
) -> KeptCall | None:
    """Return the call that the steps' calls make up, if the last one still holds all their keys."""
    held, budget = [step.held for step in steps], store.budget
    if not all(isinstance(each, Made) for each in held):
        return None
    last = held[-1].call
    keys = _all_keys([each.call.keys for each in held], store, steps) if any(firsts) else last.keys
    for each, first in zip(held, firsts, strict=True):
        own = each.call.keys
        if each.call.scale != last.scale or not torch.equal(
            own, keys[..., first : first + own.shape[-2], :]
        ):
            return None
    queries = [each.call.query for each in held]
    budget.allow(site, sum(query.nbytes for query in queries))
    whole = torch.cat(queries, 2)
    budget.made(whole)
    return KeptCall(whole, keys, mask, last.scale)


def _laid_out(
    site: str, name: str, steps: Sequence[Passed], budget: Budget, firsts: Sequence[int]
) -> Tensor:
    shapes = [step.shape() for step in steps]
    last = shapes[-1]
    assert last is not None
    if len(last) < 3:
        raise WrongUsage(
            f"{site} has no position of its own, so that steps cannot be joined there."
        )
    values: list[Tensor] = [step.value(site, budget) for step in steps]
    width = last[-1] + (firsts[-1] if name in ("weights", "scores") else 0)
    whole = (*last[:-2], sum(value.shape[-2] for value in values), width)
    budget.allow(site, working_bytes(whole, values[-1].dtype))
    if name not in ("weights", "scores"):
        made = torch.cat(values, -2)
    else:
        made = values[-1].new_full(whole, 0.0 if name == "weights" else float("-inf"))
        start = 0
        for value, first in zip(values, firsts, strict=True):
            made[..., start : start + value.shape[-2], first : first + value.shape[-1]] = value
            start += value.shape[-2]
    budget.made(made)
    return made

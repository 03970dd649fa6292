"""The streams that an attention reads, and the steps that wrote to them."""

from itertools import chain, takewhile
from typing import NamedTuple

from torch import nn

from attnlab.errors import CouldNotRun, not_none
from attnlab.look.anatomy import AnatomyStep, HeadsStep, NormStep, block_steps
from attnlab.look.inputs import foreign_of
from attnlab.pretrained.model import Pretrained
from attnlab.sites import QUERY_ADVICE, STREAM_ADVICE, part_of, site_names, site_of


class Stream(NamedTuple):
    """A stream that queries or keys are made of: its site, its first site, and the steps that wrote
    to it."""

    site: str
    start: str
    steps: tuple[AnatomyStep, ...]


class Streams(NamedTuple):
    """The streams of queries and of keys, which differ in cross-attention alone."""

    query: Stream
    key: Stream


def stack_of_part(model: nn.Module, part: str) -> str:
    """Return the name of the stack that an attention is in; "" in a model of one."""
    block = part_of(part)
    if isinstance(model, Pretrained):
        return next(stack.name for stack in model.structure.stacks if block in stack.paths)
    return block.rpartition("layers")[0].rstrip(".")


def block_module(model: nn.Module, part: str) -> nn.Module:
    """Return the module that is the block of an attention, in a foreign model one of its own."""
    block = part_of(part)
    if not isinstance(model, Pretrained):
        return model.get_submodule(block)
    stack = next(stack for stack in model.structure.stacks if block in stack.paths)
    place = not_none(stack.blocks[stack.paths.index(block)].place)
    return model.foreign.get_submodule(place.path)


def heads_step(model: nn.Module, part: str) -> HeadsStep:
    """Return the step by which the heads of an attention write to the stream."""
    for step in chain.from_iterable(block_steps(model, stack_of_part(model, part))):
        if isinstance(step, HeadsStep) and step.point == part:
            return step
    raise AssertionError(f"{part} is no attention of a block")


def streams_of(model: nn.Module, part: str) -> Streams:
    """Find the streams that an attention reads.

    Raises:
        CouldNotRun: its queries, its keys or its stream are not seen.
    """
    stack = stack_of_part(model, part)
    blocks = block_steps(model, stack)
    before = tuple(
        takewhile(
            lambda step: not (isinstance(step, HeadsStep) and step.point == part),
            chain.from_iterable(blocks),
        )
    )
    is_cross = part.endswith("cross_attention")
    site = site_of(part_of(part), "residual_between" if is_cross else "residual_before")
    query = key = Stream(site, site_of(stack, "embedding"), before)
    if is_cross:
        steps = block_steps(model, "encoder")
        last = f"encoder.layers.{len(steps) - 1}.residual_after"
        key = Stream(last, "encoder.embedding", tuple(chain.from_iterable(steps)))
    wanted = {query.site, query.start, key.site, key.start, f"{part}.query", f"{part}.key"}
    lacking = wanted - set(site_names(model))
    if lacking:
        kind = type(foreign_of(model)).__name__
        advice = STREAM_ADVICE
        if lacking <= {f"{part}.query", f"{part}.key"}:
            advice = f"it has a softmax of its own; {QUERY_ADVICE}"
        raise CouldNotRun(
            f"queries and keys of this {kind} are not seen, no site {min(lacking)}: {advice}."
        )
    return Streams(query, key)


def blocks_before(part: str, stream: Stream) -> list[str]:
    """List the sites after the blocks that write to a stream before an attention, but for that of
    the stream itself."""
    steps = [step for step in stream.steps if not isinstance(step, NormStep)]
    blocks = {part_of(step.point if isinstance(step, HeadsStep) else step.name) for step in steps}
    sites = {site_of(block, "residual_after") for block in blocks if block != part_of(part)}
    return sorted(sites - {stream.site})

"""The positions of a model's inputs, named by their tokens."""

from collections.abc import Sequence

import torch
from torch import nn

from attnlab.errors import WrongUsage, did_you_mean
from attnlab.look.inputs import Call, foreign_of
from attnlab.look.recording.tokens import image_names, token_name, vocabulary_of
from attnlab.models.encoder_decoder import EncoderDecoder
from attnlab.pretrained.images import image_places
from attnlab.pretrained.model import Pretrained

_MOST_JOINED = 2  # tokens in the name of a position


def position_names(calls: Sequence[Call], model: nn.Module) -> dict[str, tuple[str, ...]]:
    """Name the positions of each stack by the tokens that are read there: `{"": ("a", "b / c")}`.

    Two different tokens at a position are joined by a slash; more leave it without a name. A
    position that shows an image has the name of its place there. A stack that reads vectors is left
    out.
    """
    vocabulary = vocabulary_of(model, None)
    config = getattr(foreign_of(model), "config", None)
    names_by_stack = {}
    for stack in stacks_of(model):
        ids, places = [], []
        for call in calls:
            call_ids = call.ids_of(stack)
            if call_ids is not None:
                ids.append(call_ids)
                grid = call.options.get("image_grid_thw")
                places.append(image_places(config, call_ids, grid))
        if len(ids) != len(calls):
            continue
        names = []
        for column in torch.cat(ids).T.tolist():
            tokens = [token_name(token, vocabulary) for token in dict.fromkeys(column)]
            names.append(" / ".join(tokens) if len(tokens) <= _MOST_JOINED else "")
        shown = [place for place in places if place is not None]
        if len(shown) == len(calls) and (torch.cat(shown) == shown[0][:1]).all():
            names = image_names(names, shown[0][0])
        names_by_stack[stack] = tuple(names)
    return names_by_stack


def stacks_of(model: nn.Module) -> tuple[str, ...]:
    """Return the names of the stacks that read tokens; one stack has the name ""."""
    if isinstance(model, EncoderDecoder):
        return "encoder", "decoder"
    if isinstance(model, Pretrained):
        return tuple(model.structure.names)
    return ("",)


def stack_at(path: str) -> str:
    """Return the stack that a part or site belongs to.

    >>> stack_at("decoder.layers.0.attention"), stack_at("layers.0.attention")
    ('decoder', '')
    """
    first = path.partition(".")[0]
    return first if first in ("encoder", "decoder") else ""


def position_at(what: str, place: int | str | None, names: Sequence[str]) -> int:
    """Return a position, given as a number or as the name of a token that is there once."""
    if isinstance(place, str):
        return _place_named(what, place, names)
    size = len(names)
    if isinstance(place, bool) or not isinstance(place, int) or not -size <= place < size:
        raise WrongUsage(f"{what}: positions go from {-size} to {size - 1}; got {place!r}.")
    return place % size


def _place_named(what: str, token: str, names: Sequence[str]) -> int:
    there = [index for index, name in enumerate(names) if name == token]
    if not there:
        there = [index for index, name in enumerate(names) if _bare(name) == _bare(token)]
    if not there:
        known = did_you_mean(_bare(token), map(_bare, names))
        raise WrongUsage(f"{what}: no token is {token!r}; {known}")
    if len(there) > 1:
        at = ", ".join(map(str, there))
        raise WrongUsage(f"{what}: {token!r} is there more than once, at {at}; give a position.")
    return there[0]


def _bare(name: str) -> str:
    return name.strip(" ␣▁Ġ")

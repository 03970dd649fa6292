"""From recordings to patterns, whose weights are read when they are needed, and summary maps."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from attnlab.draw.attention.bare_weights import patterns_from_weights, with_tokens
from attnlab.draw.attention.pattern import CAUSAL, Pattern, numbered, to_array
from attnlab.draw.attention.summary_maps import SummaryMaps, maps_of_recorded
from attnlab.errors import CouldNotRun, WrongUsage, type_words
from attnlab.look.heads import head_at
from attnlab.look.recording.contents import NOTHING_YET
from attnlab.look.recording.recording import Recording
from attnlab.shapes import shape_text


def to_patterns(recording: Any, row: int = 0, tokens: Any = None) -> list[Pattern]:
    """Turn a recording of weights into patterns.

    Raises:
        WrongUsage: no weights, no such row, or a recording of summaries.
    """
    drawable = to_drawable(recording, row, tokens)
    patterns = [item for item in drawable if isinstance(item, Pattern)]
    if len(patterns) < len(drawable):
        raise WrongUsage(
            "the recording holds summaries, not weights; draw a map of one with draw_long_map, "
            "such as draw_long_map(summary.map_max[row, head], num_queries=..., num_keys=...), "
            "or show all with view_page."
        )
    return patterns


def to_drawable(recording: Any, row: int = 0, tokens: Any = None) -> "list[Pattern | SummaryMaps]":
    """Turn a recording into patterns or summary maps, one for each site of weights, in order.

    The last of several forward passes is taken. The steps of a generation with a key/value cache
    are joined into one pass, unless `why_unjoined` gives a reason against it.

    Args:
        recording: the result of `record`, a mapping of site names to weights (batch, head, query,
            key), a pattern, a list of patterns, or weights as in `bare_weights.py`. Without tokens,
            places are numbered.
        row: which input of the batch.
        tokens: other names for the places: a list of texts, a pair (of the queries, of the keys),
            or lists by stack, `{"encoder": …, "decoder": …}`.

    Raises:
        WrongUsage: no weights, or no such row.
    """
    return [with_tokens(item, tokens) for item in _drawable(recording, row)]


def _drawable(recording: Any, row: int) -> "list[Pattern | SummaryMaps]":
    if isinstance(recording, Pattern | SummaryMaps):
        return [recording]
    patterns = patterns_from_weights(recording, row)
    if patterns is not None:
        return patterns
    if isinstance(recording, Mapping):
        return _of_sites(recording, row)
    kind = type_words(recording)
    if isinstance(recording, Sequence):
        if recording and all(isinstance(item, Pattern | SummaryMaps) for item in recording):
            return list(recording)
        kind = f"{kind} without any"
    raise WrongUsage(
        f"expected a recording, weights, a pattern or a list of patterns; got {kind}. "
        "attnlab.record makes a recording; attnlab.show also takes a model, a run or a table of "
        "effects; other results are printed."
    )


def _of_sites(recording: Mapping[str, object], row: int) -> "list[Pattern | SummaryMaps]":
    if isinstance(recording, Recording) and not recording:
        raise WrongUsage(NOTHING_YET)
    whole, _ = _joined(recording)
    sites = _weights_of(whole)
    if not sites:
        known = ", ".join(map(str, recording)) or "nothing"
        raise WrongUsage(
            "nothing to draw: record weights, such as 'layers.*.attention.weights'; the "
            f"recording has {known}."
        )
    return [_recorded(whole, site, row) for site in sites]


def why_unjoined(recording: Any) -> str:
    """Return why only the last step of a cached generation can be shown; empty if all can."""
    return _joined(recording)[1]


def _weights_of(recording: Mapping[str, object]) -> list[str]:
    return [site for site in recording if site.split(".")[-1] == "weights"]


def _joined(recording: Any) -> tuple[Any, str]:
    """Join the steps of a generation; also return the reason if that is not possible."""
    if not hasattr(recording, "joined"):
        return recording, ""
    try:
        return recording.select(_weights_of(recording)).joined(), ""
    except (WrongUsage, CouldNotRun) as why:
        return recording, str(why)


def _recorded(recording: Any, site: str, row: int) -> Pattern | SummaryMaps:
    if not hasattr(recording, "tile"):
        weights = recording[site]
        _check_row(site, tuple(weights.shape), row)
        queries, keys = map(numbered, weights.shape[2:])
        return Pattern(site, weights[row], queries, keys)
    if not _has_shape(recording, site):
        if not hasattr(recording[site], "map_mean"):
            raise WrongUsage(
                f"{site!r} was reduced to {type_words(recording[site])}, which has no map to draw."
            )
        return maps_of_recorded(recording, site, row)
    shape = tuple(recording.shape(site))
    _check_row(site, shape, row)
    sides = recording.tokens(site, row)
    blocked = recording.blocked(site, row)
    if blocked is not None:
        blocked = to_array(blocked, np.bool_)
        if np.array_equal(blocked, np.arange(shape[3]) > np.arange(shape[2])[:, None]):
            blocked = CAUSAL  # saves a long map for every layer
    known = recording.model.get("heads", {})
    labels = tuple(known.get(head_at(site, head), "") for head in range(shape[1]))
    queries, keys = tuple(sides.query), tuple(sides.key)
    return Pattern(site, _OnDemand(recording, site, row), queries, keys, blocked, labels=labels)


def _check_row(site: str, shape: tuple[int, ...], row: int) -> None:
    """Raise unless a site has weights of this input."""
    if len(shape) != 4:
        raise WrongUsage(f"{site!r} must be (batch, head, query, key); got {shape_text(shape)}.")
    if not 0 <= row < shape[0]:
        raise WrongUsage(f"{site!r} has rows 0 to {shape[0] - 1}; got row {row}.")


def _has_shape(recording: Any, site: str) -> bool:
    """Does a site hold weights, not a reduction? Asking for the shape computes no weights."""
    try:
        recording.shape(site)
    except WrongUsage:
        return False
    return True


class _OnDemand:
    """The weights of a recording, computed when they are read."""

    def __init__(self, recording: Any, site: str, row: int) -> None:
        self.shape = tuple(recording.shape(site)[1:])
        self._recording, self._site, self._row = recording, site, row

    def __getitem__(self, where: tuple[int, slice]) -> Any:
        head, queries = where
        return self._recording.tile(self._site, head=head, queries=queries, row=self._row)

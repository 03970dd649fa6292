"""What a figure of attention carries in its file: weights, the line that draws it, edits."""

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

from attnlab.core.store import JsonObject
from attnlab.display import displayed
from attnlab.draw.attention.pattern import CAUSAL, Pattern, to_array
from attnlab.draw.carried import carried_in
from attnlab.draw.sections import ReportContent
from attnlab.draw.wire import pack, unpack
from attnlab.errors import AttnlabError, CouldNotRun
from attnlab.look.recording import Recording

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST_WEIGHTS = 1_000_000  # in a file
_CONTENTS: "WeakKeyDictionary[Figure, Callable[[], JsonObject]]" = WeakKeyDictionary()


@displayed
@dataclass(frozen=True)
class FigureContents:
    """What a figure's file carries, read again by `attnlab.open`.

    patterns, others: the weights that were drawn, and the second ones of a difference; none where
    they were too many · code: the line that draws it again, where `figure` is this · edits: as
    JSON, for `attnlab.edits.edits_from_json` · model: its kind and configuration · seed: if known ·
    link: of the lab's page, `#v=1&…` · report: of a picture of a run, its section alone.
    """

    patterns: tuple[Pattern, ...] = ()
    others: tuple[Pattern, ...] = ()
    code: str = ""
    edits: tuple[JsonObject, ...] = ()
    model: JsonObject | None = None
    seed: int | None = None
    link: str = ""
    report: ReportContent | None = None


def remember(
    figure: "Figure",
    line: str,
    recordings: Sequence[Any],
    patterns: Sequence[Sequence[Pattern]],
) -> "Figure":
    """Remember what `save_figure` writes into the file of a figure, and return the figure."""
    _CONTENTS[figure] = partial(contents_for, line, recordings, patterns)
    return figure


def contents_for(
    line: str, recordings: Sequence[Any], patterns: Sequence[Sequence[Pattern]]
) -> JsonObject:
    """Return what a figure of these patterns carries, as plain values: weights if they are few."""
    edits: list[JsonObject] = []
    models = []
    for recording in recordings:
        if isinstance(recording, Recording):
            edits += recording.edits
            models.append(recording.model)
    contents: JsonObject = {"attnlab": 1, "code": line, "edits": edits, "model": None}
    if models:
        contents["model"] = models[0]
    num_weights = sum(prod(pattern.shape) for every in patterns for pattern in every)
    if num_weights <= _MOST_WEIGHTS:
        contents |= {"patterns": [], "others": []}
        for name, every in zip(("patterns", "others"), patterns, strict=False):
            contents[name] = list(map(_to_json, every))
    return contents


def contents_of(figure: "Figure", seed: int | None) -> JsonObject | None:
    """Return what a figure carries as plain values; None for a kind of figure that does not."""
    contents = _CONTENTS.get(figure)
    return None if contents is None else {**contents(), "seed": seed}


def open_figure(path: Path) -> FigureContents:
    """Read what a PNG, SVG or HTML file carries.

    Raises:
        CouldNotRun: it carries nothing, or what it carries is damaged.
    """
    try:
        form = carried_in(path.read_bytes())
        if form is not None:
            return _from_json(form)
    except OSError as error:
        raise CouldNotRun(f"could not read {path}: {error.strerror}.") from None
    except AttnlabError as error:
        raise CouldNotRun(f"could not read {path}: {error}") from None
    except (ValueError, TypeError, KeyError, AttributeError, zlib.error, RecursionError) as error:
        raise CouldNotRun(f"what {path} carries is damaged: {error}.") from None
    raise CouldNotRun(
        f"{path} carries nothing: pictures of runs do, those of the lab's page, pages of "
        "attnlab.show, and figures of attnlab.plot.head, heads and difference, saved by "
        "attnlab.plot.save."
    )


def _from_json(form: JsonObject) -> FigureContents:
    if form.get("attnlab") != 1:
        raise CouldNotRun(f"it is of version {form.get('attnlab')!r}; this attnlab reads 1.")
    report = form.get("report")
    if report is not None:
        report = ReportContent.from_json(report)
    return FigureContents(
        patterns=tuple(map(_pattern, form.get("patterns", []))),
        others=tuple(map(_pattern, form.get("others", []))),
        code=str(form.get("code", "")),
        edits=tuple(form.get("edits", [])),
        model=form.get("model"),
        seed=form.get("seed"),
        link=str(form.get("link", "")),
        report=report,
    )


def _to_json(pattern: Pattern) -> JsonObject:
    heads = [to_array(pattern.weights[head, :], "<f4") for head in range(pattern.num_heads)]
    blocked = pattern.blocked
    if not (blocked is None or isinstance(blocked, str)):
        blocked = pack(to_array(blocked, np.bool_))
    return {
        "site": pattern.site,
        "query_tokens": pattern.query_tokens,
        "key_tokens": pattern.key_tokens,
        "weights": pack(np.stack(heads)),
        "blocked": blocked,
        "caution": pattern.caution,
        "labels": pattern.labels,
    }


def _pattern(form: JsonObject) -> Pattern:
    queries, keys = tuple(form["query_tokens"]), tuple(form["key_tokens"])
    weights = unpack(form["weights"], _MOST_WEIGHTS)
    blocked = form["blocked"]
    if blocked not in (None, CAUSAL):
        blocked = unpack(blocked, _MOST_WEIGHTS) != 0
    labels = tuple(map(str, form.get("labels", ())))
    return Pattern(form["site"], weights, queries, keys, blocked, form["caution"], labels)

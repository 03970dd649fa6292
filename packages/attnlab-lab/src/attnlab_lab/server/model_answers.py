"""What a pretrained model, or that of a run, makes of a text: every head in four means, one head's
weights, and the answer, each before edits and after. A part of the process with torch.
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path

import torch
from torch import Tensor, nn

from attnlab.core.sizes import count_numbers
from attnlab.draw.wire import pack
from attnlab.edits import CutEdge, Edit, ZeroHead, edit
from attnlab.errors import CouldNotRun, WrongUsage, typed
from attnlab.experiments.model_loader import is_ours, load_pretrained
from attnlab.experiments.population import open_run_or_member
from attnlab.look.heads import (
    attentions,
    head_at,
    heads_named,
    layer_name,
    number_of_heads,
    read_head,
)
from attnlab.look.inputs import Call
from attnlab.look.pretrained_questions import (
    TextAnswer,
    TextChoice,
    TextContinuation,
    TextReading,
    example_text,
    question_of,
)
from attnlab.look.questions import PassInputs, Question
from attnlab.look.recording import Recording, record
from attnlab.look.score_terms import ScoreTerms, why_of
from attnlab.look.summaries import Summarize
from attnlab.pretrained.model import Pretrained
from attnlab_lab.server.heads import packed_head
from attnlab_lab.server.patch_answers import has_one_answer, patch_map

_MODELS = 2  # that stay open
_MOST_TOKENS = 4_096
_WINDOW = 512  # queries and keys of which all weights are sent; of longer texts, a part
_CELLS = 64  # along each side of the map of a whole text
_TOP = 5  # likeliest answers before the edits, and after
_MOST_TERMS = 12  # of a score
_MOST_PLACES = 4  # with an answer, those that changed most


@dataclass(frozen=True)
class _Opened:
    """A model that is open, the heads of its parts, what it reads in words, and a first text."""

    model: nn.Module
    sizes: dict[str, int]
    ask: Callable[[str], Question]
    expected: str
    first: str


@dataclass(frozen=True)
class _Place:
    """Where an answer is given: the probability of each name."""

    title: str
    names: Sequence[str]
    shares: Tensor


@dataclass(frozen=True)
class _Pass:
    """One pass over a text, with summaries of all heads; vectors if the model makes no choice."""

    recording: Recording
    summaries: Recording
    means: dict[str, list[float | None]]
    places: list[_Place]
    vectors: Tensor | None


def _open_model(name: str) -> dict[str, object]:
    """Open a model, and return its facts."""
    opened = _opened(name, _written(name))
    model = opened.model
    foreign = getattr(model, "foreign", model)
    return {
        "family": type(foreign).__name__,
        "parameters": count_numbers(foreign.parameters()),
        "layers": [[layer_name(part), size] for part, size in opened.sizes.items()],
        "notes": list(getattr(model, "notes", ())),
        "expected": opened.expected,
        "first": opened.first,
    }


def _ask_model(
    name: str, text: str, edits: Sequence[object], head: str = "", at: Sequence[int] | None = None
) -> dict[str, object]:
    """Return the tokens of a text, the means of all heads, the answer, and the weights and scores
    of one head, the first if there is none of this name; each before and after.

    at: the first query and key of the part that is shown of a long text; None for its end.
    """
    written = _written(name)
    before = after = _passed(name, written, text, "[]")
    if edits:
        after = _passed(name, written, text, json.dumps(edits))
    question, inputs = _asked(name, written, text)
    heads = []
    for head_name, means in before.means.items():
        heads.append({"name": head_name, "before": means, "after": after.means[head_name]})
    if head not in before.means:
        head = next(iter(before.means))
    answer: dict[str, object] = {
        "head": head,
        "tokens": next(iter(inputs.words.values())),
        "heads": heads,
        "places": _compared(before.places, after.places),
        "has_one_answer": has_one_answer(question),
    }
    if before.vectors is not None and after.vectors is not None:
        was, now = before.vectors.double(), after.vectors.double()
        moved = torch.cosine_similarity(was, now, dim=-1)
        answer["cosine"] = float(torch.cosine_similarity(was.mean(0), now.mean(0), dim=0))
        answer["moved"] = {"token": int(moved.argmin()), "cosine": float(moved.min())}
    answer["shown"] = _one_head(head, _opened(name, written).sizes, before, after, at)
    return answer


def _one_head(
    head: str, sizes: Mapping[str, int], before: _Pass, after: _Pass, at: Sequence[int] | None
) -> dict[str, object]:
    """Return the weights and scores of one head, before and after; of a long text those of a part,
    and a map of the whole."""
    [(part, [number])] = heads_named([head], sizes).items()
    sites = [f"{part}.{kind}".lstrip(".") for kind in ("weights", "scores")]
    sides = before.recording.tokens(sites[0])
    starts = at or (len(sides.query), len(sides.key))
    queries, keys = (_part_of(len(side), start) for side, start in zip(sides, starts, strict=True))
    both = {"before": before, "after": after}
    answer: dict[str, object] = {
        "at": [queries.start, keys.start],
        "queries": sides.query[queries],
        "keys": sides.key[keys],
    }
    for when, passed in both.items():
        tile = partial(passed.recording.tile, head=number, queries=queries, keys=keys)
        answer[when] = packed_head(head, *map(tile, sites))
    lengths = list(map(len, sides))
    if max(lengths) <= _WINDOW:
        return answer
    whole = {when: passed.summaries[sites[0]] for when, passed in both.items()}
    answer["lengths"] = lengths
    answer["cell"] = whole["before"].cells.tolist()
    answer["whole"] = {when: pack(summary.map_max[0, number]) for when, summary in whole.items()}
    return answer


def _part_of(length: int, start: int) -> slice:
    """Return the positions that are shown: all of a short text, a part of a long one."""
    first = max(0, min(start, length - _WINDOW))
    return slice(first, min(length, first + _WINDOW))


def _why_cell(name: str, text: str, head: str, query: int, key: int) -> dict[str, object]:
    """Take the score of a cell apart, as the model computes it without edits."""
    question, inputs = _asked(name, _written(name), text)
    call = Call(inputs.arguments, inputs.options, 1)
    terms = why_of(
        question.model, call, inputs.words,
        head=head, query=query, key=key, against=None, target=None,
    )  # fmt: skip
    assert isinstance(terms, ScoreTerms)
    shown = terms.top(_MOST_TERMS)
    return {
        "score": terms.score,
        "weight": terms.weight,
        "position": terms.position,
        "terms": shown,
        "others": terms.terms.numel() - len(shown),
        "rest": float(terms.terms.sum()) - sum(term for _, _, term in shown),
    }


def _patch_model(
    name: str, clean: str, corrupted: str, target: str = "", kind: str = "stream"
) -> dict[str, object]:
    """Patch a clean text into a corrupted one, place by place."""
    return patch_map(_opened(name, _written(name)).model, clean, corrupted, target, kind)


WORK: dict[str, Callable[..., object]] = {
    "open_model": _open_model,
    "ask_model": _ask_model,
    "patch_model": _patch_model,
    "why_cell": _why_cell,
}


def _written(name: str) -> int:
    """Return when a model's file, or the newest in its folder, was written; 0 for a hub id."""
    try:
        files = os.scandir(name) if os.path.isdir(name) else ()
        return max(os.stat(name).st_mtime_ns, *(file.stat().st_mtime_ns for file in files), 0)
    except (OSError, ValueError):
        return 0


_open: dict[tuple[str, int], _Opened] = {}
"""The models that are open, the one used last at the end."""


def _opened(name: str, written: int) -> _Opened:
    """Return a model, opened if it is not; it stays open until it is written anew."""
    key = (name, written)
    if key not in _open:
        _close_others(_MODELS - 1)
        try:
            _open[key] = _open_any(name)
        except CouldNotRun:
            if not _open:
                raise
            _close_others(0)  # which may have taken the memory
            _open[key] = _open_any(name)
    _open[key] = _open.pop(key)
    return _open[key]


def _close_others(most: int) -> None:
    """Close the models that were not used for longest, and forget what was asked of them."""
    while len(_open) > most:
        del _open[next(iter(_open))]
    _asked.cache_clear()
    _passed.cache_clear()


def _open_any(name: str) -> _Opened:
    """Open a model of ours or another. No code of its own is run."""
    try:
        if "/" not in name and not os.path.exists(name):
            raise CouldNotRun(f"there is no run, folder or file {name[:200]!r}.")
        if not is_ours(name):
            return _open_pretrained(name)
        report = open_run_or_member(Path(name))
    except OSError as error:
        raise CouldNotRun(f"could not open {name[:200]}: {error.strerror or error}.") from None
    model, reader = report.model.eval(), report.reader
    ask = partial(reader.ask, model)
    return _Opened(model, sizes_of(model), ask, reader.prompt, reader.example)


def _open_pretrained(name: str) -> _Opened:
    model = load_pretrained(name)
    question_of(model, "a text")  # one that reads no text is refused here
    first, mask = example_text(model), getattr(model.tokenizer, "mask_token", None)
    expected = f"a text with {mask} in place of a word" if mask and mask in first else "a text"
    return _Opened(model, sizes_of(model), partial(_ask_pretrained, model, name), expected, first)


def sizes_of(model: nn.Module) -> dict[str, int]:
    """Return the number of heads of each attention of a model."""
    return {part: number_of_heads(model, part) for part in attentions(model)}


def _ask_pretrained(model: Pretrained, name: str, text: str) -> Question:
    length = model.inputs(text)["input_ids"].shape[1]
    if length > _MOST_TOKENS:
        raise WrongUsage(
            f"this text has {length:,} tokens, and this room shows at most {_MOST_TOKENS}: keep "
            f"the text in a file, and read it with attnlab look {typed(name)} --document FILE."
        )
    return question_of(model, text)


@lru_cache(maxsize=4)
def _asked(name: str, written: int, text: str) -> tuple[Question, PassInputs]:
    question = _opened(name, written).ask(text)
    return question, question.pass_inputs()


@lru_cache(maxsize=3)
def _passed(name: str, written: int, text: str, edits: str) -> _Pass:
    """Run the model over the tokens that it reads without edits."""
    question, inputs = _asked(name, written, text)
    model, vocabulary = question.model, question.vocabulary
    changes = [_edit_of(**change) for change in json.loads(edits)]
    changed = edit(model, *changes, vocabulary=vocabulary, certify=False)
    with changed if changes else nullcontext(), torch.no_grad():
        with (
            record(model, "*weights", reduce=Summarize(tiles=_CELLS, top=1)) as summaries,
            record(model, ["*weights", "*scores"], vocabulary=vocabulary) as recording,
        ):
            output = model(*inputs.arguments, **inputs.options)
        places = _places(question, inputs, output)
    vectors = None
    if type(question) is TextReading:
        vectors = output[0].reshape(-1, output.shape[-1])
    named = recording.named(inputs.words)
    return _Pass(named, summaries, _means(named, summaries), places, vectors)


def _edit_of(head: str, query: int | None = None, key: int | None = None) -> Edit:
    """Return what a change means: a head that is knocked out, or an edge of it that is cut."""
    where = read_head(head)
    if query is None and key is None:
        return ZeroHead(**where)
    return CutEdge(**where, query=query, key=key)


def _places(question: Question, inputs: PassInputs, output: Tensor) -> list[_Place]:
    """List the places of a text at which the model chooses, with its probabilities."""
    if isinstance(question, TextContinuation):
        return [_Place("", question.vocabulary, output[0, -1].softmax(-1))]
    if isinstance(question, TextAnswer):
        words = inputs.words["decoder"]
        rows = zip(words, output[0].softmax(-1), strict=True)
        return [_Place(f"After {word}", question.vocabulary, row) for word, row in rows]
    if isinstance(question, TextChoice):
        return _choices(question, inputs, output)
    if isinstance(question, TextReading):
        return []
    steps = question.trace().steps  # of a run: under the edits it may choose other tokens
    return [
        _Place(f"Step {number}", step.candidates, torch.tensor(step.probabilities))
        for number, step in enumerate(steps, 1)
    ]


def _choices(question: TextChoice, inputs: PassInputs, output: Tensor) -> list[_Place]:
    titles, rows = [""], output  # one answer, to the whole text
    if question.places is not None:
        words = next(iter(inputs.words.values()))
        titles = [f"At {place} {words[place]}" for place in question.places]
        rows = output[0, list(question.places)]
    if rows.shape[-1] > 1:  # else it is a number, no choice
        rows = rows.sigmoid() if question.is_each else rows.softmax(-1)
    return [_Place(title, question.names, row) for title, row in zip(titles, rows, strict=True)]


def _compared(before: list[_Place], after: list[_Place]) -> list[dict[str, object]]:
    """Return the likeliest answers with both probabilities, at the places that changed most."""
    changes = []
    for was, now in zip(before, after, strict=False):
        changes.append(float((now.shares - was.shares).abs().sum()))
    ranked = torch.tensor(changes).argsort(descending=True, stable=True)
    places: list[dict[str, object]] = []
    for place in ranked[:_MOST_PLACES].sort().values.tolist():
        was, now = before[place], after[place]
        most = min(_TOP, len(was.shares))
        best = was.shares.topk(most).indices.tolist() + now.shares.topk(most).indices.tolist()
        rows = []
        for id in dict.fromkeys(best):
            rows.append([was.names[id], float(was.shares[id]), float(now.shares[id])])
        places.append({"title": was.title, "rows": rows})
    return places


def _means(recording: Recording, summaries: Recording) -> dict[str, list[float | None]]:
    """Name every head with four means over its queries: the weight on the first key, on the one
    before, on itself, and the entropy; None where there is none."""
    means: dict[str, list[float | None]] = {}
    for site, summary in summaries.items():
        sides = recording.tokens(site)
        measures = [summary.first, summary.previous, summary.own, summary.entropy]
        rows = torch.stack([measure[0].mean(-1) for measure in measures], -1)
        for head, row in enumerate(rows.tolist()):
            if sides.query != sides.key:
                row[1:3] = [None, None]
            means[head_at(site, head)] = row
    return means

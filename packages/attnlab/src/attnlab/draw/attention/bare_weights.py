"""Weights without a recording: tensors, arrays, and the `attentions` of Hugging Face's models.

(query, key) is one head, (head, query, key) one attention, and a list of these one per layer.
Hugging Face returns a tuple of (batch, head, query, key), one per layer; its `generate` returns
such a tuple per step.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from attnlab.draw.attention.pattern import CAUSAL, Pattern, numbered, to_array
from attnlab.draw.attention.summary_maps import SummaryMaps, maps_of_summary
from attnlab.errors import WrongUsage, type_words
from attnlab.look.summaries import Summary
from attnlab.shapes import shape_text

_OUTPUTS = {
    "attentions": "layers.{}.attention.weights",
    "encoder_attentions": "encoder.layers.{}.attention.weights",
    "decoder_attentions": "decoder.layers.{}.attention.weights",
    "cross_attentions": "decoder.layers.{}.cross_attention.weights",
}
_TOLERANCE = 0.02  # of a row's sum, in half precision
_TOKENS = (
    "tokens are a list of texts, a pair of lists (of the queries, of the keys), or lists by stack "
    "{'encoder': …, 'decoder': …}"
)


def patterns_from_weights(weights: Any, row: int) -> list[Pattern | SummaryMaps] | None:
    """Turn weights into patterns, one for each layer; None for anything that is no weights.

    Raises:
        WrongUsage: the axes are ambiguous, or the numbers are no weights.
    """
    if isinstance(weights, Summary):
        return [_of_summary(weights, row)]
    if weights is None:
        raise WrongUsage(_no_attentions())
    if isinstance(weights, Mapping):
        return _of_outputs(weights, row)
    if hasattr(weights, "shape") and hasattr(weights, "dtype"):
        return _of_tensor(weights, row)
    is_list = isinstance(weights, Sequence) and not isinstance(weights, str) and len(weights) > 0
    if not is_list or isinstance(weights[0], Pattern | SummaryMaps):
        return None
    return _of_layers(weights, row, _OUTPUTS["attentions"])


def _of_outputs(outputs: Mapping[str, object], row: int) -> list[Pattern | SummaryMaps] | None:
    """Turn the outputs of a model into patterns; None for another mapping."""
    drawable: list[Pattern | SummaryMaps] = []
    for name, site in _OUTPUTS.items():
        if outputs.get(name) is not None:
            drawable += _of_layers(outputs[name], row, site)
    if not drawable and hasattr(outputs, "to_tuple"):  # a model that did not return its attentions
        raise WrongUsage(_no_attentions())
    return drawable or None


def with_tokens(drawn: Pattern | SummaryMaps, tokens: Any) -> Pattern | SummaryMaps:
    """Return a pattern with other tokens; fewer queries than keys are the last of the tokens.

    Raises:
        WrongUsage: no tokens, or not as many as there are queries and keys.
    """
    if tokens is None:
        return drawn
    queries, keys = _two_sides(drawn.site, tokens)
    _, num_queries, num_keys = drawn.shape
    if len(keys) == num_keys and queries == keys and num_queries < num_keys:
        queries = queries[-num_queries:]
    if (len(queries), len(keys)) != (num_queries, num_keys):
        raise WrongUsage(
            f"{drawn.site!r} has {num_queries} queries and {num_keys} keys; got tokens for "
            f"{len(queries)} and {len(keys)}. {_TOKENS[0].upper()}{_TOKENS[1:]}."
        )
    return replace(drawn, query_tokens=queries, key_tokens=keys)


def _two_sides(site: str, tokens: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the tokens of the queries and of the keys at a site."""
    if isinstance(tokens, Mapping):
        queries = site.partition(".")[0]
        keys = "encoder" if ".cross_attention." in site else queries
        if not {queries, keys} <= set(tokens) <= {"encoder", "decoder"}:
            names = ", ".join(map(str, tokens)) or "none"
            raise WrongUsage(f"{_TOKENS}; for {site!r} got {names}.")
        return _words(tokens[queries]), _words(tokens[keys])
    if len(tokens) == 2 and not any(isinstance(token, str | int) for token in tokens):
        return _words(tokens[0]), _words(tokens[1])
    return _words(tokens), _words(tokens)


def _words(tokens: Any) -> tuple[str, ...]:
    listed = tokens.tolist() if hasattr(tokens, "tolist") else tokens
    if not isinstance(listed, Sequence) or not all(
        isinstance(token, str | int) for token in listed
    ):
        raise WrongUsage(
            f"{_TOKENS}; got {type_words(tokens)}. To compare two recordings: show(one, other=two)."
        )
    return tuple(map(str, listed))


def _no_attentions() -> str:
    return (
        "there are no attentions here: load the model with attn_implementation='eager' and call "
        "it with output_attentions=True, or record it with attnlab.record(attnlab.load(model), "
        "'*weights')."
    )


def _of_tensor(weights: Any, row: int) -> list[Pattern | SummaryMaps]:
    axes = len(weights.shape)
    if axes == 5:
        return _of_layers(list(weights), row, _OUTPUTS["attentions"])
    if axes == 4 and weights.shape[0] > 1:
        raise WrongUsage(
            f"weights of shape {shape_text(weights.shape)} may be {weights.shape[0]} inputs or as "
            "many layers: give list(weights) where they are layers of one input, and weights[i] "
            "for input i."
        )
    if axes < 4:
        row = 0
    return [_pattern("attention.weights", _with_batch(weights), row)]


def _of_layers(layers: Any, row: int, site: str) -> list[Pattern | SummaryMaps]:
    patterns: list[Pattern | SummaryMaps] = []
    if any(layer is None for layer in layers):
        raise WrongUsage(_no_attentions())
    if all(isinstance(layer, list | tuple) for layer in layers):
        for number, steps in enumerate(zip(*layers, strict=False)):
            patterns.append(_of_steps(steps, row, site.format(number)))
        return patterns
    if any(_num_axes(layer) not in (3, 4) for layer in layers):
        shapes = ", ".join(map(_shape_words, layers[:3]))
        raise WrongUsage(
            "a list of weights holds (head, query, key), or (batch, head, query, key), for "
            f"each layer; got {shapes}."
        )
    for number, layer in enumerate(layers):
        patterns.append(_pattern(site.format(number), _with_batch(layer), row))
    return patterns


def _num_axes(weights: Any) -> int:
    return len(getattr(weights, "shape", ()))


def _shape_words(weights: Any) -> str:
    if hasattr(weights, "shape"):
        return shape_text(weights.shape)
    return type(weights).__name__


def _of_steps(steps: Sequence[Any], row: int, site: str) -> Pattern:
    """Join the steps of one layer into one pattern; keys of later steps are masked."""
    is_wrong = any(_num_axes(step) != 4 for step in steps)
    if is_wrong or len({step.shape[:2] for step in steps}) > 1:
        raise WrongUsage(
            f"the steps of {site!r} are not (batch, head, query, key) of one batch; give a "
            "step alone: attentions[-1]."
        )
    num_keys = steps[-1].shape[-1]
    padded, is_causal, num_queries = [], True, 0
    for step in steps:
        rows = _array(site, step[row : row + 1])
        padded.append(np.pad(rows, [(0, 0)] * 3 + [(0, num_keys - rows.shape[-1])]))
        num_queries += rows.shape[-2]
        is_causal &= rows.shape[-1] == num_queries
    pattern = _pattern(site, np.concatenate(padded, 2), 0)
    if is_causal:
        return replace(pattern, blocked=CAUSAL)
    return pattern


def _with_batch(weights: Any) -> Any:
    axes = len(weights.shape)
    if not 2 <= axes <= 4:
        raise WrongUsage(
            "weights are (query, key), (head, query, key), or a list of these, one for each "
            f"layer; got shape {shape_text(weights.shape)}."
        )
    return weights[(None,) * (4 - axes)]


def _array(site: str, weights: Any) -> Any:
    if "float" not in str(weights.dtype):
        raise WrongUsage(
            f"the weights of {site!r} must be floating-point numbers; got {weights.dtype}."
        )
    return to_array(weights, np.float32)


def _pattern(site: str, weights: Any, row: int) -> Pattern:
    if not 0 <= row < len(weights):
        raise WrongUsage(f"{site!r} has rows 0 to {len(weights) - 1}; got row {row}.")
    weights_of_row = _array(site, weights[row])
    sums = weights_of_row.sum(-1, dtype=np.float64)
    # A query without any allowed key has a row of zeros.
    off = (np.abs(sums - 1) > _TOLERANCE) & (sums != 0)
    caution = ""
    if off.any():
        caution = (
            f"rows of {site} sum to {sums[off].min():.3g} to {sums[off].max():.3g}, not to 1: "
            "scores, or weights after dropout or an edit?"
        )
    queries, keys = map(numbered, weights_of_row.shape[1:])
    return Pattern(site, weights_of_row, queries, keys, caution=caution)


def _of_summary(summary: Summary, row: int) -> SummaryMaps:
    """Return the maps of one input, with as many keys as queries unless its cells differ."""
    leading = len(summary.entropy.shape) - 1
    if leading > 2:
        raise WrongUsage(
            f"a summary is of (batch, head, query); got {shape_text(summary.entropy.shape)}."
        )
    with_batch = [part[(None,) * (2 - leading)] for part in summary[:-1]]
    whole = Summary._make([*with_batch, summary.cells])
    if not 0 <= row < len(whole.entropy):
        raise WrongUsage(f"the summary has rows 0 to {len(whole.entropy) - 1}; got row {row}.")
    keys = int(summary.cells[1])
    num_queries, num_cells = whole.entropy.shape[-1], whole.map_mean.shape[-1]
    is_square = -(-num_queries // keys) == num_cells
    num_keys = num_queries if is_square else keys * num_cells
    return maps_of_summary(
        whole, row, "attention.weights", range(num_queries), range(num_keys), is_self=is_square
    )

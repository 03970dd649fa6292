"""attnlab doctor MODEL: which backend reaches its attention, which sites it has and lacks."""

import math
import re
import resource
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from attnlab.cli.prompts import is_pretrained, open_model
from attnlab.cli.resolve_run import find_run
from attnlab.cli.terminal import print_json, tell
from attnlab.core.sizes import count_bytes, count_numbers
from attnlab.display import plain
from attnlab.errors import AttnlabError, WrongUsage, typed

if TYPE_CHECKING:
    from attnlab.pretrained.model import Pretrained

_ATTENTION = ("query", "key", "value", "mask", "scores", "weights", "heads", "output")
_STREAM = ("residual_before", "residual_between", "residual_after")
_LAYER = re.compile(r"(^|\.)\d+(?=\.|$)")  # the number of one
_SINK = 1e-3  # share of a row's weight lost to rounding; more than this is a sink


def examine_model(name: str, ends_in: str | None, *, as_json: bool) -> int:
    """Open a pretrained model, which checks its backends, and print the findings."""
    if not is_pretrained(name):
        raise WrongUsage(
            f"{find_run(name)} is a run of attnlab, which has every site: "
            f"attnlab show {typed(name)}"
        )
    started = time.perf_counter()
    model = open_model(name, head=ends_in)
    findings = _findings(name, model, time.perf_counter() - started)
    if as_json:
        print_json(findings)
    else:
        _show(findings)
    return 0


def _findings(name: str, model: "Pretrained", seconds: float) -> dict[str, Any]:
    """Return the findings about a pretrained model when it was opened.

    bytes: of its parameters. seconds: to open and check it. peak_bytes: of this process. stream:
    how far the stream after any block is from the sum of what its parts add, as a share of its
    largest number; None if what a block gives is no sum. limits: the window and the cap of scores
    that the config states, tried with inputs beyond them. fast_path: how far the output is from
    that of torch's fast path; None if it has none. sites, missing: kinds of sites, with `*` for the
    number of a layer; missing are those that our own models have.
    """
    from attnlab.look.limits import limits_of
    from attnlab.look.stream_sums import stream_sums
    from attnlab.sites import site_names

    weights = list(model.foreign.parameters())
    stream, limits = None, []
    with suppress(AttnlabError):
        limits = limits_of(model)
    with suppress(AttnlabError):
        stream = max(stream_sums(model).values())
    return {
        "model": name,
        "class": type(model.foreign).__name__,
        "source": model.source,
        "notes": list(model.notes),
        "tokenizer": None if model.tokenizer is None else type(model.tokenizer).__name__,
        "parameters": count_numbers(weights),
        "bytes": count_bytes(weights),
        "dtype": _names_of(weight.dtype for weight in weights),
        "device": _names_of(weight.device for weight in weights),
        "seconds": seconds,
        "peak_bytes": _peak_memory(),
        "attentions": _groups(model),
        "stream": stream,
        "limits": [{**plain(limit), "holds": limit.holds} for limit in limits],
        "fast_path": model.fast_path,
        "sites": _kinds(site_names(model)),
        "missing": _missing(model),
    }


def _names_of(values: Iterable[object]) -> str:
    """Name each dtype or device once, in one text."""
    return ", ".join(sorted({str(value).removeprefix("torch.") for value in values}))


def _show(findings: dict[str, Any]) -> None:
    numbers = {
        "sink": _SINK,
        "weights": _size(findings["bytes"]),
        "peak": _size(findings["peak_bytes"]),
        "listed": {name: _by_part(findings[name]) for name in ("sites", "missing")},
    }
    tell("doctor", {**findings, **numbers})


def _by_part(sites: Sequence[str]) -> dict[str, list[str]]:
    parts: dict[str, list[str]] = {}
    for site in sites:
        part, _, site_name = site.rpartition(".")
        parts.setdefault(part, []).append(site_name)
    return parts


def _groups(model: "Pretrained") -> list[dict[str, Any]]:
    """Describe the attentions of each stack and kind with the same backend and numbers of heads.

    calls: in a forward pass. made: how far weights that are computed on demand are from eager
    ones, at most; None where no layer can. sink: the largest share of a query's weight on a sink.
    effect: the smallest and the largest effect of ablation on the output.
    """
    points = dict(model.attention_points())
    groups: dict[tuple[str, str, int, int], list[Any]] = {}
    for backend in model.backends:
        layout = points[backend.path].layout
        key = (_plain(backend.path), backend.backend, layout.num_heads, layout.num_kv_heads)
        groups.setdefault(key, []).append(backend)
    described = []
    for (attention, backend_name, heads, kv_heads), members in groups.items():
        made = [member.made for member in members if member.made is not None]
        effects = [member.effect for member in members if not math.isnan(member.effect)]
        described.append(
            {
                "attention": attention,
                "layers": len(members),
                "heads": heads,
                "kv_heads": kv_heads,
                "backend": backend_name,
                "calls": sorted({member.calls for member in members}),
                "made": max(made, default=None),
                "made_layers": len(made),
                "sink": max(0.0, 1.0 - min(member.least for member in members)),
                "window": _window(model, attention),
                "effect": [min(effects), max(effects)] if effects else None,
            }
        )
    return described


def _window(model: "Pretrained", attention: str) -> str | None:
    """Return the width of the window that the config states for self-attention, or None."""
    from attnlab.pretrained.text import text_config

    if not attention.endswith(".attention"):
        return None
    config = text_config(model.foreign)
    width = getattr(config, "sliding_window", None)
    if not isinstance(width, int):
        width = getattr(config, "window_size", None)
    if not isinstance(width, int) or getattr(config, "use_sliding_window", True) is False:
        return None
    kinds = getattr(config, "layer_types", None) or getattr(config, "attention_layers", None)
    if not isinstance(kinds, list | tuple):
        return f"{width:,}"
    narrow = sum("sliding" in str(kind) or kind == "local" for kind in kinds)
    return f"{width:,} in {narrow} of {len(kinds)}" if narrow else None


def _missing(model: "Pretrained") -> list[str]:
    """List the kinds of sites of our own models that this one lacks in some layer."""
    from attnlab.sites import site_names

    expected = []
    for stack in model.structure.stacks:
        prefix = f"{stack.name}.".removeprefix(".")
        expected.append(f"{prefix}embedding")
        for index, block in enumerate(stack.blocks):
            names = [*_STREAM]
            for attention in block.attentions:
                names += [f"{attention.name}.{site}" for site in _ATTENTION]
            names += ["feed_forward.hidden", "feed_forward.output"]
            expected += [f"{prefix}layers.{index}.{site}" for site in names]
    there = set(site_names(model))
    return _kinds(site for site in [*expected, "logits"] if site not in there)


def _kinds(names: Iterable[str]) -> list[str]:
    """Replace layer numbers by `*`, and drop repetitions."""
    return list(dict.fromkeys(map(_plain, names)))


def _plain(name: str) -> str:
    return _LAYER.sub(r"\1*", name)


def _peak_memory() -> int:
    """Return the peak memory of this process, in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if sys.platform != "darwin":
        peak *= 1024
    return peak


def _size(number: int) -> str:
    if number >= 2**30:
        return f"{number / 2**30:.2f} GiB"
    return f"{number / 2**20:.1f} MiB"

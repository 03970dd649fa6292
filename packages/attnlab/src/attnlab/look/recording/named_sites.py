"""Site names or inputs? A text is a pattern if it matches sites, else an input.

A text that looks like a site but matches none is refused: a typo must not be read as an input.
"""

import difflib
import fnmatch
import re
from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from typing import Any

from torch import Tensor, nn

from attnlab.errors import WrongUsage
from attnlab.look.readers import reads_text
from attnlab.sites import advice_on, in_our_words, matches, site_names


def named_sites(inputs: Any, model: nn.Module) -> list[str] | None:
    """Return the sites that these patterns match; None if they are inputs of the model.

    Raises:
        WrongUsage: there is nothing, or a pattern that matches no site.
    """
    patterns = _as_texts(inputs)
    if patterns is None:
        return None
    names = site_names(model)
    unmatched = [
        pattern
        for pattern in patterns
        if pattern not in names and not fnmatch.filter(names, pattern)
    ]
    if not unmatched:
        return matching_sites(patterns, model)
    for pattern in unmatched:
        if not reads_text(model) or looks_like_sites(pattern, names) or advice_on(pattern, model):
            raise WrongUsage(_refusal(pattern, model))
    if len(unmatched) < len(patterns):
        raise WrongUsage(f"{unmatched[0]!r} is not a site of this model, but other items are.")
    return None


def _as_texts(inputs: Any) -> Sequence[str] | None:
    """Return inputs that are a text or several, which may name sites; None for others."""
    if isinstance(inputs, str):
        return [inputs]
    if isinstance(inputs, Tensor | Mapping):
        return None
    kinds = set()
    if isinstance(inputs, Sequence):
        kinds = {isinstance(item, str) for item in inputs}
    if len(kinds) != 1:
        raise WrongUsage(
            'record takes a text or ids, as attnlab.record(model, "a text"), or names of sites '
            f'such as "*.weights", to record within a `with`; got {inputs!r:.80}.'
        )
    return inputs if kinds == {True} else None


def matching_sites(patterns: str | Sequence[str], model: nn.Module) -> list[str]:
    """List the sites that any of the patterns matches; one that matches none is an error."""
    listed = [patterns] if isinstance(patterns, str) else patterns
    is_list = isinstance(listed, Sequence) and len(listed) > 0
    if not is_list or not all(isinstance(pattern, str) for pattern in listed):
        raise WrongUsage(
            f'sites are named by a pattern such as "*.weights", or several; got {patterns!r}.'
        )
    names = site_names(model)
    return list(dict.fromkeys(chain.from_iterable(matches(name, model, names) for name in listed)))


def looks_like_sites(text: str, names: Collection[str]) -> bool:
    """Does every word of a text look like a site or a pattern, though it may match none?

    >>> sites = ["embedding", "layers.0.attention.weights", "logits"]
    >>> looks_like_sites("layers.0.atention.weights", sites), looks_like_sites("weights", sites)
    (True, True)
    >>> looks_like_sites("*.wieghts, *.scores", sites), looks_like_sites("When John", sites)
    (True, False)
    """
    words = re.split(r"[\s,;]+", text.strip())
    known = {piece for name in names for piece in name.split(".") if not piece.isdecimal()}
    return bool(names) and all(_looks_like_site(word, known) for word in words)


def _looks_like_site(word: str, known: Collection[str]) -> bool:
    if "*" in word and "." in word:
        return True
    ours = in_our_words(word, known) if "." in word else word
    pieces = [piece for piece in re.split(r"[.*]+", ours) if piece and not piece.isdecimal()]
    return any(difflib.get_close_matches(piece, known, n=1, cutoff=0.8) for piece in pieces)


def _refusal(pattern: str, model: nn.Module) -> str:
    """Return the error for an unknown site, with the closest name and the known ones."""
    names = site_names(model)
    if not names:
        return f"{type(model).__name__} has no sites; attnlab.load(model) gives it hook points."
    if advice := advice_on(pattern, model):
        return f"no site of this model matches {pattern!r}; {advice}"
    kinds = {name if "." not in name else f"*.{name.rpartition('.')[2]}": None for name in names}
    patterns = {re.sub(r"\b\d+\b", "*", name): None for name in names}
    ours = in_our_words(pattern, names)
    close = difflib.get_close_matches(ours, [*kinds, *patterns, *names], n=1)
    guess = f"did you mean {close[0]!r}? Known" if close else "known"
    words = f"no site of this model matches {pattern!r}; {guess}: {', '.join(kinds)}"
    if len(re.split(r"[\s,;]+", pattern)) > 1 and reads_text(model):
        return f'{words}. Several are a list: ["*.weights", "*.scores"].'
    if not reads_text(model):
        return (
            f"{words}. This {type(model).__name__} does not know the names of its tokens, so it "
            "reads no text either: give ids, attnlab.record(model, tokens)."
        )
    return f"{words}. To record a text that looks like a site, give its ids."

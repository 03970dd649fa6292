"""Tokenization by an untrusted tokenizer: the size of its result is bounded first, and its crashes
become errors.

A rule that replaces one letter by three hundred is harmless; three of them in a row make 27 million
letters of it. Where rules could lengthen a text that much, they are applied one by one, each only
after the length of its result was computed.
"""

import base64
import json
import weakref
from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

from attnlab.errors import CouldNotRun

__all__ = ["check_added_tokens", "tokenized"]

_FREE, _TIMES = 2**16, 64  # letters allowed for any text, and for each letter of it
_UNICODE = 18  # the most letters of one letter's Unicode normal form

Rule = dict[str, Any]

_rules: "weakref.WeakKeyDictionary[Any, tuple[list[Rule], int]]" = weakref.WeakKeyDictionary()


def tokenized(tokenizer: Any, *texts: Any, **options: Any) -> Any:
    """Call a tokenizer of transformers.

    Raises:
        CouldNotRun: its result would be far too long, or it crashes.
    """
    if tokenizer not in _rules:
        rules = _rules_of(tokenizer)
        _rules[tokenizer] = rules, prod(map(_times, rules))
    rules, times = _rules[tokenizer]
    for text in (*texts, options.get("text_target")):
        if isinstance(text, str) and len(text) * times > _most(text):
            _check_length(rules, text)
    try:
        return tokenizer(*texts, **options)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic of its Rust code is no Exception
        words = " ".join(str(error).split())[:200].rstrip(".")
        raise CouldNotRun(
            f"the tokenizer, a {type(tokenizer).__name__}, fails on this text "
            f"({type(error).__name__}: {words}). Shorten it, or give ids of another tokenizer."
        ) from None


def check_added_tokens(said: Rule, more: Rule) -> None:
    """Raise if the rules of a tokenizer.json lengthen its own added tokens far too much: opening it
    applies them.

    Args:
        said: the content of tokenizer.json.
        more: the content of tokenizer_config.json.

    Raises:
        CouldNotRun: the result would be far too long; the sentence says how long.
    """
    rules = list(_rules_in(said.get("normalizer")))
    tokens = list(said.get("added_tokens") or ())
    tokens += (more.get("added_tokens_decoder") or {}).values()
    for token in tokens:
        _check_length(rules, token["content"])


def _most(text: str) -> int:
    return _FREE + _TIMES * len(text)


def _check_length(rules: Sequence[Rule], text: str) -> None:
    """Raise if rules make far more letters of a text than any tokenizer needs."""
    began, most = len(text), _most(text)
    for rule in rules:
        made = len(text) * _times(rule)
        if rule["type"] == "Replace":
            pattern = rule["pattern"].get("String")
            made = (text.count(pattern) if pattern else len(text) + 1) * len(rule["content"])
        if made > most:
            raise CouldNotRun(
                f"the tokenizer's rules would make {made:,} letters or tokens of {began:,} "
                f"letters; no tokenizer makes more than {most:,}. It is damaged, or a trap."
            )
        text = _after(rule, text)


def _rules_in(part: Any) -> Iterator[Rule]:
    """List the rules of a normalizer, pre-tokenizer or post-processor that may lengthen a text, in
    order."""
    if not isinstance(part, dict):
        return
    inner = part.get("normalizers") or part.get("pretokenizers") or part.get("processors")
    if isinstance(inner, list):
        for each in inner:
            yield from _rules_in(each)
    elif _times(part) > 1:
        yield part


def _rules_of(tokenizer: Any) -> list[Rule]:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    found: list[Rule] = []
    for name in ("normalizer", "pre_tokenizer", "post_processor"):
        part = getattr(backend, name, None)
        if part is not None:
            rules = _rules_in(json.loads(bytes(part.__getstate__())))
            if name == "post_processor":  # there ByteLevel only shifts offsets
                rules = (rule for rule in rules if rule["type"] != "ByteLevel")
            found += rules
    return found


def _times(rule: Rule) -> int:
    """Return the most letters that a rule makes of one."""
    match rule.get("type"):
        case "Replace":
            return 1 + len(rule["content"])
        case "Prepend":
            return 1 + len(rule["prepend"])
        case "ByteLevel":
            return 4
        case "Precompiled":
            return _longest(rule["precompiled_charsmap"])
        case "TemplateProcessing":
            return _template_times(rule)
        case "NFD" | "NFKD" | "NFC" | "NFKC" | "Lowercase" | "BertNormalizer" | "Nmt":
            return _UNICODE
    return 1


def _template_times(rule: Rule) -> int:
    """Return how many tokens a template makes of one: repeated sequences, and tokens around
    them."""
    special = rule.get("special_tokens") or {}
    found = []
    for form in (rule["single"], rule["pair"]):
        names = [piece["SpecialToken"]["id"] for piece in form if "SpecialToken" in piece]
        found.append(len(form) - len(names) + sum(len(special[name]["ids"]) for name in names))
    return max(found)


def _longest(charsmap: str) -> int:
    """Return the length of the longest replacement in a character map of SentencePiece."""
    content = base64.b64decode(charsmap)
    replacements = content[4 + int.from_bytes(content[:4], "little") :].split(b"\0")
    return max(1, *map(len, replacements))


def _after(rule: Rule, text: str) -> str:
    """Apply a rule to a text."""
    from tokenizers import normalizers

    if rule["type"] == "Prepend":  # applies between added tokens: at worst, to every letter
        return "".join(rule["prepend"] + letter for letter in text)
    if rule["type"] == "TemplateProcessing":
        return text * _template_times(rule)
    if rule["type"] == "ByteLevel":
        rule = {"type": "ByteLevel"}
    made: Any = normalizers.Lowercase()
    made.__setstate__(json.dumps(rule).encode())
    found: str = made.normalize_str(text)
    return found

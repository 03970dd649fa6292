"""What a stranger's tokenizer makes of a text: how much at most is reckoned before, and what it dies of is said.

A rule that replaces one letter by three hundred is harmless, three of them after one another make 27 million of it. So
where rules could make much of a text, they are tried on it one by one, each only after it was reckoned what it makes.
"""

import base64
import json
import weakref
from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

from attnlab.errors import CouldNotRun

__all__ = ["check_added_tokens", "tokenized"]

_FREE, _TIMES = 2**16, 64  # letters that any text may become, and how many more for each of its own
_UNICODE = 18  # letters that one becomes at most in Unicode's own forms

Rule = dict[str, Any]

_rules: "weakref.WeakKeyDictionary[Any, tuple[list[Rule], int]]" = weakref.WeakKeyDictionary()


def tokenized(tokenizer: Any, *texts: Any, **options: Any) -> Any:
    """Call a tokenizer of transformers.

    Raises:
        CouldNotRun: it would make far too much of a text, or breaks off.
    """
    if tokenizer not in _rules:
        rules = _rules_of(tokenizer)
        _rules[tokenizer] = rules, prod(map(_times, rules))
    rules, times = _rules[tokenizer]
    for text in (*texts, options.get("text_target")):
        if isinstance(text, str) and len(text) * times > _most(text):
            _try_out(rules, text)
    try:
        return tokenizer(*texts, **options)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # its Rust panics over some regular expressions, which is no Exception
        words = " ".join(str(error).split())[:200].rstrip(".")
        raise CouldNotRun(
            f"the tokenizer, a {type(tokenizer).__name__}, breaks off over this text "
            f"({type(error).__name__}: {words}). Shorten it, or give ids of another tokenizer."
        ) from None


def check_added_tokens(said: Rule, more: Rule) -> None:
    """Raise where the rules of a tokenizer.json make far too much of its own added tokens, as soon as it is opened.

    Args:
        said: what tokenizer.json says.
        more: what tokenizer_config.json says.

    Raises:
        CouldNotRun: with how many letters.
    """
    rules = list(_rules_in(said.get("normalizer")))
    for token in (*(said.get("added_tokens") or ()), *(more.get("added_tokens_decoder") or {}).values()):
        _try_out(rules, token["content"])


def _most(text: str) -> int:
    return _FREE + _TIMES * len(text)


def _try_out(rules: Sequence[Rule], text: str) -> None:
    """Raise where rules make far more letters of a text than any tokenizer needs."""
    began, most = len(text), _most(text)
    for rule in rules:
        made = len(text) * _times(rule)
        if rule["type"] == "Replace":
            pattern = rule["pattern"].get("String")
            made = (text.count(pattern) if pattern else len(text) + 1) * len(rule["content"])
        if made > most:
            raise CouldNotRun(
                f"the tokenizer's rules would make {made:,} letters or tokens of {began:,} letters; no tokenizer makes "
                f"more than {most:,}. It is damaged, or a trap."
            )
        text = _after(rule, text)


def _rules_in(part: Any) -> Iterator[Rule]:
    """List the rules of a normalizer, a pre-tokenizer or a post-processor that may lengthen a text, in their order."""
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
            # A post-processor of that name only shifts offsets.
            found += [rule for rule in rules if name != "post_processor" or rule["type"] != "ByteLevel"]
    return found


def _times(rule: Rule) -> int:
    """Return how many letters one becomes at most."""
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
            return _posted(rule)
        case "NFD" | "NFKD" | "NFC" | "NFKC" | "Lowercase" | "BertNormalizer" | "Nmt":
            return _UNICODE
    return 1


def _posted(rule: Rule) -> int:
    """Return how many tokens a template makes of one: repeated sequences, and the tokens around them."""
    special = rule.get("special_tokens") or {}
    found = []
    for form in (rule["single"], rule["pair"]):
        names = [piece["SpecialToken"]["id"] for piece in form if "SpecialToken" in piece]
        found.append(len(form) - len(names) + sum(len(special[name]["ids"]) for name in names))
    return max(found)


def _longest(charsmap: str) -> int:
    """Return the longest text that a map of SentencePiece puts in the place of a letter."""
    content = base64.b64decode(charsmap)
    return max(map(len, content[4 + int.from_bytes(content[:4], "little") :].split(b"\0")), default=1) or 1


def _after(rule: Rule, text: str) -> str:
    """Return what a rule makes of a text."""
    from tokenizers import normalizers

    if rule["type"] == "Prepend":  # it is done to every piece between added tokens: at worst, to every letter
        return "".join(rule["prepend"] + letter for letter in text)
    if rule["type"] == "TemplateProcessing":
        return text * _posted(rule)
    if rule["type"] == "ByteLevel":
        rule = {"type": "ByteLevel"}
    made: Any = normalizers.Lowercase()
    made.__setstate__(json.dumps(rule).encode())
    found: str = made.normalize_str(text)
    return found

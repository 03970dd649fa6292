"""Generation: one token after another, greedily or by sampling, with a key/value cache or
without."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from attnlab.display import displayed, short
from attnlab.errors import WrongUsage, model_words, type_words
from attnlab.parts.cache import Cache
from attnlab.shapes import require_integer, shape_text


class Predictor(Protocol):
    """The interface that generation needs; `Decoder` has it, and `conditioned(source)` of
    encoder–decoders."""

    def __call__(self, tokens: Tensor, *, cache: Cache | None = None) -> Tensor:
        """(batch, length) -> logits (batch, length, vocabulary)."""
        ...


@displayed
@dataclass(frozen=True, eq=False)
class Generation:
    """What was generated.

    tokens (batch, prompt + new), where an input that has stopped is filled with the stop token ·
    probabilities (batch, new, vocabulary), those the choice was made by (forbidden tokens have 0).
    """

    tokens: Tensor
    probabilities: Tensor


@torch.no_grad()
def generate(
    model: Predictor | nn.Module,
    prompt: Tensor,
    num_tokens: int,
    *,
    temperature: float = 0.0,
    top_k: int | None = None,
    forbidden: Sequence[int] = (),
    stop: int | None = None,
    generator: torch.Generator | None = None,
    use_cache: bool = True,
) -> Generation:
    """Continue each prompt by up to `num_tokens` tokens.

    Args:
        model: predicts the next token: a `Decoder`, a pretrained one, or the
            `model.conditioned(source)` of a model that answers a source.
        prompt: (batch, length) ids, at least one each, all of one length.
        num_tokens: how many to add.
        temperature: 0 always takes the likeliest (the first of equals); above 0 samples from logits
            / temperature.
        top_k: sample among the k likeliest only.
        forbidden: ids that may not be chosen.
        stop: an id that ends an input; generation ends when all have ended.
        generator: where the randomness of sampling comes from.
        use_cache: keep keys and values (the same tokens, quicker) or compute everything anew at
            each step.

    Returns:
        the `Generation`: `tokens` (batch, length + new) and `probabilities` (batch, new,
        vocabulary).

    Raises:
        WrongUsage: a prompt that is no ids (batch, length), or arguments that are out of range.

    >>> import attnlab, torch
    >>> model = attnlab.Decoder(attnlab.DecoderConfig()).eval()
    >>> tokens = torch.tensor([[3, 1, 2, 0]])
    >>> generate(model, tokens, 3).tokens.shape
    torch.Size([1, 7])
    """
    _check_request(prompt, num_tokens, temperature, top_k)
    if not callable(model):
        raise WrongUsage(f"generate takes a model, then a prompt; got {model_words(model)}.")
    makes = getattr(model, "predictor", None)  # a pretrained model makes one for each generation
    predictor: Predictor = model if makes is None else makes()
    takes = inspect.signature(getattr(model, "forward", model)).parameters
    if makes is None and "cache" not in takes:
        predictor, use_cache = _without_cache(model), False
    cache = Cache() if use_cache else None
    tokens, fresh = prompt, prompt
    ended = torch.zeros(prompt.shape[0], dtype=torch.bool, device=prompt.device)
    history = []
    for _ in range(num_tokens):
        logits = predictor(fresh if use_cache else tokens, cache=cache)[:, -1]
        probabilities = _choice_probabilities(logits, temperature, top_k, forbidden)
        chosen = _chosen(probabilities, temperature, generator)
        if stop is not None:
            chosen = chosen.masked_fill(ended, stop)
            ended = ended | (chosen == stop)
        history.append(probabilities)
        fresh = chosen.unsqueeze(-1)
        tokens = torch.cat((tokens, fresh), -1)
        if stop is not None and bool(ended.all()):
            break
    if not history:
        return Generation(tokens, torch.empty(prompt.shape[0], 0, 0, device=prompt.device))
    return Generation(tokens, torch.stack(history, 1))


def _chosen(probabilities: Tensor, temperature: float, generator: torch.Generator | None) -> Tensor:
    """Choose a token for each input, the likeliest or a sampled one."""
    if temperature == 0:
        return probabilities.argmax(-1)
    return torch.multinomial(probabilities, 1, generator=generator).squeeze(-1)


def _without_cache(model: Callable[[Tensor], Tensor]) -> Predictor:
    """Return a model that knows no cache as a predictor, which reads all tokens each time."""

    def predict(tokens: Tensor, *, cache: Cache | None = None) -> Tensor:
        logits = model(tokens)
        if not (isinstance(logits, Tensor) and logits.shape[:2] == tokens.shape):
            raise WrongUsage(
                "generate needs a model from ids (batch, length) to logits (batch, length, "
                f"vocabulary); {type_words(model)} returns {short(logits)}."
            )
        return logits

    return predict


def _check_request(prompt: Tensor, num_tokens: int, temperature: float, top_k: int | None) -> None:
    if not isinstance(prompt, Tensor):
        raise WrongUsage(
            f"prompt is a tensor of ids (batch, length); got {type_words(prompt)}. A text is for "
            "attnlab.ask(model, text)."
        )
    if prompt.dim() != 2 or prompt.shape[1] == 0:
        raise WrongUsage(
            "prompt must have shape (batch, length) with length at least 1; got "
            f"{shape_text(prompt.shape)}."
        )
    require_integer("num_tokens", num_tokens, low=0)
    if not temperature >= 0:
        raise WrongUsage(f"temperature must be 0 (greedy) or above; got {temperature!r}.")
    if top_k is not None:
        require_integer("top_k", top_k)


def _choice_probabilities(
    logits: Tensor, temperature: float, top_k: int | None, forbidden: Sequence[int]
) -> Tensor:
    if logits.dtype in (torch.float16, torch.bfloat16):
        logits = logits.float()
    if any(not 0 <= token < logits.shape[-1] for token in forbidden):
        raise WrongUsage(f"forbidden ids are from 0 to {logits.shape[-1] - 1}; got {forbidden}.")
    if len(set(forbidden)) == logits.shape[-1]:
        raise WrongUsage("every token is forbidden; leave at least one.")
    if forbidden:
        ids = torch.tensor(list(forbidden), device=logits.device)
        logits = logits.index_fill(-1, ids, float("-inf"))
    if temperature > 0:
        # The largest becomes 0 first: a tiny temperature then makes the others -inf, and nothing
        # overflows.
        logits = (logits - logits.amax(-1, keepdim=True)) / temperature
        if top_k is not None and top_k < logits.shape[-1]:
            smallest = logits.topk(top_k).values[..., -1:]
            logits = logits.masked_fill(logits < smallest, float("-inf"))
    return logits.softmax(-1)

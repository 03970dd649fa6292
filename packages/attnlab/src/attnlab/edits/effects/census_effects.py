"""The effects of heads, beside what a census says that they do: each head is taken out or its
pattern replaced, on texts of the corpus that were drawn by lot."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from attnlab import seeds
from attnlab.core.store import JsonObject
from attnlab.edits.effects.controls import Control, pattern_effects
from attnlab.edits.effects.metrics import IGNORED, Metric
from attnlab.edits.effects.significance import assess, enough
from attnlab.edits.effects.sweep import USUAL, SweepOptions
from attnlab.errors import WrongUsage
from attnlab.look.heads import head_name
from attnlab.look.inputs import Call
from attnlab.look.long_text.inputs import arguments_for, takes_padding
from attnlab.look.pretrained_questions import answer_kind
from attnlab.models.decoder import Decoder
from attnlab.pretrained.model import Pretrained
from attnlab.pretrained.text import device_of

USUAL_CONTROLS: tuple[Control, ...] = ("zeroed", "uniform")
_MASKED = 0.15  # of the tokens, which a model that fills blanks has to fill
_FEWEST = 2  # tokens of a text
_REPLICATES, _DRAWS, _FEW, _ALPHA = 2000, 10_000, 10, 0.05
_SIGNED = "loss"
"""The metric whose change can go both ways, so that its mean can be tested against none."""


@dataclass(frozen=True)
class MeasuredPass:
    """Texts as the inputs of one pass, and what is measured of the model's output there."""

    call: Call
    metric: Metric

    @property
    def is_signed(self) -> bool:
        """Whether effects can go both ways."""
        return self.metric.measure == _SIGNED


def head_effects(
    model: nn.Module,
    texts: Sequence[Sequence[int]],
    parts: Iterable[str],
    *,
    controls: Sequence[Control] = USUAL_CONTROLS,
    seed: int = 0,
    how: SweepOptions = USUAL,
) -> tuple[list[JsonObject], str]:
    """Measure the effect of every head of some attentions on the same texts.

    The metric is the loss of the next tokens, or of masked ones (15 %, drawn by lot) where a model
    fills blanks; the divergence of its answer where it classifies; and 1 less the cosine to what
    its vectors were where it has no logits. Only a change of the loss can be none in the mean, so
    only there are p values; they are corrected for all heads and controls together (Benjamini and
    Hochberg 1995). Intervals of the others are a bootstrap over texts.

    Args:
        model: any model with sites; in an encoder–decoder, the encoder.
        texts: ids; those of a single token are left out.
        parts: the attentions, by path.
        controls: see `pattern_effects`.
        seed: of masked tokens, shuffles and signs.
        how: memory, threads and progress.

    Returns:
        A row for each head and control: head, control, metric, effect (mean change), low and high
        (95 %), p, p_corrected and matters (p_corrected ≤ 0.05); None where it is not tested. And
        what so few texts cannot show, "" if nothing.

    Raises:
        WrongUsage: fewer than two different texts.
    """
    passages = _passages(model, texts, seed)
    measured = pattern_effects(
        model,
        passages.call,  # type: ignore[arg-type]  # a call stands for its inputs
        metric=passages.metric,
        parts=list(parts),
        controls=controls,
        seed=seed,
        how=how,
    )
    heads = [head_name(place.path, place.head or 0) for place in measured.heads]
    names = list(product(heads, controls))
    values = measured.effects.flatten(0, 1)
    draws = max(_DRAWS, 2 * enough(_ALPHA, len(values), correction="bh")[1])
    tested = assess(values, correction="bh", draws=draws, seed=seed)
    columns: dict[str, list[Any]] = {"effect": tested.mean.tolist()}
    nothing = [None] * len(values)
    if passages.is_signed:
        columns |= {"low": tested.low.tolist(), "high": tested.high.tolist()}
        columns |= {"p": tested.p.tolist(), "p_corrected": tested.p_corrected.tolist()}
        columns["matters"] = (tested.p_corrected <= _ALPHA).tolist()
    else:
        low, high = _bootstrap(values, seed)
        columns |= {"low": low.tolist(), "high": high.tolist()}
        columns |= dict.fromkeys(("p", "p_corrected", "matters"), nothing)
    rows: list[JsonObject] = []
    for (head, control), *cells in zip(names, *columns.values(), strict=True):
        row = {"head": head, "control": control, "metric": passages.metric.measure}
        rows.append(row | dict(zip(columns, cells, strict=True)))
    return rows, _caution(values, is_signed=passages.is_signed)


def _bootstrap(values: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """Return the ends of the 95 % intervals of means over texts: (effect, text) -> (effect,)."""
    random, number = seeds.generator(seed, "census", "bootstrap"), values.shape[1]
    chosen = torch.randint(number, (_REPLICATES, number), generator=random)
    times = torch.nn.functional.one_hot(chosen, number).sum(1).to(values)
    means = values @ times.T / number
    low, high = means.quantile(torch.tensor([0.025, 0.975]).to(values), dim=1)
    return low, high


def _caution(values: Tensor, *, is_signed: bool) -> str:
    """Say what effects on so few texts cannot show."""
    tests, texts = values.shape
    least, _ = enough(_ALPHA, tests, correction="bh")
    if is_signed and texts < least:
        return (
            f"{texts} texts cannot show that a single head matters among {tests} tests; it takes "
            f"{least}."
        )
    if texts < _FEW:
        return f"effects on {texts} texts are rough, and so is their order; take {_FEW} or more."
    return ""


def _passages(model: nn.Module, texts: Sequence[Sequence[int]], seed: int) -> MeasuredPass:
    different = dict.fromkeys(tuple(ids) for ids in texts if len(ids) >= _FEWEST)
    long_enough = list(map(torch.tensor, different))
    if not takes_padding(model):
        long_enough = _of_one_length(long_enough)
    if len(long_enough) < 2:
        raise WrongUsage(f"effects need two different texts of two tokens; got {len(long_enough)}.")
    ids = pad_sequence(long_enough, batch_first=True)
    lengths = torch.tensor(list(map(len, long_enough)))
    real = torch.arange(ids.shape[1]) < lengths[:, None]
    kind = _kind_of(model, ids[:1, : int(lengths[0])])
    device = device_of(model)
    if kind == "fills":
        chosen = _masked(model, ids, real, seed)
        target = ids.masked_fill(~chosen, IGNORED)
        ids = ids.masked_fill(chosen, _mask_id(model))
        metric = Metric("loss", target=target)
    elif kind == "continues":
        target = torch.cat((ids[:, 1:], ids[:, :1]), 1)
        is_next = torch.cat((real[:, 1:], torch.zeros_like(real[:, :1])), 1)
        metric = Metric("loss", target=target.masked_fill(~is_next, IGNORED))
    elif kind == "reads":
        metric = Metric("cosine", target=torch.zeros_like(ids).masked_fill(~real, IGNORED))
    else:
        metric = Metric("kl")
    padding = None if bool(real.all()) else real.to(device)
    arguments, options = arguments_for(model, ids.to(device), padding)
    return MeasuredPass(Call(arguments, options, len(ids)), metric)


def _of_one_length(texts: Sequence[Tensor]) -> list[Tensor]:
    """Return the texts of the commonest length.

    Raises:
        WrongUsage: each has another length.
    """
    lengths = list(map(len, texts))
    commonest = max(lengths, key=lengths.count, default=0)
    if lengths.count(commonest) < 2 <= len(texts):
        raise WrongUsage(
            "effects need two texts of one length, since this model's forward takes no mask of "
            "padding: let it take attention_mask, (batch, length), 0 at padding, or pass effects=0."
        )
    return [text for text in texts if len(text) == commonest]


def _kind_of(model: nn.Module, ids: Tensor) -> str:
    if isinstance(model, Pretrained):
        arguments, _ = arguments_for(model, ids)
        inputs: Mapping[str, Any] = dict(zip(model.input_names, arguments, strict=False))
        return answer_kind(model, inputs)
    return "continues" if isinstance(model, Decoder) else "classifies"


def _masked(model: nn.Module, ids: Tensor, real: Tensor, seed: int) -> Tensor:
    """Choose the masked tokens: (text, length); at least one of each text, no special token."""
    tokenizer: Any = getattr(model, "tokenizer", None)
    special = torch.tensor(list(getattr(tokenizer, "all_special_ids", [])) or [-1])
    chance = torch.rand(ids.shape, generator=seeds.generator(seed, "census", "masked"))
    chance = chance.masked_fill(~real | torch.isin(ids, special), 2.0)
    least = chance == chance.amin(1, keepdim=True)
    return (chance < _MASKED) | (least & (chance < 2.0))


def _mask_id(model: nn.Module) -> int:
    token = getattr(getattr(model, "tokenizer", None), "mask_token_id", None)
    if token is None:
        raise WrongUsage(
            "this model's logits depend on later tokens, as where blanks are filled, and no "
            "tokenizer names its mask token; make its attention causal, or pass effects=0."
        )
    return int(token)

"""The table of families in the documents, measured. `cd packages/attnlab && python -m tests.pretrained.table` writes it
anew."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import torch

import attnlab
from tests.pretrained.families import FAMILIES, REFUSED
from tests.pretrained.trying import (
    difference,
    furthest,
    logits_of,
    recorded_weights,
    same,
    tried,
)

__all__ = ["DOCUMENT", "document", "looked", "opened"]

DOCUMENT = Path(__file__).parents[4] / "docs" / "families.md"

_HEAD = """\
# Families

`attnlab.load` gives any of these models hook points, and everything of attnlab works on them: recordings, edits, effects,
summaries. Nothing in them is rewritten, and no family is known by name: what is a block, what is added to the residual
stream, where the hidden layer is, a survey reads off the numbers of one small pass. Other families work the same way as
long as their attention is met; what cannot be told is not shown, and asking for it says so.

Measured with transformers {version} on tiny models with random weights, by `packages/attnlab/tests/pretrained/test_families.py`:
{families} families, {refused} refused. To write this file anew: `cd packages/attnlab && python -m tests.pretrained.table`.

- **met by**: *registry*, transformers' table of attention functions · *sdpa*, torch's fused attention · *softmax*, an
  attention that the model writes out itself (queries and keys cannot be seen there; the mask, scores and weights can).
- **looked at**: the largest difference of recorded weights from those of the family's own eager attention
  (`output_attentions`), in float32, where nothing is changed. "to the bit": the model's own softmax is seen. A bound:
  the model keeps its fused kernel, and the weights are made later from queries, keys and mask; in float64 they are the
  same to 1e-12.
- **opened**: the same under edits of every layer that change nothing, and of the output under them.
- **not there**: sites that other families have. Where feed-forward and attention stand side by side there is no
  `residual_between`; where experts take turns there is no one `hidden` layer; and what no module gives is not shown.

Looking at everything leaves the output of all of them as it is to the bit, and a head that is zeroed is the same, to
the bit, as its slice zeroed by hand before the output projection.

"""

_NOTES = """
## Adding what a survey cannot tell

A few families hide a site: granite multiplies what attention gives before adding it, so `output` is left out. Whoever
knows better says so in a line, with paths within a block; what is said is tried before the model is used:

```python
attnlab.register_family(attnlab.Family("granite", attention="self_attn.o_proj", feed_forward="mlp"))
model = attnlab.load("ibm-granite/granite-3.3-2b-instruct")  # its layers now have attention.output
```

A model of your own needs no family: `attnlab.load(module, example=(tokens,))` surveys any torch module. Where
attention and feed-forward take turns in its list, an attention and what follows it up to the feed-forward part are one
layer; where it adds them to the stream outside of its modules, no `residual_after` is shown.

## Models of plain torch

`nn.MultiheadAttention`, `nn.TransformerEncoder` and `nn.Transformer` have a *fast path*: in evaluation mode, where no
gradients are needed (`torch.no_grad()`, `torch.inference_mode()`), torch computes a whole layer in one call. Nothing in
it can be watched, and torch leaves it while hooks are installed. So these models, alone of all, are rounded otherwise
while somebody looks. Measured on encoders of two layers of width 16, on encoder–decoders and on single modules, with
boolean and added padding and causal masks: no difference, to the bit, with gradients; at most 2.9e-6 without.

- Padding on the right that the encoder leaves out by itself (`enable_nested_tensor`) is zeros, watched or not; a
  decoder that looks at it reads the same.
- Where a query may look at nothing, or a float mask holds numbers other than 0 and −∞ (the fast path takes these
  for "blocked"), the fast path gives NaN, or other numbers, and the watched pass what torch gives with gradients.
- `model.fast_path` and `attnlab doctor` tell the difference for the example; each certificate tells it for its input,
  "of which leaving torch's fast path". To have one computation for both, call
  `torch.backends.mha.set_fastpath_enabled(False)`.

## Where the family's own figures cannot be used

- **falcon** gives false weights with `output_attentions=True` under its usual setting: its mask is then boolean, and is
  added to the scores as 0 and 1. Made with `attn_implementation="eager"` it gives those recorded here.
- **falcon with ALiBi** adds the bias once in its usual attention and twice in its eager one. Recorded is what the usual
  one computes; the bound above is to its eager attention with half the bias.
- **gpt_oss** has sinks: a row of weights sums to less than one, and is shown as the model has it. It lowers each row of
  scores by its largest before the softmax; shown are the scores before that.
- **clip** and **swin** do not give their weights in the usual fields, one for each layer; theirs are taken from their
  attention modules.
- **xglm**, and experts (**mixtral**, **olmoe**, **qwen2_moe**, **qwen3_moe**, **gpt_oss**), do not run in float64
  themselves.
- **t5** and its like do not scale their scores: float32 itself tells a score of size s only to 6e-8 times s, so that
  weights made later from scores of many tens differ by more than 1e-6 from any other way to compute them.

## Refused

| family | because |
| --- | --- |
"""

_WANTED = (
    "attention.query",
    "attention.output",
    "residual_before",
    "residual_between",
    "feed_forward.hidden",
    "feed_forward.output",
)


@cache
def looked(name: str) -> float:
    """How far weights that are only looked at are from the model's own."""
    each = tried(name)
    return furthest(recorded_weights(each)[0], each.own_weights)


@cache
def opened(name: str) -> tuple[float, float]:
    """How far weights that are computed openly are from the model's own, and how far the output is
    from the family's eager one, under edits of every layer that change nothing."""
    each = tried(name)
    with attnlab.edit(each.model, *same(each)) as certificate:
        weights, output = recorded_weights(each)
    assert certificate.failures == []
    return furthest(weights, each.own_weights), difference(output, logits_of(each.run_eager()))


def document() -> str:
    """Write the whole file."""
    import transformers

    head = _HEAD.format(
        version=transformers.__version__, families=len(FAMILIES), refused=len(REFUSED)
    )
    refused = "".join(f"| {name} | {why} |\n" for name, (_, why) in REFUSED.items())
    return head + "\n".join(_table()) + "\n" + _NOTES + refused


def _table() -> Iterator[str]:
    yield "| family | kind | what is particular | met by | looked at | opened | not there |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for name, family in FAMILIES.items():
        each = tried(name)
        backend = ", ".join(sorted({plan.backend for _, plan in each.model.structure.attentions}))
        is_made = any(point.is_lazy for _, point in each.model.attention_points())
        cells = (
            name,
            family.kind,
            family.has,
            backend,
            _bound(looked(name), is_made),
            _bound(max(opened(name)), not family.is_exact),
            _absent(name),
        )
        yield f"| {' | '.join(cells)} |"


def _bound(found: float, is_made: bool = False) -> str:
    """Write how large a difference is at most: figures of one machine would not be those of
    another."""
    if found == 0.0 and not is_made:
        return "to the bit"
    return next(f"{bound:.0e}".replace("e-0", "e-") for bound in (1e-6, 1e-5) if found <= bound)


def _absent(name: str) -> str:
    sites = attnlab.sites.site_names(tried(name).model)
    return ", ".join(
        f"`{wanted}`" for wanted in _WANTED if not any(site.endswith(wanted) for site in sites)
    )


if __name__ == "__main__":
    torch.set_num_threads(1)  # for models this small, more are slower
    DOCUMENT.write_text(document(), encoding="utf-8")

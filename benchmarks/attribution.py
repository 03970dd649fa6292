"""Attributions of one logit to the tokens of an input, by attnlab, Captum, inseq and interpreto:
how far apart their numbers are, and their time.

    python benchmarks/attribution.py [--rounds 9] [--try]

A small decoder (LLaMA's form) and a small classifier (BERT's) with random weights read a sentence.
Every method is asked for one number for each token; the baseline of a token is the unknown one. A
peer that is not installed is left out, and named: `pip install captum inseq interpreto`. One
thread, processor time. Differences are relative to the largest of ours. What a note calls a sum is
that over tokens, which of integrated gradients is the logit's difference from that of the baseline
(completeness: Sundararajan et al. 2017).
"""

import argparse
import importlib.util
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import Tensor, nn

import attnlab
from results import Table, measured
from timing import interleaved

SPECIAL = ("[PAD]", "[UNK]", "[BOS]", "[EOS]")
SENTENCE = "the cat sat on the mat because it was tired of the rain and a"
ANSWER = "dog"
UNKNOWN, STEPS = 1, 16
PEERS = tuple(
    name for name in ("captum", "inseq", "interpreto") if importlib.util.find_spec(name) is not None
)
Calls = dict[str, Callable[[], Tensor]]
_SIZE = {
    "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4,
}  # fmt: skip


def tokenizer() -> Any:
    """Make a tokenizer of words."""
    words = dict.fromkeys((*SPECIAL, *SENTENCE.split(), ANSWER))
    plain = Tokenizer(models.WordLevel(dict(zip(words, range(99))), unk_token="[UNK]"))  # noqa: B905
    plain.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=plain, pad_token="[PAD]", unk_token="[UNK]", eos_token="[EOS]"
    )


class Subject:
    """A model, its input, the baseline, and the logit that is attributed."""

    def __init__(self, foreign: nn.Module, target: int, embedding: nn.Module) -> None:
        source = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for weight in foreign.parameters():
                if weight.dim() > 1:
                    weight.copy_(
                        torch.randn(weight.shape, generator=source) / weight.shape[-1] ** 0.5
                    )
        self.tokenizer = tokenizer()
        self.foreign, self.embedding, self.target = foreign.eval(), embedding, target
        self.model = attnlab.load(foreign, tokenizer=self.tokenizer)
        self.ids = self.tokenizer(SENTENCE, return_tensors="pt").input_ids
        self.baseline = torch.full_like(self.ids, UNKNOWN)

    def logit(self, ids: Tensor) -> Tensor:
        """Return the logit that is attributed, (batch,)."""
        logits = self.foreign(ids).logits
        return logits[:, -1, self.target] if logits.dim() == 3 else logits[:, self.target]

    def difference(self) -> float:
        """Return the logit less that of the baseline."""
        with torch.no_grad():
            return float(self.logit(self.ids) - self.logit(self.baseline))

    def products(self) -> Tensor:
        """Return gradient times input at the embedding, (token, width)."""
        with attnlab.record(self.model, "embedding", gradients=True) as recording:
            self.logit(self.ids).backward()
        return (recording["embedding"] * recording.gradient("embedding"))[0]

    def patched(self, site: str, **options: Any) -> Tensor:
        """Return what each position of a site adds to the logit, (token,)."""
        found = attnlab.patch_all(
            self.model, self.ids, self.baseline, site, metric="logit", target=self.target, **options
        )
        start = found.ends.clean if found.direction == "noise" else found.ends.corrupted
        return (found.after - start)[:, 0]


def decoder() -> Subject:
    """Return the small decoder, which is asked for its next token."""
    settings = {"num_key_value_heads": 4, "pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3}
    config = transformers.LlamaConfig(vocab_size=20, **_SIZE, **settings)
    foreign = transformers.LlamaForCausalLM(config)
    target = tokenizer().convert_tokens_to_ids(ANSWER)
    return Subject(foreign, target, foreign.model.embed_tokens)


def classifier() -> Subject:
    """Return the small classifier, which is asked for its second class."""
    config = transformers.BertConfig(vocab_size=20, **_SIZE, pad_token_id=0, num_labels=3)
    foreign = transformers.BertForSequenceClassification(config)
    return Subject(foreign, 1, foreign.bert.embeddings)


def gradient_times_input(each: Subject) -> Calls:
    """Gradient times input, at the embedding."""
    calls: Calls = {"attnlab": lambda: each.products().sum(-1)}
    if "captum" in PEERS:
        from captum.attr import LayerGradientXActivation

        captum = LayerGradientXActivation(each.logit, each.embedding)
        calls["captum"] = lambda: captum.attribute(each.ids).sum(-1)[0]
    return calls | _inseq(each, "input_x_gradient") | _interpreto(each, "Saliency")


def integrated_gradients(each: Subject) -> Calls:
    """Integrated gradients at the embedding, in sixteen steps."""
    calls: Calls = {"attnlab": lambda: each.patched("embedding", estimate="integrated")}
    steps = {"n_steps": STEPS}
    calls |= _captum_integrated(each, each.embedding) | _inseq(
        each, "integrated_gradients", **steps
    )
    return calls | _interpreto(each, "IntegratedGradients", n_perturbations=STEPS)


def layer_integrated_gradients(each: Subject) -> Calls:
    """Integrated gradients at the stream before the third layer."""
    site, layer = "layers.2.residual_before", each.foreign.model.layers[1]
    calls: Calls = {"attnlab": lambda: each.patched(site, estimate="integrated")}
    options = {"n_steps": STEPS, "layer": layer}
    return (
        calls
        | _captum_integrated(each, layer)
        | _inseq(each, "layer_integrated_gradients", **options)
    )


def occlusion(each: Subject) -> Calls:
    """The change where one token after the other is replaced by the unknown one."""
    calls: Calls = {"attnlab": lambda: -each.patched("embedding", direction="noise")}
    if "captum" in PEERS:
        from captum.attr import FeatureAblation

        captum = FeatureAblation(each.logit)
        calls["captum"] = lambda: captum.attribute(each.ids, baselines=each.baseline)[0]
    return calls | _inseq(each, "occlusion") | _interpreto(each, "Occlusion")


def attention_weights(each: Subject) -> Calls:
    """The last token's weights, mean over layers and heads."""
    sites = [f"layers.{layer}.attention.weights" for layer in range(4)]

    def ours() -> Tensor:
        recording = attnlab.record(each.model, each.ids, sites)
        return torch.stack([recording[site][0, :, -1] for site in sites]).mean((0, 1))

    return {"attnlab": ours} | _inseq(each, "attention")


def _captum_integrated(each: Subject, layer: nn.Module) -> Calls:
    if "captum" not in PEERS:
        return {}
    from captum.attr import LayerIntegratedGradients

    captum = LayerIntegratedGradients(each.logit, layer)
    options = {"baselines": each.baseline, "n_steps": STEPS, "method": "gausslegendre"}
    return {"captum": lambda: captum.attribute(each.ids, **options).sum(-1)[0]}


def _inseq(each: Subject, method: str, layer: nn.Module | None = None, **options: Any) -> Calls:
    """inseq attributes what generates text."""
    if "inseq" not in PEERS or not hasattr(each.foreign, "lm_head"):
        return {}
    import inseq

    where = {} if layer is None else {"target_layer": layer}
    model = inseq.load_model(each.foreign, method, tokenizer=each.tokenizer, **where)
    quiet = {"show_progress": False, "pretty_progress": False, "attributed_fn": "logit"}

    def ask() -> Tensor:
        output = model.attribute(SENTENCE, f"{SENTENCE} {ANSWER}", **quiet, **options)
        found = output.sequence_attributions[0].target_attributions[: each.ids.shape[1], -1]
        return found.sum(-1) if found.dim() == 2 else found

    def ask_weights() -> Tensor:
        each.foreign.set_attn_implementation("eager")  # the only one that returns them
        output = model.attribute(SENTENCE, f"{SENTENCE} {ANSWER}", **quiet)
        each.foreign.set_attn_implementation("sdpa")
        found = output.sequence_attributions[0].target_attributions
        return found[: each.ids.shape[1], -1].mean((-1, -2))

    if method == "attention":
        del quiet["attributed_fn"]
        return {"inseq": ask_weights}
    return {"inseq": ask}


def _interpreto(each: Subject, method: str, **options: Any) -> Calls:
    if "interpreto" not in PEERS:
        return {}
    import interpreto

    explainer = getattr(interpreto, method)(
        each.foreign, each.tokenizer, granularity=interpreto.Granularity.TOKEN, **options
    )
    generates = hasattr(each.foreign, "lm_head")  # then it reads the answer too
    target: Any = ANSWER if generates else torch.tensor([[each.target]])
    if method == "IntegratedGradients":
        vectors = each.foreign.get_input_embeddings().weight.detach()
        length = each.ids.shape[1] + generates
        explainer.perturbator.baseline = vectors[[UNKNOWN] * length]
    if method == "Occlusion":
        explainer.perturbator.replace_token_id = UNKNOWN

    def ask() -> Tensor:
        return explainer.explain(SENTENCE, target)[0].attributions[0, : each.ids.shape[1]]

    return {"interpreto": ask}


def in_form_of(peer: str, name: str, each: Subject, ours: Tensor) -> tuple[str, Tensor]:
    """Return how else a peer states its numbers, in words, and ours in that form."""
    if (peer, name) == ("inseq", "occlusion"):
        return " from sizes, as it has no signs", ours.abs()
    if (peer, name) == ("interpreto", "gradient × input"):
        return " from mean sizes over the width, as it has no signs", each.products().abs().mean(-1)
    return "", ours


METHODS: Mapping[str, Callable[[Subject], Calls]] = {
    "gradient × input": gradient_times_input,
    "integrated gradients": integrated_gradients,
    "layer integrated gradients": layer_integrated_gradients,
    "occlusion": occlusion,
    "attention weights": attention_weights,
}
_OF_DECODERS = ("layer integrated gradients", "attention weights")


def add(table: Table, name: str, each: Subject, rounds: int) -> None:
    """Compare the numbers of one method, and time it."""
    calls = METHODS[name](each)
    found = {peer: call().detach().double() for peer, call in calls.items()}
    ours = found.pop("attnlab")
    notes = []
    for peer, values in found.items():
        form, alike = in_form_of(peer, name, each, ours)
        apart = float((values - alike).abs().max() / ours.abs().max())
        size = f"differs by {apart:.0e}" if apart > 1e-12 else "is equal"
        notes.append(f"{peer} {size}{form}")
        if "integrated" in name:
            notes[-1] += f", sum {float(values.sum()):+.3f}"
    if "integrated" in name:
        notes.insert(0, f"attnlab's sum {float(ours.sum()):+.3f} of {each.difference():+.3f}")
    times = interleaved(calls, rounds=rounds)
    milliseconds = {
        peer: [1e3 * seconds for seconds in each_time.processor]
        for peer, each_time in times.items()
    }
    table.add(name, milliseconds, unit="ms", note="; ".join(notes))


def main() -> None:
    """Measure, and write the result."""
    parser = argparse.ArgumentParser(description="Attributions beside the peers'.")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--try", dest="is_trial", action="store_true", help="write no result")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    for missing in {"captum", "inseq", "interpreto"} - set(PEERS):
        print(f"not installed, and left out: {missing}")
    for kind, make in (("decoder", decoder), ("classifier", classifier)):
        with measured(
            "attribution",
            kind,
            f"a logit attributed to the 15 tokens of a small {kind}, processor time",
            packages=["transformers", *PEERS],
            keep=not options.is_trial,
            ours=["attnlab"],
            rounds=options.rounds,
        ) as table:
            each = make()
            for name in METHODS:
                if kind == "decoder" or name not in _OF_DECODERS:
                    add(table, name, each, options.rounds)


if __name__ == "__main__":
    main()

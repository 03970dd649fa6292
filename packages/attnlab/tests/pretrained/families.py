"""Tiny random models of many families, one row each, with their modules named by hand."""

import ast
import re
from typing import Any, NamedTuple

import pytest
import torch

__all__ = ["FAMILIES", "REFUSED", "Anatomy", "Family", "each_family", "each_of", "stirred"]


class Anatomy(NamedTuple):
    """Where the parts of a stack's blocks are, by hand: paths from a block on.

    blocks: of the model, `*` for a number · projection: takes the joined heads · output: gives what
    attention adds, if it is not the projection · between: "in PATH" or "out PATH", where the stream
    is after attention · hidden: the projection that is given the hidden layer · added: gives what
    the feed-forward part adds · cross, after_cross: the same for cross-attention. `PATH@1/2` is the
    second of two calls in a block.
    """

    blocks: str
    projection: str = ""
    between: str = ""
    hidden: str = ""
    added: str = ""
    output: str = ""
    cross: str = ""
    after_cross: str = ""


class Family(NamedTuple):
    """One family: `build` gives a new model with its random weights.

    kind: "decoder", "encoder", "encoder–decoder", "vision", "speech", "text and vision" · has: what
    is particular about it · gain: of the random weights, so that float32 can tell scores of this
    family to 1e-6 · is_exact: its own eager attention computes what its usual one does ·
    gives_weights: in the usual fields, one for each layer · in_double: its own code runs in
    float64.
    """

    name: str
    kind: str
    model: str
    config: str
    settings: dict[str, Any]
    has: str
    anatomy: tuple[Anatomy, ...]
    gain: float = 1.0
    gives_weights: bool = True
    is_exact: bool = True
    in_double: bool = True

    def bare(self, **more):
        """Return a new model as its library begins, in evaluation mode."""
        import transformers

        transformers.logging.set_verbosity_error()
        config = getattr(transformers, self.config)(**{**self.settings, **more})
        return getattr(transformers, self.model)(config).eval()

    def build(self, seed=0, **more):
        """Return a new model with stirred weights, in evaluation mode."""
        return stirred(self.bare(**more), seed, self.gain)


def stirred(model, seed=0, gain=1.0):
    """Give a model weights under which attention is sharp and no two norms are alike; set it to
    evaluation mode."""
    source = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=source).to(parameter)
            if parameter.dim() >= 2:
                parameter.copy_(noise * gain * parameter.shape[-1] ** -0.5)
            else:
                parameter.add_(0.2 * noise)
    return model.eval()


_IDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_WORDS = {"vocab_size": 101, **_IDS}
_SHAPE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
_PLAIN = {**_SHAPE, "intermediate_size": 64}
_TEXT = {**_PLAIN, "max_position_embeddings": 64, **_WORDS}
_PICTURE = {**_PLAIN, "image_size": 16, "patch_size": 4}
_HALVES = {"d_model": 32, **_WORDS}
for _half in ("encoder", "decoder"):
    _HALVES |= {f"{_half}_layers": 2, f"{_half}_ffn_dim": 64, f"{_half}_attention_heads": 4}

SETTINGS: dict[str, dict[str, Any]] = {
    "words": _WORDS,
    "shape": _SHAPE,
    "text": _TEXT,
    "grouped": {**_TEXT, "num_key_value_heads": 2},
    "wide": {**_TEXT, "num_key_value_heads": 2, "head_dim": 8},
    "window": {"sliding_window": 4},
    "mixed": {"sliding_window": 4, "layer_types": ["sliding_attention", "full_attention"]},
    "gpt": {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64},
    "gpt_neo": {"hidden_size": 32, "num_layers": 2, "num_heads": 4},
    "xglm": {"d_model": 32, "num_layers": 2, "attention_heads": 4, "ffn_dim": 64},
    "long": {"max_position_embeddings": 64},
    "falcon": {**_SHAPE, "hidden_size": 64, **_WORDS},
    "experts": {"num_experts": 4, "num_experts_per_tok": 2},
    "latent": {
        "q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8,
        "v_head_dim": 12, "n_group": 1, "topk_group": 1, "n_shared_experts": 1,
        "n_routed_experts": 4, "num_experts_per_tok": 2, "first_k_dense_replace": 2,
        "moe_intermediate_size": 16, "num_key_value_heads": 4,
    },
    "distilbert": {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64, **_WORDS},
    "apart": {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]},
    "t5": {
        "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "vocab_size": 101,
        "num_decoder_layers": 2, "decoder_start_token_id": 0,
    },
    "sparse": {"num_experts": 2, "num_sparse_encoder_layers": 2, "num_sparse_decoder_layers": 2},
    "both": {**_HALVES, "max_position_embeddings": 64, "decoder_start_token_id": 2},
    "whisper": {
        **_HALVES, "max_source_positions": 16, "max_target_positions": 32, "num_mel_bins": 8,
        "decoder_start_token_id": 1,
    },
    "sound": {
        **_PLAIN, "vocab_size": 101, "conv_dim": (16, 16), "conv_stride": (5, 4),
        "conv_kernel": (10, 8), "num_feat_extract_layers": 2, "num_conv_pos_embeddings": 16,
        "num_conv_pos_embedding_groups": 2,
    },
    "picture": _PICTURE,
    "swin": {
        "image_size": 16, "patch_size": 2, "embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4],
        "window_size": 4,
    },
    "two": {"text_config": _TEXT, "vision_config": _PICTURE},
}  # fmt: skip

# name: blocks, or another's name | projection | between | hidden | added, or what is different
PARTS = """
llama: model.layers.* | self_attn.o_proj | in post_attention_layernorm | mlp.down_proj | mlp
experts: llama | hidden=
sandwich: llama | between=in pre_feedforward_layernorm | output=post_attention_layernorm |
    added=post_feedforward_layernorm
after: sandwich | between=in mlp
glm4: sandwich | between=in post_attention_layernorm | output=post_self_attn_layernorm |
    added=post_mlp_layernorm
beside: llama | between=
phi: beside | projection=self_attn.dense | hidden=mlp.fc2
persimmon: llama | projection=self_attn.dense | hidden=mlp.dense_4h_to_h
starcoder2: llama | hidden=mlp.c_proj
apertus: llama | between=in feedforward_layernorm
gpt2: transformer.h.* | attn.c_proj | in ln_2 | mlp.c_proj | mlp
gpt_neo: gpt2 | projection=attn.attention.out_proj
openai: gpt2 | between=out ln_1
gptj: transformer.h.* | attn.out_proj | | mlp.fc_out | mlp
gpt_neox: gpt_neox.layers.* | attention.dense | | mlp.dense_4h_to_h | mlp
ctrl: transformer.h.* | multi_head_attention.dense | in layernorm2 | ffn.2 | ffn
opt: model.decoder.layers.* | self_attn.out_proj | in final_layer_norm | fc2 | fc2
biogpt: opt | blocks=biogpt.layers.*
xglm: opt | blocks=model.layers.*
bloom: transformer.h.* | self_attention.dense | in post_attention_layernorm | mlp.dense_4h_to_h |
    mlp.dense_4h_to_h
mpt: transformer.blocks.* | attn.out_proj | in norm_2 | ffn.down_proj | ffn.down_proj
falcon: transformer.h.* | self_attention.dense | | mlp.dense_4h_to_h | mlp
bert: bert.encoder.layer.* | attention.output.dense | out attention.output.LayerNorm |
    output.dense | output.dense
roberta: bert | blocks=roberta.encoder.layer.*
electra: bert | blocks=electra.encoder.layer.*
ernie: bert | blocks=ernie.encoder.layer.*
distilbert: distilbert.transformer.layer.* | attention.out_lin | out sa_layer_norm | ffn.lin2 | ffn
albert: albert.encoder.albert_layer_groups.* | albert_layers.0.attention.dense |
    out albert_layers.0.attention.LayerNorm | albert_layers.0.ffn_output |
    albert_layers.0.ffn_output
modernbert: model.layers.* | attn.Wo | in mlp_norm | mlp.Wo | mlp
deberta: bert | blocks=deberta.encoder.layer.*
esm: bert | blocks=esm.encoder.layer.* | between=in LayerNorm
mpnet: bert | blocks=mpnet.encoder.layer.* | projection=attention.attn.o |
    between=out attention.LayerNorm
roformer: bert | blocks=roformer.encoder.layer.*
xlnet: transformer.layer.* |
t5-reader: encoder.block.* | layer.0.SelfAttention.o | in layer.1.layer_norm |
    layer.1.DenseReluDense.wo | layer.1.DenseReluDense
t5-writer: decoder.block.* | layer.0.SelfAttention.o | in layer.1.layer_norm |
    layer.2.DenseReluDense.wo | layer.2.DenseReluDense | cross=layer.1.EncDecAttention.o |
    after_cross=in layer.2.layer_norm
switch-reader: t5-reader | hidden= | added=layer.1.mlp
switch-writer: t5-writer | hidden= | added=layer.2.mlp
bart-reader: model.encoder.layers.* | self_attn.out_proj | out self_attn_layer_norm | fc2 | fc2
bart-writer: bart-reader | blocks=model.decoder.layers.* | cross=encoder_attn.out_proj |
    after_cross=out encoder_attn_layer_norm
mbart-reader: bart-reader | between=in final_layer_norm
mbart-writer: bart-writer | between=in encoder_attn_layer_norm | after_cross=in final_layer_norm
wav2vec2: wav2vec2.encoder.layers.* | attention.out_proj | out layer_norm |
    feed_forward.output_dense | feed_forward
hubert: wav2vec2 | blocks=hubert.encoder.layers.*
vit: vit.layers.* | attention.o_proj | in layernorm_after | mlp.fc2 | mlp
deit: vit | blocks=deit.layers.*
dinov2: dinov2.encoder.layer.* | attention.o_proj | in norm2 | mlp.fc2 | layer_scale2 |
    output=layer_scale1
beit: vit | blocks=beit.layers.* | output=drop_path@0/2 | added=drop_path@1/2
swin: vit | blocks=swin.encoder.layers.*.blocks.* | output=drop_path
clip-vision: vision_model.encoder.layers.* | self_attn.out_proj | in layer_norm2 | mlp.fc2 | mlp
clip-text: clip-vision | blocks=text_model.encoder.layers.*
"""

# name | class, without the kind's usual end | settings | parts | what is particular about it | more
TABLE = {
    ("decoder", "ForCausalLM"): """
gpt2 | GPT2+LMHeadModel | gpt words | gpt2 | learned positions
gpt_bigcode | GPTBigCode | gpt words | gpt2 | one key and value for all heads
gpt_neo | GPTNeo | gpt_neo long words window_size=4 attention_types=[[["global","local"],1]] |
    gpt_neo | window overflowing; scores not scaled | gain=0.5
gptj | GPTJ | gpt words rotary_dim=4 | gptj | parallel blocks
codegen | CodeGen | gpt words rotary_dim=4 | gptj | parallel blocks
gpt_neox | GPTNeoX | text | gpt_neox | parallel blocks
openai-gpt | OpenAIGPT+LMHeadModel | gpt vocab_size=101 | openai | norms after
ctrl | CTRL+LMHeadModel | gpt words dff=64 | ctrl |
opt | OPT | shape long words ffn_dim=64 word_embed_proj_dim=32 | opt |
biogpt | BioGpt | text | biogpt |
xglm | XGLM | xglm long words | xglm | 3-D softmax | in_double=False
bloom | Bloom | words hidden_size=32 n_layer=2 n_head=4 | bloom | ALiBi; 3-D softmax
mpt | Mpt | d_model=32 n_layers=2 n_heads=4 vocab_size=101 | mpt | ALiBi
falcon | Falcon | falcon | falcon | parallel blocks; one key and value for all heads
falcon (new) | Falcon | falcon num_kv_heads=2 new_decoder_architecture=True | falcon |
    parallel blocks; grouped
falcon (ALiBi) | Falcon | falcon alibi=True | falcon | parallel blocks; ALiBi | is_exact=False
llama | Llama | grouped | llama | grouped
mistral | Mistral | grouped window | llama | grouped; window overflowing
ministral | Ministral | wide mixed | llama | grouped; window overflowing in one layer
qwen2 | Qwen2 | grouped | llama | grouped; biases
qwen3 | Qwen3 | wide | llama | grouped; norms of queries and keys
gemma | Gemma | wide | llama | grouped
gemma2 | Gemma2 | wide mixed query_pre_attn_scalar=8 | sandwich |
    grouped; soft-capped scores; sandwich norms; window overflowing in one layer
gemma3 | Gemma3 | wide mixed | sandwich |
    grouped; sandwich norms; window overflowing in one layer | config="Gemma3TextConfig"
phi | Phi | text | phi | parallel blocks
phi3 | Phi3 | grouped | llama | grouped; queries, keys and values in one projection
cohere | Cohere | grouped | beside | grouped; parallel blocks
cohere2 | Cohere2 | wide mixed | beside | grouped; parallel blocks; window overflowing in one layer
olmo | Olmo | grouped | llama | grouped; norms without weights
olmo2 | Olmo2 | grouped | after | grouped; norms after the parts
olmo3 | Olmo3 | grouped mixed | after | grouped; norms after the parts; window
exaone4 | Exaone4 | wide mixed | after | grouped; norms after the parts; window
glm | Glm | wide | llama | grouped; half of each head is turned
glm4 | Glm4 | wide | glm4 | grouped; sandwich norms
nemotron | Nemotron | wide | llama | grouped; half of each head is turned | gain=0.7
persimmon | Persimmon | text | persimmon | norms of queries and keys
smollm3 | SmolLM3 | grouped no_rope_layers=[1,0] | llama | grouped; a layer without positions
starcoder2 | Starcoder2 | grouped | starcoder2 | grouped; biases
stablelm | StableLm | grouped | llama | grouped
granite | Granite | grouped attention_multiplier=0.3 residual_multiplier=0.5 | llama |
    grouped; what is added is halved
helium | Helium | wide | llama | grouped
apertus | Apertus | grouped | apertus | grouped; norms of queries and keys
mixtral | Mixtral | grouped num_local_experts=2 | experts | grouped; experts | in_double=False
olmoe | Olmoe | grouped experts | experts | grouped; experts | in_double=False
qwen2_moe | Qwen2Moe | grouped moe_intermediate_size=32 shared_expert_intermediate_size=48 experts |
    experts | grouped; experts, one of all | in_double=False
qwen3_moe | Qwen3Moe | wide moe_intermediate_size=32 experts | experts | grouped; experts |
    in_double=False
gpt_oss | GptOss | wide mixed num_local_experts=2 num_experts_per_tok=1 | experts |
    grouped; sinks; experts; window in one layer | in_double=False
deepseek_v3 | DeepseekV3 | text latent | llama | latent keys; values narrower than keys
""",
    ("encoder", "ForMaskedLM"): """
bert | Bert | text | bert | norms after
roberta | Roberta | text | roberta | norms after
electra | Electra | text embedding_size=32 | electra | norms after
ernie | Ernie | text | ernie | norms after
distilbert | DistilBert | distilbert | distilbert | norms after
albert | Albert | text embedding_size=16 | albert | all layers share their weights
modernbert | ModernBert | text local_attention=4 | modernbert | window on both sides
deberta | Deberta | text apart | deberta | relative bias, from content
deberta_v2 | DebertaV2 | text apart | deberta | relative bias, from content; 3-D softmax
esm | Esm | text pad_token_id=1 | esm | proteins; norms before
mpnet | MPNet | text | mpnet | relative bias
roformer | RoFormer | text | roformer | turned queries
big_bird (full) | BigBird | text attention_type="original_full" | bert | norms after
xlnet | XLNet+LMHeadModel | d_model=32 n_layer=2 n_head=4 d_inner=64 vocab_size=101 | xlnet |
    relative bias; length before batch | gain=0.7
""",
    ("encoder–decoder", "ForConditionalGeneration"): """
t5 | T5 | t5 | t5 | relative bias; scores not scaled | gain=0.5
mt5 | MT5 | t5 feed_forward_proj="gated-gelu" | t5 | relative bias; scores not scaled | gain=0.5
switch | SwitchTransformers | t5 sparse | switch | relative bias; experts | gain=0.5
bart | Bart | both | bart | norms after
marian | Marian+MTModel | both decoder_start_token_id=0 | bart | norms after
pegasus | Pegasus | both | mbart | norms before
mbart | MBart | both | mbart | norms before
m2m_100 | M2M100 | both | mbart | norms before
blenderbot | Blenderbot | both | mbart | norms before
whisper | Whisper | whisper | mbart | speech in, text out
""",
    ("speech", "ForCTC"): """
wav2vec2 | Wav2Vec2 | sound | wav2vec2 | norms after
hubert | Hubert | sound | hubert | norms after
""",
    ("vision", "ForImageClassification"): """
vit | ViT | picture | vit |
deit | DeiT | picture | deit |
dinov2 | Dinov2 | shape image_size=16 patch_size=4 | dinov2 | what is added is scaled
beit | Beit | picture use_relative_position_bias=True | beit |
    relative bias; what is added is scaled
swin | Swin | swin | swin | windows, shifted; relative bias; stages | gives_weights=False
""",
    ("text and vision", "Model"): """
clip | CLIP | two | clip | two towers | gives_weights=False
""",
}


def _rows(table):
    """The cells of each entry; what is indented goes on from the line before."""
    for line in re.sub(r"\n +", " ", table).strip().splitlines():
        yield [cell.strip() for cell in line.split("|")]


def _anatomies():
    found: dict[str, Anatomy] = {}
    for head, *cells in _rows(PARTS):
        name, _, blocks = head.partition(": ")
        inherited = found.get(blocks) or Anatomy(
            blocks, *(cell for cell in cells if "=" not in cell)
        )
        found[name] = inherited._replace(**dict(cell.split("=") for cell in cells if "=" in cell))
    return found


def _family(kind, end, name, called, words, parts, has, *more):
    """Make a family of the cells of its row."""
    settings: dict[str, Any] = {}
    for word in words.split():
        key, is_one, value = word.partition("=")
        settings |= {key: ast.literal_eval(value)} if is_one else SETTINGS[key]
    options = {key: ast.literal_eval(value) for key, value in (each.split("=") for each in more)}
    called, _, other_end = called.partition("+")
    return Family(
        name,
        kind,
        called + (other_end or end),
        options.pop("config", f"{called}Config"),
        settings,
        has,
        tuple(each for part, each in ANATOMIES.items() if part.partition("-")[0] == parts),
        **options,
    )


ANATOMIES = _anatomies()
FAMILIES = {
    cells[0]: _family(*kind, *cells) for kind, table in TABLE.items() for cells in _rows(table)
}

SAMPLE = ["gpt2", "bloom", "gemma3", "deepseek_v3", "xlnet", "t5", "swin"]
"""Families as different as they are: fused in one projection; ALiBi and a softmax of three axes;
grouped with windows and sandwich norms; latent; length before batch and no projection; an encoder
with a decoder; windows of a picture. `make test-slow` tries all."""


def each_of(names, always=SAMPLE):
    """Try families, all but a few of them only in the slow run."""
    slow = {name: () if name in always else pytest.mark.slow for name in names}
    return pytest.mark.parametrize("name", [pytest.param(n, marks=m) for n, m in slow.items()])


each_family = each_of(FAMILIES)

_UNMET = "no attention was found in this model"
_MAMBA = "hidden_size=32 num_hidden_layers=2 vocab_size=101"
_REFUSED = [
    ("encoder", "ForMaskedLM", "longformer", "Longformer", "text attention_window=4", "bert", ""),
    ("decoder", "ForCausalLM", "mamba", "Mamba", _MAMBA, "llama", ""),
]
REFUSED = {row[2]: (_family(*row), _UNMET) for row in _REFUSED}

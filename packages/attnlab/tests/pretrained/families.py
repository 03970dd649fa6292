"""Tiny random models of many families, one row each, with their modules named by hand."""

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

    def build(self, seed=0, **more):
        """Return a new model with stirred weights, in evaluation mode."""
        import transformers

        transformers.logging.set_verbosity_error()
        config = getattr(transformers, self.config)(**{**self.settings, **more})
        return stirred(getattr(transformers, self.model)(config), seed, self.gain).eval()


def stirred(model, seed=0, gain=1.0):
    """Give a model weights under which attention is sharp and no two norms are alike."""
    source = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=source).to(parameter)
            if parameter.dim() >= 2:
                parameter.copy_(noise * gain * parameter.shape[-1] ** -0.5)
            else:
                parameter.add_(0.2 * noise)
    return model


_IDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_SHAPE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
_PLAIN = {**_SHAPE, "intermediate_size": 64}
_TEXT = {**_PLAIN, "vocab_size": 101, "max_position_embeddings": 64, **_IDS}
_GROUPED = {**_TEXT, "num_key_value_heads": 2}
_WIDE = {**_GROUPED, "head_dim": 8}
_WINDOW = {"sliding_window": 4}
_MIXED = {**_WINDOW, "layer_types": ["sliding_attention", "full_attention"]}
_GPT = {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 101, "n_positions": 64, **_IDS}
_PICTURE = {**_PLAIN, "image_size": 16, "patch_size": 4}
_HALF = {"layers": 2, "ffn_dim": 64, "attention_heads": 4}
_HALVES = {
    f"{half}_{name}": size for half in ("encoder", "decoder") for name, size in _HALF.items()
}
_HALVES = {"d_model": 32, **_HALVES, "vocab_size": 101, **_IDS}
_BOTH = {**_HALVES, "max_position_embeddings": 64, "decoder_start_token_id": 2}
_T5 = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "vocab_size": 101}
_T5 = {**_T5, "num_decoder_layers": 2, "decoder_start_token_id": 0}
_SOUND = {
    **_PLAIN,
    "vocab_size": 101,
    "conv_dim": (16, 16),
    "conv_stride": (5, 4),
    "conv_kernel": (10, 8),
    "num_feat_extract_layers": 2,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 2,
}
_FALCON = {**_SHAPE, "hidden_size": 64, "vocab_size": 101, **_IDS}
_SWIN = {
    "image_size": 16,
    "patch_size": 2,
    "embed_dim": 16,
    "depths": [2, 2],
    "num_heads": [2, 4],
    "window_size": 4,
}

_LLAMA = Anatomy(
    "model.layers.*", "self_attn.o_proj", "in post_attention_layernorm", "mlp.down_proj", "mlp"
)
_EXPERTS = _LLAMA._replace(hidden="")
_SANDWICH = _LLAMA._replace(
    between="in pre_feedforward_layernorm",
    output="post_attention_layernorm",
    added="post_feedforward_layernorm",
)
_AFTER = _SANDWICH._replace(between="in mlp")
_BESIDE = _LLAMA._replace(between="")
_GPT2 = Anatomy("transformer.h.*", "attn.c_proj", "in ln_2", "mlp.c_proj", "mlp")
_GPTJ = Anatomy("transformer.h.*", "attn.out_proj", "", "mlp.fc_out", "mlp")
_OPT = Anatomy("model.decoder.layers.*", "self_attn.out_proj", "in final_layer_norm", "fc2", "fc2")
_FALCONS = Anatomy("transformer.h.*", "self_attention.dense", "", "mlp.dense_4h_to_h", "mlp")
_BERT = Anatomy(
    "bert.encoder.layer.*",
    "attention.output.dense",
    "out attention.output.LayerNorm",
    "output.dense",
    "output.dense",
)
_VIT = Anatomy("vit.layers.*", "attention.o_proj", "in layernorm_after", "mlp.fc2", "mlp")
_CLIP = Anatomy(
    "text_model.encoder.layers.*", "self_attn.out_proj", "in layer_norm2", "mlp.fc2", "mlp"
)
_SWINS = _VIT._replace(blocks="swin.encoder.layers.*.blocks.*", output="drop_path")
_T5S = (
    Anatomy(
        "encoder.block.*",
        "layer.0.SelfAttention.o",
        "in layer.1.layer_norm",
        "layer.1.DenseReluDense.wo",
        "layer.1.DenseReluDense",
    ),
    Anatomy(
        "decoder.block.*",
        "layer.0.SelfAttention.o",
        "in layer.1.layer_norm",
        "layer.2.DenseReluDense.wo",
        "layer.2.DenseReluDense",
        cross="layer.1.EncDecAttention.o",
        after_cross="in layer.2.layer_norm",
    ),
)
_BARTS = (
    Anatomy(
        "model.encoder.layers.*", "self_attn.out_proj", "out self_attn_layer_norm", "fc2", "fc2"
    ),
    Anatomy(
        "model.decoder.layers.*",
        "self_attn.out_proj",
        "out self_attn_layer_norm",
        "fc2",
        "fc2",
        cross="encoder_attn.out_proj",
        after_cross="out encoder_attn_layer_norm",
    ),
)
_MBARTS = (
    _BARTS[0]._replace(between="in final_layer_norm"),
    _BARTS[1]._replace(between="in encoder_attn_layer_norm", after_cross="in final_layer_norm"),
)
_WAV = Anatomy(
    "wav2vec2.encoder.layers.*",
    "attention.out_proj",
    "out layer_norm",
    "feed_forward.output_dense",
    "feed_forward",
)


def _families(kind, head):
    """Return a function that makes a row of one kind; `called` is how classes begin."""

    def family(name, called, settings, has, *anatomy, **more):
        config, anatomy = more.pop("config", f"{called}Config"), anatomy or (_LLAMA,)
        return Family(name, kind, f"{called}{head}", config, settings, has, anatomy, **more)

    return family


_causal, _decoder = _families("decoder", "ForCausalLM"), _families("decoder", "LMHeadModel")
_masked, _encoder = _families("encoder", "ForMaskedLM"), _families("encoder", "LMHeadModel")
_both = _families("encoder–decoder", "ForConditionalGeneration")
_speech, _picture = _families("speech", "ForCTC"), _families("vision", "ForImageClassification")


def _decoders():
    yield _decoder("gpt2", "GPT2", _GPT, "learned positions", _GPT2)
    bigcode = "one key and value for all heads"
    yield _causal("gpt_bigcode", "GPTBigCode", _GPT, bigcode, _GPT2)
    neo = {
        "hidden_size": 32,
        "num_layers": 2,
        "num_heads": 4,
        "max_position_embeddings": 64,
        **_IDS,
    }
    neo |= {"attention_types": [[["global", "local"], 1]], "vocab_size": 101, "window_size": 4}
    neo_parts = _GPT2._replace(projection="attn.attention.out_proj")
    yield _causal(
        "gpt_neo", "GPTNeo", neo, "window overflowing; scores not scaled", neo_parts, gain=0.5
    )
    yield _causal("gptj", "GPTJ", {**_GPT, "rotary_dim": 4}, "parallel blocks", _GPTJ)
    yield _causal("codegen", "CodeGen", {**_GPT, "rotary_dim": 4}, "parallel blocks", _GPTJ)
    neox = Anatomy("gpt_neox.layers.*", "attention.dense", "", "mlp.dense_4h_to_h", "mlp")
    yield _causal("gpt_neox", "GPTNeoX", _TEXT, "parallel blocks", neox)
    after = Anatomy("transformer.h.*", "attn.c_proj", "out ln_1", "mlp.c_proj", "mlp")
    openai = {name: each for name, each in _GPT.items() if name not in _IDS}
    yield _decoder("openai-gpt", "OpenAIGPT", openai, "norms after", after)
    ctrl = Anatomy("transformer.h.*", "multi_head_attention.dense", "in layernorm2", "ffn.2", "ffn")
    yield _decoder("ctrl", "CTRL", {**_GPT, "dff": 64}, "", ctrl)
    opt = {**_SHAPE, "ffn_dim": 64, "word_embed_proj_dim": 32, "vocab_size": 101}
    opt |= {"max_position_embeddings": 64, **_IDS}
    yield _causal("opt", "OPT", opt, "", _OPT)
    yield _causal("biogpt", "BioGpt", _TEXT, "", _OPT._replace(blocks="biogpt.layers.*"))
    xglm = {"d_model": 32, "num_layers": 2, "attention_heads": 4, "ffn_dim": 64, "vocab_size": 101}
    xglm |= {"max_position_embeddings": 64, **_IDS}
    yield _causal(
        "xglm", "XGLM", xglm, "3-D softmax", _OPT._replace(blocks="model.layers.*"), in_double=False
    )
    bloom = {"hidden_size": 32, "n_layer": 2, "n_head": 4, "vocab_size": 101, **_IDS}
    bloom_parts = Anatomy(
        "transformer.h.*",
        "self_attention.dense",
        "in post_attention_layernorm",
        "mlp.dense_4h_to_h",
        "mlp.dense_4h_to_h",
    )
    yield _causal("bloom", "Bloom", bloom, "ALiBi; 3-D softmax", bloom_parts)
    mpt = Anatomy(
        "transformer.blocks.*", "attn.out_proj", "in norm_2", "ffn.down_proj", "ffn.down_proj"
    )
    yield _causal(
        "mpt", "Mpt", {"d_model": 32, "n_layers": 2, "n_heads": 4, "vocab_size": 101}, "ALiBi", mpt
    )
    yield _causal(
        "falcon", "Falcon", _FALCON, "parallel blocks; one key and value for all heads", _FALCONS
    )
    new = {**_FALCON, "num_kv_heads": 2, "new_decoder_architecture": True}
    yield _causal("falcon (new)", "Falcon", new, "parallel blocks; grouped", _FALCONS)
    alibi = {**_FALCON, "alibi": True}
    yield _causal(
        "falcon (ALiBi)", "Falcon", alibi, "parallel blocks; ALiBi", _FALCONS, is_exact=False
    )


def _llamas():
    yield _causal("llama", "Llama", _GROUPED, "grouped")
    yield _causal("mistral", "Mistral", {**_GROUPED, **_WINDOW}, "grouped; window overflowing")
    yield _causal(
        "ministral", "Ministral", {**_WIDE, **_MIXED}, "grouped; window overflowing in one layer"
    )
    yield _causal("qwen2", "Qwen2", _GROUPED, "grouped; biases")
    yield _causal("qwen3", "Qwen3", _WIDE, "grouped; norms of queries and keys")
    yield _causal("gemma", "Gemma", _WIDE, "grouped")
    capped = "grouped; soft-capped scores; sandwich norms; window overflowing in one layer"
    yield _causal(
        "gemma2", "Gemma2", {**_WIDE, **_MIXED, "query_pre_attn_scalar": 8}, capped, _SANDWICH
    )
    sandwich = "grouped; sandwich norms; window overflowing in one layer"
    third = {**_WIDE, **_MIXED}
    yield _causal("gemma3", "Gemma3", third, sandwich, _SANDWICH, config="Gemma3TextConfig")
    yield _causal(
        "phi",
        "Phi",
        _TEXT,
        "parallel blocks",
        _BESIDE._replace(projection="self_attn.dense", hidden="mlp.fc2"),
    )
    yield _causal("phi3", "Phi3", _GROUPED, "grouped; queries, keys and values in one projection")
    yield _causal("cohere", "Cohere", _GROUPED, "grouped; parallel blocks", _BESIDE)
    windowed = "grouped; parallel blocks; window overflowing in one layer"
    yield _causal("cohere2", "Cohere2", {**_WIDE, **_MIXED}, windowed, _BESIDE)
    yield _causal("olmo", "Olmo", _GROUPED, "grouped; norms without weights")
    yield _causal("olmo2", "Olmo2", _GROUPED, "grouped; norms after the parts", _AFTER)
    yield _causal(
        "olmo3", "Olmo3", {**_GROUPED, **_MIXED}, "grouped; norms after the parts; window", _AFTER
    )
    yield _causal(
        "exaone4", "Exaone4", {**_WIDE, **_MIXED}, "grouped; norms after the parts; window", _AFTER
    )
    glm4 = _SANDWICH._replace(
        between="in post_attention_layernorm",
        output="post_self_attn_layernorm",
        added="post_mlp_layernorm",
    )
    yield _causal("glm", "Glm", _WIDE, "grouped; half of each head is turned")
    yield _causal("glm4", "Glm4", _WIDE, "grouped; sandwich norms", glm4)
    nemotron = "grouped; half of each head is turned"
    yield _causal("nemotron", "Nemotron", _WIDE, nemotron, gain=0.7)
    persimmon = _LLAMA._replace(projection="self_attn.dense", hidden="mlp.dense_4h_to_h")
    yield _causal("persimmon", "Persimmon", _TEXT, "norms of queries and keys", persimmon)
    yield _causal(
        "smollm3",
        "SmolLM3",
        {**_GROUPED, "no_rope_layers": [1, 0]},
        "grouped; a layer without positions",
    )
    yield _causal(
        "starcoder2",
        "Starcoder2",
        _GROUPED,
        "grouped; biases",
        _LLAMA._replace(hidden="mlp.c_proj"),
    )
    yield _causal("stablelm", "StableLm", _GROUPED, "grouped")
    scaled = {"attention_multiplier": 0.3, "residual_multiplier": 0.5}
    yield _causal(
        "granite", "Granite", {**_GROUPED, **scaled}, "grouped; what is added is halved", _LLAMA
    )
    yield _causal("helium", "Helium", _WIDE, "grouped")
    apertus = _LLAMA._replace(between="in feedforward_layernorm")
    yield _causal("apertus", "Apertus", _GROUPED, "grouped; norms of queries and keys", apertus)
    few = {"num_experts": 4, "num_experts_per_tok": 2}
    yield _causal(
        "mixtral",
        "Mixtral",
        {**_GROUPED, "num_local_experts": 2},
        "grouped; experts",
        _EXPERTS,
        in_double=False,
    )
    yield _causal(
        "olmoe", "Olmoe", {**_GROUPED, **few}, "grouped; experts", _EXPERTS, in_double=False
    )
    shared = {"moe_intermediate_size": 32, "shared_expert_intermediate_size": 48, **few}
    yield _causal(
        "qwen2_moe",
        "Qwen2Moe",
        {**_GROUPED, **shared},
        "grouped; experts, one of all",
        _EXPERTS,
        in_double=False,
    )
    qwen = {**_WIDE, "moe_intermediate_size": 32, **few}
    yield _causal("qwen3_moe", "Qwen3Moe", qwen, "grouped; experts", _EXPERTS, in_double=False)
    sinks = {**_WIDE, **_MIXED, "num_local_experts": 2, "num_experts_per_tok": 1}
    yield _causal(
        "gpt_oss",
        "GptOss",
        sinks,
        "grouped; sinks; experts; window in one layer",
        _EXPERTS,
        in_double=False,
    )
    latent = {"q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8}
    latent |= {"v_head_dim": 12, "n_group": 1, "topk_group": 1, "n_shared_experts": 1}
    latent |= {"n_routed_experts": 4, "num_experts_per_tok": 2}
    latent |= {"first_k_dense_replace": 2, "moe_intermediate_size": 16, "num_key_value_heads": 4}
    yield _causal(
        "deepseek_v3", "DeepseekV3", {**_TEXT, **latent}, "latent keys; values narrower than keys"
    )


def _encoders():
    yield _masked("bert", "Bert", _TEXT, "norms after", _BERT)
    for name in ("Roberta", "Electra", "Ernie"):
        settings = {**_TEXT, "embedding_size": 32} if name == "Electra" else _TEXT
        parts = _BERT._replace(blocks=f"{name.lower()}.encoder.layer.*")
        yield _masked(name.lower(), name, settings, "norms after", parts)
    distil = Anatomy(
        "distilbert.transformer.layer.*",
        "attention.out_lin",
        "out sa_layer_norm",
        "ffn.lin2",
        "ffn",
    )
    small = {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64, "vocab_size": 101, **_IDS}
    yield _masked("distilbert", "DistilBert", small, "norms after", distil)
    shared = Anatomy(
        "albert.encoder.albert_layer_groups.*",
        "albert_layers.0.attention.dense",
        "out albert_layers.0.attention.LayerNorm",
        "albert_layers.0.ffn_output",
        "albert_layers.0.ffn_output",
    )
    yield _masked(
        "albert",
        "Albert",
        {**_TEXT, "embedding_size": 16},
        "all layers share their weights",
        shared,
    )
    modern = Anatomy("model.layers.*", "attn.Wo", "in mlp_norm", "mlp.Wo", "mlp")
    yield _masked(
        "modernbert", "ModernBert", {**_TEXT, "local_attention": 4}, "window on both sides", modern
    )
    apart = {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]}
    deberta = _BERT._replace(blocks="deberta.encoder.layer.*")
    yield _masked("deberta", "Deberta", {**_TEXT, **apart}, "relative bias, from content", deberta)
    yield _masked(
        "deberta_v2",
        "DebertaV2",
        {**_TEXT, **apart},
        "relative bias, from content; 3-D softmax",
        deberta,
    )
    esm = _BERT._replace(blocks="esm.encoder.layer.*", between="in LayerNorm")
    yield _masked("esm", "Esm", {**_TEXT, "pad_token_id": 1}, "proteins; norms before", esm)
    mpnet = _BERT._replace(
        blocks="mpnet.encoder.layer.*",
        projection="attention.attn.o",
        between="out attention.LayerNorm",
    )
    yield _masked("mpnet", "MPNet", _TEXT, "relative bias", mpnet)
    yield _masked(
        "roformer",
        "RoFormer",
        _TEXT,
        "turned queries",
        _BERT._replace(blocks="roformer.encoder.layer.*"),
    )
    full = {**_TEXT, "attention_type": "original_full"}
    yield _masked("big_bird (full)", "BigBird", full, "norms after", _BERT)
    xlnet = {"d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 64, "vocab_size": 101}
    has = "relative bias; length before batch"
    yield _encoder("xlnet", "XLNet", xlnet, has, Anatomy("transformer.layer.*"), gain=0.7)


def _others():
    yield _both("t5", "T5", _T5, "relative bias; scores not scaled", *_T5S, gain=0.5)
    gated = {**_T5, "feed_forward_proj": "gated-gelu"}
    yield _both("mt5", "MT5", gated, "relative bias; scores not scaled", *_T5S, gain=0.5)
    experts = {**_T5, "num_experts": 2}
    experts |= {"num_sparse_encoder_layers": 2, "num_sparse_decoder_layers": 2}
    routed = tuple(
        each._replace(hidden="", added=each.added.replace("DenseReluDense", "mlp")) for each in _T5S
    )
    yield _both(
        "switch", "SwitchTransformers", experts, "relative bias; experts", *routed, gain=0.5
    )
    yield _both("bart", "Bart", _BOTH, "norms after", *_BARTS)
    marian = {**_BOTH, "decoder_start_token_id": 0}
    translator = _families("encoder–decoder", "MTModel")
    yield translator("marian", "Marian", marian, "norms after", *_BARTS)
    yield _both("pegasus", "Pegasus", _BOTH, "norms before", *_MBARTS)
    yield _both("mbart", "MBart", _BOTH, "norms before", *_MBARTS)
    yield _both("m2m_100", "M2M100", _BOTH, "norms before", *_MBARTS)
    yield _both("blenderbot", "Blenderbot", _BOTH, "norms before", *_MBARTS)
    whisper = {**_HALVES, "max_source_positions": 16, "max_target_positions": 32}
    whisper |= {"num_mel_bins": 8, "decoder_start_token_id": 1}
    yield _both("whisper", "Whisper", whisper, "speech in, text out", *_MBARTS)
    yield _speech("wav2vec2", "Wav2Vec2", _SOUND, "norms after", _WAV)
    hubert = _WAV._replace(blocks="hubert.encoder.layers.*")
    yield _speech("hubert", "Hubert", _SOUND, "norms after", hubert)
    yield _picture("vit", "ViT", _PICTURE, "", _VIT)
    yield _picture("deit", "DeiT", _PICTURE, "", _VIT._replace(blocks="deit.layers.*"))
    dino = Anatomy(
        "dinov2.encoder.layer.*",
        "attention.o_proj",
        "in norm2",
        "mlp.fc2",
        "layer_scale2",
        output="layer_scale1",
    )
    without = {**_SHAPE, "image_size": 16, "patch_size": 4}
    yield _picture("dinov2", "Dinov2", without, "what is added is scaled", dino)
    beit = _VIT._replace(blocks="beit.layers.*", output="drop_path@0/2", added="drop_path@1/2")
    relative = {**_PICTURE, "use_relative_position_bias": True}
    yield _picture("beit", "Beit", relative, "relative bias; what is added is scaled", beit)
    swin = "windows, shifted; relative bias; stages"
    yield _picture("swin", "Swin", _SWIN, swin, _SWINS, gives_weights=False)
    towers = (_CLIP._replace(blocks="vision_model.encoder.layers.*"), _CLIP)
    two = {"text_config": {**_TEXT}, "vision_config": _PICTURE}

    clip = _families("text and vision", "Model")
    yield clip("clip", "CLIP", two, "two towers", *towers, gives_weights=False)


FAMILIES = {each.name: each for part in (_decoders, _llamas, _encoders, _others) for each in part()}

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
_LONGFORMER = {**_TEXT, "attention_window": 4}
_MAMBA = {"hidden_size": 32, "num_hidden_layers": 2, "vocab_size": 101}

REFUSED: dict[str, tuple[Family, str]] = {
    "longformer": (_masked("longformer", "Longformer", _LONGFORMER, "", _BERT), _UNMET),
    "mamba": (_causal("mamba", "Mamba", _MAMBA, ""), _UNMET),
}

"""Tiny pretrained models with tokenizers of all three kinds."""

import functools

import torch

SENTENCES = [
    "John and Mary went to the store. Mary gave a drink to John.",
    "The café is open… 🙂 unbelievable\n",
    "a warm funny film with a heart",
    "the cat sat on the mat and the dog sat on the cat",
] * 3
CLASSES = {0: "bad", 1: "good", 2: "odd"}
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
SIZES["intermediate_size"] = 64
ENDS = {"bos_token_id": 0, "eos_token_id": 0}


@functools.cache
def byte_level():
    """As GPT-2's: every byte has a letter."""
    import transformers
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet, end = pre_tokenizers.ByteLevel.alphabet(), "<|endoftext|>"
    trainer = trainers.BpeTrainer(
        vocab_size=360, special_tokens=[end], initial_alphabet=alphabet, show_progress=False
    )
    made.train_from_iterator(SENTENCES, trainer)
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made, eos_token=end, bos_token=end)


@functools.cache
def word_piece():
    """As BERT's: lower case, `##` inside words."""
    import transformers
    from tokenizers import (
        Tokenizer,
        decoders,
        models,
        normalizers,
        pre_tokenizers,
        processors,
        trainers,
    )

    special = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
    made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer, made.decoder = pre_tokenizers.BertPreTokenizer(), decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(
        vocab_size=120, special_tokens=list(special.values()), show_progress=False
    )
    made.train_from_iterator(SENTENCES, trainer)
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(name, made.token_to_id(name)) for name in ("[CLS]", "[SEP]")],
    )
    named = {f"{kind}_token": name for kind, name in special.items()}
    gives = ["input_ids", "token_type_ids", "attention_mask"]
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, model_input_names=gives, **named
    )


@functools.cache
def sentence_piece():
    """As T5's: `▁` before words, `</s>` at the end."""
    import transformers
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    made = Tokenizer(models.Unigram())
    made.pre_tokenizer, made.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    special = ["<pad>", "</s>", "<unk>"]
    trainer = trainers.UnigramTrainer(
        vocab_size=120, special_tokens=special, unk_token="<unk>", show_progress=False
    )
    made.train_from_iterator(SENTENCES, trainer)
    made.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 1)]
    )
    named = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made, **named)


def made(kind):
    """Make a model and its tokenizer: "gpt2", "gpt2-bare", "llama", "t5", "bert", "bert-masked"."""
    import transformers as hf

    torch.manual_seed(0)
    if kind.startswith("gpt2"):
        shape = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 40}
        config = hf.GPT2Config(vocab_size=len(byte_level()), **shape, **ENDS)
        model_class = hf.GPT2Model if kind == "gpt2-bare" else hf.GPT2LMHeadModel
        return model_class(config).eval(), byte_level()
    if kind == "llama":  # with more ids than the tokenizer knows
        sizes = {**SIZES, **ENDS, "vocab_size": len(byte_level()) + 8, "num_key_value_heads": 2}
        return hf.LlamaForCausalLM(hf.LlamaConfig(**sizes)).eval(), byte_level()
    if kind == "t5":
        ends = {"decoder_start_token_id": 0, "pad_token_id": 0, "eos_token_id": 1}
        shape = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4}
        config = hf.T5Config(vocab_size=len(sentence_piece()), **shape, **ends)
        return hf.T5ForConditionalGeneration(config).eval(), sentence_piece()
    labels = {"id2label": CLASSES, "label2id": {name: number for number, name in CLASSES.items()}}
    config = hf.BertConfig(
        vocab_size=len(word_piece()), max_position_embeddings=40, **SIZES, **labels
    )
    model_class = {
        "bert": hf.BertModel,
        "bert-masked": hf.BertForMaskedLM,
        "bert-judge": hf.BertForSequenceClassification,
        "bert-tags": hf.BertForTokenClassification,
    }[kind]
    return model_class(config).eval(), word_piece()


@functools.cache
def opened(kind):
    """One with its hook points, made once and not to be changed."""
    from attnlab.pretrained.attach import attach

    model, tokenizer = made(kind)
    return attach(model, tokenizer=tokenizer, name=kind)


def saved(kind, folder):
    """Save one as a folder."""
    model, tokenizer = made(kind)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder

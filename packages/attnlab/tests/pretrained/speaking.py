"""Tiny pretrained models with tokenizers of all three kinds."""

import functools

import torch

from tests.pretrained.families import FAMILIES

SENTENCES = [
    "John and Mary went to the store. Mary gave a drink to John.",
    "The café is open… 🙂 unbelievable\n",
    "a warm funny film with a heart",
    "the cat sat on the mat and the dog sat on the cat",
] * 3
CLASSES = {0: "bad", 1: "good", 2: "odd"}


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


_LABELS = {"id2label": CLASSES, "label2id": {name: number for number, name in CLASSES.items()}}
_TINY = {"max_position_embeddings": 40}
_ENDS = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": None}
_GPT2 = ("gpt2", byte_level, {"n_positions": 40, **_ENDS})
_LLAMA = ("llama", byte_level, {"max_position_embeddings": 2048, **_ENDS})
KINDS = {  # the class, its family, its tokenizer, and what else its config says
    "gpt2": ("GPT2LMHeadModel", *_GPT2),
    "gpt2-bare": ("GPT2Model", *_GPT2),
    "llama": ("LlamaForCausalLM", *_LLAMA),
    "t5": ("T5ForConditionalGeneration", "t5", sentence_piece, {}),
    "bert": ("BertModel", "bert", word_piece, _TINY),
    "bert-masked": ("BertForMaskedLM", "bert", word_piece, _TINY),
    "bert-judge": ("BertForSequenceClassification", "bert", word_piece, {**_TINY, **_LABELS}),
    "bert-tags": ("BertForTokenClassification", "bert", word_piece, {**_TINY, **_LABELS}),
}


def made(kind):
    """Make a model of a kind and its tokenizer."""
    name, family, tokenizer, more = KINDS[kind]
    size = len(tokenizer()) + 8 * (kind == "llama")  # more ids than the tokenizer knows
    torch.manual_seed(0)
    return FAMILIES[family]._replace(model=name).bare(vocab_size=size, **more), tokenizer()


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

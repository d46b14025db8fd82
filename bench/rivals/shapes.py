#!/usr/bin/env python3
"""shapes.py SHAPE FOLDER: writes a model of a usual shape with random weights, where no real ones are at hand.

SHAPE is llama-1b (1.24 G parameters, 2.5 GB in bf16), bert-base, t5-base or bart-base. Speed does not depend on the values; what
such a model writes means nothing. Needs torch and transformers (`install.sh torch FOLDER`).
"""

import json
import os
import sys

import torch
import transformers


def byte_alphabet():
    """The characters that stand for bytes in byte-level vocabularies, in the order of bytes."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters, hidden = {}, 0
    for byte in range(256):
        letters[byte] = chr(byte) if byte in shown else chr(256 + hidden)
        hidden += byte not in shown
    return [letters[byte] for byte in range(256)]


def vocabulary(size, special):
    """Special tokens, bytes, and tokens that no text has, so many in all."""
    known = [*special, *byte_alphabet()]
    return {token: id for id, token in enumerate([*known, *(f"unused {i}" for i in range(size - len(known)))])}


def tokenizer(size, special):
    """A tokenizer of single bytes."""
    added = [
        {"id": id, "content": token, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
        for id, token in enumerate(special)
    ]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    model = {"type": "BPE", "vocab": vocabulary(size, special), "merges": [], "byte_fallback": False, "fuse_unk": False}
    return {
        "version": "1.0",
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {**model, "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None},
    }


def llama_1b():
    config = transformers.LlamaConfig(
        vocab_size=128256, hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_attention_heads=32,
        num_key_value_heads=8, head_dim=64, max_position_embeddings=131072, rms_norm_eps=1e-5, tie_word_embeddings=True,
        bos_token_id=0, eos_token_id=1,
        rope_parameters={"rope_type": "default", "rope_theta": 500000.0},
    )
    return transformers.LlamaForCausalLM, config, ["<s>", "</s>"]


def bert_base():
    return transformers.BertModel, transformers.BertConfig(), ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def t5_base():
    config = transformers.T5Config(
        d_model=768, d_kv=64, d_ff=3072, num_layers=12, num_heads=12, vocab_size=32128, decoder_start_token_id=0
    )
    return transformers.T5ForConditionalGeneration, config, ["<pad>", "</s>", "<unk>"]


def bart_base():
    config = transformers.BartConfig(
        d_model=768, encoder_layers=6, decoder_layers=6, encoder_attention_heads=12, decoder_attention_heads=12,
        encoder_ffn_dim=3072, decoder_ffn_dim=3072, vocab_size=50265,
        # As in published files: CTranslate2's converter looks for them.
        normalize_before=False, normalize_embedding=True, add_final_layer_norm=False, static_position_embeddings=False,
        add_bias_logits=False,
    )
    return transformers.BartForConditionalGeneration, config, ["<s>", "<pad>", "</s>", "<unk>"]


SHAPES = {"llama-1b": llama_1b, "bert-base": bert_base, "t5-base": t5_base, "bart-base": bart_base}


def main():
    if len(sys.argv) != 3 or sys.argv[1] not in SHAPES:
        sys.exit(__doc__.strip())
    kind, config, special = SHAPES[sys.argv[1]]()
    folder = sys.argv[2]
    torch.manual_seed(1)
    torch.set_default_dtype(torch.bfloat16 if sys.argv[1] == "llama-1b" else torch.float32)
    kind(config).save_pretrained(folder)
    size = config.vocab_size
    with open(os.path.join(folder, "tokenizer.json"), "w") as file:
        json.dump(tokenizer(size, special), file)
    ends = {"<s>": "bos_token", "</s>": "eos_token", "<pad>": "pad_token", "<unk>": "unk_token"}
    berts = {"[PAD]": "pad_token", "[UNK]": "unk_token", "[CLS]": "cls_token", "[SEP]": "sep_token", "[MASK]": "mask_token"}
    named = {name: token for token, name in {**ends, **berts}.items() if token in special}
    with open(os.path.join(folder, "tokenizer_config.json"), "w") as file:
        json.dump({"tokenizer_class": "PreTrainedTokenizerFast", **named}, file)


if __name__ == "__main__":
    main()

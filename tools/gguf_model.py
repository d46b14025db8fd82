"""A GGUF file as a transformers model in float32 and a `tokenizers` pipeline.

The gguf package unpacks the weights; nothing is rounded. The vocabulary, its merges and its pre-tokenizer are rebuilt from
the metadata. Knows llama, qwen2 and gemma3.
"""

import sys

import gguf
import numpy as np
import tokenizers
import torch
import transformers
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers.initialization import no_init_weights

QWEN2_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CONTROL, USER_DEFINED, BYTE = 3, 4, 6  # tokenizer.ggml.token_type


class Gguf:
    """Metadata and tensors of a GGUF file."""

    def __init__(self, path):
        reader = gguf.GGUFReader(path)
        self.meta = {key: field.contents() for key, field in reader.fields.items()}
        self.tensors = {tensor.name: tensor for tensor in reader.tensors}
        self.arch = self.meta["general.architecture"]

    def get(self, key, default=None):
        """A metadata value under the architecture's prefix."""
        return self.meta.get(f"{self.arch}.{key}", default)

    def read(self, name):
        """The tensor in float32, rows first."""
        tensor = self.tensors[name]
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        return torch.from_numpy(np.require(values, np.float32, ["C", "W", "O"]))


LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
GEMMA3_NAMES = {
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
TOP_NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}


def gguf_config(file):
    """The transformers config that the metadata describes."""
    heads = file.get("attention.head_count")
    width = file.get("embedding_length")
    common = {
        "vocab_size": len(file.meta["tokenizer.ggml.tokens"]),
        "hidden_size": width,
        "intermediate_size": file.get("feed_forward_length"),
        "num_hidden_layers": file.get("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": file.get("attention.head_count_kv", heads),
        "head_dim": file.get("attention.key_length", width // heads),
        "max_position_embeddings": file.get("context_length"),
        "rms_norm_eps": file.get("attention.layer_norm_rms_epsilon"),
        "tie_word_embeddings": "output.weight" not in file.tensors,
        "bos_token_id": file.meta.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": file.meta.get("tokenizer.ggml.eos_token_id"),
        "pad_token_id": None,
    }
    rope = {"rope_type": "default", "rope_theta": file.get("rope.freq_base", 10000.0)}
    if file.arch == "gemma3":
        # What the format leaves to the architecture: five local layers to a global one, base 10000 in the local ones.
        layers = range(common["num_hidden_layers"])
        return transformers.Gemma3TextConfig(
            **common,
            sliding_window=file.get("attention.sliding_window"),
            layer_types=["full_attention" if (i + 1) % 6 == 0 else "sliding_attention" for i in layers],
            query_pre_attn_scalar=common["head_dim"],
            rope_parameters={
                "full_attention": rope,
                "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
            },
        )
    kinds = {"llama": transformers.LlamaConfig, "qwen2": transformers.Qwen2Config}
    if file.arch not in kinds:
        sys.exit(f"error: {file.arch}: this script knows llama, qwen2 and gemma3")
    return kinds[file.arch](**common, rope_parameters=rope)


def hub_name(file, name):
    """`blk.3.attn_q.weight` under its Hugging Face name."""
    stem, _, kind = name.rpartition(".")
    if not stem.startswith("blk."):
        return f"{TOP_NAMES[stem]}.{kind}"
    _, layer, part = stem.split(".")
    table = {**LAYER_NAMES, **GEMMA3_NAMES} if file.arch == "gemma3" else LAYER_NAMES
    return f"model.layers.{layer}.{table[part]}.{kind}"


def unpermute(weight, heads):
    """Undo the row order that llama files have for interleaved rotary pairs."""
    pairs = weight.shape[0] // heads // 2
    return weight.reshape(heads, pairs, 2, -1).swapaxes(1, 2).reshape(weight.shape).contiguous()


def gguf_weights(file, config):
    """Every tensor in float32 under its Hugging Face name, with the values the file's own arithmetic gives."""
    weights = {}
    for name in file.tensors:
        if name == "rope_freqs.weight":
            sys.exit("error: rope_freqs.weight: frequency factors are not handled")
        weight = file.read(name)
        if file.arch == "llama" and name.endswith("attn_q.weight"):
            weight = unpermute(weight, config.num_attention_heads)
        if file.arch == "llama" and name.endswith("attn_k.weight"):
            weight = unpermute(weight, config.num_key_value_heads)
        if file.arch == "gemma3" and name.endswith("norm.weight"):
            # The file holds 1 + w, transformers wants w and adds the 1 again: the round trip has to be exact.
            shifted = weight - 1
            if not torch.equal(shifted + 1, weight):
                sys.exit(f"error: {name}: 1 + (w - 1) is not w in float32")
            weight = shifted
        weights[hub_name(file, name)] = weight
    return weights


def gguf_model(file):
    config = gguf_config(file)
    config._attn_implementation = "eager"
    kinds = {
        "llama": transformers.LlamaForCausalLM,
        "qwen2": transformers.Qwen2ForCausalLM,
        "gemma3": transformers.Gemma3ForCausalLM,
    }
    with no_init_weights():  # no random weights: their memory is never touched
        model = kinds[file.arch](config)
    missing, unexpected = model.load_state_dict(gguf_weights(file, config), strict=False, assign=True)
    if unexpected or [name for name in missing if name != "lm_head.weight" or not config.tie_word_embeddings]:
        sys.exit(f"error: missing tensors {missing}, unexpected {unexpected}")
    model.tie_weights()
    return model.float().eval()


def merges_from_scores(tokens, scores):
    """The merges of a SentencePiece BPE vocabulary: each way to split a piece into two others, best score first."""
    ids = {token: i for i, token in enumerate(tokens)}
    found = []
    for token, score in zip(tokens, scores):
        ways = [(token[:k], token[k:]) for k in range(1, len(token))]
        ways = [(left, right) for left, right in ways if left in ids and right in ids]
        ways.sort(key=lambda way: (ids[way[0]], ids[way[1]]))
        found.extend((score, way) for way in ways)
    found.sort(key=lambda entry: -entry[0])
    return [way for _, way in found]


def byte_level_tokenizer(tokens, merges, kind):
    split = {
        "smollm": pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        ),
        "qwen2": pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(tokenizers.Regex(QWEN2_SPLIT), "isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        ),
    }
    if kind not in split:
        sys.exit(f"error: pre-tokenizer {kind}: this script knows smollm and qwen2")
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer = split[kind]
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def sentencepiece_tokenizer(tokens, scores, types):
    # Bytes and special tokens take no part in merges.
    pieces = [(t, s) for t, s, kind in zip(tokens, scores, types) if kind not in (CONTROL, BYTE)]
    merges = merges_from_scores(*zip(*pieces))
    vocab = {token: i for i, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return tokenizer


def gguf_tokenizer(file):
    """A `tokenizers` pipeline rebuilt from the vocabulary in the file."""
    meta = file.meta
    tokens = meta["tokenizer.ggml.tokens"]
    types = meta["tokenizer.ggml.token_type"]
    if meta["tokenizer.ggml.model"] == "gpt2":
        merges = [tuple(merge.split(" ")) for merge in meta["tokenizer.ggml.merges"]]
        tokenizer = byte_level_tokenizer(tokens, merges, meta["tokenizer.ggml.pre"])
    else:
        tokenizer = sentencepiece_tokenizer(tokens, meta["tokenizer.ggml.scores"], types)
    special = [AddedToken(t, normalized=False, special=True) for t, kind in zip(tokens, types) if kind == CONTROL]
    user = [AddedToken(t, normalized=False) for t, kind in zip(tokens, types) if kind == USER_DEFINED]
    tokenizer.add_special_tokens(special)
    tokenizer.add_tokens(user)
    return tokenizer

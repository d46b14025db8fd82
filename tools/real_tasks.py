"""Records of tasks for record_real.py: embeddings, sparse embeddings, fillings and tags of real encoders.

Each takes a folder (or, for embeddings, a GGUF file of nomic-bert) and returns what goes into the JSON file.
"""

import json

import torch
import transformers
from gguf_model import Gguf
from real_prompts import MASKED, SENTENCES
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

STRATEGIES = ["none", "simple", "first", "average", "max"]


def plain_tokenizer(folder):
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def reference(kind, folder):
    """The folder's weights in a transformers class, whatever the folder says about classes."""
    config = json.loads((folder / "config.json").read_text())
    config_class = getattr(transformers, kind).config_class
    config = config_class.from_dict({**config, "architectures": [kind]})
    config._attn_implementation = "eager"
    model, info = getattr(transformers, kind).from_pretrained(
        folder, config=config, dtype=torch.float32, output_loading_info=True
    )
    missing = [name for name in info["missing_keys"] if "pooler" not in name]
    assert not missing, missing
    return model.eval()


def short(values, digits=4):
    return [float(f"{value:.{digits}g}") for value in values]


def embeddings(tokenizer, model, texts, types=True):
    rows = []
    for text in texts:
        ids = tokenizer.encode(text).ids
        given = {"input_ids": torch.tensor([ids])}
        if types:
            given["token_type_ids"] = torch.zeros_like(given["input_ids"])
        mean = model(**given).last_hidden_state[0].double().mean(0)
        rows.append({"text": text, "ids": ids, "embedding": short((mean / mean.norm()).tolist())})
    return {"pooling": "mean over all tokens of the text, then scaled to length 1", "texts": rows}


def record_sentences(folder, _args):
    config = json.loads((folder / "config.json").read_text())
    kind = transformers.AutoConfig.from_pretrained(folder)
    model = transformers.AutoModel.from_config(kind)
    model = reference(type(model).__name__, folder)
    found = embeddings(plain_tokenizer(folder), model, SENTENCES[:24], types=config["model_type"] == "bert")
    return {"architecture": config["model_type"], **found}


NOMIC = {
    "attn_output_norm": "post_attention_layernorm",
    "layer_output_norm": "post_mlp_layernorm",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
NOMIC_TOP = {
    "token_embd": "embeddings.word_embeddings",
    "token_types": "embeddings.token_type_embeddings",
    "token_embd_norm": "embeddings.LayerNorm",
}


def record_nomic(path, _args):
    file = Gguf(path)
    assert file.arch == "nomic-bert", file.arch
    width = file.get("embedding_length")
    config = transformers.NomicBertConfig(
        vocab_size=len(file.meta["tokenizer.ggml.tokens"]),
        hidden_size=width,
        intermediate_size=file.get("feed_forward_length"),
        num_hidden_layers=file.get("block_count"),
        num_attention_heads=file.get("attention.head_count"),
        max_position_embeddings=file.get("context_length"),
        layer_norm_eps=file.get("attention.layer_norm_epsilon"),
        rope_parameters={"rope_type": "default", "rope_theta": file.get("rope.freq_base")},
    )
    config._attn_implementation = "eager"
    model = transformers.NomicBertModel(config, add_pooling_layer=False)
    state = {}
    for name in file.tensors:
        stem, _, kind = name.rpartition(".")
        weight = file.read(name)
        if not stem.startswith("blk."):
            state[f"{NOMIC_TOP[stem]}.{kind}"] = weight
            continue
        _, layer, part = stem.split(".")
        if part == "attn_qkv":
            for side, rows in zip("qkv", weight.split(width)):
                state[f"layers.{layer}.self_attn.{side}_proj.{kind}"] = rows
        else:
            state[f"layers.{layer}.{NOMIC[part]}.{kind}"] = weight
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not missing and not unexpected, (missing, unexpected)
    found = embeddings(bert_gguf_tokenizer(file), model.float().eval(), SENTENCES[:24])
    return {"architecture": file.arch, **found}


def bert_gguf_tokenizer(file):
    """WordPiece as the metadata has it: words begin with U+2581, other pieces continue one."""
    tokens = file.meta["tokenizer.ggml.tokens"]

    def spelled(token):
        if token.startswith("[") and token.endswith("]"):
            return token
        return token[1:] if token.startswith("\u2581") else "##" + token

    vocab = {spelled(token): i for i, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    ends = [(token, vocab[token]) for token in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
    tokenizer.add_special_tokens(["[CLS]", "[SEP]", "[PAD]", "[UNK]", "[MASK]"])
    return tokenizer


def record_sparse(folder, _args):
    """SPLADE: for every token of the vocabulary the largest of log(1 + relu(logit)) over the text's tokens."""
    model = reference("BertForMaskedLM", folder)
    tokenizer = plain_tokenizer(folder)
    rows = []
    for text in SENTENCES[:24]:
        ids = tokenizer.encode(text).ids
        weights = model(input_ids=torch.tensor([ids])).logits[0].relu().log1p().amax(0)
        best = weights.topk(12)
        rows.append(
            {
                "text": text,
                "ids": ids,
                "top": [[i, round(w, 5)] for i, w in zip(best.indices.tolist(), best.values.tolist())],
                "above_zero": int((weights > 0).sum()),
                "length": round(weights.norm().item(), 5),
            }
        )
    return {"architecture": "bert", "texts": rows}


def record_fills(folder, args):
    kind = {"bert": "BertForMaskedLM", "albert": "AlbertForMaskedLM", "roberta": "RobertaForMaskedLM"}[args.family]
    model = reference(kind, folder)
    tokenizer = plain_tokenizer(folder)
    mask = "<mask>" if args.family == "roberta" else "[MASK]"
    mask_id = tokenizer.token_to_id(mask)
    rows = []
    for text in MASKED[args.texts]:
        text = text.replace("_", mask)
        ids = tokenizer.encode(text).ids
        places = [i for i, token in enumerate(ids) if token == mask_id]
        probs = model(input_ids=torch.tensor([ids])).logits[0, places].softmax(-1)
        best = probs.topk(5)
        pairs = [list(zip(i, short(p, 6))) for i, p in zip(best.indices.tolist(), best.values.tolist())]
        rows.append({"text": text, "ids": ids, "masks": pairs})
    return {"architecture": args.family, "texts": rows}


def record_tags(folder, _args):
    config = json.loads((folder / "config.json").read_text())
    model = reference(config["architectures"][0], folder)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=plain_tokenizer(folder),
        unk_token="[UNK]",
        sep_token="[SEP]",
        cls_token="[CLS]",
        pad_token="[PAD]",
        mask_token="[MASK]",
        model_input_names=["input_ids", "attention_mask"],
    )
    tagger = transformers.TokenClassificationPipeline(model=model, tokenizer=tokenizer)
    rows = []
    for text in MASKED["english"]:
        row = {"text": text, "ids": tokenizer(text)["input_ids"]}
        for strategy in STRATEGIES:
            entities = tagger(text, aggregation_strategy=strategy, ignore_labels=["$KEEP"])
            row[strategy] = [
                {
                    "entity": entity.get("entity", entity.get("entity_group")),
                    "score": round(float(entity["score"]), 5),
                    "word": entity["word"],
                    "start": entity["start"],
                    "end": entity["end"],
                }
                for entity in entities
            ]
        rows.append(row)
    return {"architecture": config["model_type"], "ignore": ["$KEEP"], "texts": rows}


RECORDS = {
    "sentences": record_sentences,
    "nomic": record_nomic,
    "sparse": record_sparse,
    "fills": record_fills,
    "tags": record_tags,
}

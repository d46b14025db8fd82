#!/usr/bin/env python3
"""Record what transformers' pipelines and sentence-transformers say of the tiny golden models, for the tests of tasks.

    record_tasks.py GOLDENS OUT_FOLDER

Writes tokenizer.json (the tests' tokenizer: 96 words, the usual special tokens, `##s` to continue a word) and
tasks.json. Everything is float32 on the CPU. The pipeline for extractive answers is no longer part of transformers; its
rules are written out here. Needs: torch, transformers, tokenizers, sentence-transformers, numpy.
"""

import json
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import transformers
from sentence_transformers import CrossEncoder, SentenceTransformer
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast, pipeline

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
NAMES = dict(pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]", mask_token="[MASK]")
TEXTS = [
    "w5 w6s w7",
    "w8",
    "w9 w10 w11 w12s w13 w14ss w15 w16",
    "w20 w21 w22 w23 w24 w25 w26 w27 w28 w29 w30 w31",
    "w40s, w41! unknown w42",
    "w50 w50 w50 w50",
]
PAIRS = [("w5 w6", "w7 w8 w9"), ("w10s", "w11"), ("w12 w13 w14 w15 w16", "w17")]


def word(i):
    return SPECIAL[i] if i < len(SPECIAL) else "##s" if i == 95 else f"w{i}"


def make_tokenizer():
    tokenizer = Tokenizer(models.WordPiece({word(i): i for i in range(96)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.add_special_tokens(SPECIAL)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    return tokenizer


def folder(goldens, place, case, tokenizer, **changes):
    out = place / case
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    shutil.copy(goldens / case / "model.safetensors", out)
    config = {**json.loads((goldens / case / "config.json").read_text()), **changes}
    config["torch_dtype"] = "float32"
    (out / "config.json").write_text(json.dumps(config))
    inputs = ["input_ids", "token_type_ids", "attention_mask"]
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_input_names=inputs, **NAMES).save_pretrained(out)
    return out


def pipe(task, where):
    model = {
        "text-classification": transformers.AutoModelForSequenceClassification,
        "zero-shot-classification": transformers.AutoModelForSequenceClassification,
        "token-classification": transformers.AutoModelForTokenClassification,
        "fill-mask": transformers.AutoModelForMaskedLM,
    }[task].from_pretrained(where, dtype=torch.float32, attn_implementation="eager")
    return pipeline(task, model=model, tokenizer=PreTrainedTokenizerFast.from_pretrained(where))


def numbers(value):
    if isinstance(value, dict):
        return {key: numbers(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [numbers(inner) for inner in value]
    return round(float(value), 6) if isinstance(value, (float, np.floating)) else value


def plain(value):
    return value.item() if isinstance(value, (np.integer, np.floating)) else value


def classify(make):
    out = []
    for case, changes in [
        ("bert-seqcls", {}),
        ("bert-seqcls", {"problem_type": "multi_label_classification"}),
        ("bert-seqcls", {"problem_type": "regression"}),
        ("bert-seqcls-regression", {}),
        ("bert-seqcls-regression", {"problem_type": "regression"}),
    ]:
        labels = {"id2label": {str(i): f"name {i}" for i in range(3 if case == "bert-seqcls" else 1)}}
        run = pipe("text-classification", make(case, **changes, **labels))
        inputs = [{"text": text} for text in TEXTS] + [{"text": a, "text_pair": b} for a, b in PAIRS]
        answers = [run(one, top_k=None) for one in inputs]
        out.append({"case": case, "changes": {**changes, **labels}, "inputs": inputs, "answers": numbers(answers)})
    return out


def zero_shot(make):
    out = []
    for names in (["contradiction", "neutral", "entailment"], ["ENTAILMENT", "neutral", "contradiction"]):
        changes = {
            "id2label": {str(i): name for i, name in enumerate(names)},
            "label2id": {name: i for i, name in enumerate(names)},
        }
        run = pipe("zero-shot-classification", make("bert-seqcls", **changes))
        labels, template = ["w60", "w61 w62", "w63s"], "w70 {} w71"
        for multi in (False, True):
            answers = []
            for text in TEXTS:
                found = run(text, labels, hypothesis_template=template, multi_label=multi)
                pairs = zip(found["labels"], found["scores"])
                answers.append([{"label": label, "score": score} for label, score in pairs])
            out.append(
                {
                    "changes": changes,
                    "labels": labels,
                    "template": template,
                    "multi": multi,
                    "answers": numbers(answers),
                }
            )
    return out


def tag(make):
    changes = {
        "id2label": {"0": "O", "1": "B-X", "2": "I-X"},
        "label2id": {"O": 0, "B-X": 1, "I-X": 2},
    }
    run = pipe("token-classification", make("bert-tokcls", **changes))
    out = []
    for strategy in ("none", "simple", "first", "average", "max"):
        answers = []
        for text in TEXTS:
            found = run(text, aggregation_strategy=strategy, ignore_labels=["O"])
            answers.append(
                [
                    {
                        "entity": one.get("entity", one.get("entity_group")),
                        "score": float(one["score"]),
                        "word": one["word"],
                        "start": plain(one["start"]),
                        "end": plain(one["end"]),
                    }
                    for one in found
                ]
            )
        out.append({"aggregation": strategy, "answers": numbers(answers)})
    return {"changes": changes, "runs": out}


def fill(make):
    run = pipe("fill-mask", make("bert-mlm"))
    texts = ["w5 [MASK] w7", "[MASK]", "w8 w9 [MASK] w10 [MASK]s w11", "[MASK] [MASK]", "w12s [MASK]."]
    answers = []
    for text in texts:
        found = run(text, top_k=4)
        masks = [found] if isinstance(found[0], dict) else found
        answers.append(
            [
                [
                    {"token": one["token_str"], "id": one["token"], "score": one["score"], "sequence": one["sequence"]}
                    for one in mask
                ]
                for mask in masks
            ]
        )
    return {"texts": texts, "answers": numbers(answers)}


def spans(start, end, count, longest, allowed):
    """The best spans of allowed tokens, no longer than `longest`."""
    outer = np.matmul(start[:, None], end[None, :])
    scores = np.tril(np.triu(outer), longest - 1).flatten()
    order = np.argsort(-scores, kind="stable")[:count]
    pairs = [np.unravel_index(i, outer.shape) for i in order]
    return [(s, e, outer[s, e]) for s, e in pairs if s > 0 and e > 0 and allowed[s] and allowed[e]]


def softmax(values):
    values = np.exp(values - values.max())
    return values / values.sum()


def answer_one(model, tokenizer, question, context, top, longest, length, stride, nothing):
    answers, null = [], 1e6
    encoded = tokenizer(
        question,
        context,
        truncation="only_second",
        max_length=length,
        stride=stride,
        return_overflowing_tokens=True,
        return_tensors=None,
    )
    for part in encoded.encodings:
        allowed = np.array([i == 1 for i in part.sequence_ids])
        allowed[0] = True  # the first token: no answer
        given = {"input_ids": torch.tensor([part.ids]), "token_type_ids": torch.tensor([part.type_ids])}
        found = model(**given)
        start = softmax(np.where(allowed, found.start_logits[0].numpy(), -10000.0))
        end = softmax(np.where(allowed, found.end_logits[0].numpy(), -10000.0))
        null = min(null, start[0] * end[0])
        start[0] = end[0] = 0
        for s, e, score in spans(start, end, top * 2 + 10, longest, allowed):
            first = part.word_to_chars(part.token_to_word(s), 1)[0]
            last = part.word_to_chars(part.token_to_word(e), 1)[1]
            text = context[first:last]
            same = [one for one in answers if one["text"].lower() == text.lower()]
            if same:
                same[0]["score"] += float(score)
            else:
                answers.append({"text": text, "score": float(score), "start": first, "end": last})
    if nothing:
        answers.append({"text": "", "score": float(null), "start": 0, "end": 0})
    return sorted(answers, key=lambda one: -one["score"])[:top]


def answer(make):
    where = make("bert-qa")
    model = transformers.AutoModelForQuestionAnswering.from_pretrained(where, attn_implementation="eager").eval()
    tokenizer = PreTrainedTokenizerFast.from_pretrained(where)
    long = " ".join(f"w{5 + (7 * i) % 90}" for i in range(70))
    cases = [("w5 w6", "w7s w8 w9 w10, w11s w12"), ("w20", "w21"), ("w30 w31", long), ("w5s", TEXTS[3])]
    out = []
    for top, longest, length, stride, nothing in [(1, 15, 40, 20, False), (3, 4, 20, 5, True), (5, 2, 16, 8, False)]:
        answers = [
            answer_one(model, tokenizer, question, context, top, longest, length, stride, nothing)
            for question, context in cases
        ]
        settings = dict(top=top, longest=longest, length=length, stride=stride, nothing=nothing)
        out.append({**settings, "answers": numbers(answers)})
    return {"inputs": [{"question": question, "context": context} for question, context in cases], "runs": out}


def rerank(make):
    pairs = [("w5 w6", text) for text in TEXTS]
    out = []
    for changes in (
        {},
        {"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity", "version": "4.0.0"}},
        {"sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity"},
    ):
        where = make("bert-seqcls-regression", **changes)
        out.append({"changes": changes, "scores": numbers(CrossEncoder(str(where)).predict(pairs).tolist())})
    return {"query": "w5 w6", "documents": TEXTS, "runs": out}


def embed(make):
    """sentence-transformers itself over folders of every kind."""
    out = []
    kinds = ["Transformer", "Pooling", "Normalize"]
    flags = ["cls_token", "max_tokens", "mean_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken"]
    prompts = {"prompts": {"query": "w80 w81s ", "document": "w82 "}, "default_prompt_name": None}
    configs = [{f"pooling_mode_{flag}": flag == on for flag in flags} for on in flags]
    configs += [{"pooling_mode": ["max", "cls"]}, {"pooling_mode": "mean", "include_prompt": False}]
    for index, config in enumerate(configs):
        where = make("bert-base")
        used = kinds if index % 2 else kinds[:2]
        modules = [
            {
                "idx": i,
                "name": str(i),
                "path": f"{i}_{kind}" if i else "",
                "type": f"sentence_transformers.models.{kind}",
            }
            for i, kind in enumerate(used)
        ]
        config = {"word_embedding_dimension": 32, **config}
        files = {
            "modules.json": modules,
            "1_Pooling/config.json": config,
            "sentence_bert_config.json": {"max_seq_length": 10, "do_lower_case": False},
            "config_sentence_transformers.json": prompts,
        }
        for name, content in files.items():
            (where / name).parent.mkdir(exist_ok=True)
            (where / name).write_text(json.dumps(content))
        model = SentenceTransformer(str(where), device="cpu", model_kwargs={"attn_implementation": "eager"})
        vectors = model.encode(TEXTS, batch_size=4)
        queries = model.encode(TEXTS, prompt_name="query", batch_size=3)
        out.append({"files": files, "embeddings": numbers(vectors.tolist()), "queries": numbers(queries.tolist())})
    return {"texts": TEXTS, "runs": out}


@torch.no_grad()
def main():
    goldens, out = Path(sys.argv[1]), Path(sys.argv[2])
    torch.set_num_threads(1)
    tokenizer = make_tokenizer()
    with tempfile.TemporaryDirectory() as place:
        make = lambda case, **changes: folder(goldens, Path(place), case, tokenizer, **changes)  # noqa: E731
        body = {"texts": TEXTS}
        for record in (classify, zero_shot, tag, fill, answer, rerank, embed):
            body[record.__name__] = record(make)
            print(record.__name__)
    out.mkdir(parents=True, exist_ok=True)
    # A length that means nothing to the tests: it is the model's that counts.
    tokenizer.enable_truncation(8)
    (out / "tokenizer.json").write_text(tokenizer.to_str())
    (out / "tasks.json").write_text(json.dumps(body) + "\n")


if __name__ == "__main__":
    main()

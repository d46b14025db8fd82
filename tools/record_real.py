#!/usr/bin/env python3
"""Record what Hugging Face transformers computes with a real model, as one small JSON file.

    record_real.py MODEL.gguf  OUT.json     llama, qwen2 or gemma3: greedy continuations, log-likelihood of a text
    record_real.py T5_FOLDER   OUT.json     encoder-decoder: greedy outputs, log-likelihood of a target
    record_real.py BERT_FOLDER OUT.json     sentence-transformers folder with mean pooling: embeddings
    record_real.py ENCODER OUT.json --task sentences|nomic|sparse|fills|tags     see real_tasks.py

Everything is computed in float32 on the CPU. The weights of a GGUF file are unpacked to float32 by the gguf package and
handed to transformers unrounded; its vocabulary is rebuilt from the file's own metadata.

A greedy path is cut before the first token whose logit leads the second-best by less than --gap, so the ids can be
demanded exactly from any float32 engine; the gaps that remain are stored, so a difference under quantised arithmetic can
be judged. Needs: torch, transformers, tokenizers, safetensors, gguf, numpy.
"""

import argparse
import copy
import hashlib
import json
from importlib.metadata import version
from pathlib import Path

import tokenizers
import torch
import transformers
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

import real_prompts as prompts
import real_tasks
from gguf_model import CONTROL, Gguf, gguf_model, gguf_tokenizer

LEAST = 6  # a path cut to fewer tokens than this is left out


def top_two(logits):
    """Per row: the best id, its log-probability, and its lead over the second-best logit."""
    best = logits.topk(2, dim=-1)
    logprobs = best.values[..., 0] - logits.logsumexp(-1)
    return best.indices[..., 0].tolist(), logprobs.tolist(), (best.values[..., 0] - best.values[..., 1]).tolist()


def batch_greedy(model, rows, count, stop):
    """Greedy continuations of all rows, in left-padded batches (only a proposal: every path is recomputed alone)."""
    out = []
    for start in range(0, len(rows), 12):
        part = rows[start : start + 12]
        width = max(map(len, part))
        ids = torch.tensor([[0] * (width - len(row)) + row for row in part])
        mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in part])
        made = model.generate(
            input_ids=ids,
            attention_mask=mask,
            do_sample=False,
            max_new_tokens=count,
            eos_token_id=sorted(stop),
            pad_token_id=0,
        )
        out.extend(made[:, width:].tolist())
    return out


def trim(path, stop):
    """The path up to and including its first stop id."""
    for index, token in enumerate(path):
        if token in stop:
            return path[: index + 1], True
    return path, False


def keep(path, stopped, best, gaps, least_gap):
    """How many tokens of the path are certain, and why it ends there."""
    for index, (token, choice, gap) in enumerate(zip(path, best, gaps)):
        if gap < least_gap or token != choice:
            return index, "gap"
    return len(path), "stop" if stopped else "length"


def entry(path, stopped, logits, least_gap):
    """The recorded part of one greedy path, or None when too little of it is certain."""
    best, logprobs, gaps = top_two(logits)
    count, finish = keep(path, stopped, best, gaps, least_gap)
    if count < min(LEAST, len(path)):
        return None
    return {
        "greedy_ids": path[:count],
        "finish": finish,
        "gaps": [round(gap, 4) for gap in gaps[:count]],
        "logprobs": [round(value, 5) for value in logprobs[:count]],
    }


def likelihood(logits, targets):
    """Log-probabilities of the targets."""
    values = logits.log_softmax(-1).gather(-1, torch.tensor(targets)[:, None])[:, 0]
    return {
        "logprobs": [round(value, 5) for value in values.tolist()],
        "sum": round(values.double().sum().item(), 4),
        "mean": round(values.double().mean().item(), 6),
        "perplexity": round(values.double().mean().neg().exp().item(), 5),
    }


def record_decoder(file, args):
    tokenizer = gguf_tokenizer(file)
    template = file.meta.get("tokenizer.chat_template")
    bos = [file.meta["tokenizer.ggml.bos_token_id"]] if file.meta.get("tokenizer.ggml.add_bos_token") else []
    cases = [{"name": name, "text": text} for name, text in prompts.PLAIN.items()]
    if template:
        chat = PreTrainedTokenizerFast(tokenizer_object=tokenizer, chat_template=template)
        for name, messages in prompts.CHATS.items():
            text = chat.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
            cases.append({"name": name, "messages": messages, "text": text})
    for case in cases:
        case["prompt_ids"] = bos + tokenizer.encode(case["text"], add_special_tokens=False).ids
    types = file.meta["tokenizer.ggml.token_type"]
    stop = {i for i, kind in enumerate(types) if kind == CONTROL}
    model = gguf_model(file)
    paths = batch_greedy(model, [case["prompt_ids"] for case in cases], args.tokens, stop)
    kept, dropped = [], []
    for case, path in zip(cases, paths):
        path, stopped = trim(path, stop)
        start = len(case["prompt_ids"]) - 1
        # One pass over prompt and continuation, unpadded: these are the recorded numbers.
        logits = model(torch.tensor([case["prompt_ids"] + path]), use_cache=False).logits[0, start:-1]
        found = entry(path, stopped, logits, args.gap)
        if found:
            kept.append(
                {**case, **found, "continuation": tokenizer.decode(found["greedy_ids"], skip_special_tokens=False)}
            )
        else:
            dropped.append(case["name"])
    ids = bos + tokenizer.encode(prompts.SCORED, add_special_tokens=False).ids
    logits = model(torch.tensor([ids]), use_cache=False).logits[0, :-1]
    return {
        "architecture": file.arch,
        "adds_bos": bool(bos),
        "stop_ids": "every control token of the vocabulary (tokenizer.ggml.token_type 3); none is suppressed",
        "prompts": kept,
        "left_out": dropped,
        "score": {"text": prompts.SCORED, "ids": ids, **likelihood(logits, ids[1:])},
    }


BEAMS = {"num_beams": 4, "num_return_sequences": 2, "length_penalty": 1.2, "early_stopping": False}


def beams_of(model, double, source, args):
    """The best sequences of beam search with their scores, where float64 finds the same ones."""
    settings = {**BEAMS, "do_sample": False, "max_new_tokens": args.tokens}
    settings |= {"return_dict_in_generate": True, "output_scores": True}
    found = [m.generate(torch.tensor([source]), **settings) for m in (model, double)]
    if not torch.equal(found[0].sequences, found[1].sequences):
        return {}
    ends = [model.config.eos_token_id, model.config.pad_token_id]
    beams = []
    for row, score in zip(found[0].sequences[:, 1:].tolist(), found[0].sequences_scores.tolist()):
        # Behind the end token stand fillers.
        last = next((index for index, token in enumerate(row) if token in ends), len(row) - 1)
        beams.append({"ids": row[: last + 1], "score": round(score, 6)})
    return {"beams": beams}


def record_seq2seq(folder, args):
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    model.eval()
    start, stop = model.config.decoder_start_token_id, {model.config.eos_token_id}

    def logits_of(source, target):
        decoder = torch.tensor([[start] + target[:-1]])
        return model(input_ids=torch.tensor([source]), decoder_input_ids=decoder, use_cache=False).logits[0]

    double = copy.deepcopy(model).double()
    kept, dropped = [], []
    for name, text in prompts.SOURCES.items():
        source = tokenizer.encode(text).ids
        made = model.generate(torch.tensor([source]), do_sample=False, num_beams=1, max_new_tokens=args.tokens)
        path, stopped = trim(made[0, 1:].tolist(), stop)
        found = entry(path, stopped, logits_of(source, path), args.gap)
        if found:
            text_out = tokenizer.decode(found["greedy_ids"])
            beams = beams_of(model, double, source, args)
            kept.append({"name": name, "text": text, "prompt_ids": source, **found, "continuation": text_out, **beams})
        else:
            dropped.append(name)
    source, target = tokenizer.encode(prompts.SCORED).ids, tokenizer.encode(prompts.TARGET).ids
    score = {"text": prompts.SCORED, "ids": source, "target": prompts.TARGET, "target_ids": target}
    return {
        "architecture": "t5",
        "decoder_start_token_id": start,
        "stop_ids": sorted(stop),
        "beam_settings": BEAMS,
        "max_new_tokens": args.tokens,
        "prompts": kept,
        "left_out": dropped,
        "score": {**score, **likelihood(logits_of(source, target), target)},
    }


def record_embeddings(folder, _args):
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    model = transformers.AutoModel.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    texts = []
    for text in prompts.SENTENCES:
        ids = tokenizer.encode(text).ids
        mean = model(torch.tensor([ids])).last_hidden_state[0].mean(0)
        unit = mean / mean.norm()
        texts.append(
            {
                "text": text,
                "ids": ids,
                "norm_before": round(mean.norm().item(), 6),
                "embedding": [float(f"{value:.7g}") for value in unit.tolist()],
            }
        )
    return {
        "architecture": "bert",
        "pooling": "mean over all tokens of the text, then scaled to length 1",
        "texts": texts,
    }


def digest(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def provenance(weights, args):
    recipe = (
        "float32 on the CPU, eager attention, weights unpacked to float32 unrounded; greedy ids from generate() in batches, "
        "then checked and measured by one unpadded pass without cache over prompt and continuation; a path is cut before "
        f"the first token whose lead over the second-best logit is below {args.gap}"
    )
    options = f" --tokens {args.tokens} --gap {args.gap}"
    if args.task:
        recipe = "float32 on the CPU, eager attention, each text by itself and unpadded"
        options = f" --task {args.task}" + (f" --family {args.family} --texts {args.texts}" if args.task == "fills" else "")
    return {
        "model_file": weights.name,
        "sha256": digest(weights),
        "recorded_with": {
            "torch": torch.__version__.split("+")[0],
            "transformers": transformers.__version__,
            "tokenizers": tokenizers.__version__,
            "gguf": version("gguf"),
        },
        "recipe": recipe,
        "command": f"tools/record_real.py {weights.name if weights.suffix == '.gguf' else weights.parent.name} OUT.json"
        + options,
    }


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="a GGUF file, or a folder with config.json, tokenizer.json, weights")
    parser.add_argument("out", type=Path, help="the JSON file to write")
    parser.add_argument("--tokens", type=int, default=28, help="most tokens of a continuation (default 28)")
    parser.add_argument("--gap", type=float, default=0.003, help="least lead of a recorded token (default 0.003)")
    parser.add_argument("--task", choices=sorted(real_tasks.RECORDS), help="record a task of an encoder")
    parser.add_argument("--family", default="bert", help="for fills: bert, albert or roberta")
    parser.add_argument("--texts", default="reactions", help="for fills: the list of texts in real_prompts.py")
    parser.add_argument("--threads", type=int, default=1, help="threads of torch (default 1)")
    return parser.parse_args()


@torch.no_grad()
def main():
    args = parse()
    torch.set_num_threads(args.threads)
    if args.task:
        weights = args.model if args.model.is_file() else args.model / "model.safetensors"
        body = real_tasks.RECORDS[args.task](args.model, args)
    elif args.model.suffix == ".gguf":
        weights, body = args.model, record_decoder(Gguf(args.model), args)
    else:
        weights = args.model / "model.safetensors"
        config = json.loads((args.model / "config.json").read_text())
        record = record_seq2seq if config.get("is_encoder_decoder") else record_embeddings
        body = record(args.model, args)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    with open(args.out, "w") as file:
        json.dump({**provenance(weights, args), **body}, file, ensure_ascii=True)
        file.write("\n")
    print(f"{args.out}: {len(body.get('prompts', body.get('texts')))} entries, left out: {body.get('left_out', [])}")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Record what Hugging Face transformers computes with a model, as a case folder that `attend verify` checks.

    record_reference.py MODEL_FOLDER CASE_FOLDER             # then: attend verify CASE_FOLDER
    record_reference.py MODEL_FOLDER CASE_FOLDER --prompt "Once upon a time" --prompt "The capital of France is"
    record_reference.py MODEL_FOLDER CASE_FOLDER --train --beams 4
    record_reference.py --check CASE_FOLDER...               # recompute recorded cases and compare

MODEL_FOLDER is a Hugging Face folder: config.json, weights, and a tokenizer when texts are given. Without --prompt the
inputs are random token ids. The case folder gets

    expected.safetensors   inputs and outputs: right.* (padded on the right), left.*, pooled.*, greedy.*, beam.*, train.*
    case.json              architecture, tolerances, generation settings, norms of all gradients
    config.json, generation_config.json, and links to the weights and tokenizer (--copy: copies; --no-weights: only the
    folder's path, as `model` in case.json)

All computation is in float32 on the CPU without dropout. Outputs at padding are stored as 0. Tolerances: rtol 1e-4,
atol = max(2e-5 * largest logit, 30 * noise), noise being the largest difference between float32 and float64.
A greedy path in which the best logit leads the second by 0.002 or less is cut before that token.
Needs: torch, transformers, safetensors (and the tokenizer's own packages).
"""

import argparse
import json
import os
import shutil
import sys
from pathlib import Path

import torch
import transformers
from safetensors.torch import save_file

from reference.check import check
from reference.generation import greedy_causal, greedy_seq2seq, record_beams
from reference.outputs import forward_left, forward_right, headline, noise_of, pooled, record_train
from reference.subject import IGNORED, Options, Subject, fail, make_inputs


def tolerances(largest, noise):
    return {
        "rtol": 1e-4,
        "atol": float(f"{max(2e-5 * largest, 30 * noise):.3g}"),
        "loss_abs": 1e-5 * largest,
        "grad_rel_l2": 1e-3,
        "beam_score_abs": 1e-3,
        "ids": "exact",
    }


def record(folder, out, options):
    """Write the case folder `out` for the model in `folder`; returns what case.json says."""
    subject = Subject(folder, options.attention, options.float64)
    made = make_inputs(subject, options)
    inputs = dict(made)
    made |= forward_right(subject, inputs, options)
    largest, noise = headline(made).abs().max().item(), noise_of(subject, inputs)
    facts = {}
    if subject.kind in ("causal", "encoder") and not subject.depends_on_batch():
        made |= forward_left(subject, inputs)
    if subject.kind == "encoder":
        made |= pooled(made["right.last_hidden_state"], made["right.attention_mask"])
    if subject.kind in ("causal", "seq2seq") and options.max_new_tokens:
        greedy = (
            greedy_causal(subject, options) if subject.kind == "causal" else greedy_seq2seq(subject, inputs, options)
        )
        made, facts = made | greedy[0], facts | greedy[1]
        more = record_beams(subject, made, options, facts["generation"])
        made, facts = made | more[0], facts | more[1]
    if options.train:
        more = record_train(subject, inputs)
        made, facts = made | more[0], facts | more[1]
    elif "train.labels" in made:
        del made["train.labels"]
    case = describe(subject, Path(out).name, largest, noise, options) | facts | {"tensors": sorted(made)}
    write(subject, Path(out), made, case, options)
    return case


def describe(subject, name, largest, noise, options):
    types = sorted(kind for kind in set(subject.stored.values()) if "F" in kind)
    names = {"F32": "float32", "BF16": "bfloat16", "F16": "float16", "F64": "float64"}
    return {
        "case": name,
        "set": "user",
        "architecture": subject.architecture,
        "attn_implementation": subject.attention,
        "model_type": subject.config.model_type,
        "family": subject.config.model_type,
        "kind": subject.kind,
        "dtype": "float32",
        "weights_dtype": ", ".join(names.get(kind, kind) for kind in types),
        "seed": options.seed,
        "notes": options.notes,
        "pad_token_id": subject.pad,
        "labels_ignore_index": IGNORED,
        "logits_absmax": largest,
        "ref_noise_logits": noise,
        "tolerance": tolerances(largest, noise),
        "torch_version": torch.__version__.split("+")[0],
        "transformers_version": transformers.__version__,
    }


def place(source, target, copying):
    if target.exists() or target.is_symlink():
        target.unlink()
    if copying:
        shutil.copyfile(source, target)
    else:
        os.symlink(source.resolve(), target)


def write(subject, out, made, case, options):
    out.mkdir(parents=True, exist_ok=True)
    folder = subject.folder
    if folder.resolve() == out.resolve():
        fail("the case folder must not be the model folder")
    if options.weights == "path":
        case["model"] = str(folder.resolve())
    else:
        names = [
            "config.json",
            "*.safetensors",
            "*.bin",
            "*.index.json",
            "tokenizer*",
            "*.model",
            "vocab.*",
            "merges.txt",
        ]
        files = sorted({p for name in names for p in folder.glob(name) if p.name != "expected.safetensors"})
        for path in files:
            place(path, out / path.name, options.weights == "copy" or path.name == "config.json")
    if "generation" in case:
        stated = {k: v for k, v in case["generation"].items() if v is not None}
        (out / "generation_config.json").write_text(
            json.dumps({"do_sample": False, "num_beams": 1, **stated}, indent=1) + "\n"
        )
    tensors = {name: value.detach().contiguous().clone() for name, value in made.items()}
    save_file(tensors, out / "expected.safetensors", metadata={"format": "pt"})
    (out / "case.json").write_text(json.dumps(case, indent=1, sort_keys=True, ensure_ascii=True) + "\n")


def numbers(text):
    return tuple(int(part) for part in text.split(","))


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", type=Path, metavar="PATH", help="MODEL_FOLDER CASE_FOLDER")
    parser.add_argument(
        "--check", nargs="+", type=Path, metavar="CASE", help="recompute these recorded cases and compare"
    )
    parser.add_argument(
        "--prompt",
        action="append",
        default=[],
        dest="prompts",
        help="a text (repeat for more rows); default: random ids",
    )
    parser.add_argument(
        "--lengths", type=numbers, default=(14, 11, 6), help="lengths of the random rows (default 14,11,6)"
    )
    parser.add_argument(
        "--prompt-lengths", type=numbers, default=(9, 6, 3), help="lengths of random greedy prompts (default 9,6,3)"
    )
    parser.add_argument("--max-new-tokens", type=int, default=24, help="greedy tokens (default 24; 0: none)")
    parser.add_argument("--beams", type=int, default=0, help="also record beam search of this width")
    parser.add_argument("--train", action="store_true", help="also record a loss and all gradients")
    parser.add_argument(
        "--hidden", choices=["all", "ends", "none"], default="all", help="which hidden states to store (default all)"
    )
    parser.add_argument(
        "--attentions", type=int, default=1, help="attention probabilities of how many layers (default 1)"
    )
    parser.add_argument("--attention", choices=["eager", "sdpa"], help="the reference's kernel (default eager)")
    parser.add_argument("--seed", type=int, default=0, help="seed of random inputs and labels")
    parser.add_argument(
        "--no-float64",
        dest="float64",
        action="store_false",
        help="skip the float64 run: saves memory, the noise floor counts as 0",
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--copy", dest="weights", action="store_const", const="copy", help="copy the weights into the case folder"
    )
    where.add_argument(
        "--no-weights", dest="weights", action="store_const", const="path", help="only note the model folder's path"
    )
    parser.set_defaults(weights="link")
    return parser, parser.parse_args()


@torch.no_grad()
def main():
    parser, args = parse()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    if args.check:
        results = [check(path) for path in args.check]
        sys.exit(0 if all(results) else 1)
    if len(args.paths) != 2:
        parser.error("give MODEL_FOLDER and CASE_FOLDER, or --check")
    values = {key: value for key, value in vars(args).items() if key in Options.__dataclass_fields__}
    case = record(args.paths[0], args.paths[1], Options(**values))
    print(f"{args.paths[1]}: {case['architecture']}, {len(case['tensors'])} tensors, atol {case['tolerance']['atol']}")


if __name__ == "__main__":
    main()

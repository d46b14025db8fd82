#!/usr/bin/env python3
"""Record a run of training, or what peft computes with a LoRA adapter, as a case folder that `attend verify` checks.

    record_training.py run MODEL_FOLDER CASE_FOLDER
    record_training.py lora MODEL_FOLDER CASE_FOLDER [--config '{"r": 4, "lora_alpha": 8, "target_modules": ["q_proj"]}']

A run: 8 steps of AdamW (betas 0.9 and 0.95, eps 1e-8), rate 5e-3 after 2 steps of warm-up and down a cosine, decay 0.1 of
matrices, clipped to a norm of 1. The labels are the inputs (causal) or random ones (encoder-decoder). A LoRA case: the
base, the adapter with random matrices as peft saves it, logits without, with and merged, the gradients of the adapter,
and 5 steps of AdamW at 1e-2 with decay 0.01, clipped to 1. All in float32 on the CPU without dropout; a LoRA case whose
steps come out otherwise in float64 is refused.
Needs: torch, transformers, safetensors; peft for LoRA.
"""

import argparse
import copy
import json
import math
import shutil
from pathlib import Path

import torch
import transformers
from safetensors import safe_open
from safetensors.torch import save_file

STEPS, WARMUP, RATE = 8, 2, 5e-3
# A tenth of what `attend verify` allows a loss to be off, relative to it.
LOSSES_ROUNDED = 1e-5


def load(folder):
    config = transformers.AutoConfig.from_pretrained(folder)
    seq2seq = bool(getattr(config, "is_encoder_decoder", False))
    kind = transformers.AutoModelForSeq2SeqLM if seq2seq else transformers.AutoModelForCausalLM
    model = kind.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    return model.eval(), seq2seq


def held_by(folder):
    """The names in the folder's one file of safetensors, where the model's are the same."""
    file = Path(folder) / "model.safetensors"
    if not file.exists():
        return None
    with safe_open(file, "pt") as tensors:
        return set(tensors.keys())


def rows(count, length, vocab, random):
    ids = torch.randint(3, vocab, (count, length), generator=random)
    mask = torch.ones_like(ids)
    for row in range(1, count):
        mask[row, length - 1 - row:] = 0
    return ids, mask


def rate(step):
    if step < WARMUP:
        return RATE * step / WARMUP
    return RATE * max(0.0, 0.5 * (1 + math.cos(math.pi * (step - WARMUP) / (STEPS - WARMUP))))


def record_run(args):
    model, seq2seq = load(args.model)
    random = torch.Generator().manual_seed(args.seed)
    vocab, pad = model.config.vocab_size, model.config.pad_token_id or 0
    held = held_by(args.model)
    for name, parameter in model.named_parameters():
        # Tables that the reference computes come to life as parameters, and the checkpoint does not hold them.
        parameter.requires_grad_(held is None or name in held)
    trained = [p for p in model.parameters() if p.requires_grad]
    matrices = [p for p in trained if p.dim() >= 2]
    vectors = [p for p in trained if p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=RATE, betas=(0.9, 0.95), eps=1e-8)
    kept = {name: [] for name in ("input_ids", "attention_mask", "losses", "grad_norms", "lrs")}
    if seq2seq:
        kept["labels"] = []
    for step in range(STEPS):
        ids, mask = rows(2, 12, vocab, random)
        ids = torch.where(mask == 1, ids, pad)
        if seq2seq:
            labels, label_mask = rows(2, 9, vocab, random)
            labels = torch.where(label_mask == 1, labels, -100)
            kept["labels"].append(labels.clone())
        else:
            labels = torch.where(mask == 1, ids, -100)
        for group in optimizer.param_groups:
            group["lr"] = rate(step)
        optimizer.zero_grad()
        loss = model(input_ids=ids, attention_mask=mask, labels=labels, use_cache=False).loss
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        values = dict(input_ids=ids, attention_mask=mask, losses=loss.detach(), grad_norms=norm)
        values["lrs"] = torch.tensor(rate(step))
        for name, value in values.items():
            kept[name].append(value.detach().clone())
    tensors = {name: torch.stack(values) for name, values in kept.items()}
    tensors |= {f"final.{name}": p.detach().clone() for name, p in model.named_parameters() if p.requires_grad}
    out = Path(args.case)
    out.mkdir(parents=True, exist_ok=True)
    for file in Path(args.model).iterdir():
        if file.name in ("config.json", "model.safetensors", "generation_config.json"):
            shutil.copy(file, out / file.name)
    save(out, tensors, {"tolerance": {"losses_rel": 1e-4, "grad_norms_rel": 1e-3, "final_abs": 2e-3}})


def train_adapter(model, ids):
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-2, weight_decay=0.01)
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses


def hold_to_exact(losses, exact):
    """Some runs amplify roundings: in float32 their losses are whatever the order of a sum makes them."""
    for step, (loss, true) in enumerate(zip(losses, exact)):
        if abs(loss - true) > LOSSES_ROUNDED * true:
            raise SystemExit(f"step {step}: a loss of {loss} in float32, of {true} in float64; take another --seed")


def record_lora(args):
    import peft

    out = Path(args.case)
    (out / "base").mkdir(parents=True, exist_ok=True)
    for file in Path(args.model).iterdir():
        if file.name in ("config.json", "model.safetensors", "generation_config.json"):
            shutil.copy(file, out / "base" / file.name)
    base, _ = load(out / "base")
    random = torch.Generator().manual_seed(args.seed)
    ids, _ = rows(2, 10, base.config.vocab_size, random)
    tensors = {"input_ids": ids, "base_logits": base(input_ids=ids).logits.detach()}
    settings = {"r": 4, "lora_alpha": 8, "lora_dropout": 0.1, "target_modules": ["q_proj", "v_proj"]}
    settings |= json.loads(args.config)
    model = peft.get_peft_model(base, peft.LoraConfig(task_type="CAUSAL_LM", **settings))
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            parameter.data = torch.randn(parameter.shape, generator=random) * 0.3
    model.save_pretrained(out / "adapter")
    # Saved files name the base by a path; one that stays where the case goes.
    config = json.loads((out / "adapter" / "adapter_config.json").read_text())
    config["base_model_name_or_path"] = "../base"
    (out / "adapter" / "adapter_config.json").write_text(json.dumps(config, indent=1) + "\n")
    (out / "adapter" / "README.md").unlink(missing_ok=True)
    model = peft.PeftModel.from_pretrained(load(out / "base")[0], out / "adapter", is_trainable=True).eval()
    result = model(input_ids=ids, labels=ids)
    tensors |= {"logits": result.logits.detach(), "loss": result.loss.detach()}
    result.loss.backward()
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    saved = lambda name: name.replace(".default", "").replace(".modules_to_save", "")
    tensors |= {f"grad.{saved(n)}": p.grad.clone() for n, p in trained.items() if "lora_" in n}
    only_adapters = all("lora_" in name for name in trained)
    exact = copy.deepcopy(model).double()
    losses = train_adapter(model, ids) if only_adapters else []
    if only_adapters:
        hold_to_exact(losses, train_adapter(exact, ids))
    if losses:
        tensors["train.losses"] = torch.tensor(losses)
        tensors |= {f"train.final.{saved(n)}": p.detach().clone() for n, p in trained.items()}
    scaled = [m.scaling for m in model.modules() if isinstance(getattr(m, "scaling", None), dict)]
    scales = [scaling["default"] for scaling in scaled if "default" in scaling]
    merged = peft.PeftModel.from_pretrained(load(out / "base")[0], out / "adapter").eval().merge_and_unload()
    tensors["merged_logits"] = merged(input_ids=ids).logits.detach()
    first = next(n for n in merged.state_dict() if n.endswith(settings["target_modules"][0] + ".weight")) \
        if isinstance(settings["target_modules"], list) else None
    if first:
        tensors[f"merged.{first}"] = merged.state_dict()[first].clone()
    about = {"tolerance": {"atol": 5e-4, "rtol": 1e-4, "train_atol": 2e-3}}
    if len(set(scales)) == 1:
        about["scaling"] = scales[0]
    save(out, tensors, about)


def save(out, tensors, about):
    tensors = {name: value.contiguous().clone() for name, value in tensors.items()}
    save_file(tensors, out / "expected.safetensors")
    about = {"case": out.name, "note": "recorded by tools/record_training.py", **about, "tensors": sorted(tensors)}
    (out / "case.json").write_text(json.dumps(about, indent=1) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["run", "lora"])
    parser.add_argument("model")
    parser.add_argument("case")
    parser.add_argument("--config", default="{}", help="settings of LoraConfig as JSON")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(1)
    {"run": record_run, "lora": record_lora}[args.what](args)


if __name__ == "__main__":
    main()

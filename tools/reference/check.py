"""Recompute a recorded case and compare."""

import json
from pathlib import Path

import torch
from safetensors.torch import load_file

from .generation import beam, greedy_causal, greedy_seq2seq
from .outputs import forward_left, forward_right, noise_of, pooled, train
from .subject import Options, Subject

INPUTS = {
    f"right.{name}" for name in ("input_ids", "attention_mask", "token_type_ids", "decoder_input_ids", "decoder_mask")
}
INPUTS |= {"beam.input_ids"} | {f"train.{name}" for name in ("labels", "readout", "start_positions", "end_positions")}


def recompute(case, stored, subject):
    """The tensors of a recorded case, computed anew from its inputs."""
    options = Options(max_new_tokens=case.get("generation", {}).get("max_new_tokens", 24), attentions=99)
    made = forward_right(subject, stored, options)
    if "left.input_ids" in stored:
        made |= forward_left(subject, stored)
    if "pooled.mean" in stored:
        made |= pooled(made["right.last_hidden_state"], stored["right.attention_mask"])
    if "greedy.row0.prompt_ids" in stored:
        rows = sum(name.endswith(".prompt_ids") for name in stored)
        prompts = [stored[f"greedy.row{i}.prompt_ids"].tolist() for i in range(rows)]
        made |= greedy_causal(subject, options, prompts)[0]
    elif "greedy.sequences" in stored:
        made |= greedy_seq2seq(subject, stored, options, given=True)[0]
    for name in ("beam", "beam_b"):
        if f"{name}.sequences" in stored:
            ids = stored["beam.input_ids"] if subject.kind == "causal" else stored["right.input_ids"]
            mask = torch.ones_like(ids) if subject.kind == "causal" else stored["right.attention_mask"]
            found = beam(subject, ids, mask, case[name])
            if found:
                made[f"{name}.sequences"], made[f"{name}.sequences_scores"] = found
    if "train.loss" in stored:
        loss, grads, _ = train(subject, stored)
        made |= {"train.loss": loss, **{f"train.grad.{name}": grad for name, grad in grads.items()}}
    return made


def error(name, value, want, tolerance):
    """The difference as a share of what is allowed: above 1 fails."""
    if value.shape != want.shape:
        return float("inf")
    if not want.is_floating_point():
        return 0.0 if torch.equal(value, want) else float("inf")
    if want.numel() == 0:
        return 0.0
    value, want = value.double(), want.double()
    if name.startswith("train.grad."):
        return ((value - want).norm() / want.norm().clamp(min=1e-3)).item() / tolerance["grad_rel_l2"]
    if name == "train.loss":
        return (value - want).abs().item() / tolerance["loss_abs"]
    if name.endswith("sequences_scores"):
        return (value - want).abs().max().item() / tolerance["beam_score_abs"]
    if "attentions" in name:
        return (value - want).abs().max().item() / 1e-5
    allowed = tolerance["atol"] + tolerance["rtol"] * want.abs()
    return ((value - want).abs() / allowed).max().item()


def check(path):
    """Recompute one case; prints a line, returns whether everything agrees."""
    folder = Path(path)
    case = json.loads((folder / "case.json").read_text())
    stored = load_file(folder / "expected.safetensors")
    subject = Subject(folder / case.get("model", ""), case.get("attn_implementation"), float64=True)
    made = recompute(case, stored, subject)
    errors = {name: error(name, made[name], want, case["tolerance"]) for name, want in stored.items() if name in made}
    noise = noise_of(subject, stored)
    worst = max(errors, key=errors.get)
    missing = [name for name in stored if name not in made and name not in INPUTS]
    good = errors[worst] <= 1
    print(
        f"{'ok  ' if good else 'FAIL'} {folder.name}: {len(errors)} tensors, worst {worst} at {errors[worst]:.3f} of its tolerance;"
        f" noise {noise:.3g}, recorded {case.get('ref_noise_logits', 0):.3g}"
    )
    if missing:
        print(f"     not recomputed: {', '.join(missing)}")
    return good

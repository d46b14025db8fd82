"""Records golden steps of optimizers: goldens/modules/optimizer_steps.{json,safetensors}.

    python tools/record_optimizers.py goldens/modules

Needs torch, transformers (for Adafactor) and safetensors. The layout is that of the other module files: `<run>.p0.i`
and `<run>.p1.i` are the two weights after step i (0: the start), `<run>.grad.p0.i` the gradient that step i was given,
before clipping. p0 [4, 3] decays, p1 [5] does not.
"""
import json
import pathlib
import sys

import torch
from safetensors.torch import save_file
from transformers.optimization import Adafactor

STEPS = 5
RUNS = {
    "sgd": dict(opt="SGD", lr=0.1, weight_decay=0.0, max_norm=None),
    "sgd_momentum": dict(opt="SGD", lr=0.1, momentum=0.9, weight_decay=0.01, max_norm=None),
    "sgd_nesterov": dict(opt="SGD", lr=0.05, momentum=0.8, nesterov=True, weight_decay=0.0, max_norm=2.0),
    "adam": dict(opt="Adam", lr=0.02, betas=[0.9, 0.999], eps=1e-8, weight_decay=0.0, max_norm=None),
    "adam_l2": dict(opt="Adam", lr=0.01, betas=[0.9, 0.98], eps=1e-9, weight_decay=0.05, max_norm=0.5),
    "adamw": dict(opt="AdamW", lr=0.01, betas=[0.9, 0.999], eps=1e-8, weight_decay=0.1, max_norm=None),
    "adamw_amsgrad": dict(opt="AdamW", lr=0.01, betas=[0.9, 0.99], eps=1e-8, amsgrad=True, weight_decay=0.01,
                          max_norm=None),
    "adamw_clip": dict(opt="AdamW", lr=0.03, betas=[0.9, 0.95], eps=1e-6, weight_decay=0.3, max_norm=1.0),
    "adafactor": dict(opt="Adafactor", lr=0.01, relative_step=False, scale_parameter=False, weight_decay=0.0,
                      max_norm=None),
    "adafactor_decay": dict(opt="Adafactor", lr=0.02, relative_step=False, scale_parameter=True, weight_decay=0.1,
                            beta1=0.9, max_norm=None),
    "adafactor_relative": dict(opt="Adafactor", lr=None, relative_step=True, scale_parameter=True, warmup_init=False,
                               weight_decay=0.0, max_norm=None),
}
CLASSES = {"SGD": torch.optim.SGD, "Adam": torch.optim.Adam, "AdamW": torch.optim.AdamW, "Adafactor": Adafactor}


def run(name, settings, tensors):
    weights = [torch.nn.Parameter(torch.randn(4, 3)), torch.nn.Parameter(torch.randn(5))]
    options = {k: v for k, v in settings.items() if k not in ("opt", "max_norm", "weight_decay")}
    groups = [dict(params=[weights[0]], weight_decay=settings["weight_decay"]),
              dict(params=[weights[1]], weight_decay=0.0)]
    optimizer = CLASSES[settings["opt"]](groups, **options)
    norms = []

    def keep(step):
        # A copy: the optimizer changes the weight where it lies.
        for index, weight in enumerate(weights):
            tensors[f"{name}.p{index}.{step}"] = weight.detach().clone()

    keep(0)
    for step in range(1, STEPS + 1):
        for index, weight in enumerate(weights):
            weight.grad = torch.randn_like(weight) * 2.0
            tensors[f"{name}.grad.p{index}.{step}"] = weight.grad.clone()
        if settings["max_norm"] is not None:
            norms.append(float(torch.nn.utils.clip_grad_norm_(weights, settings["max_norm"])))
        optimizer.step()
        keep(step)
    return norms


def main():
    folder = pathlib.Path(sys.argv[1])
    torch.manual_seed(20)
    tensors, runs = {}, {}
    for name, settings in RUNS.items():
        norms = run(name, settings, tensors)
        runs[name] = settings | {"grad_norms_before_clip": norms}
    about = {
        "topic": "optimizers",
        "note": "p0 [4,3] decays, p1 [5] does not; p*.i is the weight after step i, grad.p*.i what step i was given "
                "before clipping by the norm of both together",
        "runs": runs,
        "tensors": {k: {"shape": list(v.shape), "dtype": "float32"} for k, v in sorted(tensors.items())},
        "tolerance": {"atol": 1e-5, "rtol": 1e-5},
    }
    save_file(tensors, folder / "optimizer_steps.safetensors")
    (folder / "optimizer_steps.json").write_text(json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""Exports an encoder's hidden states: `export_onnx.py MODEL OUT` writes OUT/f32.onnx and OUT/int8.onnx.

Needs torch, transformers, onnx and onnxruntime: the environment of the rival `torch`.
"""

import os
import sys

import torch
import transformers
from onnxruntime.quantization import QuantType, quantize_dynamic


class Hidden(torch.nn.Module):
    """The hidden states alone; no pooler is kept."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask):
        return self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state


model, out = sys.argv[1:]
os.makedirs(out, exist_ok=True)
encoder = transformers.AutoModel.from_pretrained(model, dtype=torch.float32, attn_implementation="eager").eval()
ids = torch.randint(5, 900, (2, 16))
names = ["input_ids", "attention_mask"]
path = os.path.join(out, "f32.onnx")
torch.onnx.export(
    Hidden(encoder),
    (ids, torch.ones_like(ids)),
    path,
    input_names=names,
    output_names=["hidden"],
    dynamic_axes={name: {0: "batch", 1: "tokens"} for name in [*names, "hidden"]},
    opset_version=17,
    dynamo=False,
)
quantize_dynamic(path, os.path.join(out, "int8.onnx"), weight_type=QuantType.QInt8)

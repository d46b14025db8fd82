"""ONNX Runtime: encoders, exported by export_onnx.py. Settings: `int8` (dynamic) and `f32`."""

import os

import common

job = common.task()
import numpy as np  # noqa: E402
import onnxruntime  # noqa: E402

options = onnxruntime.SessionOptions()
options.intra_op_num_threads, options.inter_op_num_threads = job["threads"], 1
path = os.path.join(job["prepared"], {"int8": "int8.onnx", "f32": "f32.onnx"}[job["setting"]])
session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
shape = (job["batch"], job["tokens"])
# The lowest thousand ids are in every vocabulary of the models that are compared.
ids = np.array(common.tokens(shape[0] * shape[1], 1000), dtype=np.int64).reshape(shape)
given = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
given = {wanted.name: given[wanted.name] for wanted in session.get_inputs()}
session.run(None, given)
common.answer(common.repeat(job, lambda: session.run(None, given) and None, ids.size))

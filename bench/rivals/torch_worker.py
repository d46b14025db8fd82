"""PyTorch and transformers: every kind of model. Settings: `bf16` and `f32`. Weights of GGUF files are widened."""

import os
import time

import common

job = common.task()
os.environ["OMP_NUM_THREADS"] = str(job["threads"])
import torch  # noqa: E402
import transformers  # noqa: E402
from transformers import DynamicCache  # noqa: E402

torch.set_num_threads(job["threads"])
torch.set_grad_enabled(False)
transformers.utils.logging.set_verbosity_error()


def opened(kind):
    path, options = job["model"], {"dtype": {"bf16": torch.bfloat16, "f32": torch.float32}[job["setting"]]}
    if path.endswith(".gguf"):
        path, options["gguf_file"] = os.path.split(path)
    try:
        return kind.from_pretrained(path, **options).eval()
    except (ValueError, OSError, ImportError, KeyError, NotImplementedError) as error:
        common.refuse(error)


def drawn(model, *shape):
    ids = common.tokens(shape[0] * shape[1], model.get_input_embeddings().num_embeddings)
    return torch.tensor(ids).reshape(shape)


def decoder():
    if job["work"] == "start":
        started = time.perf_counter()
        model = opened(transformers.AutoModelForCausalLM)
        model(drawn(model, 1, job["tokens"]), logits_to_keep=1).logits.argmax()
        return [time.perf_counter() - started]
    model = opened(transformers.AutoModelForCausalLM)
    depth, count = job["depth"], job["tokens"]
    ids = drawn(model, 1, depth + count)
    base = DynamicCache()
    if depth:
        model(ids[:, :depth], past_key_values=base, logits_to_keep=1)

    def behind():
        """The cache with what stands before, and nothing else."""
        if depth == 0:
            return DynamicCache()
        added = base.get_seq_length() - depth
        if added:
            base.crop(-added)
        return base

    def read(cache, count):
        model(ids[:, depth : depth + count], past_key_values=cache, logits_to_keep=1).logits.argmax()

    def write(cache, count):
        token = ids[:, depth : depth + 1]
        for _ in range(count):
            token = model(token, past_key_values=cache, logits_to_keep=1).logits[:, -1].argmax(-1, keepdim=True)

    work = read if job["work"] == "prefill" else write

    def once():
        cache = behind()
        started = time.perf_counter()
        work(cache, count)
        return time.perf_counter() - started

    work(behind(), min(count, 16))
    return common.repeat(job, once, count)


def encoder():
    model = opened(transformers.AutoModel)
    ids = drawn(model, job["batch"], job["tokens"])
    mask = torch.ones_like(ids)
    model(input_ids=ids, attention_mask=mask)
    return common.repeat(job, lambda: model(input_ids=ids, attention_mask=mask) and None, ids.numel())


def writer():
    model = opened(transformers.AutoModelForSeq2SeqLM)
    ids = drawn(model, job["batch"], job["source"])
    count = job["tokens"]

    def answer(count):
        options = dict(num_beams=job["beams"], do_sample=False, min_new_tokens=count, max_new_tokens=count)
        model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), **options)

    answer(2)
    return common.repeat(job, lambda: answer(count), job["batch"] * count)


common.answer({"encode": encoder, "write": writer}.get(job["work"], decoder)())

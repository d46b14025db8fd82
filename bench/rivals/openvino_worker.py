"""OpenVINO GenAI: decoders, in the GGUF files that it reads."""

import time

import common

job = common.task()
import numpy as np  # noqa: E402
import openvino as ov  # noqa: E402
import openvino_genai  # noqa: E402


def opened():
    try:
        return openvino_genai.LLMPipeline(job["model"], "CPU", INFERENCE_NUM_THREADS=job["threads"])
    except RuntimeError as error:
        common.refuse(error)


def answer(pipe, prompt, count):
    """Seconds until the first token, and of the rest of `count` tokens."""
    config = openvino_genai.GenerationConfig()
    config.max_new_tokens, config.ignore_eos, config.do_sample, config.apply_chat_template = count, True, False, False
    ids = np.array([prompt], dtype=np.int64)
    inputs = openvino_genai.TokenizedInputs(ov.Tensor(ids), ov.Tensor(np.ones_like(ids)))
    metrics = pipe.generate(inputs, config).perf_metrics
    first = metrics.get_ttft().mean / 1e3
    return first, metrics.get_generate_duration().mean / 1e3 - first


# The lowest thousand ids are in every vocabulary of the models that are compared.
VOCABULARY = 1000
seeds = iter(range(1 << 20))


def fresh(count):
    """A prompt that was not read before: what was read is remembered, and would not be read again."""
    return common.tokens(count, VOCABULARY, next(seeds))


if job["work"] == "start":
    started = time.perf_counter()
    answer(opened(), fresh(job["tokens"]), 1)
    common.answer([time.perf_counter() - started])
elif job["work"] == "prefill":
    if job["depth"]:
        common.refuse("prefill behind other tokens is not measured")
    pipe = opened()
    answer(pipe, fresh(min(job["tokens"], 512)), 1)
    common.answer(common.repeat(job, lambda: answer(pipe, fresh(job["tokens"]), 1)[0], job["tokens"]))
else:
    pipe = opened()
    depth = max(job["depth"], 1)
    answer(pipe, fresh(min(depth, 32)), 2)
    # The first token comes of reading the prompt.
    common.answer(common.repeat(job, lambda: answer(pipe, fresh(depth), job["tokens"] + 1)[1], job["tokens"]))

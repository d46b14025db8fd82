"""llama.cpp through llama-cpp-python: decoders in GGUF files. Settings: `flash` and `plain` attention."""

import time

import common

job = common.task()
import llama_cpp  # noqa: E402
import numpy as np  # noqa: E402

CHUNK = 512


def opened(context):
    options = dict(n_batch=CHUNK, n_ubatch=CHUNK, n_threads=job["threads"], n_threads_batch=job["threads"], verbose=False)
    try:
        return llama_cpp.Llama(job["model"], n_ctx=context, flash_attn=job["setting"] == "flash", **options)
    except (ValueError, RuntimeError) as error:
        common.refuse(error)


def likeliest(llm):
    row = llama_cpp.llama_get_logits_ith(llm.ctx, -1)
    return int(np.ctypeslib.as_array(row, shape=(llm.n_vocab(),)).argmax())


def write(llm, token, count):
    for _ in range(count):
        llm.eval([token])
        token = likeliest(llm)


if job["work"] == "start":
    started = time.perf_counter()
    llm = opened(job["tokens"] + 8)
    llm.eval(common.tokens(job["tokens"], llm.n_vocab()))
    likeliest(llm)
    common.answer([time.perf_counter() - started])
else:
    depth, count = job["depth"], job["tokens"]
    llm = opened(depth + count + 8)
    drawn = common.tokens(depth + count, llm.n_vocab())
    if depth:
        llm.eval(drawn[:depth])

    def once():
        # What comes after is forgotten when the next tokens are read.
        llm.n_tokens = depth
        if job["work"] == "prefill":
            llm.eval(drawn[depth:])
            likeliest(llm)
        else:
            write(llm, drawn[depth], count)

    if job["work"] == "prefill":
        llm.eval(drawn[depth : depth + min(count, CHUNK)])
    else:
        write(llm, drawn[depth], 2)
    common.answer(common.repeat(job, once, count))

"""CTranslate2: encoder-decoders, converted by convert_ctranslate2.py. Settings: `int8`, `bfloat16` and `float32`."""

import json
import os

import common

job = common.task()
import ctranslate2  # noqa: E402

try:
    translator = ctranslate2.Translator(
        job["prepared"], device="cpu", compute_type=job["setting"], inter_threads=1, intra_threads=job["threads"]
    )
except ValueError as error:
    common.refuse(error)
names = ("shared_vocabulary.json", "source_vocabulary.json")
path = next(path for path in (os.path.join(job["prepared"], name) for name in names) if os.path.exists(path))
with open(path, encoding="utf-8") as file:
    vocabulary = json.load(file)
sources = [
    [vocabulary[index] for index in common.tokens(job["source"], len(vocabulary), seed)] for seed in range(job["batch"])
]


def answer(count):
    found = translator.translate_batch(
        sources, beam_size=job["beams"], min_decoding_length=count, max_decoding_length=count, max_batch_size=0
    )
    assert all(len(result.hypotheses[0]) == count for result in found), "the answers are as long as was asked for"


answer(2)
common.answer(common.repeat(job, lambda: answer(job["tokens"]), job["batch"] * job["tokens"]))

"""The rows: which work is compared for a model of each kind."""

import json
import os
import subprocess
import sys


def _decoder():
    yield {"name": "start, first token after 32", "work": "start", "tokens": 32}
    for tokens in (512, 4096):
        yield {"name": f"prefill {tokens}", "work": "prefill", "tokens": tokens, "depth": 0}
    for depth in (0, 4096):
        yield {"name": f"decode 128 at {depth}", "work": "decode", "tokens": 128, "depth": depth}


def _encoder():
    for batch, tokens in ((1, 32), (1, 128), (32, 128)):
        yield {"name": f"encode {batch} x {tokens}", "work": "encode", "batch": batch, "tokens": tokens}


def _writer():
    for beams, batch in ((1, 1), (4, 1), (1, 8), (4, 8)):
        how = f"{beams} beams" if beams > 1 else "greedy"
        name = f"write 64 from 64, {how}, batch {batch}"
        yield {"name": name, "work": "write", "tokens": 64, "source": 64, "beams": beams, "batch": batch}


def rows(attend, model):
    """The rows for a model, by what `attend show` says that it is."""
    shown = subprocess.run([attend, "show", "-m", os.path.abspath(model), "--json"], stdout=subprocess.PIPE, text=True)
    if shown.returncode:
        sys.exit(f"error: {model}: Attend does not read it")
    body = next(iter(json.loads(shown.stdout)["spec"]["body"]))
    return list({"Decoder": _decoder, "Encoder": _encoder, "EncoderDecoder": _writer}[body]())

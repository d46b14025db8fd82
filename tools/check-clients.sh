#!/bin/sh
# Runs the client packages openai, anthropic and ollama of PyPI against a server: tools/check-clients.sh [URL [--tools]].
# With --tools the first model must call functions by itself.
# Needs python3 with venv, and the network once; the packages go into a folder that is removed afterwards.
set -eu

url=${1:-http://127.0.0.1:8080}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet openai anthropic ollama
"$work/venv/bin/python" "$(dirname "$0")/check_clients.py" "$url" ${2:+"$2"}

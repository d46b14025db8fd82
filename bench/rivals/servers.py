#!/usr/bin/env python3
"""Attend's server and its rivals' under the same loads, in turn; one Markdown table comes of it.

    bench/rivals/servers.py --gguf model-q8_0.gguf --folder model --encoder sentence-model > table.md

`--gguf` is for llama.cpp's own server and llama-cpp-python's, `--folder` the same weights for vLLM, `--encoder` a model of vectors for
ONNX Runtime. A server is started for every load of every round, and alone; `attend bench serve` asks them all. Environments are
those of compare.py (RIVAL_LLAMA with the extra `server`, RIVAL_LLAMASERVER, RIVAL_VLLM, RIVAL_ONNXRUNTIME with tokenizers); a
rival without one is left out. Needs Python 3.9 or later and nothing else.
"""

import argparse
import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

import rivals
import table

HERE = os.path.dirname(os.path.abspath(__file__))
READY_SECONDS = 300
LOADS = {
    "random": ["--prompt", "64", "--generate", "64", "--range-ratio", "0.8"],
    "shared prefix": ["--prompt", "256", "--shared", "192", "--generate", "64"],
    "vectors of 24 words": ["--prompt", "24", "--generate", "0"],
    "vectors of 5 to 43 words": ["--prompt", "24", "--generate", "0", "--range-ratio", "0.8"],
}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    program = os.path.join(HERE, "../../target/release/attend")
    parser.add_argument("--attend", default=program, help="the program [default: the release build of this checkout]")
    parser.add_argument("--gguf", help="a decoder, for Attend and llama.cpp")
    parser.add_argument("--folder", help="the same decoder as a Hugging Face folder, for Attend and vLLM")
    parser.add_argument("--encoder", help="a folder of an encoder, for Attend and ONNX Runtime")
    parser.add_argument("--clients", default="1,4,16,64")
    parser.add_argument("--loads", default=",".join(LOADS), help="which of %(default)s")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--environments", help="where environments and converted models are kept [default: thrown away]")
    return parser.parse_args()


class Server:
    """A server that can be started: its name, its command, its environment, its kind of work.

    In the command `{port}` stands for the port, `{clients}` for the number of clients, `{context}` for 512 tokens of each.
    """

    def __init__(self, name, command, environment=None, vectors=False):
        self.name, self.command, self.vectors = name, command, vectors
        self.environment = {**os.environ, **(environment or {})}
        self.results = {}

    def measure(self, load, clients, options):
        """One start, a load to warm up, and the load."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        url = f"http://127.0.0.1:{port}"
        values = {"{port}": port, "{clients}": clients, "{context}": 512 * clients}
        command = [str(values.get(part, part)) for part in self.command]
        with tempfile.TemporaryFile("w+") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, env=self.environment, start_new_session=True)
            try:
                if not ready(url, process):
                    log.seek(0)
                    print(f"{self.name} did not start: {log.read()[-400:]}", file=sys.stderr)
                    return None
                ask(options, url, LOADS[load], min(clients, 4), 1)
                report = ask(options, url, LOADS[load], clients, max(2, (512 if self.vectors else 32) // clients))
                if report is not None:
                    report["peak"] = peak(process.pid)
                return report
            finally:
                os.killpg(process.pid, 15)
                try:
                    process.wait(20)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, 9)
                    process.wait()


def ready(url, process):
    """Whether the server answers in time."""
    until = time.monotonic() + READY_SECONDS
    while time.monotonic() < until and process.poll() is None:
        for path in ("/health", "/v1/models"):
            try:
                with urllib.request.urlopen(url + path, timeout=5):
                    return True
            except urllib.error.HTTPError as error:
                if error.code != 404:
                    break
            except OSError:
                break
        time.sleep(0.2)
    return False


def ask(options, url, load, clients, requests):
    """The report of a load, or nothing where all of it failed."""
    command = [options.attend, "bench", "serve", "--url", url, *load, "--json"]
    done = subprocess.run([*command, "--clients", str(clients), "--requests", str(requests)], capture_output=True, text=True)
    try:
        return json.loads(done.stdout)
    except ValueError:
        print(done.stderr.strip()[-300:], file=sys.stderr)
        return None


def peak(leader):
    """The sum of the peaks of memory of a server's processes, in bytes."""
    found = 0
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.getpgid(int(pid)) == leader:
                with open(f"/proc/{pid}/status", encoding="utf-8") as status:
                    found += sum(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))
        except OSError:
            pass
    return found


def attend(name, model, options, *more):
    command = [options.attend, "serve", "-m", model, "--port", "{port}", "--no-log", "--threads", str(options.threads), *more]
    return Server(name, command)


def servers(options, folder):
    """Everyone who can be asked."""
    found = []
    threads = {"OMP_NUM_THREADS": str(options.threads)}
    if options.gguf:
        name = "Attend, " + os.path.basename(options.gguf)
        found.append(attend(name, options.gguf, options))
        # As few at once as suit those who want their tokens evenly and would rather wait for the first one.
        found.append(attend(name + ", --parallel 4", options.gguf, options, "--parallel", "4"))
        if "RIVAL_LLAMA" in os.environ:
            python = rivals.environment("llama", folder)
            command = [python, "-m", "llama_cpp.server", "--model", options.gguf, "--port", "{port}", "--n_ctx", "4096"]
            command += ["--n_threads", str(options.threads), "--n_threads_batch", str(options.threads)]
            # Else a request cuts short the one before it.
            command += ["--interrupt_requests", "false"]
            found.append(Server("llama-cpp-python's server", command, threads))
        if "RIVAL_LLAMASERVER" in os.environ:
            python = rivals.environment("llamaserver", folder)
            command = [os.path.join(os.path.dirname(python), "llama-server"), "--model", options.gguf, "--port", "{port}"]
            command += ["--parallel", "{clients}", "--ctx-size", "{context}", "--threads", str(options.threads)]
            for setting in ("on", "off"):
                found.append(Server(f"llama.cpp's server, flash attention {setting}", [*command, "--flash-attn", setting]))
    if options.folder:
        found.append(attend("Attend, " + os.path.basename(options.folder.rstrip("/")), options.folder, options))
        if "RIVAL_VLLM" in os.environ:
            python = rivals.environment("vllm", folder)
            command = [python, "-m", "vllm.entrypoints.openai.api_server", "--model", options.folder, "--port", "{port}"]
            command += ["--dtype", "bfloat16", "--max-model-len", "2048", "--max-num-seqs", "64"]
            found.append(Server("vLLM", command, {**threads, "VLLM_CPU_KVCACHE_SPACE": "2"}))
    if options.encoder:
        for setting in ("auto", "q8_0"):
            server = attend(f"Attend ({setting})", options.encoder, options, "--dtype", setting)
            server.vectors = True
            found.append(server)
        exported = rivals.prepare(rivals.RIVALS["onnxruntime"], options.encoder, folder)
        python = exported and rivals.environment("onnxruntime", folder)
        if python:
            for setting in ("int8", "int8,together", "f32", "f32,together"):
                script = os.path.join(HERE, "onnxruntime_server.py")
                command = [python, script, options.encoder, exported, setting, "{port}", str(options.threads)]
                found.append(Server(f"ONNX Runtime ({setting})", command, threads, vectors=True))
    return found


def main():
    options = arguments()
    clients = [int(count) for count in options.clients.split(",")]
    asked = []
    # Whoever has seen enough is told what there is.
    with tempfile.TemporaryDirectory() as thrown_away, contextlib.suppress(KeyboardInterrupt):
        asked = servers(options, os.path.abspath(options.environments or thrown_away))
        for turn in range(options.rounds):
            for load in options.loads.split(","):
                for count in clients:
                    for server in asked[turn % len(asked) :] + asked[: turn % len(asked)]:
                        if server.vectors != load.startswith("vectors"):
                            continue
                        print(f"{load}, {count} clients: {server.name}", file=sys.stderr)
                        report = server.measure(load, count, options)
                        if report:
                            print(short(report), file=sys.stderr)
                            server.results.setdefault((load, count), []).append(report)
    print(f"{table.processor()}, {options.threads} threads, {options.rounds} rounds in turn.\n")
    print("| load | clients | server | tokens/s or texts/s | first token p50, p95 ms | between p50, p95 ms | failed | peak memory |")
    print("|" + "---|" * 8)
    for load, count in sorted({key for server in asked for key in server.results}, key=lambda key: (key[0], key[1])):
        for server in asked:
            if (load, count) in server.results:
                print(line(load, count, server))


def short(report):
    """What is told of a report while others are still to come."""
    between = report.get("between_tokens") or {}
    rate = report["generated_tokens_per_second"] or report["requests_per_second"]
    return f"  {rate:.1f} a second, between tokens 95 % {between.get('p95', 0):.1f} ms, peak {report['peak'] / 1e6:.0f} MB"


def line(load, count, server):
    reports = server.results[load, count]
    rate = "requests_per_second" if server.vectors else "generated_tokens_per_second"

    def of(name, quantile):
        values = [report[name][quantile] for report in reports if report.get(name)]
        return table.number(statistics.median(values)) if values else "-"

    cells = [load, str(count), server.name, table.number(statistics.median(report[rate] for report in reports))]
    cells += [f"{of(name, 'median')}, {of(name, 'p95')}" for name in ("first_token", "between_tokens")]
    cells += [str(sum(report["failed"] + report["refused"] for report in reports))]
    cells += [f"{max(report['peak'] for report in reports) / 1e6:.0f} MB"]
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    main()

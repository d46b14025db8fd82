"""ONNX Runtime behind OpenAI's `/v1/embeddings`: `onnxruntime_server.py MODEL EXPORTED SETTING PORT THREADS`.

SETTING is a type of export_onnx.py, and how requests meet: `int8` runs each as it comes, `int8,together` all that wait as one
padded batch of at most 32. Vectors are means over a text's tokens, of unit length. Needs onnxruntime, tokenizers and numpy.
"""

import json
import os
import queue
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import onnxruntime
import tokenizers

model, exported, setting, port, threads = sys.argv[1:]
kind, _, together = setting.partition(",")
most = 32 if together else 1
options = onnxruntime.SessionOptions()
options.intra_op_num_threads, options.inter_op_num_threads = int(threads), 1
session = onnxruntime.InferenceSession(os.path.join(exported, f"{kind}.onnx"), options, providers=["CPUExecutionProvider"])
tokenizer = tokenizers.Tokenizer.from_file(os.path.join(model, "tokenizer.json"))
tokenizer.no_padding()
waiting = queue.Queue()


def vectors(rows):
    """Vectors of texts of token ids."""
    ids = np.zeros((len(rows), max(map(len, rows))), dtype=np.int64)
    mask = np.zeros_like(ids)
    for row, (to, seen) in zip(rows, zip(ids, mask)):
        to[: len(row)], seen[: len(row)] = row, 1
    given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
    (hidden,) = session.run(None, {wanted.name: given[wanted.name] for wanted in session.get_inputs()})
    mean = (hidden * mask[:, :, None]).sum(1) / mask.sum(1)[:, None]
    return mean / np.linalg.norm(mean, axis=1)[:, None]


def work():
    while True:
        taken = [waiting.get()]
        while len(taken) < most and not waiting.empty():
            taken.append(waiting.get())
        for (_, answer), vector in zip(taken, vectors([row for row, _ in taken])):
            answer.put(vector)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # A small answer is not held back for the next.
    disable_nagle_algorithm = True

    def reply(self, value):
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.reply({"object": "list", "data": [{"id": "model", "object": "model"}]})

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        texts = asked["input"] if isinstance(asked["input"], list) else [asked["input"]]
        rows = [tokenizer.encode(text).ids[:512] for text in texts]
        answers = [queue.Queue() for _ in rows]
        for pair in zip(rows, answers):
            waiting.put(pair)
        data = [
            {"object": "embedding", "index": index, "embedding": answer.get().tolist()}
            for index, answer in enumerate(answers)
        ]
        used = sum(map(len, rows))
        usage = {"prompt_tokens": used, "total_tokens": used}
        self.reply({"object": "list", "model": "model", "data": data, "usage": usage})

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    request_queue_size = 128


threading.Thread(target=work, daemon=True).start()
Server(("127.0.0.1", int(port)), Handler).serve_forever()

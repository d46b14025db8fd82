"""What the workers share: the work they are given, the clock, and the line that they answer with.

A worker is run in the environment of its rival, for one row, once: it loads the model, warms up, measures, and prints one
JSON object on its last line. Samples are tokens a second, or seconds for `start`.
"""

import json
import random
import sys
import time


def task():
    """The row that was asked for: `work`, `model` (a path), `threads`, `samples`, `setting`, and the row's numbers."""
    return json.loads(sys.argv[1])


def tokens(count, vocabulary, seed=0):
    """Token ids drawn from a vocabulary; speed does not depend on which."""
    draw = random.Random(seed)
    return [draw.randrange(vocabulary) for _ in range(count)]


def repeat(task, once, count):
    """Samples of `once`, which does the work of `count` tokens and gives its seconds, or nothing where all of it counts."""
    samples = []
    for _ in range(task["samples"]):
        started = time.perf_counter()
        inner = once()
        seconds = time.perf_counter() - started if inner is None else inner
        samples.append(count / seconds)
    return samples


def answer(samples):
    print(json.dumps({"samples": samples}))


def refuse(reason):
    """This rival does not do this work, or not with this file."""
    print(json.dumps({"refused": str(reason).strip().splitlines()[-1][:200] if str(reason).strip() else "no reason given"}))
    sys.exit(0)

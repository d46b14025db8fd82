#!/usr/bin/env python3
"""Attend and its rivals at the same work on the same weights, alternating in one run; one Markdown table comes of it.

    bench/rivals/compare.py model-q8_0.gguf sentence-model t5-model --threads 2 > table.md

Every sample is a process of its own, which loads the model, warms up and measures; so the peak of memory is the row's, and
whatever else happens on the machine meets all alike. Each rival is installed into a throw-away environment, or taken from
one that an environment variable names (RIVAL_LLAMA, RIVAL_OPENVINO, RIVAL_TORCH, RIVAL_ONNXRUNTIME, RIVAL_CTRANSLATE2).
Needs Python 3.9 or later and nothing else.
"""

import argparse
import os
import re
import sys
import tempfile

import rivals
import subjects
import table
import work

HERE = os.path.dirname(os.path.abspath(__file__))


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="MODEL", help="GGUF files and Hugging Face folders")
    program = os.path.join(HERE, "../../target/release/attend")
    parser.add_argument("--attend", default=program, help="the program [default: the release build of this checkout]")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3, help="how often everyone is asked in turn")
    parser.add_argument("--samples", type=int, default=1, help="samples of each process")
    parser.add_argument("--rivals", default=",".join(rivals.RIVALS), help="which of %(default)s")
    parser.add_argument("--rows", type=re.compile, default="", help="only rows whose name matches, as in 'prefill|1 x 32'")
    parser.add_argument("--environments", help="where environments and converted models are kept [default: thrown away]")
    return parser.parse_args()


def main():
    options = arguments()
    wanted = [name for name in options.rivals.split(",") if name]
    unknown = [name for name in wanted if name not in rivals.RIVALS]
    if unknown:
        sys.exit(f"error: unknown rival {unknown[0]}; known: {', '.join(rivals.RIVALS)}")
    with tempfile.TemporaryDirectory() as thrown_away:
        folder = os.path.abspath(options.environments or thrown_away)
        os.makedirs(folder, exist_ok=True)
        found = table.Table()
        for model in options.models:
            rows = [row for row in work.rows(options.attend, model) if options.rows.search(row["name"])]
            own = [subjects.Attend(options.attend, setting) for setting in subjects.Attend.settings(model)]
            asked = own + rivals.ready(wanted, model, rows, folder)
            for row in rows:
                found.add(row, model, measure(row, model, asked, options))
        print(found.markdown(options.threads, options.rounds))


def measure(row, model, asked, options):
    """Samples and peaks of everyone at one row, asked in turn."""
    results = {subject: subjects.Result() for subject in asked if subject.does(row)}
    for turn in range(options.rounds):
        order = list(results)
        # Whoever comes first in a round is not always the same.
        for subject in order[turn % len(order) :] + order[: turn % len(order)]:
            if results[subject].refused is None:
                print(f"{os.path.basename(model)}: {row['name']}: {subject.name}", file=sys.stderr)
                subject.sample(row, model, options, results[subject])
    return results


if __name__ == "__main__":
    main()

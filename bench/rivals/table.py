"""The table."""

import os
import statistics

import rivals


def processor():
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return "unknown processor"


def number(value):
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.3g}"


class Table:
    def __init__(self):
        self.lines, self.notes, self.versions = [], [], {}

    def add(self, row, model, results):
        """The lines of one row: Attend, then each rival at its better setting."""
        name = os.path.basename(os.path.abspath(model))
        seconds = row["work"] == "start"
        better = min if seconds else max
        best = {}
        for subject, result in results.items():
            if subject.rival:
                self.versions.setdefault(subject.rival.name, rivals.version(subject))
            if result.refused is not None or not result.samples:
                self.note(f"{subject.name}, {name}, {row['name']}: {result.refused}")
                continue
            key = subject.rival.name if subject.rival else "Attend"
            result.subject, result.median = subject, statistics.median(result.samples)
            best[key] = better(best.get(key, result), result, key=lambda result: result.median)
        own = best.pop("Attend", None)
        # The best rival first.
        others = sorted(best.values(), key=lambda result: result.median, reverse=not seconds)
        for result in ([own] if own else []) + others:
            ratio = ""
            if own and result is not own:
                ratio = result.median / own.median if seconds else own.median / result.median
                ratio = f"{ratio:.2f}"
            unit = "s" if seconds else "tokens/s"
            spread = f"{number(min(result.samples))}..{number(max(result.samples))}"
            peak = f"{result.peak / 1e6:.0f} MB"
            cells = [name, row["name"], result.subject.name, f"{number(result.median)} {unit}", spread, peak, ratio]
            self.lines.append("| " + " | ".join(cells) + " |")

    def note(self, text):
        text = text.replace("|", "/")
        if text not in self.notes:
            self.notes.append(text)

    def markdown(self, threads, rounds):
        head = ["model", "work", "who", "median", "spread", "peak memory", "Attend is faster by"]
        versions = ", ".join(f"{name} {version}" for name, version in sorted(self.versions.items()))
        facts = f"{processor()}, {threads} threads, {rounds} rounds in turn; {versions or 'no rivals'}."
        parts = [facts, "", "| " + " | ".join(head) + " |", "|" + "---|" * len(head), *self.lines]
        if self.notes:
            parts += ["", *[f"- {note}" for note in self.notes]]
        return "\n".join(parts)

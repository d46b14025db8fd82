"""Who is measured: Attend, and a rival's worker with one of its settings."""

import json
import os
import subprocess
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
MOST_SECONDS = 900


class Result:
    """What came of one subject's samples at a row: tokens a second (seconds for `start`), and bytes."""

    def __init__(self):
        self.samples, self.peak, self.refused = [], 0, None


def run(command, environment=None):
    """Output, whether it went well, the last line of complaint, and the peak of memory in bytes of a command."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen(command, stdout=out, stderr=err, env=environment, start_new_session=True)
        watch = subprocess.Popen(["sleep", str(MOST_SECONDS)])
        try:
            pid, status, usage = wait(process.pid, watch)
        finally:
            watch.kill()
            watch.wait()
        out.seek(0)
        err.seek(0)
        complaint = [line for line in err.read().splitlines() if line.strip()][-1:] or ["it ended without a word"]
        well = os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0
        if os.WIFSIGNALED(status):
            complaint = [f"it died of signal {os.WTERMSIG(status)}"]
        process.returncode = status
        return out.read(), well, complaint[0], usage.ru_maxrss * 1024


def wait(pid, watch):
    """Waits for a process, and ends it where the watch ends first."""
    while True:
        ended, status, usage = os.wait4(-1, 0)
        if ended == pid:
            return ended, status, usage
        if ended == watch.pid:
            watch.returncode = 0
            os.killpg(pid, 9)


class Attend:
    """Attend with one arithmetic of the weights: its own choice, or eight bits where the files have plain numbers."""

    rival = None

    def __init__(self, program, setting):
        self.program, self.setting = program, setting
        self.name = "Attend" if setting == "auto" else f"Attend ({setting})"

    @staticmethod
    def settings(model):
        return ("auto",) if model.endswith(".gguf") else ("auto", "q8_0")

    def does(self, row):
        return True

    def sample(self, row, model, options, result):
        flags = {
            "start": ["--prompt", "0", "--generate", "0"],
            "prefill": ["--prompt", str(row["tokens"]), "--generate", "0"],
            "decode": ["--prompt", "0", "--generate", str(row["tokens"]), "--depth", str(row.get("depth")), "--batch", "1"],
            "encode": ["--prompt", str(row["tokens"]), "--batch", str(row.get("batch"))],
            "write": ["--prompt", str(row.get("source")), "--generate", str(row["tokens"])]
            + ["--beams", str(row.get("beams")), "--batch", str(row.get("batch"))],
        }[row["work"]]
        common = ["--format", "json", "--no-limits", "--threads", str(options.threads)]
        common += ["--repetitions", str(options.samples), "--dtype", self.setting]
        out, well, complaint, peak = run([self.program, "bench", os.path.abspath(model), *common, *flags])
        if not well:
            result.refused = complaint
            return
        rows = {found["work"]: found for found in json.loads(out)["rows"]}
        if row["work"] == "start":
            result.samples.append(rows["load"]["median"] + rows["first_token"]["median"])
        else:
            result.samples += rows[row["work"]]["samples"]
        result.peak = max(result.peak, peak)


class Worker:
    """A rival with one setting, in its environment."""

    def __init__(self, rival, setting, python, prepared):
        self.rival, self.setting, self.python, self.prepared = rival, setting, python, prepared
        self.name = f"{rival.name} ({setting})" if setting else rival.name

    def does(self, row):
        return row["work"] in self.rival.works

    def sample(self, row, model, options, result):
        task = {**row, "model": os.path.abspath(model), "prepared": self.prepared, "setting": self.setting}
        task.update(threads=options.threads, samples=options.samples)
        environment = {**os.environ, "OMP_NUM_THREADS": str(options.threads), "PYTHONDONTWRITEBYTECODE": "1"}
        script = os.path.join(HERE, self.rival.worker)
        out, well, complaint, peak = run([self.python, script, json.dumps(task)], environment)
        answer = next((line for line in reversed(out.splitlines()) if line.startswith("{")), None)
        if not well or answer is None:
            result.refused = complaint
            return
        answer = json.loads(answer)
        result.refused = answer.get("refused")
        result.samples += answer.get("samples", [])
        result.peak = max(result.peak, peak)

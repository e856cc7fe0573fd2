# SPDX-License-Identifier: MIT
"""Writes the suite's results to OUT: seven files, each replaced after every step and during long ones.

    summary.md         what failed, then the steps, then what was measured
    suite.json         the same steps for programs, with the machine and the pack's manifest
    rows.json          all rows of bench_cuda and torch_gpu.py
    matmul_table.txt   for ht::matmul_table::read
    training.json      the summary of each train_gpt
    ncu.csv            as ncu wrote it
    logs.txt           what each step printed, of long ones the beginning and the end
"""
import json
import os
import pathlib

import counters
import targets

FILES = ("summary.md", "suite.json", "rows.json", "matmul_table.txt", "training.json", "ncu.csv", "logs.txt")
HEAD, TAIL = 16_000, 48_000  # bytes of a log


def read_json(path):
    try:
        return json.loads(pathlib.Path(path).read_text())
    except (OSError, ValueError):
        return None


def cell(text):
    return str(text).replace("|", "/").replace("\n", " ")


def named_by_text(steps):
    """[(text, [name, ...])], in order."""
    names = {}
    for step in steps:
        names.setdefault(step["text"], []).append(step["name"])
    return names.items()


class Report:
    """suite: `steps` (dicts: name, part, result, text, seconds, limit, rows), `facts`, `profile`, `clock`."""

    def __init__(self, out, work, suite):
        self.out, self.work, self.suite = pathlib.Path(out), pathlib.Path(work), suite
        for name in FILES:  # of an earlier run
            (self.out / name).unlink(missing_ok=True)

    def put(self, name, text):
        part = self.out / ".part"  # the eighth file, for a moment
        part.write_text(text)
        os.replace(part, self.out / name)

    def renew(self):
        rows = self.rows()
        training = {s["name"]: read_json(self.work / s["name"] / "summary.json") for s in self.suite.steps}
        training = {name: summary for name, summary in training.items() if summary}
        self.put("summary.md", self.summary(rows, training))
        self.put("suite.json", json.dumps(dict(self.suite.facts, program="gpu_suite", profile=self.suite.profile, seconds=round(self.suite.clock.spent(), 1),
                                               of=self.suite.clock.budget, steps=self.suite.steps), indent=1) + "\n")
        self.put("rows.json", json.dumps(rows, indent=1) + "\n")
        if training:
            self.put("training.json", json.dumps(training, indent=1) + "\n")
        for name in ("matmul_table.txt", "ncu.csv"):
            if (self.work / name).exists():
                self.put(name, (self.work / name).read_text(errors="replace"))
        self.put("logs.txt", self.logs())

    # ---- what was found

    def rows(self):
        """The rows of every step; the ceilings are those measured last."""
        merged = {"rows": []}
        for step in self.suite.steps:
            found = read_json(self.work / step["rows"]) if step["rows"] else None
            if not found:
                continue
            for name in ("machine", "copy_bytes_per_second", "cublaslt_bf16_flops", "smoke", "torch"):
                if found.get(name):
                    merged[name] = found[name]
            merged["rows"] += [dict(row, step=step["name"]) for row in found.get("rows", [])]
        return merged

    def logs(self):
        parts = []
        for step in self.suite.steps:
            path = self.work / f"{step['name']}.log"
            if path.exists():
                text = path.read_bytes()
                if len(text) > HEAD + TAIL:
                    text = text[:HEAD] + b"\n[...]\n" + text[-TAIL:]
                parts.append(f"==== {step['name']}: {step['result']} {step['text']}\n" + text.decode(errors="replace").replace("\r", "\n"))
        return "\n".join(parts)

    # ---- summary.md

    def summary(self, rows, training):
        parts = [self.opening(), self.steps_table(), self.smoke(rows), self.trained(training)]
        counted = counters.read(self.work / "ncu.csv")
        if counted:
            parts.append("## Kernels under ncu\n\n" + counters.markdown(counted))
        if rows["rows"]:
            parts += ["## Targets\n\n" + targets.markdown(rows["rows"]), self.measured(rows)]
        return "\n\n".join(part for part in parts if part) + "\n"

    def opening(self):
        steps = self.suite.steps
        failed = [s for s in steps if s["result"] == "FAILED"]
        left_out = [s for s in steps if s["result"] == "left out"]
        waiting = [s for s in steps if s["result"] in ("waiting", "running")]
        lines = [f"# GPU suite: {f'{len(failed)} of {len(steps)} steps FAILED' if failed else 'nothing failed'}"
                 f"{f', {len(waiting)} not done yet' if waiting else ''}", ""]
        for text, names in named_by_text(failed):
            lines.append(f"- **{', '.join(names)}** {text}")
        if failed:
            lines.append("")
        if left_out:
            lines += ["Left out: " + "; ".join(f"{', '.join(names)} ({why})" for why, names in named_by_text(left_out)) + ".", ""]
        facts = self.suite.facts
        gpu = facts["gpu"]
        gpu_text = ", ".join(str(v) for v in (gpu.get("name"), gpu.get("memory.total"), "driver " + gpu["driver_version"]) if v) if gpu else f"not known ({facts['gpu_missing']})"
        lines.append(f"GPU: {gpu_text}. Commit {facts['commit']}. Profile {self.suite.profile}: {self.suite.clock.spent():.0f} s of {self.suite.clock.budget:.0f}.")
        lines += [f"{name}: {path or 'NOT FOUND'}" + "  " for name, path in facts["libraries"].items()]
        return "\n".join(lines)

    def steps_table(self):
        lines = ["| step | result | seconds | limit |", "| --- | --- | ---: | ---: |"]
        lines += [f"| {s['name']} | {cell(s['result'])}{': ' if s['text'] else ''}{cell(s['text'])} | {s['seconds']:.1f} | {s['limit']:.0f} |" for s in self.suite.steps]
        return "\n".join(lines)

    def smoke(self, rows):
        if "smoke" not in rows:
            return ""
        lines = ["## Each kernel once, exact on whole numbers", "", "| kernel | wrong | of | |", "| --- | ---: | ---: | --- |"]
        lines += [f"| {s['kernel']} | {s['wrong']} | {s['of']} | {cell(s['what'])} |" for s in rows["smoke"]]
        return "\n".join(lines)

    def measured(self, rows):
        if not rows["rows"]:
            return ""
        lines = ["## Measured", ""]
        if rows.get("copy_bytes_per_second"):
            lines += [f"Ceilings: copy {rows['copy_bytes_per_second'] / 1e9:.0f} GB/s, read and written; "
                      f"cuBLASLt's bf16 product {rows.get('cublaslt_bf16_flops', 0) / 1e12:.0f} TFLOP/s.", ""]
        peers = {}
        for row in rows["rows"]:
            if row["engine"].startswith("torch") and row["seconds"] > 0:
                key = row["kernel"], row["shape"]
                peers[key] = min(peers.get(key, row["seconds"]), row["seconds"])
        lines += ["| kernel | shape | policy | engine | us | rate | of the ceiling | beside |", "| --- | --- | --- | --- | ---: | ---: | ---: | --- |"]
        for row in rows["rows"]:
            seconds = row["seconds"] or 0
            beside = [f"{ratio:.2f} of {peer}" for peer, ratio in row.get("ratio_to", {}).items() if ratio]
            peer = peers.get((row["kernel"], row["shape"]))
            if peer and seconds and not row["engine"].startswith("torch"):
                beside.append(f"{peer / seconds:.2f} of PyTorch")
            share = row.get("percent_of_peak")
            lines.append(f"| {row['kernel']} | {row['shape']} | {row['policy']} | {row['engine']} | {seconds * 1e6:.1f} | {row['rate'] or 0:.0f} {row['unit']} | "
                         f"{f'{share:.0f}%' if share else ''} | {', '.join(beside)} |")
        return "\n".join(lines)

    def trained(self, training):
        if not training:
            return ""
        lines = ["## Trained", "", "| run | policy | validation loss | tokens/s | ms a step | peak MiB | skipped |", "| --- | --- | ---: | ---: | ---: | ---: | ---: |"]
        for name, summary in training.items():
            for run in summary.get("runs", []):
                loss = run.get("validation_loss")  # a text, "nan", if it is not finite
                lines.append(f"| {name} | {run['policy']} | {'-' if loss is None else f'{float(loss):.4f}'} | {run['tokens_per_second']:.0f} | {run['step_ms']:.2f} | "
                             f"{run['peak_bytes'] / 2**20:.0f} | {run['skipped_steps']} |")
        return "\n".join(lines)

#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Rates of training steps on a shared machine: alone, with one busy process per processor, with a single busy process, and with two
threads pinned to one processor. bench/under_load.sh builds the programs.

    bench/under_load.py --train-gpt PROGRAM --train-step PROGRAM [--before PROGRAM] [--torch PYTHON] [--rounds 5] [--json FILE]

Every round runs every program in every situation, one after the other. A share is a program's rate in a situation divided by its
rate alone in the same round; the table has medians over the rounds. The models are train_gpt's (3.3 million parameters, 512
tokens a step) and, of bench_train_step, 6 x 384 (16 x 256 tokens); PyTorch steps the same two, eagerly. A busy process counts
in a register. Two processors are used, and the targets are written for two. Needs nothing but Python, and taskset.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

BENCH = pathlib.Path(__file__).resolve().parent
GPT = {"layers": 4, "heads": 4, "width": 256, "vocabulary": 256, "context": 128, "batch": 4, "length": 128}
STEP = {"layers": 6, "heads": 6, "width": 384, "vocabulary": 256, "context": 256, "batch": 16, "length": 256}
SITUATIONS = ["alone", "beside one a processor", "beside one", "pinned to one processor"]
BUSY = "while True: pass"


def fail(text):
    sys.exit(f"under_load.py: {text}")


class situation:
    """Busy processes, and the prefix that pins a command to a processor."""

    def __init__(self, name, processors):
        self.pin = ["taskset", "-c", ",".join(map(str, processors[-1:] if name.startswith("pinned") else processors))]
        busy_on = {"beside one a processor": processors, "beside one": processors[:1]}.get(name, [])
        self.busy = [subprocess.Popen(["taskset", "-c", str(p), sys.executable, "-c", BUSY]) for p in busy_on]
        time.sleep(0.2)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.busy:
            process.kill()
            process.wait()


def output_of(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        fail(f"{' '.join(command)}: exit code {done.returncode}: {done.stderr.strip().splitlines()[-1:] or ''}")
    return done.stdout


def train_gpt(program, threads, policy):
    """Tokens per second of train_gpt's model."""

    def rate(pin, steps):
        with tempfile.TemporaryDirectory() as folder:
            text = pathlib.Path(folder) / "text"
            text.write_text("All work and no play makes a dull model. " * 20000)
            output_of(pin + [program, "--text", str(text), "--policy", policy, "--threads", str(threads), "--steps", str(steps),
                             "--eval-windows", "1", "--write", "0", "--out", folder])
            run = json.loads((pathlib.Path(folder) / "summary.json").read_text())["runs"][0]
        return run["tokens_per_second"]

    return rate


def train_step(program, threads, policy):
    """Tokens per second of the step of 6 x 384."""

    def rate(pin, steps):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "step.json"
            output_of(pin + [program, "--filter", f"6x384 B=16 T=256 {policy}", "--threads", str(threads), "--profile", "0", "--rounds",
                             "3", "--seconds", "1", "--json", str(file)])
            row = json.loads(file.read_text())["rows"][0]
        return STEP["batch"] * STEP["length"] / row["seconds"]

    return rate


def torch(python, threads, policy, model):
    """The same in PyTorch: steps for at least two seconds, after some untimed ones."""

    def ask(process, question):
        process.stdin.write(json.dumps(question) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            fail(f"{python} {BENCH / 'peers' / 'torch_cpu.py'} ended")
        return json.loads(line)

    def rate(pin, steps):
        process = subprocess.Popen(pin + [python, str(BENCH / "peers" / "torch_cpu.py"), str(threads)], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        dtype = "bfloat16" if policy == "bf16" else "float32"
        number = ask(process, {"do": "prepare", "op": "train_step", "dtype": dtype, "compiled": False, **model})["id"]
        ask(process, {"do": "run", "id": number, "times": 2})
        seconds = times = 0
        while seconds < 2:
            seconds += ask(process, {"do": "run", "id": number, "times": 2})["seconds"]
            times += 2
        process.kill()
        process.wait()
        return times * model["batch"] * model["length"] / seconds

    return rate


def contenders(a):
    """Name, and what gives its rate: (pin, steps) -> tokens a second."""
    policy = {"bf16": "amp_bf16", "fp32": "full_fp32"}[a.policy]
    both = [("train_gpt", a.train_gpt, train_gpt, policy, GPT), ("6x384", a.train_step, train_step, a.policy, STEP)]
    for name, program, make, of, model in both:
        if program is None:
            continue
        yield name, make(program, 2, of)
        yield f"{name}, one thread", make(program, 1, of)
        if a.before and name == "train_gpt":
            yield f"{name}, before", make(a.before, 2, of)
        if a.torch:
            yield f"{name}, PyTorch", torch(a.torch, 2, a.policy, model)


def targets(shares, rates):
    """(what, figure, target) of each of our programs. Shares are of the rate alone; rates beside one thread's are ratios."""
    for name in ("train_gpt", "6x384"):
        if name not in rates:
            continue
        own, one = shares[name], rates[f"{name}, one thread"]
        yield name, "beside one a processor, of its rate alone", own["beside one a processor"], 0.45
        yield name, "beside one, of its rate alone", own["beside one"], 0.65
        yield name, "beside one, of one thread's rate there", rates[name]["beside one"] / one["beside one"], 1.0
        yield name, "pinned, of one thread's rate there", rates[name]["pinned to one processor"] / one["pinned to one processor"], 0.95
        for peer, least in ((f"{name}, before", 0.99),):
            if peer in rates:
                yield name, "alone, of the rate before", rates[name]["alone"] / rates[peer]["alone"], least
        if f"{name}, PyTorch" in rates:
            for s in SITUATIONS[1:]:
                yield name, f"{s}, its share by PyTorch's", own[s] / shares[f"{name}, PyTorch"][s], 1.0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train-gpt", required=True)
    parser.add_argument("--train-step")
    parser.add_argument("--before", help="another train_gpt, to be compared with")
    parser.add_argument("--torch", help="a Python that has PyTorch")
    parser.add_argument("--policy", default="bf16", choices=["bf16", "fp32"])
    parser.add_argument("--steps", type=int, default=60, help="of train_gpt in a run")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json")
    a = parser.parse_args()
    processors = sorted(os.sched_getaffinity(0))[:2]
    if len(processors) < 2:
        fail("two processors are needed; this process may use one")

    rounds = {}
    for number in range(a.rounds):
        for name, rate in contenders(a):
            for s in SITUATIONS:
                with situation(s, processors) as here:
                    rounds.setdefault(name, {}).setdefault(s, []).append(rate(here.pin, a.steps))
                print(f"round {number + 1} of {a.rounds}: {name}, {s}: {rounds[name][s][-1]:,.0f} tokens/s", file=sys.stderr, flush=True)

    rates = {name: {s: statistics.median(of[s]) for s in SITUATIONS} for name, of in rounds.items()}
    shares = {name: {s: statistics.median(x / y for x, y in zip(of[s], of["alone"])) for s in SITUATIONS} for name, of in rounds.items()}
    print(f"{'tokens/s, and of the rate alone':32}" + "".join(f"{s:>26}" for s in SITUATIONS))
    for name in rates:
        print(f"{name:32}" + "".join(f"{rates[name][s]:>18,.0f}  {shares[name][s]:>6.2f}" for s in SITUATIONS))
    held = [{"of": of, "what": what, "figure": figure, "target": target, "holds": figure >= target}
            for of, what, figure, target in targets(shares, rates)]
    print()
    for h in held:
        print(f"{h['of']:12}{h['what']:56}{h['figure']:6.2f}, target {h['target']:.2f}: {'holds' if h['holds'] else 'SHORT'}")
    if a.json:
        with tempfile.TemporaryDirectory() as folder:
            output_of([a.train_gpt, "--policy", "full_fp32", "--steps", "1", "--eval-windows", "1", "--write", "0", "--out", folder])
            summary = json.loads((pathlib.Path(folder) / "summary.json").read_text())
        pathlib.Path(a.json).write_text(json.dumps({
            "program": "under_load", "commit": summary["commit"], "machine": summary["machine"], "policy": a.policy,
            "protocol": f"{a.rounds} rounds; in each every program in every situation, one after the other; medians of tokens a second, and "
                        "medians of the rounds' shares of the rate alone",
            "tokens_per_second": rates, "shares": shares, "rounds": rounds, "targets": held}, indent=1) + "\n")


if __name__ == "__main__":
    main()

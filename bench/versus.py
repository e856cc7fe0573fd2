#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares two builds of train_gpt, which take turns in rounds: the median step of each build under each policy, and the ratio.

    bench/versus.py BEFORE AFTER [--rounds 9] [--steps 60] [--json FILE] [-- ARGUMENT...]

BEFORE and AFTER are programs; arguments behind -- go to both, such as --policy amp_bf16. A round runs both, the second one
first in every other round. A ratio above 1 says that AFTER is slower.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile


def run(program, steps, arguments):
    with tempfile.TemporaryDirectory() as out:
        command = [program, "--steps", str(steps), "--out", out, *arguments]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{program}: exit code {done.returncode}\n{done.stderr}")
        summary = json.loads((pathlib.Path(out) / "summary.json").read_text())
    return summary, {r["policy"]: r["step_ms"] for r in summary["runs"]}


def main():
    own, behind = sys.argv[1:], []
    if "--" in own:
        own, behind = own[: own.index("--")], own[own.index("--") + 1 :]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before")
    parser.add_argument("after")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--json")
    a = parser.parse_args(own)

    times, commits = {a.before: {}, a.after: {}}, {}
    for number in range(a.rounds):
        for program in (a.before, a.after) if number % 2 == 0 else (a.after, a.before):
            summary, steps = run(program, a.steps, behind)
            commits[program] = summary["commit"]
            for policy, milliseconds in steps.items():
                times[program].setdefault(policy, []).append(milliseconds)

    rows = []
    print(f"{'policy':12}{'before, ms':>12}{'after, ms':>12}{'ratio':>8}{'of rounds':>20}")
    for policy, before in times[a.before].items():
        after = times[a.after][policy]
        ratios = sorted(x / y for x, y in zip(after, before))
        row = {"policy": policy, "before_ms": statistics.median(before), "after_ms": statistics.median(after),
               "ratio": statistics.median(ratios), "ratios": ratios}
        rows.append(row)
        print(f"{policy:12}{row['before_ms']:12.2f}{row['after_ms']:12.2f}{row['ratio']:8.3f}{ratios[0]:12.3f} to {ratios[-1]:.3f}")
    if a.json:
        protocol = f"{a.rounds} rounds in turn, {a.steps} steps each, median step of a run, median of ratios"
        pathlib.Path(a.json).write_text(json.dumps({"program": "versus", "machine": summary["machine"], "before": commits[a.before], "after": commits[a.after], "protocol": protocol, "arguments": behind, "runs": rows}, indent=1) + "\n")


main()

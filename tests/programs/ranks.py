#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Trains train_gpt's model on the King James text with 1 to 4 ranks under ZeRO 0 to 3, and compares every loss, norm and scale.

    tests/programs/ranks.py TRAIN_GPT [--text FILE] [--processes]

All strategies have the same bits at a number of ranks, be they threads or processes (--processes: also under mpirun, by a train_gpt built
with -DHALFTONE_MPI=ON), with 1 and 4 micro-batches a step. The loss of the first step, at equal weights, is that of one rank but for the
order of additions (not under fp8_hybrid, whose scales depend on the rows of a rank). A run of amp_fp16 is so long that its growing scale
overflows. Without --text the text is what Debian's bible-kjv prints; status 77: it is not there. Minutes."""
import argparse
import json
import os
import subprocess
import sys
import tempfile

POLICIES = ["full_fp32", "amp_bf16", "amp_fp16", "fp8_hybrid"]
WINDOWS, CONTEXT = 12, 64  # of a step, whatever the number of ranks


def king_james(path):
    try:
        with open(path, "wb") as out:
            subprocess.run(["bible", "-f", "gen1:1-rev22:21"], stdin=subprocess.DEVNULL, stdout=out, check=True)
    except (OSError, subprocess.CalledProcessError):
        print("skipped: bible-kjv is not installed, and there is no --text")
        sys.exit(77)


def train(program, text, folder, ranks, zero, accumulation, processes, policies, steps):
    """What a run tells of each step that it logs, and of its end."""
    command = [program, "--text", text, "--policy", *policies, "--layers", "2", "--width", "64", "--context", str(CONTEXT), "--batch",
               str(WINDOWS // ranks), "--accumulation", str(accumulation), "--steps", str(steps), "--eval-windows", "12", "--write", "0",
               "--no-report", "--threads", "1", "--zero", str(zero), "--out", folder]
    if processes:
        command = ["mpirun", "--oversubscribe", "--allow-run-as-root", "-n", str(ranks), *command]
    else:
        command += ["--ranks", str(ranks)]
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(f"FAILED: {' '.join(command)} ended with {run.returncode}: {run.stderr[-2000:]}")
    told = []
    with open(os.path.join(folder, "metrics.jsonl")) as lines:
        for line in lines:
            j = json.loads(line)
            told.append({k: j.get(k) for k in ("policy", "step", "loss", "grad_norm", "loss_scale", "skipped", "validation_loss")})
    with open(os.path.join(folder, "summary.json")) as f:
        for j in json.load(f)["runs"]:
            told.append({k: j[k] for k in ("policy", "train_loss", "validation_loss", "skipped_steps", "loss_scale")})
    return told


def first_losses(told):
    return {t["policy"]: float(t["loss"]) for t in told if t.get("step") == 1}


def end_of(t):
    return f"{t['policy']} {float(t['validation_loss']):.4f}" + (f" ({t['skipped_steps']} skipped)" if t["skipped_steps"] else "")


def compare(program, text, work, engines, accumulation, policies, steps):
    """The number of failures."""
    failures, alone = 0, None
    for ranks in (1, 2, 3, 4):
        expected = None
        for zero in (0, 1, 2, 3) if ranks > 1 else (0,):
            for processes in engines if ranks > 1 else (False,):
                told = train(program, text, os.path.join(work, "out"), ranks, zero, accumulation, processes, policies, steps)
                name = f"{ranks} ranks ({'processes' if processes else 'threads'}), zero {zero}, accumulation {accumulation}"
                if expected is None:
                    expected = told
                for a, b in zip(expected, told):
                    if a != b:
                        print(f"FAILED: {name}: {b} instead of {a}")
                        failures += 1
                        break
                if len(expected) != len(told):
                    print(f"FAILED: {name}: {len(told)} records instead of {len(expected)}")
                    failures += 1
        if ranks == 1:
            alone = expected
        largest = 0.0
        for policy, loss in first_losses(expected).items():
            if policy == "fp8_hybrid":  # scales are those of a rank's own rows, so values are rounded otherwise
                continue
            # A mean of N terms of one sign, added in another order: each addition rounds to at most half a unit of its sum.
            terms = WINDOWS * CONTEXT * accumulation
            difference = abs(loss / first_losses(alone)[policy] - 1)
            largest = max(largest, difference)
            if not difference <= terms * 2.0**-24:
                print(f"FAILED: {ranks} ranks, {policy}: the first loss is {loss}, and {first_losses(alone)[policy]} with one rank")
                failures += 1
        last = [t for t in expected if "train_loss" in t]
        print(f"accumulation {accumulation}, {steps} steps, {ranks} {'ranks, ZeRO 0 to 3' if ranks > 1 else 'rank'}: "
              + ", ".join(map(end_of, last))
              + (f"; first loss within {largest:.1e} of one rank's" if steps == 20 else ""), flush=True)
        if steps > 20 and not all(t["skipped_steps"] > 0 for t in last):
            print("FAILED: the scale has not overflowed")
            failures += 1
    return failures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--text")
    parser.add_argument("--processes", action="store_true", help="under mpirun, too")
    options = parser.parse_args()
    engines = (False, True) if options.processes else (False,)
    with tempfile.TemporaryDirectory() as work:
        text = options.text
        if text is None:
            text = os.path.join(work, "king_james.txt")
            king_james(text)
        failures = sum(compare(options.program, text, work, engines, accumulation, POLICIES, 20) for accumulation in (1, 4))
        failures += compare(options.program, text, work, engines, 1, ["amp_fp16"], 200)
    if failures:
        sys.exit(f"{failures} failures")


if __name__ == "__main__":
    main()

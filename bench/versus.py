#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares two builds of train_gpt, which take turns in rounds: the median step of each build under each policy, and the ratio.

    bench/versus.py BEFORE AFTER [--rounds 9] [--steps 60] [--json FILE] [-- ARGUMENT...]

BEFORE and AFTER are programs; arguments after -- go to both, such as --policy amp_bf16. A round runs both, the second one
first in every other round. A ratio above 1 says that AFTER is slower.
"""
import statistics
import sys

sys.dont_write_bytecode = True  # no __pycache__ in the source tree
import in_turn  # noqa: E402


def main():
    parser = in_turn.parser(__doc__, ("before", "after"), rounds=9)
    parser.add_argument("--steps", type=int, default=60)
    a, behind = in_turn.parse(parser)

    times, commits = {"before": {}, "after": {}}, {}
    for order in in_turn.orders("before", "after", a.rounds):
        for which in order:
            summary = in_turn.result_of(getattr(a, which), ["--steps", str(a.steps), *behind], "--out", "summary.json")
            commits[which] = summary["commit"]
            for run in summary["runs"]:
                times[which].setdefault(run["policy"], []).append(run["step_ms"])

    rows = []
    print(f"{'policy':12}{'before, ms':>12}{'after, ms':>12}{'ratio':>8}{'of rounds':>20}")
    for policy, before in times["before"].items():
        after = times["after"][policy]
        ratios = sorted(x / y for x, y in zip(after, before))
        row = {"policy": policy, "before_ms": statistics.median(before), "after_ms": statistics.median(after),
               "ratio": statistics.median(ratios), "ratios": ratios}
        rows.append(row)
        print(f"{policy:12}{row['before_ms']:12.2f}{row['after_ms']:12.2f}{row['ratio']:8.3f}{ratios[0]:12.3f} to {ratios[-1]:.3f}")
    if a.json:
        protocol = f"{a.rounds} rounds in turn, {a.steps} steps each, median step of a run, median of ratios"
        in_turn.write(a.json, {"program": "versus", "machine": summary["machine"], **commits, "protocol": protocol, "arguments": behind, "runs": rows})


main()

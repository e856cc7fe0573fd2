#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares two builds of a benchmark, which take turns in rounds: for each row the new rate divided by the old one.

    bench/versus_rows.py OLD NEW [--rounds 7] [--json FILE] [--lowest 0.98] [--mean 1.0] [-- ARGUMENT...]

OLD and NEW are builds of one program, such as bench_matmul; arguments after -- go to both (--filter bf16, --quick). A round
runs both, the second one first in every other round. A row's ratio is the median over the rounds. With --lowest or --mean the
exit code is 1 if a row's ratio, or the geometric mean of all, is below; rows below --lowest are marked.
"""
import math
import statistics
import sys

sys.dont_write_bytecode = True  # no __pycache__ in the source tree
import in_turn  # noqa: E402


def main():
    parser = in_turn.parser(__doc__, ("old", "new"), rounds=7)
    parser.add_argument("--lowest", type=float, default=0)
    parser.add_argument("--mean", type=float, default=0)
    a, behind = in_turn.parse(parser)

    ratios, commits = {}, {}
    for number, order in enumerate(in_turn.orders("old", "new", a.rounds)):
        seconds = {}
        for which in order:
            result = in_turn.result_of(getattr(a, which), behind, "--json", "rows.json")
            seconds[which] = {(r["kernel"], r["shape"], r["policy"]): r["seconds"] for r in result["rows"]}
            commits[which] = result["commit"]
        for row in seconds["old"].keys() & seconds["new"].keys():
            ratios.setdefault(row, []).append(seconds["old"][row] / seconds["new"][row])
        print(f"round {number + 1} of {a.rounds}", file=sys.stderr)
    if not ratios:
        sys.exit("no row is in both")

    rows = [{"kernel": k, "shape": s, "policy": p, "ratio": statistics.median(r), "ratios": sorted(r)} for (k, s, p), r in ratios.items()]
    rows.sort(key=lambda row: row["ratio"])
    for row in rows:
        below = "  below" if row["ratio"] < a.lowest else ""
        name = " ".join((row["kernel"], row["shape"], row["policy"]))
        print(f"{name:60}{row['ratio']:7.3f}{row['ratios'][0]:9.3f} to {row['ratios'][-1]:.3f}{below}")
    mean = math.exp(statistics.fmean(math.log(row["ratio"]) for row in rows))
    print(f"geometric mean of {len(rows)}: {mean:.4f}")
    if a.json:
        protocol = f"{a.rounds} rounds in turn; a ratio is the median of the rounds' rates, new over old"
        in_turn.write(a.json, {"program": "versus_rows", "machine": result["machine"], "old": commits["old"], "new": commits["new"],
                               "protocol": protocol, "arguments": behind, "mean": mean, "rows": rows})
    return 1 if rows[0]["ratio"] < a.lowest or mean < a.mean else 0


sys.exit(main())

#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The targets on a CPU, and whether the benchmarks' results meet them, as a table in Markdown.

    bench/targets.py bench/results/*_zen4.json --out bench/results/targets_zen4.md

A target is for all of its cases: the one that is furthest from it decides, and is named. Where the matrix unit is AMX the
targets are higher. Needs nothing but Python.
"""
import argparse
import json
import math
import sys

SQUARES = [f"{n}x{n}x{n}" for n in (256, 512, 1024, 2048, 4096)]
LAYERS = [(768, 2304), (768, 768), (768, 3072), (3072, 768), (768, 50304)]
PRODUCTS = SQUARES + [shape for m in (256, 1024, 8192) for k, n in LAYERS
                      for shape in (f"{m}x{n}x{k}", f"{m}x{k}x{n} dx", f"{k}x{n}x{m} dw")]
OFF_A_LINE = [f"{shape}{layout} off by {offset} bytes" for shape in ("512x512x512", "1024x3072x768", "256x50304x768", "4x3072x768")
              for layout in ("", " dx", " dw") for offset in (2, 4, 16, 32)]
ATTENTION = [f"1x{n} 12x64 {mask}" for n in (256, 1024, 4096) for mask in ("causal", "full")]
STEPS = ["GPT-2 124M B=4 T=64", "GPT-2 124M B=1 T=1024", "6x384 B=16 T=256"]


class measured:
    """The rows of some files of one machine, by kernel, shape and policy."""

    def __init__(self, documents):
        self.rows, self.scratch = {}, []
        for document in documents:
            self.scratch += document.get("scratch_bytes", [])
            for row in document.get("rows", []):
                self.rows.setdefault((row["kernel"], row.get("shape", ""), row["policy"]), row)

    def ratios(self, kernel, policy, shapes, peer):
        """(shape, time of the other library's fastest variant divided by halftone's), for shapes that were timed."""
        for shape in shapes:
            to = self.rows.get((kernel, shape, policy), {}).get("ratio_to", {})
            forms = [ratio for name, ratio in to.items() if name.startswith(peer)]
            if forms:
                yield shape, min(forms)

    def shares(self, kernel, policy, shapes):
        """(shape, percentage of the peak in the row)."""
        for shape in shapes:
            row = self.rows.get((kernel, shape, policy), {})
            if "percent_of_peak" in row:
                yield shape, row["percent_of_peak"]

    def neighbours(self, kernel, policy, pairs):
        """(shape, its rate divided by that of the neighbouring shape)."""
        for shape, neighbour in pairs:
            one, other = (self.rows.get((kernel, s, p), {}).get("rate") for s, p in ((shape, policy), neighbour))
            if one and other:
                yield shape, one / other


def least(values, wanted, unit=""):
    """What was measured, in words, and whether all of it is enough; None where there is nothing."""
    values = list(values)
    if not values:
        return None
    worst = min(values, key=lambda v: v[1])
    show = (lambda x: f"{x:.0f}{unit}") if unit else (lambda x: f"{x:.2f}")
    if len(values) == 1:
        return show(worst[1]), worst[1] >= wanted
    few = sum(v < wanted for _, v in values)
    some = f"; {few} of {len(values)} below" if few else f", {len(values)} cases"
    return f"{show(worst[1])} ({worst[0]}){some}", few == 0


def mean(values, wanted):
    """The same of the geometric mean."""
    values = [v for _, v in values]
    if not values:
        return None
    m = math.exp(sum(map(math.log, values)) / len(values))
    return f"{m:.2f}, {len(values)} cases", m >= wanted


def linear(scratch):
    """Scratch memory that grows no faster than length."""
    for one, other in zip(scratch, scratch[1:]):
        for key in ("forward_bytes", "backward_bytes"):
            if other[key] * one["length"] > 1.05 * one[key] * other["length"]:
                return f"{key} grow {other[key] / one[key]:.1f} times from {one['length']} to {other['length']}", False
    ends = [f"{s['backward_bytes'] / 2**20:.1f} MiB at {s['length']}" for s in scratch[:: max(1, len(scratch) - 1)]]
    return (", ".join(ends), True) if len(scratch) > 1 else None


def targets(m, amx):
    """(what, wanted, measured in words and whether that is enough, or None)."""
    def times(x):
        return f"{x:g} times"

    for policy, peers in (("bf16", ("onednn", "torch")), ("fp32", ("onednn", "torch"))):
        for peer in peers:
            yield (f"products, {policy}, squares and GPT-2's layers with both gradients, compared with {peer}", times(1),
                   least(m.ratios("matmul", policy, PRODUCTS, peer), 1))
            if policy == "bf16" and amx:
                yield f"the same, geometric mean, compared with {peer}", times(1.25), mean(m.ratios("matmul", policy, PRODUCTS, peer), 1.25)
    share = 40 if amx else 90
    yield "products, bf16, 2,048 square, of the register-only peak", f"{share}%", least(m.shares("matmul", "bf16", ["2048x2048x2048"]), share, "%")
    if amx:
        yield "products, fp16, compared with torch", times(3), least(m.ratios("matmul", "fp16", PRODUCTS, "torch"), 3)
        yield ("products, fp16, in units of the rate of bf16", "0.4",
               least(m.neighbours("matmul", "fp16", [(s, (s, "bf16")) for s in PRODUCTS]), 0.4))
        yield "products, split_fp32, compared with torch in fp32", times(1.7), least(m.ratios("matmul", "split_fp32", PRODUCTS, "torch"), 1.7)
    else:
        yield "products, fp16, compared with our own of fp32", "0.85", least(m.ratios("matmul", "fp16", PRODUCTS, "halftone_fp32"), 0.85)
    for policy in ("bf16", "fp32"):
        odd = [("256x50257x768", "256x50304x768"), ("1024x1024x1023", "1024x1024x1024")]
        yield (f"products, {policy}, odd extents, in units of the even neighbour's rate", "0.7",
               least(m.neighbours("matmul", policy, [(s, (n, policy)) for s, n in odd]), 0.7))
        yield (f"products, {policy}, operands and results off a cache line, in units of the aligned one's rate", "0.9",
               least(m.ratios("matmul", policy, OFF_A_LINE, "halftone_aligned"), 0.9))
    for direction, wanted in (("forward", 1.5 if amx else 1.3), ("backward", 3 if amx else 1.3)):
        yield (f"attention, bf16, 12 heads of 64, lengths 256 to 4,096, {direction}, compared with torch", times(wanted),
               least(m.ratios(f"attention {direction}", "bf16", ATTENTION, "torch"), wanted))
    yield "attention, scratch memory", "linear in length", linear(m.scratch)
    whole = ["124475904"]
    yield "AdamW with clipping, 124 million parameters, compared with torch's fused AdamW and clip_grad_norm_", times(1.4), least(m.ratios("norm and adamw", "bf16 copy", whole, "torch"), 1.4)
    yield "the same where the norm is known from the gradients' epilogues", times(1.7), least(m.ratios("adamw, norm known", "bf16 copy", whole, "torch"), 1.7)
    yield "AdamW, of the speed of a copy, at 30 bytes a parameter", "95%", least(m.shares("adamw", "bf16 copy", whole), 95, "%")
    for direction, wanted in (("forward", 80), ("backward", 65)):
        for kernel, sizes in (("layer_norm", ("8192x768", "2048x4096")), ("softmax", ("8192x1024", "32768x64")),
                              ("gelu", ("8192x3072",)), ("cross_entropy", ("1024x50304", "8192x256"))):
            for policy in ("bf16", "fp32"):
                yield (f"{kernel}, {policy}, {direction}, large, of the speed of a copy", f"{wanted}%",
                       least(m.shares(kernel, policy, [f"{s} {direction}" for s in sizes]), wanted, "%"))
    wanted = 2 if amx else 1.5
    yield "whole training steps, bf16, compared with the better of torch eager and compiled", times(wanted), least(m.ratios("train_step", "bf16", STEPS, "torch"), wanted)
    yield "the first of them, compared with llm.c", times(6), least(m.ratios("train_step", "bf16", STEPS[:1], "llm.c"), 6)


def table(documents):
    machine = documents[0]["machine"]
    commits = sorted({d.get("commit", "unknown")[:7] for d in documents})
    lines = [f"{machine['cpu']}, {machine['isa']}, {machine['threads']} threads. \"times\" is how long the peer takes in units of "
             f"halftone's time; of a target's cases the one that is furthest from it. From the files of commits {', '.join(commits)}.",
             "", "| what | target | measured | |", "| --- | --- | --- | --- |"]
    held = known = 0
    for what, wanted, result in targets(measured(documents), "amx" in machine["isa"]):
        if result is None:
            lines.append(f"| {what} | {wanted} | not measured | |")
            continue
        known += 1
        held += result[1]
        lines.append(f"| {what} | {wanted} | {result[0]} | {'holds' if result[1] else '**short**'} |")
    lines += ["", f"{held} of {known} hold."]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", help="what the CPU's benchmarks wrote with --json on one machine; others are passed over")
    parser.add_argument("--out", help="a file for the table, instead of standard output")
    options = parser.parse_args()
    documents = []
    try:
        for path in options.files:
            with open(path, encoding="utf-8") as file:
                document = json.load(file)
            if "rows" in document and "machine" in document:
                documents.append(document)
        if not documents:
            raise ValueError("no benchmark wrote this")
        if len({json.dumps(d["machine"], sort_keys=True) for d in documents}) > 1:
            raise ValueError("this and others are of different machines")
        result = table(documents)
        if options.out:
            with open(options.out, "w", encoding="utf-8") as file:
                file.write(result)
        else:
            sys.stdout.write(result)
    except (OSError, ValueError, KeyError, TypeError) as e:
        print(f"targets.py: {path}: {e}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes scaler.txt: what torch.amp.GradScaler does with scripted overflows, on the CPU.

    python3 tests/golden/scaler.py            # needs PyPI's torch; the traces committed are those of 2.15

Each step takes one letter per optimizer: '.' for finite gradients, 'i' for an infinity, 'n' for a NaN. An optimizer's
parameter begins at 1 and loses 1 with each step that is not skipped.
"""
import math
import pathlib

import torch

CASES = {  # init_scale, growth_factor, backoff_factor, growth_interval, enabled, one string for each optimizer
    "defaults": (65536.0, 2.0, 0.5, 2000, 1, "..i...n.."),
    "growth": (128.0, 2.0, 0.25, 1, 1, "..i......n.."),
    "interval_of_two": (4.0, 2.0, 0.25, 2, 1, "....i.ii...i...."),
    "interval_of_three": (8.0, 4.0, 0.5, 3, 1, "...i..i...........n.."),
    "odd_factors": (1000.0, 1.7, 0.3, 2, 1, "......i......ii..n...."),
    "never_to_infinity": (1e38, 2.0, 0.5, 1, 1, ".....i...."),
    "far_down": (1.0, 2.0, 0.5, 4, 1, "iiiiiiiiiiiiiiiiiiiiiiii....i...."),
    "to_nothing": (2.0**-120, 2.0, 0.5, 4, 1, "iiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiii"),
    "only_overflows": (65536.0, 2.0, 0.5, 2000, 1, "iiiininini"),
    "two_optimizers": (256.0, 2.0, 0.5, 3, 1, "...i....i......", ".....i..i...n.."),
    "disabled": (256.0, 2.0, 0.5, 1, 0, "....."),
}


def trace(init_scale, growth_factor, backoff_factor, growth_interval, enabled, *patterns):
    scaler = torch.amp.GradScaler("cpu", init_scale, growth_factor, backoff_factor, growth_interval, bool(enabled))
    params = [torch.nn.Parameter(torch.ones(3)) for _ in patterns]
    optimizers = [torch.optim.SGD([p], lr=1.0, foreach=False) for p in params]
    scaler.scale(torch.ones(1))  # makes the scale's tensor
    for letters in zip(*patterns):
        for optimizer, p, letter in zip(optimizers, params, letters):
            p.grad = torch.full((3,), scaler.get_scale())
            p.grad[1] = {".": p.grad[1], "i": math.inf, "n": math.nan}[letter]
            scaler.unscale_(optimizer)
            scaler.step(optimizer)
        scaler.update()
        tracker = scaler.state_dict().get("_growth_tracker", 0)
        yield "".join(letters), scaler.get_scale(), tracker, [round(1 - p[0].item()) for p in params]


lines = [
    "# SPDX-License-Identifier: MIT",
    f"# Written by scaler.py with torch {torch.__version__.split('+')[0]}: for each case its options,",
    "#     case name init_scale growth_factor backoff_factor growth_interval enabled optimizers",
    "# then for each update what the optimizers met ('.' finite, 'i' infinity, 'n' NaN), the scale and the growth tracker",
    "# after it, and how many steps each optimizer has taken.",
]
for name, (init, growth, backoff, interval, enabled, *patterns) in CASES.items():
    lines.append(f"case {name} {init.hex()} {growth.hex()} {backoff.hex()} {interval} {enabled} {len(patterns)}")
    for letters, scale, tracker, steps in trace(init, growth, backoff, interval, enabled, *patterns):
        lines.append(f"update {letters} {scale.hex()} {tracker} " + " ".join(map(str, steps)))
(pathlib.Path(__file__).parent / "scaler.txt").write_text("\n".join(lines) + "\n")

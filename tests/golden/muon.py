#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes muon.txt: what torch.optim.Muon computes with float32 parameters and its products in bfloat16, on the CPU.

    python3 tests/golden/muon.py        # needs PyPI's torch; the numbers committed are those of 2.15

Two matrices, wide (7, 13) and tall (13, 7). Parameters and gradients are fractions that float32 holds exactly, made from
their index by a formula that the tests repeat:

    parameter i     ((31 i) mod 65 - 32) / 64
    gradient i of step t, from 1 on     ((7919 t + 104729 i + 31 i i + 17 t i) mod 2049 - 1024) / 1024
"""
import pathlib

import torch

SHAPES = ((7, 13), (13, 7))
STEPS = (1, 2, 10, 100)
CASES = {  # lr, weight_decay, momentum, nesterov, match_rms_adamw
    "plain": (2e-2, 0.0, 0.95, 1, 0),
    "decay": (1e-2, 0.1, 0.9, 1, 0),
    "match_rms_adamw": (3e-3, 0.1, 0.95, 0, 1),
}


def run(lr, weight_decay, momentum, nesterov, match):
    first, matrices = 0, []
    for rows, columns in SHAPES:
        count = rows * columns
        values = [((31 * i) % 65 - 32) / 64 for i in range(first, first + count)]
        matrices.append((first, torch.nn.Parameter(torch.tensor(values, dtype=torch.float32).reshape(rows, columns))))
        first += count
    optimizer = torch.optim.Muon([p for _, p in matrices], lr, weight_decay, momentum, bool(nesterov),
                                 adjust_lr_fn="match_rms_adamw" if match else "original")
    for t in range(1, max(STEPS) + 1):
        for begin, p in matrices:
            g = [((7919 * t + 104729 * i + 31 * i * i + 17 * t * i) % 2049 - 1024) / 1024
                 for i in range(begin, begin + p.numel())]
            p.grad = torch.tensor(g, dtype=torch.float32).reshape(p.shape)
        optimizer.step()
        if t in STEPS:
            yield t, torch.cat([p.detach().flatten() for _, p in matrices]).tolist()


torch.set_num_threads(1)
lines = [
    "# SPDX-License-Identifier: MIT",
    f"# Written by muon.py with torch {torch.__version__.split('+')[0]}: for each case its options,",
    "#     case name lr weight_decay momentum nesterov match_rms_adamw",
    "# then the parameters after some steps.",
]
for case, options in CASES.items():
    lines.append(f"case {case} " + " ".join(float(o).hex() for o in options))
    lines += [f"step {t} " + " ".join(v.hex() for v in values) for t, values in run(*options)]
pathlib.Path(__file__).with_name("muon.txt").write_text("\n".join(lines) + "\n")

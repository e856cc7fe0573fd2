#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes adafactor.txt: what torch.optim.Adafactor computes in float32, one tensor after another, on the CPU.

    python3 tests/golden/adafactor.py        # needs PyPI's torch; the numbers committed are those of 2.15

A matrix (7, 13) and a vector (7). Parameters and gradients are fractions that float32 holds exactly, made by a formula that the
tests repeat from their index, which begins at 0 in the matrix and at 300 in the vector:

    parameter i     ((31 i) mod 65 - 32) / 64
    gradient i of step t, from 1 on     ((7919 t + 104729 i + 31 i i + 17 t i) mod 2049 - 1024) / 1024 * amplitude

The third row of the matrix has no gradient. Nine digits give a float32 exactly.
"""
import pathlib

import torch

STEPS = (1, 2, 10, 100)
CASES = {  # lr, beta2_decay, epsilon1 (0: none), epsilon2, d, weight_decay, amplitude
    "plain": (1e-2, -0.8, 0, 1e-3, 1.0, 0.0, 1.0),
    "relative": (0.2, -0.8, 0, 1e-3, 1.0, 0.01, 1.0),
    "decay": (3e-2, -0.5, 0, 1e-3, 4.0, 0.1, 1024.0),
    "epsilons": (1e-2, -0.8, 0.5, 2.0, 1.0, 0.01, 1.0),
    "small_gradients": (1e-2, -0.8, 2.0**-10, 1e-3, 1.0, 0.0, 2.0**-10),
}


def run(lr, beta2_decay, epsilon1, epsilon2, d, weight_decay, amplitude):
    parameters = []
    for first, shape in ((0, (7, 13)), (300, (7,))):
        count = torch.Size(shape).numel()
        values = [((31 * i) % 65 - 32) / 64 for i in range(first, first + count)]
        parameters.append((first, torch.nn.Parameter(torch.tensor(values, dtype=torch.float32).reshape(shape))))
    optimizer = torch.optim.Adafactor([p for _, p in parameters], lr, beta2_decay, (epsilon1 or None, epsilon2), d,
                                      weight_decay, foreach=False)
    for t in range(1, max(STEPS) + 1):
        for first, p in parameters:
            g = [((7919 * t + 104729 * i + 31 * i * i + 17 * t * i) % 2049 - 1024) / 1024 * amplitude
                 for i in range(first, first + p.numel())]
            p.grad = torch.tensor(g, dtype=torch.float32).reshape(p.shape)
            if p.dim() == 2:
                p.grad[2] = 0
        optimizer.step()
        if t in STEPS:
            yield t, torch.cat([p.detach().flatten() for _, p in parameters]).tolist()


torch.set_num_threads(1)
lines = [
    "# SPDX-License-Identifier: MIT",
    f"# Written by adafactor.py with torch {torch.__version__.split('+')[0]}: for each case its options,",
    "#     case name lr beta2_decay epsilon1 epsilon2 d weight_decay amplitude",
    "# (epsilon1 of 0: none), then the parameters after some steps.",
]
for case, options in CASES.items():
    lines.append(f"case {case} " + " ".join(f"{o:.17g}" for o in options))
    lines += [f"step {t} " + " ".join(f"{v:.9g}" for v in values) for t, values in run(*options)]
pathlib.Path(__file__).with_name("adafactor.txt").write_text("\n".join(lines) + "\n")

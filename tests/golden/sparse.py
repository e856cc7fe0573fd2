#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes sparse.txt: what torch.optim.SparseAdam and torch.optim.SGD do with sparse gradients, in float32 on the CPU.

    python3 tests/golden/sparse.py        # needs PyPI's torch; the numbers committed are those of 2.15

A table of 7 rows of 3. Each step looks up 5 rows, some of them twice. All numbers are fractions that float32 holds exactly,
sums of them included, made by formulas that the tests repeat:

    element i of the table                       ((31 i) mod 65 - 32) / 16
    row that lookup k of step t takes            (t + t k + 3 k k) mod 7, and mod 3 in every third step
    gradient of element j of it, e = 3 k + j     ((7919 t + 104729 e) mod 2049 - 1024) / 1024 * amplitude

Numbers are written as C99's hexadecimal floats, so that nothing is lost on the way.
"""
import pathlib

import torch

ROWS, WIDTH, LOOKUPS = 7, 3, 5
STEPS = (1, 2, 10, 100)
CASES = {  # rule, lr, beta1, beta2, epsilon, amplitude
    "plain": ("adam", 1e-3, 0.9, 0.999, 1e-8, 1.0),
    "fast": ("adam", 3e-2, 0.9, 0.95, 1e-8, 0.0009765625),
    "large": ("adam", 1e-3, 0.8, 0.99, 1e-6, 1024.0),
    "sgd": ("sgd", 1e-2, 0.0, 0.0, 0.0, 1.0),
}


def row(t, k):
    r = (t + t * k + 3 * k * k) % ROWS
    return r % 3 if t % 3 == 0 else r


def run(rule, lr, beta1, beta2, epsilon, amplitude):
    table = torch.nn.Parameter(torch.tensor([((31 * i) % 65 - 32) / 16 for i in range(ROWS * WIDTH)]).reshape(ROWS, WIDTH))
    optimizer = torch.optim.SparseAdam([table], lr, (beta1, beta2), epsilon) if rule == "adam" else torch.optim.SGD([table], lr)
    for t in range(1, max(STEPS) + 1):
        values = [((7919 * t + 104729 * e) % 2049 - 1024) / 1024 * amplitude for e in range(LOOKUPS * WIDTH)]
        indices = [[row(t, k) for k in range(LOOKUPS)]]
        table.grad = torch.sparse_coo_tensor(indices, torch.tensor(values).reshape(LOOKUPS, WIDTH), (ROWS, WIDTH), check_invariants=True)
        optimizer.step()
        if t in STEPS:
            yield t, table.detach().flatten().tolist()


torch.set_num_threads(1)
lines = [
    "# SPDX-License-Identifier: MIT",
    f"# Written by sparse.py with torch {torch.__version__.split('+')[0]}: for each case its options,",
    "#     case name rule lr beta1 beta2 epsilon amplitude",
    "# then the table after some steps.",
]
for name, (rule, *options) in CASES.items():
    lines.append(f"case {name} {rule} " + " ".join(float(o).hex() for o in options))
    lines += [f"step {t} " + " ".join(v.hex() for v in values) for t, values in run(rule, *options)]
(pathlib.Path(__file__).parent / "sparse.txt").write_text("\n".join(lines) + "\n")

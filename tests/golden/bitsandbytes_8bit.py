#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes bitsandbytes_8bit.txt: what bitsandbytes itself computes on a CPU: its two dynamic maps, the codes of numbers, and steps of
AdamW8bit, Lion8bit and SGD8bit.

    python3 tests/golden/bitsandbytes_8bit.py     # needs PyPI's torch and bitsandbytes; those committed are of 2.15.0 and 0.50.2

The numbers x(k), and a parameter of 300 elements (blocks of 256 and 44) with its gradients, come from formulas that the test repeats,
exactly. Of each step in STEPS the file has the state before it (before the first one it is zero) and behind it, so that the test begins
every step where bitsandbytes did.

On a CPU bitsandbytes does not look for the number nearest to x, but for the one nearest to a number beside x: one of 65,536 from -1 to 1,
in equal steps, none of which is 0. This script computes each code in that way as well, and ends with an error if one differs.
"""
import pathlib

import bitsandbytes
import numpy as np
import torch
from bitsandbytes.functional import create_dynamic_map

COUNT, BLOCK, NUMBERS, STEPS = 300, 256, 3000, (1, 2, 40)
f32 = np.float32
OPTIMIZERS = {  # halftone's name of the rule, and the numbers of the line "case"
    "adamw": (bitsandbytes.optim.AdamW8bit, dict(lr=2.0**-8, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.125)),
    "lion": (bitsandbytes.optim.Lion8bit, dict(lr=2.0**-8, betas=(0.9, 0.98), weight_decay=0.125)),
    "sgd": (bitsandbytes.optim.SGD8bit, dict(lr=2.0**-8, momentum=0.9, weight_decay=0.125)),
}


def written(values):
    return " ".join(f"{v:.9g}" for v in np.asarray(values, dtype=np.float64))


def numbers(signed):
    """x(k), of magnitudes from 2^-24 to 1; with signs every other one is negative."""
    k = np.arange(NUMBERS, dtype=np.int64)
    x = (2 * (7919 * k % 8191) + 1) / 2.0**14 / 2.0 ** (k % 24)
    return np.where(signed & (k % 2 == 1), -x, x).astype(f32)


def gradient(t):
    """adamw_8bit.py's."""
    i = np.arange(COUNT, dtype=np.int64)
    g = ((7919 * t + 104729 * i + 31 * i * i + 17 * t * i) % 2049 - 1024) / 1024 / 2.0 ** (i % 12)
    return np.where(i % 50 == 7, 0.0, g).astype(f32)


def nearest_cells(x):
    """The number beside x of which bitsandbytes looks up the code."""
    cell = np.clip(np.floor((x + f32(1)) * f32(32767.5) + f32(0.5)), 0, 65535)
    return (f32(-1) + f32(2) * cell.astype(f32) / f32(65535)).astype(f32)


def expected_codes(dynamic_map, x):
    return np.abs(dynamic_map.astype(np.float64)[None] - nearest_cells(x).astype(np.float64)[:, None]).argmin(axis=1)


def codes_of(dynamic_map, x):
    """Codes of numbers up to 1: each block begins with a 1, so that its largest magnitude is 1."""
    blocks = -(-len(x) // (BLOCK - 1))
    table = np.zeros((blocks, BLOCK), f32)
    table[:, 0] = 1
    padded = np.zeros(blocks * (BLOCK - 1), f32)
    padded[:len(x)] = x
    table[:, 1:] = padded.reshape(blocks, BLOCK - 1)
    codes, absmax = torch.ops.bitsandbytes.quantize_blockwise(torch.from_numpy(table.ravel()), torch.from_numpy(dynamic_map), BLOCK)
    assert (absmax == 1).all()
    return codes.numpy().reshape(blocks, BLOCK)[:, 1:].ravel()[:len(x)]


def state_of(optimizer, parameter):
    state = optimizer.state[parameter]
    for k in (1, 2):
        if state.get(f"state{k}") is not None and state[f"state{k}"].dtype == torch.uint8:
            yield state[f"state{k}"].numpy(), state[f"absmax{k}"].numpy()


def steps_of(name):
    make, options = OPTIMIZERS[name]
    parameter = torch.nn.Parameter(torch.from_numpy((((31 * np.arange(COUNT)) % 65 - 32) / 64).astype(f32)))
    optimizer = make([parameter], min_8bit_size=1, **options)
    betas = options.get("betas", (options.get("momentum"), 0))
    yield f"case {name} {options['lr']:.9g} {betas[0]} {betas[1]} {options.get('eps', 0)} {options['weight_decay']}"
    for t in range(1, max(STEPS) + 1):
        parameter.grad = torch.from_numpy(gradient(t))
        optimizer.step()
        if t in STEPS or t + 1 in STEPS:
            yield from lines_of(t, optimizer, parameter)


def lines_of(t, optimizer, parameter):
    yield f"parameters {t} " + written(parameter.detach().numpy())
    for codes, absmax in state_of(optimizer, parameter):
        yield f"codes {t} " + " ".join(str(c) for c in codes)
        yield f"absmax {t} " + written(absmax)


lines = [
    "# SPDX-License-Identifier: MIT",
    f"# Written by bitsandbytes_8bit.py with torch {torch.__version__.split('+')[0]} and bitsandbytes {bitsandbytes.__version__}, on a CPU: both",
    "# maps; the codes of x(0), x(1), ...; of each rule (lr, beta1 or momentum, beta2, epsilon, weight decay) behind some steps the",
    "# parameters, and of each moment the codes and the largest magnitudes.",
]
for name, signed in (("with_sign", True), ("without_sign", False)):
    dynamic_map = create_dynamic_map(signed).numpy()
    lines.append(f"map {name} " + written(dynamic_map))
    codes = codes_of(dynamic_map, numbers(signed))
    assert (codes == expected_codes(dynamic_map, numbers(signed))).all()
    lines.append(f"codes_of_numbers {name} " + " ".join(str(c) for c in codes))
for name in OPTIMIZERS:
    lines += steps_of(name)
pathlib.Path(__file__).with_name("bitsandbytes_8bit.txt").write_text("\n".join(lines) + "\n")

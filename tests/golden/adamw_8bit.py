#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes adamw_8bit.txt: AdamW with moments in 8 bits as bitsandbytes stores them, from the published description (Dettmers
et al. 2022, "8-bit Optimizers via Block-wise Quantization"), in NumPy.

    python3 tests/golden/adamw_8bit.py        # needs numpy

A parameter of 600 elements: two blocks of 256 and one of 88. Parameters and gradients are floats that are made from their
index by a formula that the tests repeat, exactly:

    parameter i     ((31 i) mod 65 - 32) / 64
    gradient i of step t, from 1 on     ((7919 t + 104729 i + 31 i i + 17 t i) mod 2049 - 1024) / 1024 / 2^(i mod 12),
                                        and 0 where i mod 50 is 7

A step is in float32, as the kernels compute it: with a multiply-add of one rounding ("fused") or of two ("separate"). It is
done in float64 beside it, by bitsandbytes' formulas, and has to agree.
"""
import pathlib
import re

import numpy as np

COUNT, BLOCK, STEPS = 600, 256, (1, 10, 100)
LR, BETA1, BETA2, EPSILON, DECAY = 2.0**-8, 0.9, 0.999, 1e-8, 0.125
f32, f64 = np.float32, np.float64


def hexadecimal(values):
    return " ".join(re.sub(r"\.?0*p", "p", float(v).hex()) for v in values)


def create_dynamic_map(signed, exponent_bits=7, total_bits=8):
    """Algorithm of the paper's appendix: decades, each cut into equal parts that are represented by their means."""
    data = []
    for i in range(exponent_bits):
        parts = 2**i if signed else 2 ** (i + 1)
        boundaries = [0.1 + 0.9 * j / parts for j in range(parts + 1)]
        means = [(a + b) / 2 for a, b in zip(boundaries, boundaries[1:])]
        values = [10.0 ** (i - (exponent_bits - 1)) * m for m in means]
        data += values + ([-v for v in values] if signed else [])
    data += [0.0, 1.0]
    assert len(data) == 2**total_bits
    return np.array(sorted(data), dtype=f64).astype(f32)


MAPS = create_dynamic_map(True), create_dynamic_map(False)


def nearest(numbers, x):
    """The codes of the numbers nearest to x; of equally near ones that of the smaller magnitude."""
    x = x.astype(f64)
    magnitudes = numbers[numbers >= 0].astype(f64)
    rank = np.abs(magnitudes[None, :] - np.abs(x)[:, None]).argmin(axis=1)  # the first of equal ones
    zero = 256 - len(magnitudes)
    negative = np.clip(rank, 1, zero)  # keeps its sign
    return np.where(x < 0, zero - negative, zero + rank)


def quantize(numbers, m, first=None):
    """The codes and largest magnitudes of moments; a second moment has the code of 0 only if the first one is 0 as well, unlike
    bitsandbytes' on a GPU."""
    codes, absmax = np.zeros(len(m), dtype=int), []
    for begin in range(0, len(m), BLOCK):
        part = m[begin:begin + BLOCK]
        most = np.abs(part).max()
        absmax.append(most)
        codes[begin:begin + BLOCK] = nearest(numbers, part / (most if most > 0 else part.dtype.type(1)))
    if first is not None:
        codes = np.maximum(codes, (m != 0) | (first != 0))
    return codes, np.array(absmax)


def dequantize(numbers, codes, absmax):
    return numbers.astype(absmax.dtype)[codes] * np.repeat(absmax, BLOCK)[:len(codes)]


def fused(a, b, c):
    return (a.astype(f64) * f64(b) + c.astype(f64)).astype(f32) if np.isscalar(b) else \
        (a.astype(f64) * b.astype(f64) + c.astype(f64)).astype(f32)


def separate(a, b, c):
    return a * b + c


def gradient(t):
    i = np.arange(COUNT, dtype=np.int64)
    g = ((7919 * t + 104729 * i + 31 * i * i + 17 * t * i) % 2049 - 1024) / 1024 / 2.0 ** (i % 12)
    return np.where(i % 50 == 7, 0.0, g).astype(f32)


def updated(w, g, m, v, t, fma):
    """The step of the library's kernels, in float32."""
    correction1, correction2 = 1 - BETA1**t, 1 - BETA2**t
    first, second_decay, second = f32(1 - BETA1), f32(BETA2), f32(1 - BETA2)
    root_scale, step_size, decay = f32(1 / correction2**0.5), f32(LR / correction1), f32(1 - LR * DECAY)
    m = fma(g - m, first, m)
    v = fma(g * second, g, v * second_decay)
    denominator = fma(np.sqrt(v), root_scale, np.full(COUNT, EPSILON, dtype=f32))
    return fma(w, decay, m * -step_size / denominator), m, v


def updated_exactly(w, g, m, v, t):
    """bitsandbytes' formulas, in float64; but the decay comes before the move, as in torch.optim.AdamW."""
    m = m * BETA1 + (1 - BETA1) * g
    v = v * BETA2 + (1 - BETA2) * g * g
    correction1, correction2 = 1 - BETA1**t, (1 - BETA2**t) ** 0.5
    return w * (1 - LR * DECAY) - LR * correction2 / correction1 * (m / (v**0.5 + correction2 * EPSILON)), m, v


def run(step, dtype):
    w = (((31 * np.arange(COUNT)) % 65 - 32) / 64).astype(dtype)
    codes = [np.zeros(COUNT, dtype=int)] * 2
    absmax = [np.zeros((COUNT + BLOCK - 1) // BLOCK, dtype=dtype)] * 2
    digest = 0xcbf29ce484222325  # FNV-1a of the codes of all steps
    for t in range(1, max(STEPS) + 1):
        m, v = (dequantize(n, c, a) for n, c, a in zip(MAPS, codes, absmax))
        w, m, v = step(w, gradient(t).astype(dtype), m, v, t)
        assert w.dtype == m.dtype == v.dtype == dtype
        codes, absmax = zip(quantize(MAPS[0], m), quantize(MAPS[1], v, m))
        for c in codes:
            for byte in c:
                digest = (digest ^ int(byte)) * 0x100000001b3 % 2**64
        yield t, w, codes, absmax, digest


lines = [
    "# SPDX-License-Identifier: MIT",
    "# Written by adamw_8bit.py: the numbers of codes 0 to 255 with signs and without; then for each arithmetic after some",
    "# steps the parameters, and of both moments the codes and the largest magnitudes, and a digest of all codes so far.",
]
for name, numbers in zip(("with_sign", "without_sign"), MAPS):
    lines.append(f"map {name} " + hexadecimal(numbers))
exact = {t: rest for t, *rest in run(updated_exactly, f64)}
for name, fma in (("fused", fused), ("separate", separate)):
    lines.append(f"case {name} " + hexadecimal((LR, BETA1, BETA2, EPSILON, DECAY)))
    for t, w, codes, absmax, digest in run(lambda *a, fma=fma: updated(*a, fma), f32):
        w64, codes64, absmax64, _ = exact[t]
        # A code may differ where a number is near the middle of two, and then for some steps.
        assert all(np.abs(a - b).max() <= 1 and (a != b).mean() < 0.02 for a, b in zip(codes, codes64))
        assert np.abs(w - w64).max() < 1e-2 * LR * t
        if t not in STEPS:
            continue
        lines.append(f"parameters {t} " + hexadecimal(w))
        for c, a in zip(codes, absmax):
            lines.append(f"codes {t} " + " ".join(str(v) for v in c))
            lines.append(f"absmax {t} " + hexadecimal(a))
        lines.append(f"digest {t} {digest >> 32} {digest & 0xffffffff}")
pathlib.Path(__file__).with_name("adamw_8bit.txt").write_text("\n".join(lines) + "\n")

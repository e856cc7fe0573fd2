#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes meanings.txt: what PyTorch computes where a call that is spelt alike here means something else (docs/from_pytorch.md).

    python3 tests/golden/meanings.py           # needs PyPI's torch; the numbers committed are those of 2.15
"""
import pathlib

import torch
import torch.nn.functional as F


def words(*values):
    return " ".join(float(v).hex() for v in values)


def lines():
    yield f"# PyTorch {torch.__version__}"
    # 2 queries of 5 keys with equal scores, of which key k has the value k: the mean of the keys that a query sees.
    q, k = torch.zeros(1, 1, 2, 8), torch.zeros(1, 1, 5, 8)
    v = torch.arange(5.0).reshape(1, 1, 5, 1).expand(1, 1, 5, 8)
    yield "is_causal " + words(*F.scaled_dot_product_attention(q, k, v, is_causal=True)[0, 0, :, 0])
    x = torch.tensor([1e-4, -1e-4, 2e-4, 0])
    yield "rms_norm " + words(*torch.nn.RMSNorm(4)(x))
    numbers = [448, 464, 465, 1e6, float("inf"), -float("inf"), 57344, 61439, 61440]
    for name, dtype in {"float8_e4m3": torch.float8_e4m3fn, "float8_e5m2": torch.float8_e5m2}.items():
        for number in numbers:
            yield f"{name} " + words(number, torch.tensor(float(number)).to(dtype).float())


pathlib.Path(__file__).with_suffix(".txt").write_text("\n".join(lines()) + "\n")

#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes reductions.txt: PyTorch's reductions along axes, with their gradients, on the CPU.

    python3 tests/golden/reductions.py           # needs PyPI's torch; the numbers committed are those of 2.15

A line: operation, axes, type, shape, and after bars the result and the gradient of the input, where the result's is
((5 i + 2) mod 7 - 3) / 2 at index i. The input is ((7 i + 3) mod 11 - 5) / 4, so that longer ones have equally large elements.
"""
import pathlib

import torch

TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
SHAPES = [(1, 1, 7), (1, 3, 5), (2, 3, 4), (1, 1, 1), (4, 1, 9), (3, 5, 2), (2, 2, 0), (0, 2, 3)]
ALONG = {"2": (2,), "1": (1,), "02": (0, 2)}
OPERATIONS = {
    "sum": lambda x, a: x.sum(a),
    "mean": lambda x, a: x.mean(a),
    "var": lambda x, a: x.var(a),
    "var0": lambda x, a: x.var(a, correction=0),
    "std": lambda x, a: x.std(a),
    "logsumexp": lambda x, a: x.logsumexp(a),
    "amax": lambda x, a: x.amax(a),
    "amin": lambda x, a: x.amin(a),
    "argmax": lambda x, a: x.argmax(*a),
    "argmin": lambda x, a: x.argmin(*a),
    "prod": lambda x, a: x.prod(*a),
    "cumsum": lambda x, a: x.cumsum(*a),
    "softmax": lambda x, a: x.softmax(*a),
    "log_softmax": lambda x, a: x.log_softmax(*a),
}
ALONG_ONE = ["argmax", "argmin", "prod", "cumsum", "softmax", "log_softmax"]


def numbers(count, by, start, modulus, divisor):
    return torch.tensor([((by * i + start) % modulus - modulus // 2) / divisor for i in range(count)])


def hexes(values):
    return " ".join(float(v).hex() for v in values.detach().flatten().tolist())


def lines():
    for name, function in OPERATIONS.items():
        for short, along in ALONG.items():
            if len(along) > 1 and name in ALONG_ONE:
                continue
            for type_name, dtype in TYPES.items():
                for shape in SHAPES:
                    x = numbers(torch.Size(shape).numel(), 7, 3, 11, 4).to(dtype).reshape(shape).requires_grad_()
                    try:
                        y = function(x, along)
                    except (RuntimeError, IndexError):
                        yield f"{name} {short} {type_name} {shape[0]} {shape[1]} {shape[2]} throws"
                        continue
                    if y.is_floating_point():
                        y.backward(numbers(y.numel(), 5, 2, 7, 2).to(dtype).reshape(y.shape))
                    dx = hexes(x.grad) if y.is_floating_point() else ""
                    yield f"{name} {short} {type_name} {shape[0]} {shape[1]} {shape[2]} | {hexes(y)} | {dx}"


def main():
    text = f"# PyTorch {torch.__version__}\n" + "\n".join(lines()) + "\n"
    (pathlib.Path(__file__).parent / "reductions.txt").write_text(text.replace(" \n", "\n"))


main()

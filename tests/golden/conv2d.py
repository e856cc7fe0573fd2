#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes conv2d.txt: PyTorch's conv2d with its gradients, on the CPU.

    python3 tests/golden/conv2d.py           # needs PyPI's torch; the numbers committed are those of 2.15

A line: type, x's shape, outputs, the window, stride, padding, dilation, groups, and behind bars the result and the gradients of
x, weight and bias; or "throws". Numbers by their index i: x ((7 i + 3) mod 11 - 5) / 4, weight ((5 i + 1) mod 9 - 4) / 8, bias
((3 i + 1) mod 5 - 2) / 2; the result's gradient is ((5 i + 2) mod 7 - 3) / 2.
"""
import pathlib

import torch

TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
# x, outputs, window, stride, padding, dilation, groups
CASES = [
    ((2, 3, 4, 5), 2, (1, 1), (1, 1), (0, 0), (1, 1), 1),
    ((2, 2, 5, 6), 3, (3, 3), (2, 2), (1, 1), (1, 1), 1),
    ((1, 2, 9, 8), 2, (7, 7), (2, 2), (3, 3), (1, 1), 1),
    ((1, 4, 5, 4), 6, (3, 3), (1, 1), (1, 1), (1, 1), 2),
    ((2, 4, 4, 5), 4, (3, 3), (1, 1), (1, 1), (1, 1), 4),
    ((1, 2, 4, 9), 2, (2, 4), (1, 2), (0, 3), (1, 2), 1),
    ((0, 3, 4, 4), 2, (3, 3), (1, 1), (1, 1), (1, 1), 1),
    ((1, 2, 3, 3), 2, (5, 5), (1, 1), (0, 0), (1, 1), 1),
    ((1, 3, 4, 4), 2, (3, 3), (1, 1), (1, 1), (1, 1), 2),
]


def numbers(shape, by, start, modulus, divisor):
    count = torch.Size(shape).numel()
    values = [((by * i + start) % modulus - modulus // 2) / divisor for i in range(count)]
    return torch.tensor(values, dtype=torch.float32).reshape(shape)


def hexes(values):
    return " ".join(float(v).hex() for v in values.detach().flatten().tolist())


def lines():
    for type_name, dtype in TYPES.items():
        for x_shape, outputs, window, stride, padding, dilation, groups in CASES:
            what = [*x_shape, outputs, *window, *stride, *padding, *dilation, groups]
            head = f"{type_name} " + " ".join(str(n) for n in what)
            x = numbers(x_shape, 7, 3, 11, 4).to(dtype).requires_grad_()
            w = numbers((outputs, x_shape[1] // groups, *window), 5, 1, 9, 8).to(dtype).requires_grad_()
            b = numbers((outputs,), 3, 1, 5, 2).to(dtype).requires_grad_()
            try:
                y = torch.nn.functional.conv2d(x, w, b, stride, padding, dilation, groups)
            except RuntimeError:
                yield f"{head} throws"
                continue
            y.backward(numbers(y.shape, 5, 2, 7, 2).to(dtype))
            yield " | ".join([head, hexes(y), hexes(x.grad), hexes(w.grad), hexes(b.grad)])


def main():
    text = f"# PyTorch {torch.__version__}\n" + "\n".join(lines()) + "\n"
    (pathlib.Path(__file__).parent / "conv2d.txt").write_text(text.replace(" \n", "\n"))


main()

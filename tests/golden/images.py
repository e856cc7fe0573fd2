#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes images.txt: PyTorch's pooling, batch norm and group norm, with their gradients, on the CPU.

    python3 tests/golden/images.py           # needs PyPI's torch; the numbers committed are those of 2.15

A line: operation, type, shape, and behind bars the result, the gradient of the input, and of norms those of weight and bias and the
running mean and variance, which began as 0.5 and 2. The result's gradient is ((5 i + 2) mod 7 - 3) / 2 at index i, the input
((7 i + 3) mod 11 - 5) / 4, so that windows have equally large elements, the weight ((3 i + 1) mod 5 - 2) / 2 + 1.5, the bias
((2 i) mod 3 - 1) / 4. Weight and bias are fp32, as they are under autocast.
"""
import pathlib

import torch
import torch.nn.functional as F

TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
SHAPES = [(2, 3, 4, 5), (1, 4, 4, 3), (3, 2, 1, 1), (1, 2, 6, 7), (0, 3, 4, 4)]
POOLING = {
    "max2": lambda x: F.max_pool2d(x, 2),
    "max3": lambda x: F.max_pool2d(x, 3, 2, 1),
    "max23": lambda x: F.max_pool2d(x, (2, 3), (1, 2), (1, 1), (2, 1)),
    "maxceil": lambda x: F.max_pool2d(x, 3, 2, 1, ceil_mode=True),
    "avg2": lambda x: F.avg_pool2d(x, 2),
    "avg3": lambda x: F.avg_pool2d(x, 3, 2, 1),
    "avgceil": lambda x: F.avg_pool2d(x, (3, 2), 2, 1, ceil_mode=True),
    "avginside": lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
    "avgby": lambda x: F.avg_pool2d(x, 2, 1, divisor_override=3),
    "adaptive1": lambda x: F.adaptive_avg_pool2d(x, 1),
    "adaptive32": lambda x: F.adaptive_avg_pool2d(x, (3, 2)),
}
NORMS = {
    "batch": lambda x, m, v, w, b: F.batch_norm(x, m, v, w, b, True, 0.3, 0.01),
    "eval": lambda x, m, v, w, b: F.batch_norm(x, m, v, w, b, False, 0.3, 0.01),
    "group1": lambda x, m, v, w, b: F.group_norm(x, 1, w, b, 0.01),
    "group2": lambda x, m, v, w, b: F.group_norm(x, 2, w, b, 0.01),
}


def numbers(count, by, start, modulus, divisor):
    return torch.tensor([((by * i + start) % modulus - modulus // 2) / divisor for i in range(count)])


def hexes(values):
    return " ".join(float(v).hex() for v in values.detach().flatten().tolist())


def run(function, shape, dtype, parts):
    x = numbers(torch.Size(shape).numel(), 7, 3, 11, 4).to(dtype).reshape(shape).requires_grad_()
    y = function(x, *parts)
    y.backward(numbers(y.numel(), 5, 2, 7, 2).to(dtype).reshape(y.shape))
    return [y, x.grad]


def line(name, type_name, shape, results):
    return " | ".join([" ".join([name, type_name, *map(str, shape)]), *map(hexes, results)])


def lines():
    for type_name, dtype in TYPES.items():
        for shape in SHAPES:
            channels = shape[1]
            for name, function in {**POOLING, **NORMS}.items():
                if name == "max23" and shape[2] == 1:
                    continue  # a window has no element in the image, and PyTorch writes its gradient beyond the image's
                parts = []
                if name in NORMS:
                    parts = [torch.full((channels,), 0.5), torch.full((channels,), 2.0), numbers(channels, 3, 1, 5, 2) + 1.5, numbers(channels, 2, 0, 3, 4)]
                    parts[2].requires_grad_(), parts[3].requires_grad_()
                try:
                    results = run(function, shape, dtype, parts)
                except (RuntimeError, ValueError):
                    yield f"{name} {type_name} {' '.join(map(str, shape))} throws"
                    continue
                if parts:
                    results += [parts[2].grad, parts[3].grad, parts[0], parts[1]]
                yield line(name, type_name, shape, results)


def main():
    text = f"# PyTorch {torch.__version__}\n" + "\n".join(lines()) + "\n"
    (pathlib.Path(__file__).parent / "images.txt").write_text(text.replace(" \n", "\n"))


main()

#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes shapes.txt: results and gradients of torch's operations on shapes, and of pointwise ones that broadcast, on the CPU.

    python3 tests/golden/shapes.py        # needs PyPI's torch; the numbers committed are those of 2.15

All numbers are small integers, so that every type has them exactly, or rounds an exact sum once:

    element i of input k             (31 i + 17 k) mod 9 - 4
    gradient of element i of y       (13 i) mod 7 - 3
"""
import pathlib

import torch

TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
CASES = {  # shapes of the inputs, function
    "permute": ([(2, 3, 5)], lambda x: x.permute(2, 0, 1)),
    "permute_4": ([(3, 2, 5, 7)], lambda x: x.permute(3, 1, 0, 2)),
    "transpose_heads": ([(2, 3, 4, 5)], lambda x: x.transpose(1, 2)),
    "transpose_large": ([(37, 70)], lambda x: x.transpose(0, 1)),
    "transpose_last": ([(3, 20, 33)], lambda x: x.transpose(-1, -2)),
    "transpose_empty": ([(0, 3)], lambda x: x.transpose(0, 1)),
    "slice_step": ([(4, 7)], lambda x: x[:, 1:6:2]),
    "slice_negative": ([(5, 3)], lambda x: x[-3:-1]),
    "slice_beyond": ([(5, 3)], lambda x: x[2:100]),
    "slice_empty": ([(4, 3)], lambda x: x[2:2]),
    "narrow": ([(3, 6, 2)], lambda x: x.narrow(1, -4, 3)),
    "select": ([(3, 4, 5)], lambda x: x.select(1, -1)),
    "flip": ([(3, 4, 5)], lambda x: x.flip(0, 2)),
    "expand": ([(3, 1)], lambda x: x.expand(2, -1, 4)),
    "expand_1": ([(1,)], lambda x: x.expand(5)),
    "expand_empty": ([(3, 1)], lambda x: x.expand(3, 0)),
    "expand_middle": ([(2, 1, 3)], lambda x: x.expand(2, 40, 3)),
    "squeeze": ([(3, 1, 4)], lambda x: x.squeeze(1)),
    "unsqueeze": ([(3, 4)], lambda x: x.unsqueeze(-1)),
    "flatten": ([(2, 3, 4)], lambda x: x.flatten(1, -1)),
    "chunk": ([(2, 8)], lambda x: torch.cat(list(reversed(x.chunk(3, -1))), -1)),
    "split": ([(7, 2)], lambda x: torch.cat([x.split([2, 0, 5])[2], x.split([2, 0, 5])[0]])),
    "cat": ([(2, 3), (2, 1)], lambda a, b: torch.cat([a, b, a], 1)),
    "chain": ([(4, 6, 5)], lambda x: x.transpose(0, 2)[1:4, ::2].flip(1).permute(1, 2, 0)),
    "twice": ([(4, 3)], lambda x: x.transpose(0, 1)[:, :3] * x[1:]),
    "row_and_column": ([(3, 1), (1, 4)], torch.add),
    "column": ([(3, 4), (3, 1)], torch.mul),
    "column_long": ([(5, 140), (5, 1)], torch.mul),
    "column_many": ([(140, 5), (140, 1)], torch.mul),
    "first_smaller": ([(4,), (2, 3, 4)], torch.sub),
    "middle_rank": ([(2, 3, 4), (3, 1)], torch.mul),
    "middle": ([(2, 1, 3), (1, 4, 1)], torch.mul),
    "ones": ([(1, 1), (3, 4)], torch.mul),
    "one": ([(3, 4), (1,)], torch.mul),
    "one_1": ([(5,), (1,)], torch.sub),
    "scalar": ([(2, 3), ()], torch.mul),
    "scalar_first": ([(), (2, 3)], torch.sub),
    "bias": ([(2, 3, 4), (4,)], torch.add),
    "empty_rows": ([(0, 3), (1, 3)], torch.mul),
    "empty_columns": ([(3, 1), (3, 0)], torch.add),
    "three": ([(2, 3), (1, 3), (2, 1)], torch.addcmul),
    "three_ranks": ([(3,), (2, 1), ()], torch.addcmul),
    "times_transposed": ([(2, 3, 4), (2, 5, 4)], lambda q, k: q @ k.mT),
    "transposed_times": ([(4, 3), (4, 5)], lambda a, b: a.mT @ b),
    "both_transposed": ([(2, 4, 3), (2, 5, 4)], lambda a, b: a.mT @ b.mT),
    "rows_times_transposed": ([(2, 3, 4), (5, 4)], lambda a, b: a @ b.mT),
}


def numbers(values):
    return " ".join(str(int(v)) for v in values)


torch.set_num_threads(1)
lines = [
    "# SPDX-License-Identifier: MIT",
    f"# Written by shapes.py with torch {torch.__version__.split('+')[0]}: for each case and type the result's shape, the result,",
    "# and the gradient of each input.",
]
for name, (shapes, function) in CASES.items():
    for short, dtype in TYPES.items():
        inputs = []
        for k, shape in enumerate(shapes):
            count = torch.Size(shape).numel()
            inputs.append(torch.tensor([(31 * i + 17 * k) % 9 - 4 for i in range(count)], dtype=dtype).reshape(shape).requires_grad_())
        y = function(*inputs)
        y.backward(torch.tensor([(13 * i) % 7 - 3 for i in range(y.numel())], dtype=dtype).reshape(y.shape))
        lines.append(f"{name} {short} shape {numbers(y.shape)}".rstrip())
        lines.append(f"{name} {short} y {numbers(y.detach().flatten().tolist())}".rstrip())
        lines += [f"{name} {short} {k} {numbers(x.grad.flatten().tolist())}".rstrip() for k, x in enumerate(inputs)]
(pathlib.Path(__file__).parent / "shapes.txt").write_text("\n".join(lines) + "\n")

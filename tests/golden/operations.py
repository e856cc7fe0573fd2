#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Completes operations.txt: what PyTorch's operations return, by type and by value.

    python3 tests/golden/operations.py                 # with PyTorch; the file says which version wrote it

Each line of the file is an operation. Its first columns are written by hand, the script writes the others anew:

    operation | in PyTorch | functions: ranges of x | types of results | functions: x value slope curvature, ... | values at other x

An expression in PyTorch has the matrix x, or a and b. What it returns is put down twice:

* Types, under autocast for CUDA and for CPUs, by the types of its operands: an operation's line names the first operation that has the
  same ones, and at the file's end there are tables of those: device, region (outer>inner), and inputs:output for each mixture of types
  that PyTorch takes there; "banned": PyTorch refuses the operation in that region, whatever the types. No GPU is needed: tensors are fake
  ones (shapes and types without data) of the device, whose calls go through the same dispatcher. torch.autocast itself turns off where
  there is no GPU, so the script sets what it would: set_autocast_enabled and set_autocast_dtype, as in a `with` block, the inner one's
  in place of the outer's. "fp32" as the type of a region is one that torch.autocast refuses for CUDA and the dispatcher takes; halftone has
  it as autocast<full_fp32>. Fake kernels multiply matrices of different types, which real ones refuse, and
  binary_cross_entropy_with_logits works in place on what it makes of the target, whose type is all that its result says then: such
  mixtures are left out (UNMIXED).

* Of functions the value and both derivatives in double at floats of the ranges, from end to end, and the value at zeros, infinities and NaN.
  A range "low high" has the same number of points as each of several, "low high, low high".
"""

import itertools
import logging
import math
import pathlib
import sys

import numpy
import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode

FILE = pathlib.Path(__file__).with_suffix(".txt")
TYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32, "fp64": torch.float64}
NAMES = {t: n for n, t in TYPES.items()}
DEVICES = ["cuda", "cpu"]
REGIONS = ["none", "fp16", "bf16", "fp16>none", "fp16>fp32", "bf16>fp16"]
UNMIXED = ["matmul", "linear", "conv2d", "attention", "prelu", "dot", "binary_cross_entropy_with_logits"]  # operands of one type, once they are cast
POINTS = 6  # of a range: an even number, since many functions have a corner between its ends
OTHERS = [-math.inf, -0.0, 0.0, math.inf, math.nan]


def names(device="cpu"):
    """What expressions may use."""
    return {
        "torch": torch, "F": F, **TYPES,
        "rows": torch.zeros(4, dtype=torch.int64, device=device),
        "places": torch.zeros(4, 4, dtype=torch.int64, device=device),
        "image": lambda x: x.reshape(1, 1, 4, 4),
        "flat": lambda x: x.reshape(-1),
    }


def enter(device, region):
    """What the innermost of nested torch.autocast blocks leaves set."""
    torch.set_autocast_enabled(device, False)
    for name in region.split(">"):
        torch.set_autocast_enabled(device, name != "none")
        if name != "none":
            torch.set_autocast_dtype(device, TYPES[name])


def types_of(name, expression, device):
    """The table of the operation's results: one line a region."""
    code = compile(expression, name, "eval")
    operands = ["x"] if "x" in code.co_names else ["a", "b"]
    lines = []
    for region in REGIONS:
        found, banned = [], False
        for types in itertools.product(TYPES, repeat=len(operands)):
            mixed = set(types) if region.endswith("none") else {t == "fp64" for t in types}
            if name in UNMIXED and len(mixed) > 1:
                continue
            tensors = {o: torch.empty(4, 4, dtype=TYPES[t], device=device) for o, t in zip(operands, types)}
            scope = {**names(device), **tensors}
            enter(device, region)
            try:
                found.append(",".join(types) + ":" + NAMES[eval(code, scope).dtype])
            except RuntimeError as error:
                banned = banned or "unsafe to autocast" in str(error)
            finally:
                enter(device, "none")
        lines.append(" ".join([device, region, *(["banned"] if banned else found)]))
    return lines


def text(number):
    return repr(float(number))


def values_of(name, expression, bounds):
    """x, value, slope, curvature at points of the range; and x, value at others."""
    code = compile(expression, name, "eval")
    points = []
    for low, high in (map(float, part.split()) for part in bounds.split(",")):
        points += [float(numpy.float32(low + (high - low) * i / (POINTS - 1))) for i in range(POINTS)]

    def value(x):
        return eval(code, {**names(), "x": x})

    def gradient(y, x):
        if not y.requires_grad:
            return torch.zeros_like(x)
        found = torch.autograd.grad(y.sum(), x, create_graph=True, allow_unused=True)[0]
        return torch.zeros_like(x) if found is None or found._is_zerotensor() else found

    x = torch.tensor(points, dtype=torch.float64, requires_grad=True)
    y = value(x)
    slope = gradient(y, x)
    rows = zip(points, y.tolist(), slope.tolist(), gradient(slope, x).tolist())
    at_others = value(torch.tensor(OTHERS, dtype=torch.float64)).tolist()
    return ", ".join(" ".join(map(text, row)) for row in rows), ", ".join(" ".join(map(text, row)) for row in zip(OTHERS, at_others))


def main():
    lines = FILE.read_text().splitlines()
    tables, out = {}, []
    for line in lines:
        if line.startswith("= ") or line.startswith("# PyTorch"):
            continue
        if not line or line.startswith("#"):
            out.append(line)
            continue
        name, expression, bounds, *_ = (*(column.strip() for column in line.split("|")), "")
        columns = [name, expression, bounds]
        with FakeTensorMode():
            kinds = []
            for device in DEVICES:
                table = tuple(types_of(name, expression, device))
                kinds.append(tables.setdefault(table, name))
        columns.append(" ".join(kinds))
        if bounds:
            columns += values_of(name, expression, bounds)
        out.append(" | ".join(columns))
    out += [f"= {first} {row}" for table, first in tables.items() for row in table]
    FILE.write_text("\n".join([f"# PyTorch {torch.__version__}", *out]) + "\n")


logging.disable(logging.ERROR)  # of mixtures that PyTorch refuses
if len(sys.argv) > 1:
    sys.exit(__doc__)
main()

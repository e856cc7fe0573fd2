#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes loss_divisors.txt: losses that are means over something else than rows, and their gradients, of eight rows as one batch.

    python3 tests/golden/loss_divisors.py        # needs PyPI's torch; the numbers committed are those of 2.15

A linear layer scores eight classes from four features, in double; all inputs are small fractions. "labels" and "ignored" are cross-
entropies with ignored labels, "weights" and "smoothing" have class weights, too, and "masked" is a sum of squares, of which each row
has a weight, over the sum of the weights. Some pairs of rows count not at all.
"""
import pathlib

import torch
import torch.nn.functional as F

ROWS, FEATURES, CLASSES = 8, 4, 8
CASES = [  # name, labels, ignore_index, class weights, label smoothing
    ("labels", [0, 1, -100, -100, 2, 5, -100, 3], -100, None, 0.0),
    ("ignored", [0, 1, 7, 7, 2, 5, 7, 3], 7, None, 0.0),
    ("weights", [0, 1, 2, 5, 7, 7, 3, -100], -100, [0.25, 2, 0, 1.5, 0.75, 0, 1, 3], 0.0),
    ("smoothing", [0, 1, 7, 7, 4, 5, 7, 3], 7, [0.25, 2, 0.5, 1.5, 0.75, 0.125, 1, 3], 0.125),
]
MASK = [0.5, 1, 0, 0, 0.25, 1, 0, 2]


def numbers(rows, columns, step, modulus):
    values = [(step * i % modulus - modulus // 2) / 4 for i in range(rows * columns)]
    return torch.tensor(values, dtype=torch.float64).reshape(rows, columns)


def line(name, values):
    return " ".join([name] + [float(v).hex() for v in torch.as_tensor(values).detach().flatten()])


def case(name, loss_of):
    weight, bias = numbers(CLASSES, FEATURES, 5, 9).requires_grad_(), torch.zeros(CLASSES, dtype=torch.float64, requires_grad=True)
    loss = loss_of(numbers(ROWS, FEATURES, 7, 11) @ weight.T + bias)
    loss.backward()
    return [line("loss", loss), line("dweight", weight.grad), line("dbias", bias.grad)]


lines = ["# SPDX-License-Identifier: MIT", f"# Written by loss_divisors.py with torch {torch.__version__}."]
for name, labels, ignored, weights, smoothing in CASES:
    w = None if weights is None else torch.tensor(weights, dtype=torch.float64)
    lines += [f"case {name} {ignored} {smoothing}", " ".join(["labels"] + list(map(str, labels))),
              line("weight", [] if weights is None else weights)]
    lines += case(name, lambda x: F.cross_entropy(x, torch.tensor(labels), weight=w, ignore_index=ignored, label_smoothing=smoothing))
mask = torch.tensor(MASK, dtype=torch.float64)
lines += ["case masked -100 0", " ".join(["labels"] + ["0"] * ROWS), line("weight", MASK)]
lines += case("masked", lambda y: (mask[:, None] * y**2).sum() / mask.sum())
pathlib.Path(__file__).with_suffix(".txt").write_text("\n".join(lines) + "\n")

#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes losses.txt: PyTorch's cross-entropy with label smoothing, class weights, ignored targets, soft targets and each reduction,
its other losses by reduction, and the gradients, in double on the CPU.

    python3 tests/golden/losses.py           # needs PyPI's torch; the numbers committed are those of 2.15

Inputs are small fractions, which every type holds. A case begins with its name and numbers, each line after it with what it holds.
"""
import pathlib

import torch
import torch.nn.functional as F


def numbers(count, start, step, modulus):
    return [((start + step * i) % modulus - modulus // 2) / modulus * 8 for i in range(count)]


def line(name, values):
    values = values.detach().flatten().tolist() if isinstance(values, torch.Tensor) else values
    return " ".join([name] + [float(v).hex() for v in values])


def classes_case(rows, classes, smoothing, weighted, ignored):
    x = torch.tensor(numbers(rows * classes, 3, 5, 32), dtype=torch.float64).reshape(rows, classes).requires_grad_()
    targets = torch.tensor([(7 * i + 2) % classes for i in range(rows)])
    for i in ignored:
        targets[i] = -100
    weight = torch.tensor([(i % 5 + 1) / 4 for i in range(classes)], dtype=torch.float64) if weighted else None
    yield f"classes {rows} {classes} {smoothing} {int(weighted)}"
    yield line("logits", x)
    yield " ".join(["targets"] + [str(int(t)) for t in targets])
    for reduction in ["none", "mean", "sum"]:
        loss = F.cross_entropy(x, targets, weight=weight, reduction=reduction, label_smoothing=smoothing)
        yield line(reduction, loss)
        scale = torch.arange(1, rows + 1, dtype=torch.float64) if reduction == "none" else 1.0
        (dx,) = torch.autograd.grad((loss * scale).sum(), x)
        yield line("d" + reduction, dx)


def soft_case(rows, classes, smoothing, weighted):
    x = torch.tensor(numbers(rows * classes, 3, 5, 32), dtype=torch.float64).reshape(rows, classes).requires_grad_()
    q = torch.tensor([((3 * i + 1) % 8) / 8 for i in range(rows * classes)], dtype=torch.float64)
    q = q.reshape(rows, classes).requires_grad_()
    weight = torch.tensor([(i % 5 + 1) / 4 for i in range(classes)], dtype=torch.float64) if weighted else None
    yield f"soft {rows} {classes} {smoothing} {int(weighted)}"
    yield line("logits", x)
    yield line("probabilities", q)
    for reduction in ["none", "mean", "sum"]:
        loss = F.cross_entropy(x, q, weight=weight, reduction=reduction, label_smoothing=smoothing)
        scale = torch.arange(1, rows + 1, dtype=torch.float64) if reduction == "none" else 1.0
        dx, dq = torch.autograd.grad((loss * scale).sum(), [x, q])
        yield line(reduction, loss)
        yield line("d" + reduction, dx)
        yield line("dq" + reduction, dq)


ELEMENTWISE = {
    "mse_loss": F.mse_loss,
    "l1_loss": F.l1_loss,
    "smooth_l1_loss": lambda x, t, reduction: F.smooth_l1_loss(x, t, reduction=reduction, beta=0.5),
    "huber_loss": lambda x, t, reduction: F.huber_loss(x, t, reduction=reduction, delta=0.5),
    "binary_cross_entropy_with_logits": F.binary_cross_entropy_with_logits,
}


def elementwise_case(name, count):
    x = torch.tensor(numbers(count, 3, 5, 32), dtype=torch.float64).requires_grad_()
    t = torch.tensor([((3 * i + 1) % 8) / 8 for i in range(count)], dtype=torch.float64)
    yield f"elementwise {name} {count}"
    yield line("x", x)
    yield line("t", t)
    for reduction in ["none", "mean", "sum"]:
        loss = ELEMENTWISE[name](x, t, reduction=reduction)
        yield line(reduction, loss)
        scale = torch.arange(1, count + 1, dtype=torch.float64) if reduction == "none" else 1.0
        (dx,) = torch.autograd.grad((loss * scale).sum(), x)
        yield line("d" + reduction, dx)


lines = [
    "# SPDX-License-Identifier: MIT",
    f"# Written by losses.py with torch {torch.__version__.split('+')[0]}. Of losses that are not reduced the gradient is that of",
    "# row 1, 2 times that of row 2 and so on, added up.",
]
for rows, classes, ignored in [(1, 1, []), (1, 2, []), (3, 7, [1]), (5, 33, [0, 4])]:
    for smoothing in [0.0, 0.125, 1.0]:
        for weighted in [False, True]:
            lines.extend(classes_case(rows, classes, smoothing, weighted, ignored))
for rows, classes in [(1, 1), (3, 7), (2, 33)]:
    for smoothing in [0.0, 0.25]:
        for weighted in [False, True]:
            lines.extend(soft_case(rows, classes, smoothing, weighted))
for name in ELEMENTWISE:
    for count in [1, 9]:
        lines.extend(elementwise_case(name, count))
(pathlib.Path(__file__).parent / "losses.txt").write_text("\n".join(lines) + "\n")

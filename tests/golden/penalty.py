#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes penalty.txt: PyTorch's recipe for a gradient penalty with a gradient scaler, step by step, on the CPU.

    python3 tests/golden/penalty.py           # needs PyPI's torch; the steps committed are those of 2.15

The network is gelu(x W1' + b1) W2' + b2, the loss the mean squared error plus the norm of its gradient. Overflows are planted
by factors of the inputs: infinity spoils all, finite ones make gradients overflow in the types of the case.
"""
import math
import pathlib

import torch

ROWS, IN, HIDDEN, OUT, STEPS, LR = 6, 3, 4, 2, 24, 0.0625
CASES = {
    "fp32": (None, {3: math.inf, 8: 2.0**100, 9: 2.0**100, 17: math.inf}),
    "fp16": (torch.float16, {3: math.inf, 8: 2.0**33, 9: 2.0**12, 17: math.inf}),
}


def numbers(count, start, step, modulus):
    return [((start + step * i) % modulus - modulus // 2) / modulus * 2 for i in range(count)]


def hexes(values):
    return " ".join(float(v).hex() for v in values)


def run(low, plants):
    x = torch.tensor(numbers(ROWS * IN, 3, 5, 16)).reshape(ROWS, IN)
    t = torch.tensor(numbers(ROWS * OUT, 1, 7, 16)).reshape(ROWS, OUT)
    model = torch.nn.Sequential(torch.nn.Linear(IN, HIDDEN), torch.nn.GELU(approximate="tanh"), torch.nn.Linear(HIDDEN, OUT))
    with torch.no_grad():
        for i, p in enumerate(model.parameters()):
            p.copy_(torch.tensor(numbers(p.numel(), 2 + i, 3 + 2 * i, 32)).reshape(p.shape))
    params = list(model.parameters())
    optimizer = torch.optim.SGD(params, lr=LR, foreach=False)
    scaler = torch.amp.GradScaler("cpu", 256.0, 2.0, 0.5, 5)
    yield "start " + hexes(torch.cat([p.detach().flatten() for p in params]))
    for step in range(STEPS):
        optimizer.zero_grad()
        inputs = x * plants.get(step, 1.0)
        with torch.autocast("cpu", dtype=low or torch.bfloat16, enabled=low is not None):
            loss = torch.nn.functional.mse_loss(model(inputs), t)
        scaled = torch.autograd.grad(outputs=scaler.scale(loss), inputs=params, create_graph=True)
        inverse = 1.0 / scaler.get_scale()
        grads = [g * inverse for g in scaled]
        norm = sum(g.pow(2).sum() for g in grads).sqrt()
        total = loss + norm
        scaler.scale(total).backward()
        before = [p.detach().clone() for p in params]
        scaler.step(optimizer)
        scaler.update()
        skipped = int(all(torch.equal(a, b) for a, b in zip(before, params)))
        tracker = scaler.state_dict()["_growth_tracker"]
        yield f"step {plants.get(step, 1.0).hex()} {skipped} {scaler.get_scale().hex()} {tracker} " + hexes(
            [loss.item(), total.item(), *torch.cat([p.detach().flatten() for p in params])])


lines = [
    "# SPDX-License-Identifier: MIT",
    f"# Written by penalty.py with torch {torch.__version__.split('+')[0]}: for each case the parameters at the start, then for each",
    "# step the factor of its inputs, whether it was skipped, scale and growth tracker after it, loss, loss with penalty, and the",
    "# parameters after it.",
]
for name, (low, plants) in CASES.items():
    lines.append(f"case {name} {STEPS}")
    lines.extend(run(low, plants))
(pathlib.Path(__file__).parent / "penalty.txt").write_text("\n".join(lines) + "\n")

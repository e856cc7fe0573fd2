#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes adamw.txt and sgd.txt: what torch.optim computes in float32, one tensor after another, on the CPU.

    python3 tests/golden/optimizers.py        # needs PyPI's torch; the numbers committed are those of 2.15

The model is that of tests/optim/small_model.hpp with a width of 6: fc1 (6), norm (5), fc2 (9), head (3). Parameters and
gradients are fractions that float32 holds exactly, made from their index by a formula that the tests repeat:

    parameter i     ((31 i) mod 65 - 32) / 16
    gradient i of step t, from 1 on     ((7919 t + 104729 i) mod 2049 - 1024) / 1024 * amplitude

Numbers are written as C99's hexadecimal floats, so that nothing is lost on the way.
"""
import pathlib

import torch

WIDTHS = {"fc1": 6, "norm": 5, "fc2": 9, "head": 3}
STEPS = (1, 2, 10, 100)
HERE = pathlib.Path(__file__).parent

ADAMW = {  # lr, beta1, beta2, epsilon, weight_decay, clip by norm, clip by value, amplitude, groups
    "plain": (1e-3, 0.9, 0.999, 1e-8, 0.0, 0, 0, 1.0, 0),
    "decay": (3e-4, 0.9, 0.999, 1e-8, 0.1, 0, 0, 1.0, 0),
    "fast": (3e-2, 0.9, 0.95, 1e-8, 0.01, 0, 0, 0.0009765625, 0),
    "large_gradients": (1e-3, 0.8, 0.99, 1e-6, 0.01, 0, 0, 1024.0, 0),
    "large_epsilon": (1e-2, 0.9, 0.999, 1e-2, 0.01, 0, 0, 0.015625, 0),
    "clip_norm": (1e-3, 0.9, 0.999, 1e-8, 0.1, 1.0, 0, 1.0, 0),
    "clip_norm_of_less": (1e-3, 0.9, 0.999, 1e-8, 0.1, 100.0, 0, 1.0, 0),
    "clip_value": (1e-3, 0.9, 0.999, 1e-8, 0.1, 0, 0.25, 1.0, 0),
    "clip_both": (1e-3, 0.9, 0.999, 1e-8, 0.1, 0.7, 0.125, 2.0, 0),
    "groups": (1e-3, 0.9, 0.999, 1e-8, 0.1, 0, 0, 1.0, 1),
}
SGD = {  # lr, momentum, dampening, nesterov, weight_decay, clip by norm, clip by value, amplitude, groups
    "plain": (1e-2, 0.0, 0.0, 0, 0.0, 0, 0, 1.0, 0),
    "decay": (1e-2, 0.0, 0.0, 0, 0.01, 0, 0, 1.0, 0),
    "momentum": (1e-3, 0.9, 0.0, 0, 0.01, 0, 0, 1.0, 0),
    "dampening": (1e-3, 0.9, 0.5, 0, 0.01, 0, 0, 1.0, 0),
    "nesterov": (1e-3, 0.9, 0.0, 1, 0.01, 0, 0, 1.0, 0),
    "clip_norm": (1e-2, 0.9, 0.0, 1, 0.01, 1.0, 0, 1.0, 0),
    "groups": (1e-2, 0.9, 0.0, 0, 0.1, 0, 0, 1.0, 1),
}


def parameters():
    total = sum(WIDTHS.values())
    values = torch.tensor([((31 * i) % 65 - 32) / 16 for i in range(total)], dtype=torch.float32)
    return {name: torch.nn.Parameter(part.clone()) for name, part in zip(WIDTHS, values.split(list(WIDTHS.values())))}


def groups(model, lr, has_groups):
    if not has_groups:
        return list(model.values())
    return [  # the norm is not decayed, the head has a tenth of the rate
        {"params": [model["fc1"], model["fc2"]]},
        {"params": [model["norm"]], "weight_decay": 0.0},
        {"params": [model["head"]], "lr": lr * 0.1},
    ]


def run(make, case):
    *options, clip_norm, clip_value, amplitude, has_groups = case
    model = parameters()
    optimizer = make(groups(model, options[0], has_groups), *options)
    for t in range(1, max(STEPS) + 1):
        i = 0
        for p in model.values():
            g = [((7919 * t + 104729 * (i + j)) % 2049 - 1024) / 1024 * amplitude for j in range(p.numel())]
            p.grad = torch.tensor(g, dtype=torch.float32)
            i += p.numel()
        if clip_norm:
            torch.nn.utils.clip_grad_norm_(list(model.values()), clip_norm, foreach=False)
        if clip_value:
            torch.nn.utils.clip_grad_value_(list(model.values()), clip_value, foreach=False)
        optimizer.step()
        if t in STEPS:
            yield t, torch.cat([p.detach() for p in model.values()]).tolist()


def adamw(params, lr, beta1, beta2, epsilon, weight_decay):
    return torch.optim.AdamW(params, lr, (beta1, beta2), epsilon, weight_decay, foreach=False, fused=False)


def sgd(params, lr, momentum, dampening, nesterov, weight_decay):
    return torch.optim.SGD(params, lr, momentum, dampening, weight_decay, bool(nesterov), foreach=False, fused=False)


def write(name, fields, make, cases):
    lines = [
        "# SPDX-License-Identifier: MIT",
        f"# Written by optimizers.py with torch {torch.__version__.split('+')[0]}: for each case its options,",
        f"#     case name {fields} clip_norm clip_value amplitude groups",
        "# (clips of 0: none), then the parameters after some steps.",
    ]
    for case, options in cases.items():
        lines.append(f"case {case} " + " ".join(float(o).hex() for o in options))
        lines += [f"step {t} " + " ".join(v.hex() for v in values) for t, values in run(make, options)]
    (HERE / name).write_text("\n".join(lines) + "\n")


torch.set_num_threads(1)
write("adamw.txt", "lr beta1 beta2 epsilon weight_decay", adamw, ADAMW)
write("sgd.txt", "lr momentum dampening nesterov weight_decay", sgd, SGD)

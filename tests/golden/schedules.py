#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes schedules.txt: the learning rates of Hugging Face's schedules, step by step.

    python3 tests/golden/schedules.py        # needs PyPI's torch and transformers; committed: 2.15 and 5.24

Each line is a rate of 3e-4 times the factor at steps 0 to total + 5, as C99's hexadecimal floats. The rates of "wsd" are the
factors themselves, since its optimizer has a rate of 1.
"""
import pathlib

import torch
import transformers
from transformers import optimization

TOTAL = 60
POLYNOMIAL = {  # warmup, lr_end, power
    "poly_line": (0, 1e-7, 1.0),
    "poly_square": (6, 1e-7, 2.0),
    "poly_root": (10, 3e-5, 0.5),
}
CURVES = ("linear", "cosine", "1-sqrt")
WSD = {  # warmup, decay, warmup type, decay type, min_lr_ratio
    "wsd_default": (6, 20, 0, 1, 0.0),
    "wsd_line": (6, 20, 0, 0, 0.1),
    "wsd_root": (10, 30, 2, 2, 0.0),
    "wsd_cosine": (10, 50, 1, 1, 0.25),
    "wsd_no_warmup": (0, 60, 0, 2, 0.0),
}


def rates(lr, make):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=lr)
    scheduler = make(optimizer)
    for _ in range(TOTAL + 6):
        yield scheduler.get_last_lr()[0]
        optimizer.step()
        scheduler.step()


def main():
    lines = [
        "# SPDX-License-Identifier: MIT",
        f"# Written by schedules.py with torch {torch.__version__.split('+')[0]}, transformers {transformers.__version__}:",
        "#     polynomial name warmup lr_end power, or wsd name warmup decay warmup_type decay_type min_lr_ratio",
        "# (types: 0 linear, 1 cosine, 2 1-sqrt), then the rates of steps 0 to 65 of a run of 60.",
    ]
    for name, (warmup, lr_end, power) in POLYNOMIAL.items():
        lines.append(f"polynomial {name} {warmup} {lr_end.hex()} {power.hex()}")
        lines.append("rates " + " ".join(r.hex() for r in rates(3e-4, lambda o: optimization.get_scheduler(
            "polynomial", o, warmup, TOTAL, {"lr_end": lr_end, "power": power}))))
    for name, (warmup, decay, up, down, least) in WSD.items():
        lines.append(f"wsd {name} {warmup} {decay} {up} {down} {least.hex()}")
        kwargs = {"num_decay_steps": decay, "warmup_type": CURVES[up], "decay_type": CURVES[down], "min_lr_ratio": least}
        lines.append("rates " + " ".join(float(r).hex() for r in rates(1.0, lambda o: optimization.get_scheduler(
            "warmup_stable_decay", o, warmup, TOTAL, kwargs))))
    pathlib.Path(__file__).with_name("schedules.txt").write_text("\n".join(lines) + "\n")


main()

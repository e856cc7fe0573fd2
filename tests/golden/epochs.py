#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes epochs.txt: how transformers' Trainer divides epochs into steps, with fractions of epochs and short last steps.

    python3 tests/golden/epochs.py        # needs PyPI's torch, transformers and accelerate; committed: 2.15, 5.24 and 1.15

Row i of the data has two numbers and one to predict, all exact in float32, and rows come in order. A linear model is trained by
SGD with a linear schedule, and its loss is a mean over the rows of a step, which the Trainer counts (num_items_in_batch).
"""
import pathlib

import accelerate
import torch
import transformers

CASES = [  # rows, per_device_train_batch_size, gradient_accumulation_steps, num_train_epochs
    (12, 2, 3, 1.0),
    (10, 2, 2, 2.0),
    (11, 2, 2, 2.0),
    (13, 4, 2, 1.5),
    (7, 3, 2, 0.1),
    (7, 2, 3, 2.01),
    (5, 8, 1, 3.0),
    (5, 2, 4, 0.5),
    (23, 4, 3, 1 / 3),
    (30, 1, 1, 0.1),
    (17, 1, 5, 1.25),
    (9, 4, 4, 3.0),
]


def row(i):
    x = torch.tensor([(i * 7 % 5 - 2) / 2, (i * 3 % 7 - 3) / 4])
    return {"x": x, "labels": torch.tensor([(i * 5 % 9 - 4) / 4])}


class Line(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)
        with torch.no_grad():
            self.layer.weight.zero_()
            self.layer.bias.zero_()
        self.rows = []

    def forward(self, x, labels, num_items_in_batch=None, **kwargs):
        self.rows.append(len(x))
        return {"loss": ((self.layer(x) - labels) ** 2).sum() / num_items_in_batch}


class Steps(transformers.TrainerCallback):
    def __init__(self, model):
        self.model, self.lines, self.rate = model, [], None

    def on_step_begin(self, args, state, control, optimizer=None, **kwargs):
        self.rate = optimizer.param_groups[0]["lr"]

    def on_step_end(self, args, state, control, **kwargs):
        parts = ",".join(map(str, self.model.rows))
        self.model.rows = []
        self.lines.append(f"step {parts} {float(self.rate).hex()} {float(state.epoch).hex()}")


def run(rows, batch, accumulation, epochs):
    model = Line()
    steps = Steps(model)
    arguments = transformers.TrainingArguments(
        output_dir="unused", per_device_train_batch_size=batch, gradient_accumulation_steps=accumulation,
        num_train_epochs=epochs, optim="sgd", learning_rate=0.125, max_grad_norm=0, report_to=[], save_strategy="no",
        train_sampling_strategy="sequential", use_cpu=True, disable_tqdm=True, logging_strategy="no")
    trainer = transformers.Trainer(model=model, args=arguments, train_dataset=[row(i) for i in range(rows)], callbacks=[steps])
    trainer.train()
    yield f"run {rows} {batch} {accumulation} {float(epochs).hex()} {trainer.state.max_steps}"
    yield from steps.lines
    numbers = [*model.layer.weight.flatten().tolist(), model.layer.bias.item()]
    yield "end " + " ".join(float(n).hex() for n in numbers)


def main():
    out = pathlib.Path(__file__).with_name("epochs.txt")
    lines = ["# SPDX-License-Identifier: MIT",
             f"# Written by epochs.py with torch {torch.__version__.split('+')[0]}, transformers {transformers.__version__}, "
             f"accelerate {accelerate.__version__}:",
             "#     run rows batch accumulation epochs max_steps, then for each of its steps",
             "#     step rows,of,micro-batches rate epoch, then",
             "#     end the model's three numbers"]
    for case in CASES:
        lines.extend(run(*case))
    out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()

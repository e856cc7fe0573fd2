# SPDX-License-Identifier: MIT
"""What llama.py, bert.py and vision.py share: the generator of weights and inputs, which tests/nn/golden_model.hpp has, too, and the file's
form."""
import pathlib

import torch


class generator:
    """Numbers of [-1, 1), multiples of 2^-15: exact in float32."""

    def __init__(self, state=12345):
        self.state = state

    def next(self):
        self.state = (self.state * 1664525 + 1013904223) % 2**32
        return self.state >> 16

    def numbers(self, shape, scale, mean=0.0):
        count = 1
        for n in shape:
            count *= n
        return torch.tensor([mean + (self.next() - 32768) / 32768 * scale for _ in range(count)]).reshape(shape)


def off(a, b):
    """The norm of the difference over the norm."""
    return ((a - b).norm() / b.norm()).item()


def mean_square(values):
    """The root of the mean of squares."""
    return (sum(v * v for v in values) / len(values)) ** 0.5


def numbers(values):
    return " ".join(f"{v:.6g}" for v in values.flatten().tolist())


def transformers_version():
    import transformers

    return f"transformers {transformers.__version__}"


def write(name, lines, script=None, library=None):
    library = library or transformers_version()
    head = [
        "# SPDX-License-Identifier: MIT",
        f"# Written by {script or name}.py with torch {torch.__version__.split('+')[0]} and {library}: for each model",
        "# how many parameters it has, by how much bfloat16 errs in the logits, relative, and in the loss, and the loss; the logits;",
        "# of hidden states and of each parameter by how much bfloat16 errs in it, or in its gradient, relative, and the numbers.",
    ]
    (pathlib.Path(__file__).parent / f"{name}.txt").write_text("\n".join(head + lines) + "\n")

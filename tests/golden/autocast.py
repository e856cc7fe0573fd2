#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes the output type of each operation under PyTorch's autocast for CUDA, or for CPUs, by the types of its inputs.

    python3 tests/golden/autocast.py cuda > tests/golden/autocast.txt        # with PyTorch; the file says which version wrote it
    python3 tests/golden/autocast.py cpu > tests/golden/autocast_cpu.txt

No GPU is needed: tensors are fake ones (shapes and types without data) of the device, whose calls go through the same
dispatcher. torch.autocast itself turns off where there is no GPU, so the script sets what it would: set_autocast_enabled and
set_autocast_dtype, as in a `with` block, the inner one's in place of the outer's. "fp32" as the type of a region is one that
torch.autocast refuses for CUDA and the dispatcher takes; halftone has it as autocast<full_fp32>.

Fake kernels multiply matrices of different types, which real ones refuse, and binary_cross_entropy_with_logits works in place on what it
makes of the target, whose type is all that its result says then: such mixtures are left out (UNMIXED).

A line: operation, region (outer>inner), and inputs:output for each mixture of types that PyTorch takes there. In brackets behind an
operation: the dtype= that it is given. "banned": PyTorch refuses the operation in that region, whatever the types.
"""

import itertools
import logging
import sys

import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode

TYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32, "fp64": torch.float64}
NAMES = {t: n for n, t in TYPES.items()}
DEVICE = sys.argv[1]
REGIONS = ["none", "fp16", "bf16", "fp16>none", "fp16>fp32", "bf16>fp16"]
UNMIXED = ["matmul", "linear", "conv2d", "attention", "prelu", "dot", "binary_cross_entropy_with_logits"]  # operands of one type, once they are cast


def unary(*names):
    return {n: (1, lambda x, n=n: getattr(torch, n)(x)) for n in names}


def targets():
    return torch.zeros(4, dtype=torch.int64, device=DEVICE)


def indices():
    return torch.zeros(4, 4, dtype=torch.int64, device=DEVICE)


def flat(x):
    return x.reshape(-1)


OPERATIONS = {
    **unary("exp", "expm1", "log", "log1p", "log2", "log10", "reciprocal", "rsqrt", "sinh", "cosh", "tan"),
    **unary("neg", "abs", "sqrt", "tanh", "sigmoid", "relu", "mean", "sum", "erf"),
    "softplus": (1, F.softplus),
    "gelu": (1, F.gelu),
    "gelu_erf": (1, F.gelu),
    "silu": (1, F.silu),
    "leaky_relu": (1, F.leaky_relu),
    "dropout": (1, F.dropout),
    "glu": (1, F.glu),
    "softmax": (1, lambda x: torch.softmax(x, -1)),
    "log_softmax": (1, lambda x: torch.log_softmax(x, -1)),
    "layer_norm": (1, lambda x: F.layer_norm(x, (4,))),
    "rms_norm": (1, lambda x: F.rms_norm(x, (4,))),
    "norm": (1, lambda x: torch.norm(x)),
    "embedding": (1, lambda w: F.embedding(targets(), w)),
    "cross_entropy": (1, lambda x: F.cross_entropy(x, targets())),
    **{n: (1, lambda x, n=n: getattr(torch, n)(x, 0)) for n in ("cumsum", "logsumexp", "var", "std", "amax", "amin", "prod")},
    "matmul": (2, torch.matmul),
    "linear": (2, lambda x, w: F.linear(x, w)),
    "conv2d": (2, lambda x, w: F.conv2d(x.reshape(1, 1, 4, 4), w.reshape(1, 1, 4, 4))),
    "attention": (2, lambda q, k: F.scaled_dot_product_attention(q.reshape(1, 1, 4, 4), k.reshape(1, 1, 4, 4), k.reshape(1, 1, 4, 4))),
    "prelu": (2, lambda x, w: F.prelu(x, flat(w)[:4])),
    "add": (2, torch.add),
    "sub": (2, torch.sub),
    "mul": (2, torch.mul),
    "div": (2, torch.div),
    "pow": (2, torch.pow),
    "atan2": (2, torch.atan2),
    "dot": (2, lambda a, b: torch.dot(flat(a), flat(b))),
    "cat": (2, lambda a, b: torch.cat([a, b])),
    "stack": (2, lambda a, b: torch.stack([a, b])),
    "permute": (1, lambda x: x.permute(1, 0)),
    "transpose": (1, lambda x: x.transpose(0, 1)),
    "slice": (1, lambda x: x[:, 1:3]),
    "select": (1, lambda x: x.select(1, 1)),
    "split": (1, lambda x: x.chunk(2, 1)[0]),
    "flip": (1, lambda x: x.flip(1)),
    "expand": (1, lambda x: x.expand(2, -1, -1)),
    "addcmul": (2, lambda a, b: torch.addcmul(a, b, b)),
    "addcdiv": (2, lambda a, b: torch.addcdiv(a, b, b)),
    "gather": (1, lambda x: torch.gather(x, 0, indices())),
    "index_select": (1, lambda x: torch.index_select(x, 0, targets())),
    "take_along_dim": (1, lambda x: torch.take_along_dim(x, indices(), 0)),
    "masked_fill": (1, lambda x: torch.masked_fill(x, indices() == 0, 0.5)),
    "tril": (1, torch.tril),
    "triu": (1, torch.triu),
    "where": (2, lambda a, b: torch.where(indices() == 0, a, b)),
    "scatter_add": (2, lambda a, b: torch.scatter_add(a, 0, indices(), b)),
    "index_add": (2, lambda a, b: torch.index_add(a, 0, targets(), b)),
    "max_pool2d": (1, lambda x: F.max_pool2d(x.reshape(1, 1, 4, 4), 2)),
    "avg_pool2d": (1, lambda x: F.avg_pool2d(x.reshape(1, 1, 4, 4), 2)),
    "adaptive_avg_pool2d": (1, lambda x: F.adaptive_avg_pool2d(x.reshape(1, 1, 4, 4), 1)),
    "batch_norm": (1, lambda x: F.batch_norm(x.reshape(1, 1, 4, 4), None, None, training=True)),
    "group_norm": (1, lambda x: F.group_norm(x.reshape(1, 1, 4, 4), 1)),
    "mse_loss": (2, F.mse_loss),
    "l1_loss": (2, F.l1_loss),
    "smooth_l1_loss": (2, F.smooth_l1_loss),
    "huber_loss": (2, F.huber_loss),
    "binary_cross_entropy_with_logits": (2, F.binary_cross_entropy_with_logits),
    "binary_cross_entropy": (2, F.binary_cross_entropy),
}
for name, function in {"softmax": torch.softmax, "log_softmax": torch.log_softmax, "sum": torch.sum}.items():
    for short, dtype in TYPES.items():
        axis = () if name == "sum" else (-1,)
        OPERATIONS[f"{name}[{short}]"] = (1, lambda x, f=function, d=dtype, a=axis: f(x, *a, dtype=d))


def enter(region):
    """What the innermost of nested torch.autocast blocks leaves set."""
    torch.set_autocast_enabled(DEVICE, False)
    for name in region.split(">"):
        torch.set_autocast_enabled(DEVICE, name != "none")
        if name != "none":
            torch.set_autocast_dtype(DEVICE, TYPES[name])


def main():
    print(f"# PyTorch {torch.__version__}, fake tensors of the device {DEVICE}")
    with FakeTensorMode():
        for name, (inputs, function) in OPERATIONS.items():
            for region in REGIONS:
                found, banned = [], False
                for types in itertools.product(TYPES, repeat=inputs):
                    mixed = set(types) if region.endswith("none") else {t == "fp64" for t in types}
                    if name in UNMIXED and len(mixed) > 1:
                        continue
                    tensors = [torch.empty(4, 4, dtype=TYPES[t], device=DEVICE) for t in types]
                    enter(region)
                    try:
                        found.append(",".join(types) + ":" + NAMES[function(*tensors).dtype])
                    except RuntimeError as error:
                        banned = banned or "unsafe to autocast" in str(error)
                    finally:
                        enter("none")
                print(name, region, *(["banned"] if banned else found))


logging.disable(logging.ERROR)  # of mixtures that PyTorch refuses
main()

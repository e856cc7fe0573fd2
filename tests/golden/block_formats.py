#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes block_formats.txt: what bitsandbytes makes of a tensor in nf4 with double scales on a CPU, and gguf of one in Q8_0.

    python3 tests/golden/block_formats.py     # needs PyPI's torch, bitsandbytes and gguf; those committed are of 2.15.0, 0.50.2, 0.19.0

The tensors come from a formula that the test repeats, exactly. bitsandbytes sums scales in float: a seed is taken only if the mean is
that of a sum in double, so that codes can be equal.
"""
import pathlib

import bitsandbytes
import gguf
import numpy as np
import torch
from bitsandbytes.functional import dequantize_4bit, quantize_4bit

EACH = 61  # every so manieth decoded number is written


def numbers(count, seed):
    """Magnitudes below 1, which differ by factors of two from block to block; some blocks are zeros."""
    k = np.arange(count, dtype=np.int64)
    n = (7919 * k + 31 * (k * k % 65536) + 104729 * seed) % 8191
    x = (2 * n - 8190) / 8192.0 * (1 + (k // 64 * 37 % 19)) / 32.0
    return np.where(k // 64 % 23 == 11, 0.0, x).astype(np.float32)


def hex_floats(values):
    return " ".join(float(v).hex() for v in values)


def main():
    out = pathlib.Path(__file__).with_name("block_formats.txt")
    with out.open("w") as f:
        f.write("# SPDX-License-Identifier: MIT\n")
        f.write(f"# Written by block_formats.py with torch {torch.__version__.split('+')[0]}, bitsandbytes {bitsandbytes.__version__} and "
                f"gguf {gguf.__version__ if hasattr(gguf, '__version__') else '0.19.0'}, on a CPU: of nf4 count, seed, offset, the number\n"
                "# of nested scales and these, codes, codes of the scales, and every 61st decoded number; of q8_0 count, seed and bytes.\n")
        for count, first_seed in ((64, 1), (64 * 20, 2), (64 * 300, 3)):
            for seed in range(first_seed, first_seed + 100):
                x = torch.from_numpy(numbers(count, seed))
                exact = np.float32(x.view(-1, 64).abs().amax(1).double().sum().item() / (count // 64))
                codes, state = quantize_4bit(x, blocksize=64, compress_statistics=True, quant_type="nf4")
                if np.float32(state.offset.item()) == exact:
                    break
            decoded = dequantize_4bit(codes, state)
            f.write(f"nf4 {count} {seed} {hex_floats([state.offset.item()])} {state.state2.absmax.numel()} "
                    f"{hex_floats(state.state2.absmax.tolist())} {codes.flatten().numpy().tobytes().hex()} "
                    f"{state.absmax.numpy().tobytes().hex()} {hex_floats(decoded.flatten()[::EACH].tolist())}\n")
        x = numbers(32 * 40, 5)
        f.write(f"q8_0 {len(x)} 5 {gguf.quants.quantize(x, gguf.GGMLQuantizationType.Q8_0).tobytes().hex()}\n")


main()

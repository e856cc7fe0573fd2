#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes attention.txt: what PyTorch's flex_attention and scaled_dot_product_attention give in double, and the gradients
of the sum of o d_o: a line for o, dq, dk and dv of each case, in the order (batch, time, heads, head_size).

    python3 tests/golden/attention.py         # needs PyPI's torch; the numbers committed are those of 2.15

On CPUs flex_attention has no backward pass: its gradients are autograd's of the same functions over a matrix of all
scores, whose o has to be flex_attention's. Element i of tensor t is ((7919 i + 131 t) mod 101) / 50 - 1;
tests/autodiff/attention_golden.cpp makes the same.
"""
import pathlib

import torch
import torch.nn.functional as F
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

BATCH, QUERIES, KEYS, HEADS, GROUPS, SIZE = 2, 7, 9, 4, 2, 5
SLOPES = torch.tensor([0.5, 0.25, 0.125, 0.0625], dtype=torch.float64)
LENGTHS = torch.tensor([0, 4])
DOCUMENTS = torch.tensor([[0, 0, 1, 1, 1, 2, 2, 2, 2], [0, 1, 1, 1, 1, 1, 1, 3, 3]])


def tensor(number, time, heads):
    count = BATCH * time * heads * SIZE
    i = torch.arange(count)
    values = ((7919 * i + 131 * number) % 101).double() / 50 - 1
    return values.reshape(BATCH, time, heads, SIZE).requires_grad_()


def flex(q, k, v, score_mod, mask_mod):
    block_mask = create_block_mask(mask_mod, BATCH, HEADS, QUERIES, KEYS, device="cpu")
    detached = (x.detach() for x in (q, k, v))
    want = flex_attention(*detached, score_mod=score_mod, block_mask=block_mask, enable_gqa=True)
    b, h, i, j = torch.meshgrid(*(torch.arange(n) for n in (BATCH, HEADS, QUERIES, KEYS)), indexing="ij")
    k, v = (x.repeat_interleave(HEADS // GROUPS, 1) for x in (k, v))
    scores = q @ k.transpose(2, 3) / SIZE**0.5
    if score_mod is not None:
        scores = score_mod(scores, b, h, i, j)
    seen = mask_mod(b, h, i, j)
    some = seen.any(-1, keepdim=True)
    weights = torch.where(some, scores.masked_fill(~seen & some, -torch.inf).softmax(-1), 0)
    o = weights @ v
    assert torch.allclose(o, want, rtol=1e-6, atol=1e-6), (o - want).abs().max()
    return o


CASES = {
    "cross": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True),
    "alibi": lambda q, k, v: flex(q, k, v, lambda s, b, h, i, j: s + SLOPES[h] * (j - i), lambda b, h, i, j: j <= i),
    "soft_cap": lambda q, k, v: flex(q, k, v, lambda s, b, h, i, j: 0.5 * torch.tanh(s / 0.5), lambda b, h, i, j: (i - j).abs() < 3),
    "key_lengths": lambda q, k, v: flex(q, k, v, None, lambda b, h, i, j: j < LENGTHS[b]),
    "key_padding": lambda q, k, v: F.scaled_dot_product_attention(
        q, k, v, attn_mask=(torch.arange(KEYS) < LENGTHS[:, None])[:, None, None, :], enable_gqa=True),
    "documents": lambda q, k, v: flex(q, k, v, None, lambda b, h, i, j: DOCUMENTS[b, i] == DOCUMENTS[b, j]),
    "prefix_lm": lambda q, k, v: flex(q, k, v, None, lambda b, h, i, j: (j < LENGTHS[b]) | (j <= i)),
}

lines = [f"# PyTorch {torch.__version__.split('+')[0]}"]
for name, attend in CASES.items():
    q, k, v, d_o = tensor(0, QUERIES, HEADS), tensor(1, KEYS, GROUPS), tensor(2, KEYS, GROUPS), tensor(3, QUERIES, HEADS)
    o = attend(*(x.transpose(1, 2) for x in (q, k, v))).transpose(1, 2)
    (o * d_o.detach()).sum().backward()
    for part, x in {"o": o, "dq": q.grad, "dk": k.grad, "dv": v.grad}.items():
        lines.append(" ".join([name, part, *(f"{value:.17g}" for value in x.detach().flatten().tolist())]))
(pathlib.Path(__file__).parent / "attention.txt").write_text("\n".join(lines) + "\n")

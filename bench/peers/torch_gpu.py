#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""PyTorch on the same GPU: products, attention by its backends, and the training of train_gpt's GPT, eager and compiled.

    torch_gpu.py [--json FILE] [--seconds N] [--stage NAME,...] [--thin] [--dry]

Rows are as bench_cuda writes them, and the file is whole after each. What does not fit into the seconds is left out and
named. --thin: the most telling shapes, as bench_cuda --thin has them. --dry needs no GPU and no PyTorch: it shows what
would be run.
"""
import argparse
import itertools
import json
import os
import sys
import time

# (rows, columns, depth), as bench/cuda/matmul.cu has them: a linear layer's forward product.
PRODUCTS = [(n, n, n) for n in (1024, 2048, 4096, 8192)] + [
    (8192, 2304, 768), (8192, 768, 768), (8192, 3072, 768), (8192, 768, 3072), (8192, 50304, 768), (8192, 50257, 768),
    (64, 4096, 4096), (4096, 4096, 512), (4096, 4096, 4095)]
TF32_PRODUCTS = [(2048, 2048, 2048), (4096, 4096, 4096), (8192, 2304, 768)]
# (head size, length, causal): 16,384 tokens of 2,048 channels each, as bench/cuda/attention.cu has them.
ATTENTIONS = [(d, t, c) for d in (64, 128, 96, 256) for c in (True, False) for t in (1024, 4096, 16384)]
ATTENTIONS += [(d, t, c) for d in (64, 128) for c in (True, False) for t in (2048, 8192)]
# (channels, size, outputs, taps, stride) of 64 images, as bench/cuda/own_models.cu has them: layers of ResNets.
CONVOLUTIONS = [(64, 56, 64, 3, 1), (128, 28, 128, 3, 1), (256, 14, 512, 1, 2), (512, 7, 512, 3, 1)]
# Packed sequences, causal, and their head sizes.
PACKED, PACKED_HEADS = (4096, 1024, 2048, 512, 3072, 256, 1536, 3840), (64, 128)
# GPT-2 124M, as bench/cuda/step.cu has it.
GPT = {"layers": 12, "heads": 12, "width": 768, "context": 1024, "batch": 8, "vocabulary": 50304}


def measure(torch, call, seconds=0.1):
    """The median of many calls, each between two events, after a warm-up."""
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    samples, spent = [], 0.0
    while len(samples) < 10 or (spent < seconds and len(samples) < 200):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(5):
            call()
        end.record()
        end.synchronize()
        samples.append(begin.elapsed_time(end) / 5000)
        spent += 5 * samples[-1]
    return sorted(samples)[len(samples) // 2]


def thin():
    """Only the most informative shapes."""
    global PRODUCTS, TF32_PRODUCTS, ATTENTIONS
    PRODUCTS = [(4096, 4096, 4096), (8192, 8192, 8192), (8192, 2304, 768), (8192, 50257, 768)]
    TF32_PRODUCTS = [(4096, 4096, 4096)]
    ATTENTIONS = [(d, t, c) for d in (64, 128) for t, c in ((1024, True), (16384, True), (16384, False))]


def products(torch, add):
    for m, n, k in PRODUCTS:
        x = torch.randn(m, k, device="cuda", dtype=torch.bfloat16)
        w = torch.randn(n, k, device="cuda", dtype=torch.bfloat16)
        seconds = measure(torch, lambda: torch.nn.functional.linear(x, w))
        add("matmul", f"{m}x{n}x{k} nt", "bf16", "torch", seconds, 2 * m * n * k / seconds / 1e12, "TFLOP/s")
    torch.backends.cuda.matmul.allow_tf32 = True
    for m, n, k in TF32_PRODUCTS:
        x, w = torch.randn(m, k, device="cuda"), torch.randn(n, k, device="cuda")
        seconds = measure(torch, lambda: torch.nn.functional.linear(x, w))
        add("matmul", f"{m}x{n}x{k} nt", "tf32", "torch", seconds, 2 * m * n * k / seconds / 1e12, "TFLOP/s")
    torch.backends.cuda.matmul.allow_tf32 = False


def attention(torch, add):
    from torch.nn.attention import SDPBackend, sdpa_kernel

    for d, t, causal in ATTENTIONS:
        batch, heads = 16384 // t, 2048 // d
        shape = f"{batch} x {t}, {heads} heads of {d}, " + ("causal" if causal else "full")
        q, k, v = (torch.randn(batch, heads, t, d, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
        flops = 4 * batch * heads * t * t * d / (2 if causal else 1)
        for name, backend in (("torch cudnn", SDPBackend.CUDNN_ATTENTION), ("torch flash", SDPBackend.FLASH_ATTENTION)):
            try:
                with sdpa_kernel(backend):
                    forward = lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
                    seconds = measure(torch, forward)
                    add("attention forward", shape, "bf16", name, seconds, flops / seconds / 1e12, "TFLOP/s")
                    out = forward()
                    grad = torch.randn_like(out)
                    seconds = measure(torch, lambda: torch.autograd.grad(out, (q, k, v), grad, retain_graph=True))
                    add("attention backward", shape, "bf16", name, seconds, 2.5 * flops / seconds / 1e12, "TFLOP/s")
            except RuntimeError as error:
                print(f"{name}, {shape}: {str(error).splitlines()[0]}")


def packed_attention(torch, add):
    """Sequences of various lengths as a nested tensor, by the flash backend."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    offsets = torch.tensor([0, *itertools.accumulate(PACKED)], device="cuda")
    for d in PACKED_HEADS:
        heads = 2048 // d
        shape = f"{len(PACKED)} packed of {min(PACKED)} to {max(PACKED)}, {heads} heads of {d}, causal"
        values = [torch.randn(sum(PACKED), heads, d, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3)]
        q, k, v = (torch.nested.nested_tensor_from_jagged(x, offsets, min_seqlen=min(PACKED), max_seqlen=max(PACKED)).transpose(1, 2) for x in values)
        flops = 2 * heads * d * sum(t * t for t in PACKED)
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            forward = lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).values()
            seconds = measure(torch, forward)
            add("attention forward", shape, "bf16", "torch flash", seconds, flops / seconds / 1e12, "TFLOP/s")
            out = forward()
            grad = torch.randn_like(out)
            seconds = measure(torch, lambda: torch.autograd.grad(out, values, grad, retain_graph=True))
            add("attention backward", shape, "bf16", "torch flash", seconds, 2.5 * flops / seconds / 1e12, "TFLOP/s")


def own_models(torch, add):
    """Operations of models of one's own, with the shapes of bench/cuda/own_models.cu."""
    f = torch.nn.functional
    random = lambda *shape: torch.rand(*shape, device="cuda", dtype=torch.bfloat16) * 2 - 1

    def bytes_of(kernel, shape, moved, call):
        seconds = measure(torch, call)
        add(kernel, "x".join(map(str, shape)), "bf16", "torch", seconds, moved / seconds / 1e9, "GB/s")

    rows, width = 16384, 4096
    n = rows * width
    x, y = random(rows, width), random(rows, width)
    bytes_of("reduction, sum of rows", (rows, width), 2 * n, lambda: x.sum(1, dtype=torch.float32))
    bytes_of("reduction, sum of columns", (rows, width), 2 * n, lambda: x.sum(0, dtype=torch.float32))
    bytes_of("reduction, logsumexp of rows", (rows, width), 2 * n, lambda: x.logsumexp(1))
    bytes_of("reduction, cumsum of rows", (rows, width), 4 * n, lambda: x.cumsum(1))
    index = torch.tensor([i * 2654435761 % rows for i in range(rows)], device="cuda")
    bytes_of("gather, index_select", (rows, width), 4 * n, lambda: x.index_select(0, index))
    bytes_of("gather, index_add", (rows, width), 6 * n, lambda: y.index_add_(0, index, x))
    heads = x.view(16, 1024, 32, 128)
    bytes_of("copy, heads before time", heads.shape, 4 * n, lambda: heads.transpose(1, 2).contiguous())
    bytes_of("copy, matrix transposed", (rows, width), 4 * n, lambda: x.view(width, rows).t().contiguous())
    images = random(64, 64, 112, 112)
    norm = torch.nn.BatchNorm2d(64, device="cuda")
    with torch.no_grad():
        bytes_of("batch_norm, training", images.shape, 6 * images.numel(), lambda: norm(images))
        bytes_of("max_pool2d, 2x2", images.shape, 2.5 * images.numel(), lambda: f.max_pool2d(images, 2))
    for channels, size, outputs, taps, stride in CONVOLUTIONS:
        x, w, b = random(64, channels, size, size), random(outputs, channels, taps, taps), random(outputs)
        forward = lambda: f.conv2d(x, w, b, stride, taps // 2)
        dy = random(*forward().shape)
        flops = 2 * dy.numel() * channels * taps * taps
        shape = f"64x{channels}x{size}x{size}, {outputs} of {taps}x{taps}, stride {stride}"
        gradient = lambda *mask: torch.ops.aten.convolution_backward(dy, x, w, [outputs], [stride] * 2, [taps // 2] * 2, [1, 1], False, [0, 0], 1, mask)
        for kernel, call in (("conv2d forward", forward), ("conv2d input gradient", lambda: gradient(True, False, False)),
                             ("conv2d weight gradient", lambda: gradient(False, True, False))):
            seconds = measure(torch, call)
            add(kernel, shape, "bf16", "torch", seconds, flops / seconds / 1e12, "TFLOP/s")


def make_gpt(torch, narrow):
    """With `narrow` the sum of the embeddings is cast to bfloat16, so that all sums of the residual stream are."""
    nn, f = torch.nn, torch.nn.functional

    class Block(nn.Module):
        def __init__(self, width, heads):
            super().__init__()
            self.heads = heads
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            b, t, c = x.shape
            q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
            y = f.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.proj(y.transpose(1, 2).reshape(b, t, c))
            return x + self.down(f.gelu(self.up(self.norm2(x)), approximate="tanh"))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            w = GPT["width"]
            self.tokens, self.positions = nn.Embedding(GPT["vocabulary"], w), nn.Embedding(GPT["context"], w)
            self.blocks = nn.ModuleList(Block(w, GPT["heads"]) for _ in range(GPT["layers"]))
            self.norm, self.head = nn.LayerNorm(w), nn.Linear(w, GPT["vocabulary"], bias=False)
            self.head.weight = self.tokens.weight

        def forward(self, tokens, targets):
            x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
            x = x.bfloat16() if narrow else x
            for block in self.blocks:
                x = block(x)
            return f.cross_entropy(self.head(self.norm(x)).flatten(0, 1).float(), targets.flatten())

    return Model().cuda()


def training(torch, add, compiled, left, narrow):
    model = make_gpt(torch, narrow)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    tokens = torch.randint(GPT["vocabulary"], (GPT["batch"], GPT["context"]), device="cuda")
    targets = torch.randint(GPT["vocabulary"], (GPT["batch"], GPT["context"]), device="cuda")
    run = torch.compile(model) if compiled else model

    def step():
        with torch.autocast("cuda", torch.bfloat16):
            loss = run(tokens, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    for _ in range(3):
        step()
    samples = []
    while len(samples) < 20 and left() > 2:
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(3):
            step()
        torch.cuda.synchronize()
        samples.append((time.perf_counter() - began) / 3)
    if not samples:
        return
    seconds = sorted(samples)[len(samples) // 2]
    shape = "GPT {layers} x {width}, {batch} x {context} tokens, {vocabulary} classes".format(**GPT)
    add("GPT-2 step", shape, "bf16 autocast, bf16 stream" if narrow else "bf16 autocast", "torch compiled" if compiled else "torch eager", seconds,
        GPT["batch"] * GPT["context"] / seconds, "tokens/s")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json")
    parser.add_argument("--seconds", type=float, default=150)
    parser.add_argument("--stage", default="eager,products,attention,packed,own_models,compiled")
    parser.add_argument("--stream", choices=["preset", "narrow"], default="preset",
                        help="the residual stream of the training: autocast's, fp32, or bf16")
    parser.add_argument("--thin", action="store_true")
    parser.add_argument("--dry", action="store_true")
    arguments = parser.parse_args()
    wanted, narrow = arguments.stage.split(","), arguments.stream == "narrow"
    if arguments.thin:
        thin()
    if arguments.dry:
        print(f"{len(PRODUCTS) + len(TF32_PRODUCTS)} products, {len(ATTENTIONS)} attentions by two backends, {len(PACKED_HEADS)} packed, training eager and compiled")
        return 0
    began = time.monotonic()
    import torch

    left = lambda: arguments.seconds - (time.monotonic() - began)
    rows, left_out = [], []

    def write():
        if not arguments.json:
            return
        with open(arguments.json + ".part", "w") as file:
            json.dump({"program": "torch_gpu", "torch": torch.__version__, "gpu": torch.cuda.get_device_name(), "left_out": left_out, "rows": rows}, file, indent=1)
        os.replace(arguments.json + ".part", arguments.json)

    def add(kernel, shape, policy, engine, seconds, rate, unit):
        rows.append({"kernel": kernel, "shape": shape, "policy": policy, "engine": engine, "seconds": seconds, "rate": rate, "unit": unit})
        print(f"{kernel:20} {shape:56} {engine:16} {seconds * 1e6:12.1f} us {rate:12.1f} {unit}", flush=True)
        write()

    torch.backends.cuda.matmul.allow_tf32 = False
    if not torch.cuda.is_available():
        print("torch_gpu: no usable GPU: torch.cuda.is_available() is False")
        return 3
    stages = [("eager", 8, lambda: training(torch, add, False, left, narrow)), ("products", 8, lambda: products(torch, add)),
              ("attention", 10 if arguments.thin else 35, lambda: attention(torch, add)), ("packed", 5, lambda: packed_attention(torch, add)),
              ("own_models", 5, lambda: own_models(torch, add)),
              ("compiled", 50, lambda: training(torch, add, True, left, narrow))]
    failed = False
    for name, least, stage in stages:
        if name not in wanted:
            continue
        if left() < least:
            left_out.append(name)
            continue
        try:
            stage()
        except Exception as error:  # one stage must not cost the others
            left_out.append(f"{name}: {str(error).splitlines()[0] if str(error) else type(error).__name__}")
            failed = True
    write()
    if left_out:
        print("torch_gpu: left out:", ", ".join(left_out))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())

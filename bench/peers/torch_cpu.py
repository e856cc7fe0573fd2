#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""PyTorch on the CPU, for comparison in bench_*: reads one request per line, and answers each with one line of JSON.

{"do": "version"}                                   -> {"version": ...}
{"do": "prepare", "op": "matmul", ...shape...}      -> {"id": 0}      makes the operands; ops are the functions below
{"do": "run", "id": 0, "times": 3}                  -> {"seconds": ...}  of all the times together
{"do": "clear"}                                     -> {}
"""
import gc
import itertools
import json
import os
import sys
import time

threads = int(sys.argv[1]) if len(sys.argv) > 1 else 2
os.environ.setdefault("OMP_NUM_THREADS", str(threads))
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # no additional processes while other libraries are timed
import torch  # noqa: E402

torch.set_num_threads(threads)

import torch_gpt  # noqa: E402

OPS = dict(torch_gpt.OPS)


def op(function):
    """Registers a function that makes operands for a request and returns the function to be timed."""
    OPS[function.__name__] = function
    return function


def dtype_of(question):
    return getattr(torch, question.get("dtype", "bfloat16"))


def sample(*shape, dtype):
    return torch.randn(*shape).to(dtype)


@op
def matmul(q):
    """c (m, n) = a (m, k) times b (k, n), row-major; ta, tb: that operand is stored transposed."""
    dtype, m, n, k = dtype_of(q), q["m"], q["n"], q["k"]
    a = sample(k, m, dtype=dtype).t() if q.get("ta") else sample(m, k, dtype=dtype)
    b = sample(n, k, dtype=dtype).t() if q.get("tb") else sample(k, n, dtype=dtype)
    c = torch.empty(m, n, dtype=dtype)
    return lambda: torch.mm(a, b, out=c)


@op
def attention(q):
    """scaled_dot_product_attention over slices of one (batch, length, heads + 2 groups, size) buffer; "backward" is alone."""
    dtype, batch, length, heads, groups, size = dtype_of(q), q["batch"], q["length"], q["heads"], q["groups"], q["size"]
    buffer = sample(batch, length, heads + 2 * groups, size, dtype=dtype)
    x = [t.transpose(1, 2).detach().requires_grad_() for t in buffer.split([heads, groups, groups], dim=2)]
    d_o = sample(batch, length, heads, size, dtype=dtype).transpose(1, 2)
    lengths = q.get("sequences") or [length]

    def run():
        parts = [x] if len(lengths) == 1 else zip(*(t.split(lengths, dim=2) for t in x))
        return [torch.nn.functional.scaled_dot_product_attention(*part, is_causal=q["causal"], enable_gqa=heads != groups)
                for part in parts]

    if q["pass"] == "forward":
        return run
    o, d = run(), d_o.split(lengths, dim=2)
    return lambda: torch.autograd.grad(o, x, d, retain_graph=True)


def attention_function(q):
    """The score_mod of a request: causal, and ALiBi, a sliding window or a soft cap."""
    heads, window = q["heads"], q["window"]

    def function(score, batch, head, query, key):
        if q["function"] == "alibi":
            score = score + torch.exp2((head + 1) * (-8 / heads)) * (key - query)
        if q["function"] == "cap":
            score = 30 * torch.tanh(score / 30)
        seen = query >= key
        if q["function"] == "window":
            seen = seen & (query - key < window)
        return torch.where(seen, score, -float("inf"))

    return function


def heads_of(q):
    return [sample(q["batch"], q["length"], q["heads"], q["size"], dtype=dtype_of(q)).transpose(1, 2) for _ in range(3)]


@op
def flex_attention(q):
    """flex_attention, compiled, with a mask of blocks where keys are hidden; forward alone, as it is on CPUs."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention as flex
    x, function, length, window = heads_of(q), attention_function(q), q["length"], q["window"]

    def seen(batch, head, query, key):
        return (query >= key) & (query - key < window) if q["function"] == "window" else query >= key

    blocks = create_block_mask(seen, None, None, length, length, device="cpu")
    compiled = torch.compile(flex)

    def run():
        with torch.no_grad():
            return compiled(*x, score_mod=function, block_mask=blocks)

    return run


@op
def masked_attention(q):
    """scaled_dot_product_attention with a stored bias, which is also its mask; a cap of scores is computed in steps."""
    x, function, length = heads_of(q), attention_function(q), q["length"]
    place = torch.arange(length)
    bias = function(torch.zeros(q["heads"], length, length), 0, torch.arange(q["heads"])[:, None, None], place[None, :, None],
                    place[None, None, :]).to(dtype_of(q))[None]

    def attend():
        if q["function"] != "cap":
            return torch.nn.functional.scaled_dot_product_attention(*x, attn_mask=bias)
        scores = 30 * torch.tanh(x[0] @ x[1].transpose(-1, -2) * (q["size"] ** -0.5 / 30)) + bias
        return torch.softmax(scores, -1) @ x[2]

    if q["pass"] == "forward":
        def run():
            with torch.no_grad():
                return attend()
        return run
    for t in x:
        t.requires_grad_()
    o = attend()
    d_o = torch.randn(o.shape).to(o.dtype)
    return lambda: torch.autograd.grad(o, x, d_o, retain_graph=True)


@op
def conv2d(q):
    """torch.nn.functional.conv2d of square images and windows; "input" and "weight": that gradient alone; channels_last: of
    images and weights whose channels are last in memory."""
    dtype, n, size = dtype_of(q), q["images"], q["size"]
    layout = torch.channels_last if q.get("channels_last") else torch.contiguous_format
    x = sample(n, q["channels"], size, size, dtype=dtype).contiguous(memory_format=layout)
    w = sample(q["outputs"], q["channels"] // q["groups"], q["window"], q["window"], dtype=dtype).contiguous(memory_format=layout)
    how = {"stride": q["stride"], "padding": q["padding"], "groups": q["groups"]}

    def run():
        with torch.no_grad():
            return torch.nn.functional.conv2d(x, w, **how)

    if q["pass"] == "forward":
        return run
    wanted = (x if q["pass"] == "input" else w).requires_grad_()
    y = torch.nn.functional.conv2d(x, w, **how)
    dy = torch.randn(y.shape).to(dtype).contiguous(memory_format=layout)
    return lambda: torch.autograd.grad(y, wanted, dy, retain_graph=True)


def in_turn(q, make):
    """The functions that make() returns for as many sets of operands as the request has copies, called one after the other."""
    all_of = [make() for _ in range(q.get("copies", 1))]
    turn = itertools.cycle(all_of)
    return lambda: next(turn)()


def gradient_of(y, inputs, dy):
    return lambda: torch.autograd.grad(y, inputs, dy, retain_graph=True)


def forward_or_backward(q, make):
    """make() -> inputs, function of them, inputs whose gradients are wanted; forward alone runs without a graph."""
    def one():
        inputs, function, wanted = make()
        if q.get("pass", "forward") == "forward":
            return lambda: function(*inputs)
        if q["pass"] == "both":
            wanted = [t.requires_grad_() for t in wanted]
            return lambda: torch.autograd.grad(function(*inputs), wanted)
        wanted = [t.requires_grad_() for t in wanted]
        y = function(*inputs)
        return gradient_of(y, wanted, torch.randn(y.shape).to(y.dtype) if y.dim() else torch.ones_like(y))

    def run():
        with torch.set_grad_enabled(q.get("pass", "forward") != "forward"):
            return one()
    timed = in_turn(q, run)
    if q.get("pass", "forward") != "forward":
        return timed

    def without_graph():
        with torch.no_grad():
            timed()
    return without_graph


@op
def layer_norm(q):
    def make():
        x, w, b = sample(q["rows"], q["width"], dtype=dtype_of(q)), torch.randn(q["width"]), torch.randn(q["width"])
        if dtype_of(q) == torch.float16:
            w, b = w.half(), b.half()
        return [x, w, b], lambda x, w, b: torch.nn.functional.layer_norm(x, (q["width"],), w, b), [x, w, b]
    return forward_or_backward(q, make)


@op
def rms_norm(q):
    def make():
        x, w = sample(q["rows"], q["width"], dtype=dtype_of(q)), sample(q["width"], dtype=dtype_of(q))
        return [x, w], lambda x, w: torch.nn.functional.rms_norm(x, (q["width"],), w), [x, w]
    return forward_or_backward(q, make)


@op
def softmax(q):
    def make():
        x = sample(q["rows"], q["width"], dtype=dtype_of(q))
        return [x], lambda x: torch.softmax(x, -1), [x]
    return forward_or_backward(q, make)


@op
def gelu(q):
    def make():
        x = sample(q["rows"] * q["width"], dtype=dtype_of(q))
        return [x], lambda x: torch.nn.functional.gelu(x, approximate="tanh"), [x]
    return forward_or_backward(q, make)


@op
def add(q):
    def make():
        x, y, z = (sample(q["rows"] * q["width"], dtype=dtype_of(q)) for _ in range(3))
        return [x, y], lambda x, y: torch.add(x, y, out=z), []
    return forward_or_backward(q, make)


@op
def cross_entropy(q):
    def make():
        x, t = sample(q["rows"], q["width"], dtype=dtype_of(q)), torch.randint(0, q["width"], (q["rows"],))
        return [x], lambda x: torch.nn.functional.cross_entropy(x, t), [x]
    return forward_or_backward(q, make)


@op
def linear_cross_entropy(q):
    def make():
        x, w = sample(q["rows"], q["width"], dtype=dtype_of(q)), sample(q["classes"], q["width"], dtype=dtype_of(q))
        t = torch.randint(0, q["classes"], (q["rows"],))
        return [x, w], lambda x, w: torch.nn.functional.cross_entropy(torch.nn.functional.linear(x, w), t), [x, w]
    return forward_or_backward(q, make)


@op
def column_sum(q):
    def make():
        x = sample(q["rows"], q["width"], dtype=dtype_of(q))
        return [x], lambda x: x.sum(0, dtype=torch.float32), []
    return forward_or_backward(q, make)


@op
def reduction(q):
    function, rows, width = getattr(torch, q["name"]), q["rows"], q["width"]
    shape, along = {"last": ((rows, width), 1), "first": ((rows, width), 0), "ends": ((rows // 16, 16, width), (0, 2))}[q["axes"]]

    def make():
        return [sample(rows, width, dtype=dtype_of(q)).reshape(shape)], lambda x: function(x, along), []
    return forward_or_backward(q, make)


@op
def index_select(q):
    def make():
        x, y = (sample(q["rows"], q["width"], dtype=dtype_of(q)) for _ in range(2))
        index = torch.randint(0, q["rows"], (q["rows"],), dtype=torch.int32)
        return [x], lambda x: torch.index_select(x, 0, index, out=y), []
    return forward_or_backward(q, make)


@op
def gather(q):
    def make():
        x, y = (sample(q["rows"], q["width"], dtype=dtype_of(q)) for _ in range(2))
        index = torch.randint(0, q["width"], (q["rows"], q["width"]))
        return [x], lambda x: torch.gather(x, 1, index, out=y), []
    return forward_or_backward(q, make)


@op
def dropout(q):
    def make():
        x = sample(q["rows"] * q["width"], dtype=dtype_of(q))
        return [x], lambda x: torch.nn.functional.dropout(x, 0.1, training=True), []
    return forward_or_backward(q, make)


@op
def convert(q):
    def make():
        x, y = sample(q["count"], dtype=dtype_of(q)), torch.empty(q["count"], dtype=getattr(torch, q["to"]))
        return [x], lambda x: y.copy_(x), []
    return forward_or_backward(q, make)


def main():
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not stand between the answers
    prepared = {}
    for line in sys.stdin:
        try:
            q = json.loads(line)
            what = q["do"]
            if what == "version":
                answer = {"version": torch.__version__}
            elif what == "prepare":
                torch.manual_seed(0)
                prepared[len(prepared)] = OPS[q["op"]](q)
                answer = {"id": len(prepared) - 1}
            elif what == "run":
                work = prepared[q["id"]]
                begin = time.perf_counter()
                for _ in range(q["times"]):
                    work()
                answer = {"seconds": time.perf_counter() - begin}
            elif what == "clear":
                prepared.clear()
                gc.collect()
                answer = {}
            else:
                answer = {"error": f"unknown: {what}"}
        except Exception as e:  # the asker decides what to do about it
            answer = {"error": f"{type(e).__name__}: {e}"}
        out.write(json.dumps(answer) + "\n")
        out.flush()


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""PyTorch on the CPU, as a contender of bench_*: reads one question a line, answers each with one line of JSON.

{"do": "version"}                                   -> {"version": ...}
{"do": "prepare", "op": "matmul", ...shape...}      -> {"id": 0}      makes the operands; ops are the functions below
{"do": "run", "id": 0, "times": 3}                  -> {"seconds": ...}  of all the times together
{"do": "clear"}                                     -> {}
"""
import gc
import json
import os
import sys
import time

threads = int(sys.argv[1]) if len(sys.argv) > 1 else 2
os.environ.setdefault("OMP_NUM_THREADS", str(threads))
import torch  # noqa: E402

torch.set_num_threads(threads)

import torch_gpt  # noqa: E402

OPS = dict(torch_gpt.OPS)


def op(function):
    """Registers a function that makes operands from a question and returns what is to be timed."""
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

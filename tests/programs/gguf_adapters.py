#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Adapters in GGUF files that halftone writes, which llama.cpp adds to a model: log-probabilities within a bound of halftone's own, and far from those
of the model alone.

    gguf_adapters.py test_data_io_observe

Ends with 77 and a sentence without xllamacpp, which has llama.cpp, and NumPy (PyPI: xllamacpp==2026.10.11549).
"""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile

CASE = "gguf adapters: files for llama.cpp"
MODELS, ADAPTERS = ("llama", "llama3", "qwen2", "qwen3"), ("plain", "rslora", "patterns", "f16")
# Of the largest logit: twice what logits may be off (gguf_models.py), as the sum by which they are normalised may be off as much.
BOUND = 4e-3


def log_probabilities(base, adapter, tokens, count):
    """How many tokens were read, and log-probabilities of the one that follows, by llama.cpp, which tells none of one that ends a text."""
    import numpy
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(base)
    params.n_ctx, params.n_parallel, params.warmup, params.cpuparams.n_threads = 128, 1, False, 1
    if adapter is not None:
        added = xllamacpp.CommonAdapterLoraInfo()
        added.path, added.scale = str(adapter), 1.0
        params.lora_adapters = [added]
    server = xllamacpp.Server(params)
    for n in range(len(tokens), 0, -1):
        answer = server.handle_completions({"prompt": tokens[:n], "n_predict": 1, "logprobs": count, "cache_prompt": False})
        answer = json.loads(answer) if isinstance(answer, (str, bytes)) else answer
        told = answer["choices"][0]["logprobs"]
        if told is None:
            continue
        found = numpy.full(count, numpy.nan)
        for each in told["content"][0]["top_logprobs"]:
            found[each["id"]] = each["logprob"]
        return n, found
    raise RuntimeError("every text ends")


def compare(folder, model, adapter):
    """What is wrong with an adapter, a sentence each."""
    import numpy

    name = f"{model}-{adapter}"
    ours = json.loads((folder / f"{name}.json").read_text())
    tokens = ours["tokens"]

    count = len(ours["logits"]) // len(tokens)
    read, found = log_probabilities(folder / f"{model}-base.gguf", folder / f"{name}.gguf", tokens, count)

    def expected(key):
        logits = numpy.array(ours[key]).reshape(len(tokens), -1)[read - 1]
        return logits - logits.max() - numpy.log(numpy.exp(logits - logits.max()).sum()), abs(logits).max()

    (adapted, largest), (plain, _) = expected("logits"), expected("base")
    off, moved = abs(found - adapted).max() / largest, abs(adapted - plain).max() / largest
    if not off <= BOUND:
        yield f"log-probabilities are {off:.2e} of the largest logit off; expected {BOUND}"
    if not moved > 25 * BOUND:
        yield f"the adapter moves log-probabilities by {moved:.2e} only"
    print(f"{name}: {off:.2e} off, the adapter moves {moved:.2e}")


def main():
    if any(importlib.util.find_spec(name) is None for name in ("xllamacpp", "numpy")):
        print("not checked: there is no package xllamacpp, or no NumPy (PyPI: xllamacpp==2026.10.11549)")
        return 77
    wrong = 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(os.environ.get("HALFTONE_GGUF") or temporary)
        if sys.argv[1] != "-":  # the files are there already
            done = subprocess.run([sys.argv[1], "--no-skip", f"--test-case={CASE}"], env={**os.environ, "HALFTONE_GGUF": str(folder)})
            wrong += done.returncode != 0
        for model in MODELS:
            for adapter in ADAPTERS:
                for sentence in compare(folder, model, adapter):
                    print(f"{model}-{adapter}: {sentence}")
                    wrong += 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

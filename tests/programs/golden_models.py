# SPDX-License-Identifier: MIT
"""The models that tests/golden stores as folders of transformers, and what transformers computed with them."""
import json
import math
import pathlib
import re
import struct

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "golden"
LLAMAS = GOLDEN / "llama_folders"


def tensors(folder):
    """The types, shapes and bytes of a folder's tensors, by name."""
    found = {}
    for file in pathlib.Path(folder).glob("*.safetensors"):
        data = file.read_bytes()
        size = struct.unpack_from("<Q", data)[0]
        for name, t in json.loads(data[8:8 + size]).items():
            if name != "__metadata__":
                begin, end = t["data_offsets"]
                found[name] = t["dtype"], t["shape"], data[8 + size + begin:8 + size + end]
    return found


def golden_tokens(parameters):
    """The 2 x 13 tokens of a model with so many parameters in golden/llama.txt: its generator's numbers behind those of the weights."""
    state, ids = 12345, []
    for i in range(parameters + 26):
        state = (state * 1664525 + 1013904223) % 2**32
        if i >= parameters:
            ids.append((state >> 16) % 32)
    return ids


def golden_loss(name, targets):
    """The mean loss of these targets by the logits that transformers computed of a model's tokens: golden/llama.txt."""
    text = (GOLDEN / "llama.txt").read_text()
    logits = [float(x) for x in re.search(rf"^case {name} .*\nlogits (.*)$", text, re.M).group(1).split()]
    rows = [logits[i:i + 32] for i in range(0, len(logits), 32)]
    return sum(math.log(sum(map(math.exp, row))) - row[target] for row, target in zip(rows, targets, strict=True)) / len(rows)

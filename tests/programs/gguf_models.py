#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""GGUF files that halftone writes, computed by llama.cpp: logits within each type's bound of halftone's own, the same most likely tokens, the
same ids of texts, and metadata that the gguf package reads whole.

    gguf_models.py test_data_io_observe

Ends with 77 and a sentence without cyllama, which has llama.cpp, and NumPy (PyPI: cyllama==0.2.18); without gguf (PyPI) it says that its reader
is not checked.
"""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile

CASE = "gguf: files for llama.cpp"
# Of the largest logit. llama.cpp keeps keys and values in F16, and rounds the activations of BF16 and of blocks.
BOUNDS = {"F32": 2e-3, "F16": 2e-3, "BF16": 0.01, "Q8_0": 0.03, "Q4_0": 0.03, "bare": 2e-3}
FILES = 4 * len(BOUNDS)


def model_of(path, rows):
    from cyllama.llama import llama_cpp

    class Model(llama_cpp.LlamaModel):
        n_vocab = rows  # which cyllama 0.2.18 asks for and does not have

    llama_cpp.disable_logging()
    model = Model(path_model=str(path), params=llama_cpp.LlamaModelParams())
    return model, llama_cpp.LlamaContext(model=model, params=llama_cpp.LlamaContextParams())


def logits_of(context, tokens):
    import numpy
    from cyllama.llama import llama_cpp

    context.kv_cache_clear()
    context.decode(llama_cpp.llama_batch_get_one(tokens, 0))
    return numpy.array(context.get_logits_ith(len(tokens) - 1))


def compare(path, ours):
    """What is wrong with a file, a sentence each."""
    import numpy

    kind, tokens = path.stem.split("-")[1], ours["tokens"]
    expected = numpy.array(ours["logits"]).reshape(len(tokens), -1)
    model, context = model_of(path, expected.shape[1])
    largest = abs(expected).max()
    off = max(abs(logits_of(context, tokens[:n]) - expected[n - 1]).max() / largest for n in range(1, len(tokens) + 1))
    if not off <= BOUNDS[kind]:
        yield f"logits are {off:.2e} of the largest off; expected {BOUNDS[kind]}"
    follow, equal = list(tokens), 0
    for token in ours["greedy"]:
        found = logits_of(context, follow)
        # Two logits nearer to each other than llama.cpp rounds them are one: the text goes on with halftone's.
        if found[token] < found.max() - 2 * BOUNDS[kind] * largest:
            yield f"token {len(follow)} is {found.argmax()}; expected {token}"
        equal += int(found.argmax()) == token
        follow.append(token)
    if equal < len(ours["greedy"]) - 3:
        yield f"only {equal} of {len(ours['greedy'])} tokens are equal"
    print(f"{path.name}: logits {off:.2e} off, {equal} of {len(ours['greedy'])} tokens equal")
    if kind == "bare":
        return
    vocabulary = model.get_vocab()
    for key, is_special in (("ids", False), ("special_ids", True)):
        for text, ids in zip(ours["texts"], ours[key]):
            # llama.cpp takes no empty text.
            found = list(vocabulary.tokenize(text, add_special=True, parse_special=is_special)) if text else ids
            if found != ids:
                yield f"{key} of {text!r} are {found}; expected {ids}"
    for end in ours["ends"]:
        if not vocabulary.is_eog(end):
            yield f"token {end} does not end a text"


def read(path):
    """What the gguf package's reader makes of a file."""
    import gguf

    reader = gguf.GGUFReader(path)
    keys = {key: field.contents() for key, field in reader.fields.items() if not key.startswith("GGUF.")}
    if len(keys) != int(reader.fields["GGUF.kv_count"].contents()):
        yield "the gguf package reads other keys than there are"
    tensors = {t.name: gguf.quants.dequantize(t.data, t.tensor_type) for t in reader.tensors}
    if len(tensors) != int(reader.fields["GGUF.tensor_count"].contents()):
        yield "the gguf package reads other tensors than there are"
    architecture = keys["general.architecture"]
    for key in ("general.file_type", "general.quantization_version", *(f"{architecture}.{rest}" for rest in (
            "context_length", "embedding_length", "block_count", "feed_forward_length", "attention.head_count", "attention.head_count_kv",
            "attention.layer_norm_rms_epsilon", "rope.freq_base", "rope.dimension_count", "vocab_size"))):
        if key not in keys:
            yield f"there is no {key}"


def main():
    if any(importlib.util.find_spec(name) is None for name in ("cyllama", "numpy")):
        print("not checked: there is no package cyllama, or no NumPy (PyPI: cyllama==0.2.18)")
        return 77
    has_gguf = importlib.util.find_spec("gguf") is not None
    if not has_gguf:
        print("the gguf package's reader is not checked: there is none (PyPI: gguf)")
    wrong = 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(os.environ.get("HALFTONE_GGUF") or temporary)
        if sys.argv[1] != "-":  # the files are there already
            done = subprocess.run([sys.argv[1], "--no-skip", f"--test-case={CASE}"], env={**os.environ, "HALFTONE_GGUF": str(folder)})
            wrong += done.returncode != 0
        files = sorted(folder.glob("*.gguf"))
        if len(files) != FILES:
            print(f"{len(files)} files; expected {FILES}")
            wrong += 1
        for path in files:
            ours = json.loads(path.with_suffix(".json").read_text())
            for sentence in [*compare(path, ours), *(read(path) if has_gguf else ())]:
                print(f"{path.name}: {sentence}")
                wrong += 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

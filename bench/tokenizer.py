#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""How fast halftone's program `tokenize` turns texts into ids, beside tokenizers (PyPI) on one thread: the same tokenizer, the same texts, in
turn, medians.

    bench/tokenizer.py build/examples/tokenize --texts FOLDER [--rounds 9] [--json FILE]

Both make a file of ids; halftone's time is that of ht::tokenize, tokenizers' that of encode_batch_fast over the same texts and of writing the
ids by numpy where there is one. Reading the tokenizer is not counted, of either. Texts are lines joined to parts of about 4,000 characters. The tokenizers are
trained on these texts by tests/golden/tokenizer.py, as Llama 3's, Qwen's, GPT-2's and BERT's are made.
"""
import argparse
import array
import importlib.util
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
import tokenizers  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[1]


def machine():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return "unknown"


def parts_of(text, size=4000):
    parts, part = [], []
    length = 0
    for line in text.split("\n"):
        line = line.replace("\r", " ")
        part.append(line)
        length += len(line) + 1
        if length >= size:
            parts.append(" ".join(part))
            part, length = [], 0
    if part:
        parts.append(" ".join(part))
    return [p for p in parts if p]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--texts", required=True, help="a folder of texts")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--workers", type=int, nargs="*", default=[0])
    parser.add_argument("--json")
    parser.add_argument("--names", nargs="*", default=["gpt2", "llama3", "qwen2", "bert"])
    o = parser.parse_args()
    spec = importlib.util.spec_from_file_location("golden_tokenizer", ROOT / "tests/golden/tokenizer.py")
    golden = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(golden)
    texts = []
    for path in sorted(pathlib.Path(o.texts).rglob("*")):
        if path.is_file():
            texts += parts_of(path.read_text(encoding="utf-8", errors="replace"))
    size = sum(len(t.encode()) for t in texts)
    if size == 0:
        sys.exit("bench/tokenizer.py: there are no texts")
    rows = []
    with tempfile.TemporaryDirectory() as work:
        lines = pathlib.Path(work) / "lines.txt"
        lines.write_text("\n".join(texts) + "\n", encoding="utf-8")
        for name in o.names:
            file = pathlib.Path(work) / f"{name}.json"
            made = golden.make(name, texts, 20000 if name in golden.BERT else golden.BYTE_LEVEL[name][2])
            made.save(str(file))
            out = pathlib.Path(work) / "out.bin"
            ours = {w: [] for w in o.workers}
            theirs = []
            for _ in range(o.rounds):
                for w in o.workers:
                    told = subprocess.run([o.program, "--tokenizer", str(file), "--out", str(out), "--lines", "--allow-special", "--workers",
                                           str(w), str(lines)], capture_output=True, text=True, check=True).stdout
                    ours[w].append(float(re.search(r"in ([0-9.e-]+) s", told).group(1)))
                began = time.perf_counter()
                count = 0
                with open(out, "wb") as ids:
                    for e in made.encode_batch_fast(texts, add_special_tokens=False):
                        ids.write(array.array("H", e.ids).tobytes())
                        count += len(e.ids)
                theirs.append(time.perf_counter() - began)
            for w in o.workers:
                mine, other = statistics.median(ours[w]), statistics.median(theirs)
                tokens = int(re.search(r": ([0-9]+) tokens", told).group(1))
                rows.append({"tokenizer": name, "ids": made.get_vocab_size(), "workers": w, "tokens": tokens, "tokens_of_tokenizers": count,
                             "megabytes_a_second": size / mine / 1e6, "of_tokenizers": size / other / 1e6, "times": other / mine})
                print(f"{name:8} {w} workers  {size / mine / 1e6:7.1f} MB/s  tokenizers {size / other / 1e6:6.2f} MB/s  {other / mine:5.1f} times"
                      f"  {'the same number of tokens' if tokens == count else 'OTHER TOKENS'}", flush=True)
    if o.json:
        commit = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "HEAD"], capture_output=True, text=True).stdout.strip()
        pathlib.Path(o.json).write_text(json.dumps({"commit": commit, "machine": machine(), "processors": os.cpu_count(), "tokenizers": tokenizers.__version__,
                                                    "megabytes": size / 1e6, "texts": len(texts), "rounds": o.rounds, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()

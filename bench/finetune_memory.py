#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""How much memory a step of tuning holds at most: bench_finetune's cases, each in a process of its own, and the same steps by transformers and PEFT, without
what Python and its packages hold before the model is made.

    finetune_memory.py build/bench/bench_finetune [--tiny] [--json FILE]

halftone's processes also hold the batch and the program itself, PEFT's the model alone; parts that are computed by bench_finetune once are
the same step. Of both the highest resident size is told (VmHWM), of PEFT's since its model was ready.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys

SHAPE = {"rank": 16, "layers": 24, "heads": 14, "kv_heads": 2, "width": 896, "intermediate": 4864, "vocabulary": 151936, "context": 512,
         "batch": 4, "length": 512}
TINY = {"rank": 4, "layers": 2, "heads": 4, "kv_heads": 2, "width": 64, "intermediate": 192, "vocabulary": 256, "context": 32, "batch": 2,
        "length": 32}
PEER = """
import json, pathlib, sys
sys.path.insert(0, sys.argv[1])
import torch, torch_gpt, transformers, peft
def value(key):
    return next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith(key))
torch.set_num_threads(2)
before = value("VmRSS")
step = torch_gpt.tune_qwen2(json.loads(sys.argv[2]))
pathlib.Path("/proc/self/clear_refs").write_text("5")
step(), step()
print(json.dumps({"imports": before, "peak": value("VmHWM") - before}))
"""


def peak_of_bench(program, method, tiny):
    command = [program, "--filter", method, "--rounds", "1", *(["--tiny"] if tiny else [])]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as child:
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = status
    if status != 0:
        sys.exit(f"{' '.join(command)} failed")
    return usage.ru_maxrss << 10


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--json")
    o = parser.parse_args()
    peers, shape = pathlib.Path(__file__).parent / "peers", TINY if o.tiny else SHAPE
    rows = []
    for method, peer in (("lora", "lora"), ("lora_nf4", None), ("full", "full")):
        row = {"method": method, "halftone": peak_of_bench(o.program, f"{method} Qwen2", o.tiny)}
        if peer is not None:
            asked = json.dumps({"method": peer, **shape})
            told = subprocess.run([sys.executable, "-c", PEER, str(peers), asked], stdout=subprocess.PIPE, check=True, text=True).stdout
            row |= json.loads(told.splitlines()[-1])
        rows.append(row)
        mebibytes = {key: round(value / (1 << 20)) for key, value in row.items() if key != "method"}
        ratio = f", {row['halftone'] / row['peak']:.2f} of PEFT's" if "peak" in row else ""
        print(f"{method}: {mebibytes}{ratio}", flush=True)
    if o.json:
        pathlib.Path(o.json).write_text(json.dumps({"shape": shape, "bytes": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Stands for bench_cuda, test_cuda, train_gpt, nvidia-smi, ncu and compute-sanitizer in suite_rehearsal.py, by the name that
it is called by. What it should do lies in the folder HALFTONE_REHEARSAL: a file `plan` with lines "WORDS: ACTION", of which
the first whose words all stand in the command counts.

    fails         prints one line and ends with 1; from then on there is no device
    crashes       by a signal
    hangs         for a minute, and from then on the device answers nothing
    stalls        for a minute; the device answers other programs
    wrong         the smoke test has a wrong kernel
    knows none    of these tests
"""
import json
import os
import pathlib
import signal
import sys
import time

state = pathlib.Path(os.environ["HALFTONE_REHEARSAL"])
name = pathlib.Path(sys.argv[0]).name
words = [name, *sys.argv[1:]]


def planned():
    for line in (state / "plan").read_text().splitlines():
        wanted, _, action = line.partition(": ")
        if all(any(word in given for given in words) for word in wanted.split()):
            return action
    return "works"


def argument(option):
    return sys.argv[sys.argv.index(option) + 1] if option in sys.argv else None


def write(path, data):
    if path:
        pathlib.Path(path + ".part").write_text(json.dumps(data))
        os.replace(path + ".part", path)


def hang(what="hangs"):
    if what == "hangs":
        (state / "silent").touch()
    with open(state / "waiting", "a") as file:
        file.write(f"{os.getpid()}\n")
    time.sleep(60)


def row(kernel, engine="halftone"):
    return {"kernel": kernel, "shape": "4096x4096x4096 nt", "policy": "amp_bf16", "engine": engine, "seconds": 3e-4, "p10": 3e-4, "p90": 3e-4,
            "rate": 450.0, "unit": "TFLOP/s", "percent_of_peak": 60.0, "ratio_to": {"cublaslt": 0.6}}


def bench_cuda(action):
    file = argument("--json")
    results = {"program": "bench_cuda", "copy_bytes_per_second": 3e12, "cublaslt_bf16_flops": 7.5e14, "rows": []}
    if "--check" in sys.argv:
        return 0
    if "--smoke" in sys.argv:
        results["smoke"] = [{"kernel": "map", "wrong": 0, "of": 100, "what": "", "seconds": 0.1}]
        if action == "wrong":
            results["smoke"].append({"kernel": "softmax", "wrong": 3, "of": 8, "what": "y[1] is 0.5; expected 0.25", "seconds": 0.1})
        write(file, results)
        return int(action == "wrong")
    for kernel in (argument("--filter") or "").split(","):
        results["rows"].append(row(kernel))
        write(file, results)
    return 0


def train_gpt(_):
    folder = pathlib.Path(argument("--out"))
    folder.mkdir(parents=True)
    loss = 2.31 if argument("--device") == "cuda" else 2.32
    runs = [{"policy": "amp_bf16", "validation_loss": loss, "tokens_per_second": 1e6, "step_ms": 0.5, "peak_bytes": 2**26, "skipped_steps": 0}]
    write(str(folder / "summary.json"), {"program": "train_gpt", "runs": runs})
    return 0


def nvidia_smi(_):
    print("NVIDIA H100 80GB HBM3, 9.0, 580.0, 81559 MiB, 1980 MHz, 2619 MHz, 1980 MHz, 71.0 W, 30, 0 %, 0")
    return 0


def ncu(_):
    metrics = {"gpu__time_duration.sum": ("us", "312.5"), "launch__registers_per_thread": ("register/thread", "230"),
               "sm__warps_active.avg.pct_of_peak_sustained_active": ("%", "12.4"),
               "sm__inst_executed_pipe_tensor_op_hmma.avg.pct_of_peak_sustained_active": ("%", "58.25"),
               "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": ("%", "21.0"), "sm__inst_issued.avg.pct_of_peak_sustained_active": ("%", "44.0")}
    kernel = "void kernel_entry<halftone::on_device::matrix_unit_kernel<(int)128, halftone::bfloat16>>(T1)"
    rows = [["ID", "Kernel Name", *metrics], ["", "", *(unit for unit, _ in metrics.values())], ["0", kernel, *(value for _, value in metrics.values())]]
    lines = ["==PROF== Connected to process 1", *(",".join(f'"{cell}"' for cell in line) for line in rows)]
    pathlib.Path(argument("--log-file")).write_text("\n".join(lines) + "\n")
    return 0


def main():
    with open(state / "calls", "a") as file:
        file.write(" ".join(words) + "\n")
    action = planned()
    if name == "nvidia-smi":
        return nvidia_smi(action)
    if (state / "silent").exists():
        hang()
    if (state / "gone").exists() and argument("--device") != "cpu":
        print(f"{name}: no usable GPU: cudaGetDeviceCount gave cudaErrorNoDevice")
        return 3
    if action == "crashes":
        os.kill(os.getpid(), signal.SIGSEGV)
    if action in ("fails", "hangs") and name == "bench_cuda":
        write(argument("--json"), {"rows": [row("before the end")]})
    if action in ("hangs", "stalls"):
        hang(action)
    if action == "fails":
        (state / "gone").touch()
        print(f"{name}: cudaStreamSynchronize gave cudaErrorECCUncorrectable")
        return 1
    if name == "test_cuda":
        cases = 0 if action == "knows none" else 5
        print(f"[doctest] test cases: {cases} | {cases} passed | 0 failed | 0 skipped\n[doctest] Status: SUCCESS!")
    return {"bench_cuda": bench_cuda, "train_gpt": train_gpt, "ncu": ncu}.get(name, lambda _: 0)(action)


sys.exit(main())

#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""bench/gpu_suite.sh from a pack, with programs that stand for the real ones (suite_programs.py): all goes well; a kernel is
wrong; the device fails in the middle; it hangs; time runs out; the suite is killed. Whatever happens, OUT holds the best so
far and summary.md opens with what failed."""
import concurrent.futures
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench/gpu"))
sys.dont_write_bytecode = True
import counters
import pack
import targets
import timetable

STAND_IN = (ROOT / "tests/cuda/suite_programs.py").read_bytes()
MOST_FILES = 8
failures = []


def check(condition, what):
    if not condition:
        failures.append(what)
        print(f"FAILED: {what}", flush=True)


def is_running(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


class Rehearsal:
    """One run of the suite. plan: lines of suite_programs.py."""

    def __init__(self, name, plan=(), tools=("nvidia-smi", "ncu", "compute-sanitizer"), spoil=None):
        self.name = name
        self.folder = pathlib.Path(tempfile.mkdtemp())
        for part in ("state", "tools", "pack"):
            (self.folder / part).mkdir()
        (self.folder / "state/plan").write_text("\n".join(plan) + "\n")
        for tool in tools:
            (self.folder / "tools" / tool).write_bytes(STAND_IN)
            (self.folder / "tools" / tool).chmod(0o755)
        pack.write_pack(self.folder / "pack", {program: STAND_IN for program in pack.PROGRAMS}, b"text\n" * 100, {"commit": "0123abc"})
        if spoil:
            spoil(self.folder / "pack")
        self.out = self.folder / "out"
        self.environment = dict(os.environ, PATH=f"{self.folder}/tools:{os.environ['PATH']}", HALFTONE_REHEARSAL=str(self.folder / "state"),
                                PYTHONDONTWRITEBYTECODE="1", TMPDIR=str(self.folder))

    def begin(self, *arguments):
        command = ["bash", str(ROOT / "bench/gpu_suite.sh"), str(self.out), "--binaries", str(self.folder / "pack"), *arguments]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=self.environment, start_new_session=True)

    def run(self, *arguments):
        process = self.begin(*arguments)
        self.printed, _ = process.communicate(timeout=120)
        return process.returncode

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for line in (self.folder / "state/waiting").read_text().split() if (self.folder / "state/waiting").exists() else []:
            try:
                os.kill(int(line), signal.SIGKILL)
            except ProcessLookupError:
                pass
        shutil.rmtree(self.folder)

    def expect(self, condition, what):
        check(condition, f"{self.name}: {what}\n{getattr(self, 'printed', '')[-1500:]}")

    def summary(self):
        return (self.out / "summary.md").read_text()

    def steps(self):
        return {s["name"]: s for s in json.loads((self.out / "suite.json").read_text())["steps"]}

    def rows(self):
        return json.loads((self.out / "rows.json").read_text())["rows"]

    def left_behind(self):
        """What is right of every run."""
        files = [path for path in self.out.rglob("*")]
        self.expect(len(files) <= MOST_FILES and all(path.is_file() for path in files), f"OUT holds {len(files)}: {files}")
        self.expect(not list(self.folder.glob("gpu_suite_*")) or self.name == "killed", "the work folder is left")
        for line in ("| step | result | seconds | limit |", "Commit 0123abc"):
            self.expect(line in self.summary(), f"summary.md lacks {line!r}: {self.summary()}")


def all_goes_well():
    with Rehearsal("well") as r:
        code = r.run("--first")
        r.expect(code == 0, f"ends with {code}")
        r.left_behind()
        text, steps = r.summary(), r.steps()
        r.expect(text.startswith("# GPU suite: nothing failed\n"), f"summary.md begins {text[:200]}")
        r.expect("NVIDIA H100 80GB HBM3" in text and "3000 GB/s" in text, f"the machine and its ceilings: {text}")
        torch_is_there = "this python3 has no torch" not in text
        for name, step in steps.items():
            r.expect(step["result"] == "ok" or (step["part"] == "torch" and (step["result"] == "left out" or torch_is_there)), f"{name} is {step}")
        r.expect(steps["test_products"]["text"].startswith("[doctest] test cases: 5"), f"{steps['test_products']}")
        r.expect(steps["same_losses"]["text"] == "at most 0.0100 nats apart", f"{steps['same_losses']}")
        r.expect({row["kernel"] for row in r.rows()} >= {"matmul", "attention", "layer_norm", "adamw", "training step", "GPT-2 step"}, "rows are lacking")
        r.expect("| matrix_unit_kernel<128, bfloat16> | 312.5 | 230 | 12.4 | 58.2 | 21.0 | 44.0 |" in text, f"ncu's table: {text}")
        r.expect(set(json.loads((r.out / "training.json").read_text())) == {"train_gpt_cuda", "train_gpt_cpu"}, "training.json")
        order = [line.split()[0] for line in (r.folder / "state/calls").read_text().splitlines()]
        r.expect(order.index("test_cuda") < order.index("compute-sanitizer") < order.index("ncu"), f"the order is {order}")
        by_name = list(steps)
        worth = ["device", "ceilings", "smoke", "test_products", "memcheck_smoke", "products", "attention", "rows", "optimizer", "torch_products", "step", "gpt2_step", "ncu"]
        r.expect([name for name in by_name if name in worth] == worth, f"the steps are {by_name}")


def a_kernel_is_wrong():
    with Rehearsal("wrong", ["bench_cuda --smoke: wrong"]) as r:
        code = r.run("--part", "smoke", "optimizer")
        r.expect(code == 1, f"ends with {code}")
        r.left_behind()
        opening = r.summary().split("\n| step")[0]
        r.expect(opening.startswith("# GPU suite: 1 of 2 steps FAILED\n\n- **smoke** ended with 1: 1 of 2 kernels: softmax: y[1] is 0.5; expected 0.25"), opening)
        r.expect(r.steps()["optimizer"]["result"] == "ok", "the next step was not run")
        r.expect("--thin" not in (r.folder / "state/calls").read_text(), "a part is thin")


def the_device_fails():
    with Rehearsal("fails", ["bench_cuda attention: fails"]) as r:
        code = r.run("--first")
        r.expect(code == 1, f"ends with {code}")
        r.left_behind()
        steps = r.steps()
        for name in ("products", "test_products"):
            r.expect(steps[name]["result"] == "ok", f"what came before is not ok: {name}")
        r.expect(steps["attention"]["text"] == "ended with 1: bench_cuda: cudaStreamSynchronize gave cudaErrorECCUncorrectable", f"{steps['attention']}")
        for name in ("rows", "gpt2_step", "train_gpt_cuda", "ncu"):
            r.expect(steps[name]["result"] == "FAILED" and "no usable GPU: cudaGetDeviceCount gave cudaErrorNoDevice" in steps[name]["text"], f"{name} is {steps[name]}")
        r.expect(steps["train_gpt_cpu"]["result"] == "ok", "the CPU's step was not run")
        kernels = {row["kernel"] for row in r.rows()}
        r.expect({"matmul", "before the end"} <= kernels, f"the rows are {kernels}")
        r.expect("**attention** ended with 1" in r.summary().split("\n| step")[0], "summary.md does not open with it")


def the_device_hangs():
    with Rehearsal("hangs", ["bench_cuda layer_norm: hangs"]) as r:
        # What hangs is the first to run, with 5 s: no busy machine makes another step the slow one.
        code = r.run("--part", "rows", "optimizer", "ncu", "--limits", "0.2")
        r.expect(code == 1, f"ends with {code}")
        r.left_behind()
        steps = r.steps()
        r.expect(steps["rows"]["text"].startswith("stopped after"), f"{steps['rows']}")
        r.expect(steps["optimizer"]["text"] == "not run: the GPU has not answered since rows", f"{steps['optimizer']}")
        r.expect(steps["ncu"]["text"] == "not run: the GPU has not answered since rows", f"{steps['ncu']}")
        calls = (r.folder / "state/calls").read_text()
        r.expect("ncu" not in calls and "adamw" not in calls, f"the calls were {calls}")
        waiting = [int(line) for line in (r.folder / "state/waiting").read_text().split()]
        r.expect(waiting and not any(is_running(pid) for pid in waiting), "a program is left running")


def one_of_several_hangs():
    """Tests run beside each other: all others have their results, and what comes after is run."""
    with Rehearsal("beside", ["test_cuda attention.cu: stalls"]) as r:
        code = r.run("--part", "tests", "products", "--limits", "0.08", "--jobs", "4")
        r.expect(code == 1, f"ends with {code}")
        r.left_behind()
        steps = r.steps()
        r.expect(steps["test_attention"]["text"].startswith("stopped after"), f"{steps['test_attention']}")
        for name in ("test_products", "test_rows", "test_model"):
            r.expect(steps[name]["result"] == "ok", f"{name} is {steps[name]}")
        r.expect(steps["products"]["result"] == "ok", f"{steps['products']}")
        waiting = [int(line) for line in (r.folder / "state/waiting").read_text().split()]
        r.expect(waiting and not any(is_running(pid) for pid in waiting), "a program is left running")


def a_program_crashes():
    with Rehearsal("crashes", ["bench_cuda matmul: crashes", "test_cuda rows.cu: knows none"]) as r:
        r.run("--part", "products", "attention", "tests")
        steps = r.steps()
        r.expect(steps["products"]["text"].startswith("ended by SIGSEGV"), f"{steps['products']}")
        r.expect(steps["attention"]["result"] == "ok", "a crash of one program ended the others")
        r.expect(steps["test_rows"]["text"].startswith("no test of this file ran"), f"{steps['test_rows']}")
        r.expect(steps["test_products"]["result"] == "ok", f"{steps['test_products']}")


def time_runs_out():
    with Rehearsal("time", ["bench_cuda matmul: hangs"]) as r:
        began = time.monotonic()
        r.run("--part", "products", "attention", "--minutes", "0.35")  # 11 s and what is written last
        r.expect(time.monotonic() - began < 21, f"it took {time.monotonic() - began:.0f} s of 21")
        r.left_behind()
        steps = r.steps()
        r.expect(steps["products"]["text"].startswith("stopped after"), f"{steps['products']}")
        r.expect(steps["attention"]["result"] == "left out" and steps["attention"]["text"] == "no time", f"{steps['attention']}")
        r.expect("(no time)" in r.summary().split("\n| step")[0], "summary.md does not open with what was left out")
        r.expect("before the end" in {row["kernel"] for row in r.rows()}, "the rows of what was stopped are lost")


def the_suite_is_ended(number):
    name = "killed" if number == signal.SIGKILL else "ended"
    with Rehearsal(name, ["bench_cuda layer_norm: hangs"]) as r:
        process = r.begin("--first")
        until = time.monotonic() + 40
        while time.monotonic() < until:
            try:
                if "before the end" in {row["kernel"] for row in r.rows()}:
                    break
            except (OSError, ValueError):
                pass
            time.sleep(0.1)
        os.kill(process.pid, number)
        r.printed, _ = process.communicate(timeout=30)
        r.left_behind()
        r.expect({"matmul", "before the end"} <= {row["kernel"] for row in r.rows()}, "rows are lost")
        waiting = [int(line) for line in (r.folder / "state/waiting").read_text().split()]
        time.sleep(0.2)
        r.expect(waiting and not any(is_running(pid) for pid in waiting), "its program runs on")
        if number == signal.SIGKILL:
            r.expect(r.steps()["rows"]["result"] == "running" and "not done yet" in r.summary().split("\n")[0], r.summary())
        else:
            r.expect(process.returncode == 1 and r.steps()["rows"]["text"] == "the suite was ended by SIGTERM", f"{r.steps()['rows']}")


def packs_are_checked():
    def flip(folder):
        data = bytearray((folder / "bench_cuda.gz").read_bytes())
        (folder / "bench_cuda.gz").write_bytes(pack.gzip.compress(b"another program"))
        assert data

    for name, spoil, sentence in (("another program", flip, "bench_cuda of the pack"),
                                  ("no manifest", lambda folder: (folder / "manifest.json").unlink(), "is no pack of bench/gpu_pack.sh"),
                                  ("a file is lacking", lambda folder: (folder / "text.gz").unlink(), "text of the pack")):
        with Rehearsal(name, spoil=spoil) as r:
            code = r.run("--first")
            r.expect(code == 2 and sentence in r.printed, f"ends with {code}")
    # Of this very Python, which needs the C library.
    needed = pack.needed_libraries(os.path.realpath(sys.executable))
    check(any(name.startswith("libc.so") for name in needed), f"python3 needs {needed}")
    check(pack.needed_libraries(__file__) == [], "a text needs libraries")


def the_targets():
    def row(kernel, shape, seconds, rate, engine="halftone", percent=0, **ratios):
        return {"kernel": kernel, "shape": shape, "policy": "amp_bf16", "engine": engine, "seconds": seconds, "rate": rate, "percent_of_peak": percent, "ratio_to": ratios}

    rows = [row("adamw", "124439808", 1, 1, percent=90), row("layer_norm forward", "8192x768", 1, 1, percent=81), row("layer_norm forward", "16384x4096", 1, 1, percent=79),
            row("matmul", "4096x4096x4096 nt", 1, 500, cublaslt=0.95), row("matmul", "4096x4096x4096 nt off by 1", 1, 300), row("matmul", "8192x768x3072 nn", 1, 1, cublaslt=0.1),
            row("matmul", "4096x4096x4096 nt", 1, 900, "cublaslt"), row("attention forward", "1 x 16384, 16 heads of 128, full", 1, 350),
            row("GPT-2 step, captured", "GPT", 0.5, 1), row("GPT-2 step", "GPT", 0.6, 1, "torch eager"), row("GPT-2 step", "GPT", 0.3, 1, "torch compiled")]
    found = {target: value for target, _, value in targets.judge(rows)}
    for target, value in (("adamw, of the copy", 0.9), ("layer_norm forward, of the copy", 0.79), ("softmax forward, of the copy", None),
                          ("bf16 products from 2,048 up, of cuBLASLt", 0.95), ("a product at odd addresses, of the aligned one", 0.6),
                          ("attention forward at 16k, heads of 128, TFLOP/s", 350), ("GPT-2's captured step, times PyTorch's eager", 1.2)):
        check(found[target] == value, f"{target}: {found[target]}, not {value}")
    text = targets.markdown(rows)
    check("| 0.8 | 0.79 | NOT HELD |" in text and "| 0.9 | 0.95 | held |" in text, text)


def the_timetable():
    first = timetable.chosen(True, [])
    check(timetable.total(first, True) < 540, f"--first may take {timetable.total(first, True)} s")
    names = [step.name for step, _ in timetable.chosen(False, [])]
    check(len(set(names)) == len(names), "two steps have one name")
    tests = {path.stem for path in (ROOT / "tests/cuda").glob("*.cu") if "TEST_CASE" in path.read_text()}
    check({f"test_{name}" for name in tests} <= set(names), "a file of tests/cuda has no step")
    check({step.part for step, _ in first} == set(timetable.parts()), "--first leaves a part out")
    profiled = timetable.PROFILED.split("|")
    headers = "".join(path.read_text() for path in (ROOT / "include/halftone/kernel").rglob("*.hpp"))
    for kernel in profiled:
        check(f"struct {kernel} " in headers, f"there is no {kernel} for ncu to look at")
    check(counters.read("/dev/null") == [], "ncu's empty file")


if __name__ == "__main__":
    # Three at a time, for they wait more than they compute. What must end in time is among the first, beside what waits.
    rehearsals = (time_runs_out, the_device_hangs, one_of_several_hangs, lambda: the_suite_is_ended(signal.SIGKILL), lambda: the_suite_is_ended(signal.SIGTERM),
                  all_goes_well, the_device_fails, a_program_crashes, a_kernel_is_wrong, packs_are_checked, the_targets, the_timetable)
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(rehearsal) for rehearsal in rehearsals]:
            done.result()
    print(f"{len(failures)} failures")
    sys.exit(bool(failures))

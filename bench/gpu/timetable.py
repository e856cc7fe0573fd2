# SPDX-License-Identifier: MIT
"""The steps of the GPU suite in the order of importance: what each runs, its time limit, and in which profile.

A step is a process of its own. Its part is what --part names; its limits are seconds, in the thin profile --first and in the
whole one; None: not in that profile. Steps that are right or wrong, not fast or slow, run several at once under one limit.
"""
from __future__ import annotations

import dataclasses
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]

# What all steps that run several at once may take, in seconds, (first, whole).
TOGETHER = (75, 240)

# The kernels that are looked at under ncu: six launches of `bench_cuda --once`, two of them of attention's gradients.
PROFILED = "warpgroup_kernel|warpgroup_attention_kernel|warpgroup_attention_backward_kernel|matrix_unit_kernel|flash_attention_kernel|flash_attention_backward_kernel|norm_piece_kernel|optimizer_step_kernel"
SECTIONS = ("SpeedOfLight", "ComputeWorkloadAnalysis", "SchedulerStats", "LaunchStats", "Occupancy")


@dataclasses.dataclass
class Step:
    name: str
    part: str
    first: int | None  # seconds
    whole: int | None
    command: list      # {test_cuda}, {text}, {work}... are replaced
    rows: str = ""     # a file of {work} that the command renews a row at a time
    needs: tuple = ()  # of these tools
    is_together: bool = False
    on_gpu: bool = True


def bench(name, part, first, whole, *filters):
    file = f"{name}.json"
    command = ["{bench_cuda}", "--json", "{work}/" + file, "--ceilings", "{work}/ceilings.json", "--filter", ",".join(filters), "{thin}"]
    if part == "products":
        command += ["--matmul-table", "{work}/matmul_table.txt"]
    return Step(name, part, first, whole, command, file, ("bench_cuda",))


def torch(name, first, whole, stage):
    file = f"{name}.json"
    return Step(name, "torch", first, whole, ["{python}", str(ROOT / "bench/peers/torch_gpu.py"), "--json", "{work}/" + file,
                                              "--stage", stage, "--seconds", "{seconds}", "{thin}"], file, ("torch",))


def train(name, part, first, whole, device, *arguments):
    return Step(name, part, first, whole, ["{train_gpt}", "--device", device, "--text", "{text}", "--write", "0",
                                           "--out", "{work}/" + name, *arguments], "", ("train_gpt",), False, device == "cuda")


SMALL = ("--steps", "{steps}", "--eval-windows", "{windows}")
GPT2 = ("--policy", "amp_bf16", "--layers", "12", "--heads", "12", "--width", "768", "--context", "1024", "--batch", "8",
        "--steps", "30", "--eval-windows", "4", "--profile")
TINY = ("--policy", "amp_fp16,amp_bf16", "--layers", "1", "--heads", "2", "--width", "64", "--context", "32",
        "--batch", "2", "--steps", "3", "--eval-windows", "2")


def sanitizer(tool, what, first, whole, needs, command):
    return Step(f"{tool}_{what}", "sanitizers", first, whole,
                ["{compute-sanitizer}", "--tool", tool, "--error-exitcode", "9", *command], "", (needs, "compute-sanitizer"), True)


def test_files():
    """In the order of importance; then all others."""
    order = ["products", "attention", "rows", "losses", "updates", "pointwise", "steps", "captured_step", "exec", "model"]
    there = sorted(path.stem for path in (ROOT / "tests/cuda").glob("*.cu") if "TEST_CASE" in path.read_text())
    return [name for name in order if name in there] + [name for name in there if name not in order]


def steps():
    smoke = ["{bench_cuda}", "--smoke", "--json", "{work}/smoke.json"]
    all_steps = [
        Step("device", "device", 10, 10, ["{bench_cuda}", "--check"], "", ("bench_cuda",)),
        Step("ceilings", "ceilings", 25, 30, ["{bench_cuda}", "--filter", "ceilings", "--ceilings", "{work}/ceilings.json",
                                              "--json", "{work}/of_ceilings.json"], "of_ceilings.json", ("bench_cuda",)),
        Step("smoke", "smoke", 20, 20, smoke, "smoke.json", ("bench_cuda",)),
        *(Step(f"test_{name}", "tests", 60, 180, ["{test_cuda}", f"--source-file=*tests/cuda/{name}.cu*"], "", ("test_cuda",), True)
          for name in test_files()),
        sanitizer("memcheck", "smoke", 60, 120, "bench_cuda", [*smoke[:2], "--tiny"]),
        sanitizer("racecheck", "smoke", 60, 120, "bench_cuda", [*smoke[:2], "--tiny"]),
        sanitizer("initcheck", "smoke", None, 120, "bench_cuda", [*smoke[:2], "--tiny"]),
        sanitizer("synccheck", "smoke", None, 120, "bench_cuda", [*smoke[:2], "--tiny"]),
        *(sanitizer(tool, "train_gpt", None, 120, "train_gpt", ["{train_gpt}", "--device", "cuda", "--text", "{text}", "--write", "4", "--out", "{work}/" + tool, *TINY])
          for tool in ("memcheck", "racecheck", "initcheck", "synccheck")),
        bench("products", "products", 40, 150, "matmul"),
        bench("attention", "attention", 30, 90, "attention"),
        bench("rows", "rows", 25, 40, "layer_norm", "softmax", "cross_entropy"),
        bench("optimizer", "optimizer", 15, 20, "adamw", "map"),
        bench("own_models", "own_models", 20, 40, "reduction", "gather", "copy", "rotary", "batch_norm", "pool", "conv2d"),
        torch("torch_products", 35, 40, "products"),  # the first import of torch takes its time
        torch("torch_attention", 30, 60, "attention,packed"),
        torch("torch_own_models", 20, 40, "own_models"),
        torch("torch_eager", 30, 35, "eager"),
        bench("step", "training", 20, 30, "training step"),
        bench("gpt2_step", "training", 30, 45, "GPT-2 step"),
        train("train_gpt_cuda", "training", 25, 60, "cuda", *SMALL),
        train("train_gpt_cpu", "training", 30, 60, "cpu", *SMALL),
        train("train_gpt2_cuda", "training", None, 60, "cuda", *GPT2),
        Step("ncu", "ncu", 45, 90, ["{ncu}", "--clock-control", "none", "--kernel-name-base", "demangled", "--kernel-name", f"regex:{PROFILED}",
                                    "--launch-count", "8", *(word for section in SECTIONS for word in ("--section", section)), "--csv", "--page", "raw",
                                    "--log-file", "{work}/ncu.csv", "{bench_cuda}", "--once", "--filter", "matmul,attention,layer_norm,adamw"],
             "", ("bench_cuda", "ncu")),
        torch("torch_compiled", None, 90, "compiled"),  # compiles longer than it runs
    ]
    return all_steps


def amounts(is_first):
    """The arguments by which a command runs all or a part of its cases."""
    return {"thin": "--thin" if is_first else "", "steps": "30" if is_first else "100", "windows": "16" if is_first else "64"}


def parts():
    return list(dict.fromkeys(step.part for step in steps()))


def chosen(is_first, wanted):
    """[(step, limit)] of a profile, or of some parts of the whole one."""
    pairs = [(step, step.first if is_first else step.whole) for step in steps() if not wanted or step.part in wanted]
    return [(step, limit) for step, limit in pairs if limit is not None]


def group_limit(is_first):
    return TOGETHER[0 if is_first else 1]


def total(pairs, is_first):
    """The time in seconds if every step reaches its limit."""
    seconds = sum(limit for step, limit in pairs if not step.is_together)
    return seconds + min(group_limit(is_first), sum(limit for step, limit in pairs if step.is_together))

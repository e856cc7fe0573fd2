#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The checks of compile.sh, which says how it is called.

Every source in tests/cuda and bench/cuda says how it is compiled, and how many kernels it may have on one architecture, which is what
users wait for when they compile:

    // compile: read alone, at most 100 kernels. The reason, which may go on in further lines.

Without --full a source is compiled to the machine code of sm_90, or

    joined          compiled to PTX, with others as one source, which tests/ptx runs
    read            read by the front ends of both compilers, with others as one source: all that they say of C++, at a third of the
                    time. The tests of its kernels run on the emulated GPU, too
    read alone      the same by itself: it cannot be in a namespace
    with --full     left out, since other sources have its kernels

With --full each is compiled to the machine code of every architecture. With and without it:

    each architecture    from the source for each of them, where sm_90 else gets what the compiler made for sm_80, which is what
                         tests/ptx runs: no source asks which of the two it is, but that of eight-bit numbers
    sm_89 too            it has products of eight-bit numbers, which are others there
    sm_90a alone         it has instructions of its own

A kernel has no local memory, unless a line of its header says why, and how much it may have:

    // local memory of `name<*>`: at most 16 bytes of stack, 16 of stores, 32 of loads. The reason.
"""
import argparse
import collections
import concurrent.futures
import fnmatch
import glob
import itertools
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True  # no __pycache__ in the source tree
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.append(os.path.join(ROOT, "tests", "tools"))
import machine_code
import together

MARK = re.compile(r"^// compile: (?:(joined|read|read alone|with --full), )?"
                  r"(?:(each architecture|sm_89 too|sm_90a alone), )?at most (\d+) kernels\b", re.M)
# Programs for readers do not speak of their tests. The kernels of train_gpt and the lessons are those of tests/cuda/model.cu; headers.nvcc
# always reads a model that trains, and tests/consumer compiles own_project.
EXAMPLES = {"with --full, at most 160": "train_gpt/amp_bf16.cu train_gpt/amp_fp16.cu train_gpt/full_fp32.cu train_gpt/more/tf32.cu",
            "with --full, at most 210": "train_gpt/more/fp8_hybrid.cu",
            "with --full, at most 200": "classify_images/amp_bf16.cu classify_images/small_bf16.cu "
                                        "classify_text/amp_bf16.cu classify_text/small_bf16.cu",
            "with --full, at most 40": "03_regression.cpp",
            "with --full, at most 170": "04_loss_scaling.cpp 05_own_model.cpp 06_gradient_penalty.cpp 07_sparse_embeddings.cpp",
            "with --full, at most 20": "own_project/main.cu own_project/one_file.cu",
            "with --full, at most 200": "chat/gpu.cu",
            "with --full, at most 10": "train_gpt/gpu.cu classify_images/gpu.cu classify_text/gpu.cu"}

mark = collections.namedtuple("mark", "way code most")  # most: the number of kernels
unit = collections.namedtuple("unit", "name file mark")


def mark_in(text, path):
    found = MARK.search(text)
    if not found:
        raise SystemExit(f"{path}: needs a line like '// compile: read, at most 100 kernels', which tests/cuda/compile.py explains")
    return mark(found[1] or "", found[2] or "", int(found[3]))


def marked_sources():
    """{path: its mark}"""
    paths = sorted(glob.glob("tests/cuda/**/*.cu", recursive=True) + glob.glob("bench/cuda/*.cu"))
    marks = {path: mark_in(together.read(path), path) for path in paths}
    for text, names in EXAMPLES.items():
        marks.update((f"examples/{name}", mark_in(f"// compile: {text} kernels", name)) for name in names.split())
    return marks


def units(marks, work):
    """What is compiled, those with most kernels first."""
    groups, turn = collections.defaultdict(list), itertools.cycle("12")
    for path, one in marks.items():
        if one.way in ("", "read alone"):
            groups[path].append(path)
        elif one.way != "with --full":
            name = "joined" if one.way == "joined" else "hopper" if one.code else "read" + next(turn)
            groups[f"tests/cuda/{name}.cu"].append(path)
    found = []
    for name, paths in groups.items():
        file = name
        if name not in marks:
            for path in paths:
                if not together.can_be_joined(path):
                    raise SystemExit(f"{path}: is not read alone, and cannot be in a namespace")
            file = os.path.join(work, os.path.basename(name))
            with open(file, "w", encoding="utf-8") as text:
                text.write(together.joined(paths))
        found.append(unit(name, file, marks[paths[0]]._replace(most=sum(marks[path].most for path in paths))))
    return sorted(found, key=lambda one: -one.mark.most)


def code_of(marked, architectures, keeps):
    """nvcc's arguments. Objects to keep have PTX of the oldest architecture, which the other code is made of."""
    to = lambda architecture, *codes: f"-gencode=arch=compute_{architecture},code=[{','.join(codes)}]"
    ptx = ["compute_80"] if keeps else []
    if marked.code == "sm_90a alone":
        return [to("90a", "sm_90a", "compute_90a")]
    if marked.way == "joined":
        return [to("80", "compute_80")]
    if not marked.code and len(architectures) == 2:
        return [to("80", "sm_90", *ptx)]
    return [to(a, f"sm_{a}", *(ptx if a == "80" else [])) for a in architectures + (["89"] if marked.code == "sm_89 too" else [])]


def run(*command):
    """What it prints, its status, and the seconds of processor time that it and its children take."""
    with tempfile.TemporaryFile("w+") as log:
        child = subprocess.Popen(command, stdout=log, stderr=log)
        _, child.returncode, usage = os.wait4(child.pid, 0)
        log.seek(0)
        return log.read(), child.returncode, usage.ru_utime


def compile_one(one, command, host, result):
    """What the compiler says of the unit, its status, and seconds."""
    if not one.mark.way.startswith("read"):
        return run(*command, one.file, "-c", "-o", result + ".o")
    said, status, seconds = run(*command, one.file, "-fdevice-syntax-only", "-cuda", "-o", result + ".ii")
    if not status:
        # nvcc ends before the host's compiler reads what cudafe++ made of the source: it once lost the braces of `return {one value}`.
        said, status, more = run(host, "-std=c++20", "-fsyntax-only", "-w", "-x", "c++", "-fpreprocessed", result + ".ii")
        seconds += more
    return said, status, seconds


def allowed_local_memory():
    """{kernel's name with wildcards: bytes of stack, stores and loads}. What CUB and Thrust do is their own business."""
    allowed = {"void cub::*": (sys.maxsize,) * 3, "void thrust::*": (sys.maxsize,) * 3}
    for path in glob.glob("include/halftone/**/*.*", recursive=True):
        for name, figures in re.findall(r"^// local memory of `(.*)`: (.*(?:\n// .*)?)", together.read(path), re.M):
            most = {what: int(number) for number, what in re.findall(r"(\d+) (?:bytes )?of\s(?:// )?(stack|stores|loads)", figures)}
            allowed[name] = tuple(most.get(what, 0) for what in ("stack", "stores", "loads"))
    return allowed


def judge(said, most, allowed):
    """A line about the kernels that ptxas tells of, and their faults."""
    counts, figures, registers = collections.Counter(), {}, 0
    for part in said.split("Compiling entry function ")[1:]:
        symbol, architecture = re.match(r"'(.*)' for '(.*)'", part).groups()
        counts[architecture] += 1
        found = re.findall(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", part)
        figures[symbol, architecture] = [max(map(int, column)) for column in zip(*found)]
        registers = max(registers, int(re.search(r"Used (\d+) registers", part)[1]))
    kernels = max(counts.values(), default=0)
    faults = [f"more kernels than the {most} allowed"] if kernels > most else []
    names = machine_code.short_names(sorted({symbol for symbol, _ in figures}))
    for (symbol, architecture), found in figures.items():
        limits = [limit for name, limit in allowed.items() if fnmatch.fnmatchcase(names[symbol], name)] + [(0, 0, 0)]
        if len(found) != 3 or not any(all(map(int.__le__, found, limit)) for limit in limits):
            faults.append(f"{names[symbol]} on {architecture}: {found} bytes of stack, stores and loads in local memory")
    return f"{kernels} kernels, at most {registers} registers", faults


def main():
    parser = argparse.ArgumentParser(prog="compile.sh", description="Compiles CUDA code without a GPU.")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--keep", metavar="FOLDER")
    parser.add_argument("files", nargs="*")
    given = parser.parse_args()
    nvcc = shutil.which(os.environ.get("CUDACXX", "nvcc")) or shutil.which("/usr/local/cuda/bin/nvcc")
    for tool, there in (("nvcc", nvcc), ("c++filt", shutil.which("c++filt"))):
        if not there:
            print(f"skipped: there is no {tool}")
            return 77
    keep = given.keep and os.path.abspath(given.keep)
    os.chdir(ROOT)
    marks = {path: mark("", "each architecture", sys.maxsize) for path in given.files} or marked_sources()
    if given.full:
        marks = {path: one._replace(way="") for path, one in marks.items()}
    architectures = ["80", "90", "100", "120"] if given.full else ["80", "90"]
    host = os.environ.get("CXX", "g++")
    if "g++" not in host or "clang" in host:
        host = "g++"
    options = ["-std=c++20", "-DBENCH_CUBLASLT", "-DHALFTONE_TEST_CUBLASLT", "-Xptxas", "-v", "-Werror", "all-warnings", "-ccbin", host,
               "-Xcompiler", "-Wall,-Wextra,-Werror", "-Iinclude", "-Itests"]
    if keep:  # -O1 is for host code, which says what is right; there g++ finds in CUB that `dispatch` may be uninitialized.
        options += ["-no-compress", "-O1", "-Xcompiler", "-Wno-maybe-uninitialized"]
    with tempfile.TemporaryDirectory() as work:
        command_of = lambda one: [nvcc, "-x", "cu", *options, *code_of(one.mark, architectures, keep)]
        failed = compile_all(units(marks, work), command_of, host, work)
        if keep:
            os.makedirs(keep, exist_ok=True)
            for old in glob.glob(os.path.join(glob.escape(keep), "tests_cuda_*.o")):
                os.remove(old)
            for path in glob.glob(os.path.join(work, "tests_cuda_*.o")):
                shutil.copy(path, keep)
        statics = subprocess.run(["bash", "tests/headers/statics.sh", *sorted(glob.glob(os.path.join(work, "*.o")))])
    return 1 if failed or statics.returncode not in (0, 77) else 0


def compile_all(every, command_of, host, work):
    """Compiles the units and prints what ptxas says of them. Returns whether something is wrong."""
    result_of = lambda one: os.path.join(work, one.name.replace("/", "_"))
    allowed, failed = allowed_local_memory(), False
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        results = pool.map(lambda one: compile_one(one, command_of(one), host, result_of(one)), every)
        for one, (said, status, seconds) in zip(every, results):
            if status:
                lines = [line for line in said.splitlines() if not line.startswith("ptxas info")]
                print(f"{one.name} does not compile:", *lines[:60], sep="\n", flush=True)
            else:
                line, faults = ("read and not compiled", []) if one.mark.way.startswith("read") else judge(said, one.mark.most, allowed)
                print(f"{one.name}: {seconds:.1f} s, {line}", *faults, sep="\n  ", flush=True)
            failed = failed or status or faults
    return failed


if __name__ == "__main__":
    sys.exit(main())

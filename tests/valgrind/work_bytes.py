#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares the bytes that watched tapes tell with the memory that the kernels touch, as callgrind simulates caches.

    tests/valgrind/work_bytes.py [--cxx g++]

Before each operation the simulated cache, of 16 MiB, is filled with other memory. So its misses inside the operation, of 64
bytes each, are the lines that the operation reads or writes, each once: its tensors, and what its kernel needs beside them
(packed operands, sums of threads), which the formulas do not count and which have no bound here: the table shows them (1.00 to
1.02 for pointwise operations and rows, up to 1.35 for products, 2.5 for the backward pass of conv2d). Ends with 77 without
valgrind, and with 1 if an operation touches less than half of what it tells: callgrind counts an access to the ends of two lines,
as kernels of conv2d make them, as one miss.
"""

import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

LINE = 64
LEAST = 0.5  # an access of a vector reaches two lines at most, and is one miss


def misses_of(folder):
    """{operation: lines of 64 bytes}, from callgrind's dumps."""
    lines = {}
    for file in sorted(folder.glob("counts.*")):
        text = file.read_text(errors="replace")
        name = re.search(r"^desc: Trigger: Client Request: (.*)$", text, re.M)
        events, totals = re.search(r"^events: (.*)$", text, re.M), re.search(r"^totals: (.*)$", text, re.M)
        if name and events and totals:
            counts = dict(zip(events[1].split(), map(int, totals[1].split())))
            lines[name[1]] = lines.get(name[1], 0) + counts["DLmr"] + counts["DLmw"]
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cxx", default="g++")
    o = parser.parse_args()
    if shutil.which("valgrind") is None:
        print("skipped: there is no valgrind")
        return 77
    root = pathlib.Path(__file__).resolve().parents[2]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        program = folder / "work_bytes"
        subprocess.run([o.cxx, "-std=c++20", "-O2", f"-I{root / 'include'}", str(root / "tests/valgrind/work_bytes.cpp"), "-o", str(program),
                        "-lpthread"], check=True)
        told = subprocess.run(["valgrind", "--tool=callgrind", "--cache-sim=yes", f"--LL={16 << 20},16,{LINE}",
                               f"--callgrind-out-file={folder / 'counts'}", str(program)], check=True, capture_output=True, text=True).stdout
        touched = misses_of(folder)
    return 1 if compare(told, touched) else 0


def compare(told, touched):
    """Prints the table; how many operations touch too little."""
    wrong = 0
    print(f"{'operation':32} {'told':>12} {'touched':>12} {'ratio':>7}")
    for line in told.splitlines():
        operation, bytes_told = line.rsplit(" ", 1)
        if float(bytes_told) < 1 << 18:
            continue  # sums and the like, whose ends of lines and stacks count
        measured = touched.get(operation, 0) * LINE
        ratio = measured / float(bytes_told)
        fits = ratio >= LEAST
        wrong += not fits
        print(f"{operation:32} {float(bytes_told):12.0f} {measured:12} {ratio:7.3f}{'' if fits else '  <'}")
    return wrong


if __name__ == "__main__":
    sys.exit(main())

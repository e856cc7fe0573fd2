#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What the tests cost: processor seconds (user and system) of each file that a compiler reads, and elapsed seconds of each test.

    tests/processor_seconds.py [--build FOLDER] [--out FILE] [-DNAME=VALUE...]

Runs `tests/run.sh --more` in an empty folder (a temporary one, unless --build names it) with this script as the compiler's launcher, which
notes each compiler's seconds. Writes the table, largest first, to tests/processor_seconds.tsv. Other work on the machine makes the
seconds of compilers a little larger; elapsed ones, of tests, are those of as many tests at a time as there are processors.
cost.programs is left out: it wants a launcher of its own. Ends with the status of tests/run.sh.
"""
import argparse
import os
import platform
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

sys.dont_write_bytecode = True
import summary  # noqa: E402, in this folder

ROOT = Path(__file__).resolve().parent.parent
NOTES = "HALFTONE_PROCESSOR_SECONDS"  # names the file to which launched compilers add their lines


def seconds_of(command, **options):
    """Runs a command; returns its processor seconds, with those of all that it started, and its exit status."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    status = subprocess.run(command, **options).returncode
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime, status


def launch(command):
    """As the compiler's launcher: runs it and adds a line to the notes."""
    seconds, status = seconds_of(command)
    output = command[command.index("-o") + 1] if "-o" in command else command[-1]
    with open(os.environ[NOTES], "a") as notes:  # a line is written at once, by several compilers in turn
        notes.write(f"{seconds:.2f}\tcompile\t{output}\n")
    sys.exit(status)


def build_and_test(folder, definitions):
    """Runs tests/run.sh from nothing; returns the lines of compilers and of tests, and its exit status."""
    notes = folder / "compilers.tsv"
    folder.mkdir(parents=True, exist_ok=True)
    notes.write_text("")
    script = [str(ROOT / "tests/run.sh"), "--yes", "--more", "--build", str(folder),
              f"-DCMAKE_CXX_COMPILER_LAUNCHER={Path(__file__).resolve()}", *definitions, "--", "-E", "^cost.programs$"]
    status = subprocess.run(script, env={**os.environ, NOTES: str(notes)}).returncode
    lines = [line.split("\t") for line in notes.read_text().splitlines()]
    lines = [[s, kind, name.replace("CMakeFiles/", "").replace(".dir/", "/")] for s, kind, name in lines]
    results = folder / "Testing/results.xml"
    if results.exists():
        with open(results, encoding="utf-8", errors="replace") as file:
            lines += [[f"{float(c.get('time')):.2f}", "test", c.get("name")] for c in summary.read(file)]
    return lines, status


def write(out, lines):
    """The table, with the machine and the sums."""
    revision = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short=8", "HEAD"], capture_output=True, text=True).stdout.strip()
    model = next((line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line),
                 platform.processor()) if Path("/proc/cpuinfo").exists() else platform.processor()
    sums = {kind: sum(float(s) for s, k, _ in lines if k == kind) / 60 for kind in ("compile", "test")}
    lines = sorted(lines, key=lambda line: (-float(line[0]), line[2]))
    with open(out, "w") as table:
        table.write(f"# Written by tests/processor_seconds.py at {revision}: {model}, {os.cpu_count()} processors.\n")
        table.write(f"# Compilers: {sums['compile']:.1f} processor minutes. Tests: {sums['test']:.1f} minutes, one after the other.\n")
        table.write("# seconds\tkind\tname\n")
        table.writelines("\t".join(line) + "\n" for line in lines if float(line[0]) >= 0.5)
    print(f"{out}: {sums['compile']:.1f} + {sums['test']:.1f} minutes")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", help="an empty folder")
    parser.add_argument("--out", default=str(ROOT / "tests/processor_seconds.tsv"))
    arguments, definitions = parser.parse_known_args()
    if wrong := [d for d in definitions if not d.startswith("-D")]:
        parser.error(f"unknown argument {wrong[0]}")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(arguments.build or temporary).resolve()
        if any(folder.glob("*")):
            parser.error(f"{folder} is not empty")
        lines, status = build_and_test(folder, definitions)
        write(arguments.out, lines)
    sys.exit(status)


if __name__ == "__main__":
    if NOTES in os.environ and len(sys.argv) > 1 and not sys.argv[1].startswith("-"):
        launch(sys.argv[1:])
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Prints how old each committed result is: its commit, that commit's date, and the commits since then that changed what it measures.

    bench/ages.py                        all files in bench/results
    bench/ages.py bench/results/*zen3*   some

What a result measures is halftone's code for CPUs and GPUs, include/halftone without pages and files (observe, io, data), and the
benchmark's own source. A file that does not name its commit has that which brought it.
"""
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
MEASURED = ["include/halftone", ":!include/halftone/observe", ":!include/halftone/io", ":!include/halftone/data"]


def git(*words):
    return subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=True).stdout.strip()


def result_of(path):
    """The object that a result file holds, or an empty one where it holds something else."""
    if path.suffix != ".json":
        return {}
    content = json.loads(path.read_text())
    return content if isinstance(content, dict) else {}


def row(path):
    result = result_of(path)
    commit, named = result.get("commit", ""), True
    if not commit:
        commit, named = git("log", "-1", "--format=%H", "--", str(path)), False
    program = result.get("program", "").removeprefix("bench_")
    paths = MEASURED + ([f"bench/{program}.cpp"] if program else [])
    try:
        date = git("log", "-1", "--format=%cs", commit)
        since = git("rev-list", "--count", f"{commit}..HEAD", "--", *paths)
    except subprocess.CalledProcessError:
        date, since = "unknown", "?"
    return [str(path.relative_to(ROOT / "bench/results")), commit[:8] + ("" if named else " *"), date, since]


def main():
    given = [pathlib.Path(name).resolve() for name in sys.argv[1:]]
    files = given or [f for f in sorted((ROOT / "bench/results").rglob("*")) if f.suffix in (".json", ".md", ".txt")]
    for path in files:
        if not path.is_relative_to(ROOT / "bench/results") or not path.is_file():
            sys.exit(f"ages.py: {path} is no file in bench/results")
    rows = [["file", "commit", "date", "changes since"]] + [row(path) for path in files]
    widths = [max(len(r[k]) for r in rows) for k in range(4)]
    for r in rows:
        print("  ".join(word.ljust(width) for word, width in zip(r, widths)).rstrip())
    print("\n* the commit that brought the file, which names none")


try:
    main()
except (OSError, ValueError, subprocess.CalledProcessError) as error:
    sys.exit(f"ages.py: {error}")

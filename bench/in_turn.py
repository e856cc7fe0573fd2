# SPDX-License-Identifier: MIT
"""Shared by versus.py and versus_rows.py: two builds of a program that take turns in rounds."""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile


def parser(text, programs, rounds):
    """A parser for the two builds (the names of their arguments), the number of rounds and the output file."""
    p = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in programs:
        p.add_argument(name)
    p.add_argument("--rounds", type=int, default=rounds)
    p.add_argument("--json")
    return p


def parse(p):
    """The parser's result, and the arguments after --, which are for both builds."""
    own, behind = sys.argv[1:], []
    if "--" in own:
        own, behind = own[: own.index("--")], own[own.index("--") + 1 :]
    return p.parse_args(own), behind


def result_of(program, arguments, option, name):
    """Runs a build, and returns the JSON that it writes: to the file `name` or, for --out, to `name` in that folder."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / name
        done = subprocess.run([program, *arguments, option, folder if option == "--out" else str(file)], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{program}: exit code {done.returncode}\n{done.stderr}")
        return json.loads(file.read_text())


def orders(first, second, rounds):
    """The builds in the order of each round: the second one is first in every other round."""
    for number in range(rounds):
        yield (first, second) if number % 2 == 0 else (second, first)


def write(path, fields):
    pathlib.Path(path).write_text(json.dumps(fields, indent=1) + "\n")

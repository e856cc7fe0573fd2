#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Tests what tests/run.sh says at its end (summary.py), and what it refuses at its beginning."""

import io
import pathlib
import subprocess
import sys

sys.dont_write_bytecode = True
import summary  # noqa: E402, in this folder

# As ctest 3.22 to 4 write them: what passed, failed, did not start, and was skipped by either property.
RESULTS = """<?xml version="1.0" encoding="UTF-8"?>
<testsuite name="x" tests="9">
  <testcase name="good" classname="good" time="1.5" status="run"><system-out>skipped: this is only said</system-out></testcase>
  <testcase name="part" time="1" status="run"><system-out>a
x.cpp:3: MESSAGE: not checked: the bits of the CPU (this processor lacks avx2)
not checked: the bits of the CPU (this processor lacks avx2)
not checked: a page (there is no nvcc)
</system-out></testcase>
  <testcase name="bad" time="1" status="fail"><failure message=""/><system-out>skipped: no</system-out></testcase>
  <testcase name="absent" time="0" status="notrun"><skipped message="Unable to find executable"/><system-out>x</system-out></testcase>
  <testcase name="after" time="0" status="notrun"><skipped message="Fixture dependency failed"/><system-out>x</system-out></testcase>
  <testcase name="nn.amx" time="0" status="notrun"><skipped message="SKIP_RETURN_CODE=77"/><system-out>first
skipped: this processor lacks amx
last</system-out></testcase>
  <testcase name="ptx" time="0" status="notrun"><skipped message="SKIP_RETURN_CODE=77"/><system-out>skipped: there is no nvcc\x1b
</system-out></testcase>
  <testcase name="ranks.amx" time="0" status="notrun"><skipped message="SKIP_RETURN_CODE=77"/><system-out>skipped: this processor lacks amx
</system-out></testcase>
  <testcase name="mute" time="0" status="notrun"><skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/><system-out></system-out></testcase>
  <testcase name="off" time="0" status="disabled"><system-out>Disabled</system-out></testcase>
</testsuite>
"""
EXPECTED = ("2 passed, 3 failed, 7 not checked: the bits of the CPU in part (this processor lacks avx2); a page in part (there is no nvcc); "
            "nn.amx, ranks.amx (this processor lacks amx); ptx (there is no nvcc?); mute (it does not say why); off (disabled)")


def main():
    wrong = []
    said = summary.summary(summary.read(io.StringIO(RESULTS)))
    if said != EXPECTED:
        wrong.append(f"the summary is\n{said}\nand should be\n{EXPECTED}")
    said = summary.summary(summary.read(io.StringIO('<testsuite><testcase name="a" status="run"/></testsuite>')))
    if said != "1 passed, 0 failed, 0 not checked":
        wrong.append(f"the summary of one test is {said}")
    run = pathlib.Path(__file__).resolve().with_name("run.sh")
    for arguments, sentence in (
            (["--full", "--slice", "4/3"], "--slice is '4/3'; expected K/N"), (["--full", "--slice", "0/3"], "--slice is '0/3'"),
            (["--full", "--slice", "3"], "--slice is '3'"), (["--full", "--slice", "one/two"], "--slice is 'one/two'"),
            (["--full", "--slice"], "--slice needs K/N"), (["--slice", "1/3"], "--slice divides --full"),
            (["--more", "--slice", "1/3"], "--slice divides --full"), (["--full", "--slice", "1/3", "--", "-R", "nn"], "leave out -R"),
            (["--build"], "--build needs a folder"), (["--fast"], "unknown argument --fast")):
        told = subprocess.run(["bash", str(run), *arguments], capture_output=True, text=True)
        if told.returncode != 2 or len(told.stderr.splitlines()) != 1 or sentence not in told.stderr or told.stdout:
            wrong.append(f"run.sh {' '.join(arguments)} ends with {told.returncode} and says {told.stdout}{told.stderr}")
    print("\n".join(wrong) or "run.sh's first and last words are as they should be")
    return 1 if wrong else 0


sys.exit(main())

#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""One line about a run of ctest: how many tests passed and failed, and what was not checked, with the reasons.

    summary.py RESULTS.xml             what ctest wrote with --output-junit and a large --test-output-size-passed

Not checked is a test that ended with 77 after a line "skipped: REASON"; and, in tests that passed, what a line "not checked: WHAT
(REASON)" names. Prints for example

    97 passed, 0 failed, 3 not checked: kernel.amx, nn.amx (this processor lacks amx); program.pages (there is no chromium)
"""

import re
import sys
import xml.etree.ElementTree


def read(results):
    """The test cases of an open file; output may hold characters that XML does not have."""
    text = re.sub("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "?", results.read())
    return xml.etree.ElementTree.fromstring(text).iter("testcase")


def reason_of(output):
    found = re.search(r"^skipped: (.+)$", output, re.MULTILINE)
    lines = output.strip().splitlines()
    return found[1].strip() if found else lines[-1].strip() if lines else "it does not say why"


def summary(cases):
    passed = failed = 0
    names = {}  # by reason
    for case in cases:
        name, output = case.get("name"), case.findtext("system-out") or ""
        skipped = case.find("skipped")
        if case.get("status") == "disabled":
            names.setdefault("disabled", []).append(name)
        elif skipped is not None and skipped.get("message", "").startswith("SKIP_"):
            names.setdefault(reason_of(output), []).append(name)
        elif case.get("status") == "run":
            passed += 1
            for what, reason in dict.fromkeys(re.findall(r"\bnot checked: (.+?) \((.+)\)", output)):
                names.setdefault(reason, []).append(f"{what} in {name}")
        else:
            failed += 1
    count = sum(len(those) for those in names.values())
    line = f"{passed} passed, {failed} failed, {count} not checked"
    return line + (": " if count else "") + "; ".join(f"{', '.join(those)} ({reason})" for reason, those in names.items())


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8", errors="replace") as file:
        print(summary(read(file)))

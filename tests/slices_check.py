#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Tests slices.py: the slices of 1 to 12 have each test of `ctest -C Full` once, fixtures stay together, times are balanced.

    slices_check.py BUILD
"""

import itertools
import json
import pathlib
import re
import subprocess
import sys

sys.dont_write_bytecode = True
import slices  # noqa: E402, in this folder

wrong = []


def check(is_so, sentence):
    if not is_so:
        wrong.append(sentence)


def names_of(tests):
    return sorted(t.name for t in tests)


def check_cover(tests, costs, what):
    all_names = names_of(tests)
    check(len(set(all_names)) == len(all_names), f"{what}: two tests of one name")
    largest = max(costs.of(g) for g in slices.joined(tests, lambda t: t.fixtures))
    for n in range(1, 13):
        parts = slices.divide(tests, n, costs)
        check(len(parts) == n and names_of(itertools.chain(*parts)) == all_names, f"{what}: the slices of {n} do not have each test once")
        for a, b in itertools.combinations(parts, 2):
            common = {f for t in a for f in t.fixtures} & {f for t in b for f in t.fixtures}
            check(not common, f"{what}: of {n} slices, two have {sorted(common)}")
        loads = [costs.of(part) for part in parts]
        # A group is at most a slice's share, or what fixtures hold together; the slice that is then the shortest has at most the share.
        most = costs.of(tests) / n + max(largest, costs.of(tests) / n)
        check(max(loads) <= most + 1e-9, f"{what}: of {n} slices one takes {max(loads):.0f} s, more than {most:.0f}")
        again = slices.divide(list(reversed(tests)), n, costs)
        check(n > 1 or names_of(again[0]) == all_names, f"{what}: another order of tests loses some")


def check_made_up():
    costs = slices.Costs({("build", "p"): (100, "measured"), ("build", slices.shared): (10, "measured")}, 2)
    one = [slices.Test("setup", 5, fixtures={"test setup", "fixture f"}), slices.Test("use", 50, fixtures={"test use", "fixture f"}),
           slices.Test("serial", 40, fixtures={"test serial"}, serial=True)]
    one += [slices.Test(f"p{i}", 10, {"p"}, {f"test p{i}"}) for i in range(4)] + [slices.Test(f"t{i}", i, (), {f"test t{i}"}) for i in range(30)]
    check_cover(one, costs, "made up")
    check(costs.of(one[2:3]) == 80, "a test that runs alone is not counted for both processors")
    check(costs.minutes([slices.Test("long", 600), slices.Test("short", 60)]) == 10, "a long test is divided among the processors")
    check(costs.of(one[3:5]) == 2 * 10 + 100 + 10, "a program is not built once")
    parts = slices.divide(one, 4, costs)
    check(sum(any(t.targets for t in part) for part in parts) == 1, "a program is built in two slices")
    loads = sorted(costs.of(part) for part in parts)
    check(loads[-1] - loads[0] <= 30, f"loads of {loads} s differ by more than the longest of the small tests")


def check_refusals(build):
    for text in ("0/3", "4/3", "1", "a/b", "1/0", "1/2/3", "", "1.5/2", " 1/2"):
        run = subprocess.run([sys.executable, slices.__file__, build, text], capture_output=True, text=True)
        check(run.returncode == 2 and len(run.stderr.splitlines()) == 1 and not run.stdout, f"slice '{text}': {run.returncode}, {run.stderr}")
    for line in ("test\ta\t1", "test\ta\tmany\tmeasured", "tests\ta\t1\tmeasured", "test\ta\t1\tguessed", "test\ta\t1\tmeasured\ntest\ta\t2\tmeasured"):
        try:
            slices.read_table("# seconds\n" + line + "\n")
            check(False, f"the table takes '{line}'")
        except slices.Refused as e:
            check(", line " in str(e), f"a bad table says {e}")


def check_ctest(build, tests, costs):
    """ctest runs what a slice has, and no more for its fixtures."""
    for n in (1, 3):
        for part in slices.divide(tests, n, costs):
            told = subprocess.run(["ctest", "--test-dir", build, "-C", "Full", "--show-only=json-v1", "-R", slices.names_as_regex(names_of(part))],
                                  check=True, capture_output=True, text=True).stdout
            check(sorted(t["name"] for t in json.loads(told)["tests"]) == names_of(part), f"ctest runs other tests than a slice of {n} has")


def check_targets(tests, build):
    """What lies in the build folder and is no target is an output of a test, or is built by it."""
    by_name = {t.name: t for t in tests}
    for name, words in slices.words_of_tests(pathlib.Path(build).resolve()).items():
        program = words[0] if words else ""
        if name in by_name and re.search(r"/tests/test_\w+$", program):
            check(by_name[name].targets, f"{name} runs {program}, which no target of its slice builds")


def main():
    build = sys.argv[1]
    table = slices.read_table(slices.table_file.read_text())
    tests = slices.read_tests(pathlib.Path(build).resolve(), table)
    costs = slices.Costs(table, 2)
    check_cover(tests, costs, build)
    check_made_up()
    check_refusals(build)
    check_ctest(build, tests, costs)
    check_targets(tests, build)
    print("\n".join(wrong) or f"{len(tests)} tests: each is in one of the slices")
    return 1 if wrong else 0


sys.exit(main())

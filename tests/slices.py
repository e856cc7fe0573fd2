#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Divides the tests of `ctest -C Full` into slices that take about as long as each other, for tests/run.sh --full --slice K/N.

    slices.py BUILD K/N [--jobs J]     prints two lines: a regular expression of the slice's tests for ctest -R, and the targets to
                                       build for them; on the standard error how long that may take
    slices.py BUILD --record RESULTS.xml     writes the seconds of a run, and of its build with Ninja, into full_seconds.tsv

The build folder must be configured; nothing in it need be built. full_seconds.tsv has for each test the seconds that ctest tells when
as many tests run at a time as there are processors, and for each program the sum of its compilations' seconds: divided by the number
of processors, the seconds of the whole. A test that is not in it is taken as `seconds_unknown`.
"""

import argparse
import collections
import json
import math
import pathlib
import re
import subprocess
import sys

sys.dont_write_bytecode = True
import summary  # noqa: E402, in this folder

table_file = pathlib.Path(__file__).resolve().parent / "full_seconds.tsv"
seconds_unknown = 60
shared = "(shared)"  # the build of what no test names: libraries, precompiled headers


class Refused(Exception):
    """Told in one line; ends with 2."""


def read_table(text):
    """{(kind, name): (seconds, source)} of lines "test|build NAME SECONDS measured|estimated", tabs between."""
    table = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        try:
            kind, name, seconds, source = line.split("\t")
            if kind not in ("test", "build") or source not in ("measured", "estimated") or (kind, name) in table:
                raise ValueError
            table[kind, name] = (float(seconds), source)
        except ValueError:
            raise Refused(f"{table_file.name}, line {number}: expected test or build, a name that comes once, seconds, measured or "
                          f"estimated, with tabs between; got '{line}'") from None
    return table


class Test:
    def __init__(self, name, seconds, targets=(), fixtures=(), serial=False):
        self.name, self.seconds, self.targets, self.fixtures, self.serial = name, seconds, frozenset(targets), frozenset(fixtures), serial


def words_of_tests(build):
    """The command of each test, as CMake wrote it. ctest itself leaves out the commands of programs that are not built yet."""
    words = {}
    for file in sorted(build.glob("*/CTestTestfile.cmake")):
        for bracketed, plain, rest in re.findall(r"^ *add_test\((?:\[=\[(.+?)\]=\]|(\S+)) (.*)\)$", file.read_text(), re.MULTILINE):
            words.setdefault(bracketed or plain, []).extend(re.findall(r'"((?:[^"\\]|\\.)*)"', rest))
    return words


def known_targets(build):
    told = subprocess.run(["cmake", "--build", str(build), "--target", "help"], check=True, capture_output=True, text=True).stdout
    return set(re.findall(r"^(?:\.\.\. )?([A-Za-z0-9_.+-]+)(?:: phony)?(?: \(.*\))?$", told, re.MULTILINE))


def targets_among(words, build, known):
    """Programs in the build folder, and the targets whose object files are named."""
    targets = set()
    for word in words:
        for path in re.findall(re.escape(str(build)) + r"/([^;,]+)", word):
            objects = re.search(r"CMakeFiles/([^/]+)\.dir/", path)
            name = objects[1] if objects else pathlib.PurePosixPath(path).name
            if name in known:
                targets.add(name)
    return targets


def read_tests(build, table, configuration="Full"):
    told = subprocess.run(["ctest", "--test-dir", str(build), "-C", configuration, "--show-only=json-v1"], check=True, capture_output=True,
                          text=True).stdout
    words, known = words_of_tests(build), known_targets(build)
    tests = []
    for entry in json.loads(told)["tests"]:
        has = {p["name"]: p["value"] for p in entry.get("properties", [])}
        name = entry["name"]
        fixtures = {"fixture " + f for key in ("FIXTURES_SETUP", "FIXTURES_REQUIRED", "FIXTURES_CLEANUP") for f in has.get(key, [])}
        fixtures |= {"test " + other for other in has.get("DEPENDS", [])} | {"test " + name}
        seconds = table.get(("test", name), (seconds_unknown, ""))[0]
        tests.append(Test(name, seconds, targets_among(words.get(name, []) + has.get("ENVIRONMENT", []), build, known), fixtures,
                          has.get("RUN_SERIAL", False)))
    if not tests:
        raise Refused(f"{build} has no tests; is it configured?")
    return tests


def joined(tests, keys):
    """The tests in groups, of which no two have a key in common."""
    groups = []
    for test in tests:
        of_test, together, apart = keys(test), [test], []
        names = set(of_test)
        for group, group_names in groups:
            if group_names & of_test:
                together, names = group + together, names | group_names
            else:
                apart.append((group, group_names))
        groups = apart + [(together, names)]
    return [group for group, _ in groups]


class Costs:
    """Seconds of one processor. A test that runs alone leaves the other processors idle."""

    def __init__(self, table, jobs):
        self.table, self.jobs = table, jobs

    def of_tests(self, tests):
        return sum(t.seconds * (self.jobs if t.serial else 1) for t in tests)

    def of_builds(self, targets):
        return sum(self.table.get(("build", name), (seconds_unknown, ""))[0] for name in targets | ({shared} if targets else set()))

    def of(self, tests):
        return self.of_tests(tests) + self.of_builds(targets_of(tests))

    def minutes(self, tests):
        """Of all processors; the longest test has one of them to itself."""
        longest = max((t.seconds for t in tests), default=0)
        return math.ceil((self.of_builds(targets_of(tests)) / self.jobs + max(longest, self.of_tests(tests) / self.jobs)) / 60)


def targets_of(tests):
    return frozenset().union(*(t.targets for t in tests))


def divide(tests, count, costs):
    """`count` lists of tests. The longest group comes first, to the slice that is then the shortest. Tests with a fixture in common stay
    together; those of one program do, too, so that it is built once, unless they alone take longer than a slice should."""
    most = costs.of(tests) / count
    groups = []
    for group in joined(tests, lambda t: t.fixtures | t.targets):
        groups += [group] if costs.of(group) <= most else joined(group, lambda t: t.fixtures)
    groups.sort(key=lambda g: (-costs.of(g), g[0].name))
    slices = [[] for _ in range(count)]
    for group in groups:
        min(slices, key=lambda s: costs.of(s + group)).extend(group)
    return slices


def parse_slice(text):
    found = re.fullmatch(r"([0-9]{1,4})/([0-9]{1,4})", text)
    k, n = (int(found[1]), int(found[2])) if found else (0, 0)
    if not 1 <= k <= n:
        raise Refused(f"--slice is '{text}'; expected K/N with K of 1 to N, as 2/8")
    return k, n


def names_as_regex(names):
    return "^(" + "|".join(re.sub(r"([.+*?^$()\[\]|\\])", r"\\\1", name) for name in names) + ")$"


def plan(build, table, text, jobs):
    k, n = parse_slice(text)
    tests, costs = read_tests(build, table), Costs(table, jobs)
    own = divide(tests, n, costs)[k - 1]
    targets = sorted(targets_of(own))
    unknown = [t.name for t in own if ("test", t.name) not in table]
    print(f"slice {k} of {n}: {len(own)} of {len(tests)} tests, {len(targets)} programs to build, about "
          f"{costs.minutes(own)} min on {jobs} processors by {table_file.name}"
          + (f"; taken as {seconds_unknown} s, as they are not in it: {', '.join(unknown)}" if unknown else ""), file=sys.stderr)
    print(names_as_regex(sorted(t.name for t in own)) if own else "")
    print(" ".join(targets))


def seconds_of_builds(build, tests):
    """Seconds of the last run of each of Ninja's commands, by the target whose file it made; those of no test's target are shared."""
    named, outputs, sums = targets_of(tests), {}, collections.Counter()
    log = build / ".ninja_log"
    for line in log.read_text().splitlines()[1:] if log.exists() else []:
        begin, end, _, output, _ = line.split("\t")
        outputs[output] = (int(end) - int(begin)) / 1000
    for output, seconds in outputs.items():
        objects = re.search(r"CMakeFiles/([^/]+)\.dir/", output)
        name = objects[1] if objects else pathlib.PurePosixPath(output).name
        sums[name if name in named else shared] += seconds
    return sums


def record(build, table, results):
    tests = read_tests(build, table)
    names = {t.name for t in tests}
    with open(results, encoding="utf-8", errors="replace") as file:
        cases = list(summary.read(file))
    for case in cases:
        if case.get("status") == "run" and case.get("name") in names:
            table["test", case.get("name")] = (float(case.get("time")), "measured")
    for name, seconds in seconds_of_builds(build, tests).items():
        if name == shared:  # of which a slice builds a part
            seconds = max(seconds, table.get(("build", shared), (0, ""))[0])
        table["build", name] = (seconds, "measured")
    head = [line for line in table_file.read_text().splitlines() if line.startswith("#")]
    rows = [f"{kind}\t{name}\t{max(1, round(seconds))}\t{source}" for (kind, name), (seconds, source) in sorted(table.items())]
    table_file.write_text("\n".join(head + rows) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("slice", nargs="?", metavar="K/N")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--record", metavar="RESULTS.xml")
    o = parser.parse_args()
    try:
        table, build = read_table(table_file.read_text()), o.build.resolve()
        if o.record:
            record(build, table, o.record)
        elif o.slice:
            plan(build, table, o.slice, o.jobs)
        else:
            raise Refused("expected K/N or --record")
    except Refused as e:
        print(f"slices.py: {e}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs all tests and measurements that need a GPU; bench/gpu_suite.sh describes its use."""
import argparse
import importlib.util
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import build
import libraries
import machine
import pack
import report
import runner
import timetable

RESERVE = 10      # seconds at the end for what is written last
LEAST = 4         # a step that would have less is left out
ANSWER_LIMIT = 12  # seconds that a GPU may take to say that it is there
GIVE_UP_AFTER = 3  # questions without an answer


class Clock:
    def __init__(self, budget):
        self.began, self.budget = time.monotonic(), budget

    def spent(self):
        return time.monotonic() - self.began

    def left(self):
        return self.budget - RESERVE - self.spent()


class Suite:
    def __init__(self, arguments, out, work):
        self.arguments, self.work = arguments, pathlib.Path(work)
        self.profile = "first" if arguments.first else "parts " + " ".join(arguments.part) if arguments.part else "whole"
        self.clock = Clock(60 * arguments.minutes)
        gpu, missing = machine.query()
        self.facts = {"gpu": gpu, "gpu_missing": missing, "host": machine.host(), "commit": commit(), "libraries": {}}
        self.tools, self.programs, self.missing = {}, {}, {}
        self.steps = []
        self.silent_since, self.unanswered = None, 0
        self.renewed = (0, 0)
        self.runner = runner.Runner(self.between)
        self.report = report.Report(out, work, self)
        self.environment = dict(os.environ, PYTHONUNBUFFERED="1")

    # ---- before the first step

    def find_tools(self):
        self.tools["python"] = sys.executable
        for name in ("ncu", "compute-sanitizer"):
            path = machine.find_tool(name, "/usr/local/cuda/bin", "/usr/local/cuda*/bin", "/opt/nvidia/nsight-compute/*")
            if path:
                self.tools[name] = path
            else:
                self.missing[name] = f"there is no {name}"
        if importlib.util.find_spec("torch") is None:
            self.missing["torch"] = "this python3 has no torch"

    def open_programs(self):
        folder = self.work / "programs"
        folder.mkdir()
        paths, manifest = pack.open_pack(self.arguments.binaries, folder)
        self.facts["manifest"], self.facts["commit"] = manifest, manifest["commit"]
        self.programs = {name: str(path) for name, path in paths.items()}
        self.link_libraries({name: entry["needs"] for name, entry in manifest["programs"].items()})

    def link_libraries(self, needs):
        folder = self.work / "libraries"
        folder.mkdir(exist_ok=True)
        found = libraries.provide([name for names in needs.values() for name in names], folder)
        self.facts["libraries"] = {name: str(path) if path else None for name, path in found.items()}
        for program, names in needs.items():
            absent = [name for name in names if name in found and found[name] is None]
            if absent:
                self.missing[program] = f"{' and '.join(absent)} found neither in a CUDA toolkit nor in Python's nvidia-* packages"
        own = str(folder)
        self.environment["LD_LIBRARY_PATH"] = ":".join(filter(None, [own, os.environ.get("LD_LIBRARY_PATH", "")]))

    def add_step(self, name, part, limit, rows=""):
        step = {"name": name, "part": part, "result": "waiting", "text": "", "seconds": 0.0, "limit": limit * self.arguments.limits, "rows": rows}
        self.steps.append(step)
        return step

    # ---- one step

    def between(self):
        """While a program runs: writes its results so far to OUT when there are new ones, or every ten seconds."""
        latest = max((path.stat().st_mtime_ns for path in self.work.glob("*.json")), default=0)
        now = time.monotonic()
        if (latest != self.renewed[0] and now - self.renewed[1] > 1) or now - self.renewed[1] > 10:
            self.report.renew()
            self.renewed = (latest, now)

    def finish(self, step, result, text):
        step["result"], step["text"] = result, text
        self.report.renew()
        print(f"{self.clock.spent():6.1f} s  {step['name']:20} {result}{': ' if text else ''}{text[:150]}", flush=True)
        return result == "ok"

    def allowed(self, step, plan, most):
        """The time limit of a step in seconds: the smallest of its limit, the suite's remaining time and `most`. None: the step is skipped, and named."""
        lacking = next((need for need in plan.needs if need in self.missing), None)
        if lacking:
            is_fault = lacking in pack.PROGRAMS
            self.finish(step, "FAILED" if is_fault else "left out", ("not run: " if is_fault else "") + self.missing[lacking])
            return None
        limit = min(step["limit"], self.clock.left(), most)
        if limit < min(LEAST, step["limit"]):
            self.finish(step, "left out", "no time")
            return None
        if plan.on_gpu and self.silent_since and not self.gpu_answers():
            self.finish(step, "FAILED", f"not run: the GPU has not answered since {self.silent_since}")
            return None
        step["result"] = "running"
        return limit

    def run(self, step, plan):
        limit = self.allowed(step, plan, float("inf"))
        if limit is None:
            return False
        self.report.renew()
        return self.judge(step, plan, self.runner.run(self.command(plan, limit), limit, self.log_of(step), self.environment))

    def run_together(self, planned):
        """Runs steps that only pass or fail and are not timed: several at once, within their group's time limit."""
        group = timetable.group_limit(self.arguments.first) * self.arguments.limits
        began, waiting, running = time.monotonic(), list(planned), {}

        def begin_next():
            while waiting:
                step, plan = waiting.pop(0)
                limit = self.allowed(step, plan, began + group - time.monotonic())
                if limit is not None:
                    program = runner.Program(self.command(plan, limit), limit, self.log_of(step), self.environment)
                    running[program] = step, plan
                    return program
            return None

        self.runner.run_together(self.arguments.jobs, begin_next, lambda program, done: self.judge(*running[program], done))

    def log_of(self, step):
        return self.work / f"{step['name']}.log"

    def judge(self, step, plan, done):
        step["seconds"] = round(done.seconds, 1)
        text = self.said(step, plan, self.log_of(step))
        if not done.is_stopped and done.code == 0:
            if plan.part == "tests" and not re.search(r"test cases: *[1-9]", text):
                return self.finish(step, "FAILED", f"no test of this file ran: {text}")
            return self.finish(step, "ok", text if plan.part in ("tests", "smoke") else "")
        if done.is_stopped:
            text = f"stopped after {done.seconds:.0f} s" + (", and could not be ended" if done.is_left else "") + (f"; last: {text}" if text else "")
        else:
            text = f"ended with {done.code}: {text}" if done.code >= 0 else f"ended by {signal_name(-done.code)}: {text}"
        self.finish(step, "FAILED", text)
        if plan.on_gpu and (done.is_stopped or done.code < 0) and not self.silent_since and not self.gpu_answers():
            self.silent_since = step["name"]
        return False

    def gpu_answers(self):
        """Tests whether the device responds, after a step that hung or crashed and then before each step, a few times."""
        if "bench_cuda" in self.missing or self.unanswered >= GIVE_UP_AFTER:
            return self.unanswered < GIVE_UP_AFTER
        limit = min(ANSWER_LIMIT, self.clock.left())
        done = runner.Runner().run([self.programs["bench_cuda"], "--check"], limit, self.work / "answers.log", self.environment)
        if not done.is_stopped and done.code == 0:
            self.silent_since, self.unanswered = None, 0
            return True
        self.unanswered += 1
        return False

    def command(self, plan, limit):
        words = dict(self.programs, **self.tools, **timetable.amounts(self.arguments.first), work=str(self.work), seconds=str(max(3, int(limit) - 5)))
        filled = [re.sub(r"\{([a-z_0-9-]+)\}", lambda found: words.get(found[1], found[0]), word) for word in plan.command]
        return [word for word in filled if word]

    def said(self, step, plan, log):
        """The most informative line of a log."""
        try:
            lines = log.read_bytes()[-60_000:].decode(errors="replace").replace("\r", "\n").splitlines()
        except OSError:
            return ""
        lines = [line.strip() for line in lines if line.strip()]
        if plan.part == "smoke":
            found = [s for s in (report.read_json(self.work / "smoke.json") or {}).get("smoke", [])]
            wrong = [s for s in found if s["what"]]
            if wrong:
                return f"{len(wrong)} of {len(found)} kernels: " + "; ".join(f"{s['kernel']}: {s['what']}" for s in wrong)[:400]
            if found:
                return f"{len(found)} kernels"
        for pattern in (r"^(bench_cuda|train_gpt|torch_gpu): |^skipped: ", r"WRONG", r"test cases: *\d+", r"ERROR: |ERROR SUMMARY|==ERROR=="):
            for line in reversed(lines):
                if re.search(pattern, line):
                    return line[:240]
        return lines[-1][:240] if lines else "it said nothing"

    # ---- all of it

    def compare_losses(self, step):
        """Both devices trained the same weights on the same batches."""
        runs = [report.read_json(self.work / f"train_gpt_{device}" / "summary.json") for device in ("cuda", "cpu")]
        if None in runs:
            return self.finish(step, "left out", "not both devices have trained")
        pairs = [(a["policy"], a["validation_loss"], b["validation_loss"]) for a, b in zip(runs[0]["runs"], runs[1]["runs"])]
        far = [f"{policy}: {a} on cuda, {b} on the CPU" for policy, a, b in pairs if a is None or b is None or not abs(float(a) - float(b)) <= 0.02]
        if far or not pairs:
            return self.finish(step, "FAILED", "more than 0.02 nats apart: " + "; ".join(far))
        return self.finish(step, "ok", "at most %.4f nats apart" % max(abs(a - b) for _, a, b in pairs))

    def run_all(self):
        pairs = timetable.chosen(self.arguments.first, self.arguments.part)
        if self.arguments.binaries:
            self.open_programs()
        else:
            self.plan_build()
        planned = []
        for plan, limit in pairs:
            planned.append((self.add_step(plan.name, plan.part, limit, plan.rows), plan))
            if plan.name == "train_gpt_cpu":
                planned.append((self.add_step("same_losses", plan.part, 1), None))
        self.report.renew()
        if not self.arguments.binaries:
            self.build()
        together = [(step, plan) for step, plan in planned if plan and plan.is_together]
        for step, plan in planned:
            if plan is None:
                self.compare_losses(step)
            elif not plan.is_together:
                self.run(step, plan)
            elif together:
                self.run_together(together)
                together = []
        return any(step["result"] == "FAILED" for step in self.steps)

    def plan_build(self):
        folder = self.arguments.build or str(self.work / "build")
        self.build_steps = [(self.add_step(plan.name, plan.part, plan.whole), plan) for plan in build.steps(folder, self.arguments.headers)]
        self.programs = build.programs(folder, self.work)

    def build(self):
        for step, plan in self.build_steps:
            self.run(step, plan)
        for name in pack.PROGRAMS:
            if not os.access(self.programs[name], os.X_OK):
                self.missing[name] = f"{name} was not built"
        there = [name for name in pack.PROGRAMS if name not in self.missing]
        self.link_libraries({name: pack.needed_libraries(self.programs[name]) for name in there})
        pathlib.Path(self.programs["text"]).write_bytes(pack.own_text(timetable.ROOT))


def signal_name(number):
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def commit():
    try:
        return subprocess.run(["git", "-C", str(timetable.ROOT), "rev-parse", "HEAD"], capture_output=True, text=True, timeout=10).stdout.strip() or "unknown"
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"


def show_timetable(arguments):
    """--dry: what would be run, how long it may take, and whether a train_gpt built elsewhere takes the arguments."""
    pairs = timetable.chosen(arguments.first, arguments.part)
    if not arguments.binaries:
        pairs = [(plan, plan.whole) for plan in build.steps(arguments.build or "BUILD", arguments.headers)] + pairs
    else:
        manifest = pack.read_manifest(arguments.binaries)
        print(f"pack: commit {manifest['commit']}, {manifest['packed_bytes'] / 1e6:.1f} MB")
    status = 0
    own = os.environ.get("TRAIN_GPT")
    for plan, limit in pairs:
        for name, amount in timetable.amounts(arguments.first).items():
            plan.command = [word.replace("{" + name + "}", amount) for word in plan.command if word != "{" + name + "}" or amount]
        print(f"{plan.name:20} {limit:4} s  {' '.join(plan.command)}")
        if own and plan.command[0] == "{train_gpt}" and "cuda" in plan.command:
            with tempfile.TemporaryDirectory() as folder:
                words = {"{train_gpt}": own, "{text}": str(timetable.ROOT / "CHANGELOG.md")}
                command = [words.get(word, word).replace("{work}", folder) for word in plan.command]
                code = subprocess.run(command, capture_output=True).returncode
            # Without a GPU right arguments end with 3, wrong ones with 2.
            print(f"{'':20} train_gpt takes these" if code == 3 else f"{'':20} FAILED: train_gpt ends with {code}")
            status = status or int(code != 3)
    print(f"{timetable.total(pairs, arguments.first)} s, if every step takes all it may; {60 * arguments.minutes:.0f} s are allowed")
    return status


def parse(argv):
    parser = argparse.ArgumentParser(prog="gpu_suite.sh", allow_abbrev=False, usage="bench/gpu_suite.sh OUT [--binaries FOLDER] [--first | --part NAME...]; --help")
    parser.add_argument("out", nargs="?")
    parser.add_argument("--binaries")
    parser.add_argument("--first", action="store_true")
    parser.add_argument("--part", nargs="+", default=[], choices=timetable.parts(), metavar="NAME")
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--jobs", type=int, default=min(8, max(1, (os.cpu_count() or 1) // 2)))
    parser.add_argument("--headers")
    parser.add_argument("--build")
    parser.add_argument("--work")
    parser.add_argument("--limits", type=float, default=1)
    parser.add_argument("--dry", action="store_true")
    arguments = parser.parse_args(argv)
    if not arguments.out and not arguments.dry:
        parser.error("where shall the results go? bench/gpu_suite.sh OUT")
    if arguments.first and arguments.part:
        parser.error("--first is all of it, thin, and --part some of it, whole: one of the two")
    if arguments.minutes is None:
        arguments.minutes = 7 if arguments.first else 9
    if not 0 < arguments.minutes <= 1440:
        parser.error(f"--minutes is {arguments.minutes}; expected more than 0 and at most 1440")
    if not arguments.jobs > 0:
        parser.error(f"--jobs is {arguments.jobs}; expected more than 0")
    if not arguments.limits > 0:
        parser.error(f"--limits is {arguments.limits}; expected more than 0")
    for name in ("binaries", "headers"):
        if getattr(arguments, name) and not os.path.isdir(getattr(arguments, name)):
            parser.error(f"--{name}: {getattr(arguments, name)} is no folder")
    return arguments


def main(argv):
    arguments = parse(argv)
    try:
        if arguments.dry:
            return show_timetable(arguments)
        out = pathlib.Path(arguments.out)
        out.mkdir(parents=True, exist_ok=True)
        work = arguments.work or tempfile.mkdtemp(prefix="gpu_suite_")
        pathlib.Path(work).mkdir(parents=True, exist_ok=True)
        suite = Suite(arguments, out, work)
        suite.find_tools()

        def stop(number, _):
            raise KeyboardInterrupt(signal_name(number))

        signal.signal(signal.SIGTERM, stop)
        try:
            failed = suite.run_all()
        except KeyboardInterrupt as stopped:
            failed = True
            suite.runner.end()
            for step in suite.steps:
                if step["result"] in ("running", "waiting"):
                    suite.finish(step, "FAILED" if step["result"] == "running" else "left out", f"the suite was ended by {stopped or 'SIGINT'}")
        suite.report.renew()
        print((out / "summary.md").read_text().split("\n## ")[0])
        print(f"results: {out / 'summary.md'}")
        if not arguments.work:
            shutil.rmtree(work, ignore_errors=True)
        return int(failed)
    except pack.PackError as error:
        print(f"gpu_suite.sh: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"gpu_suite.sh: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

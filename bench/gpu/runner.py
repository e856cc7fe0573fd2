# SPDX-License-Identifier: MIT
"""Runs one program under a time limit, in a new session, so that none of its processes remain."""
import os
import signal
import subprocess
import sys
import time

try:
    import ctypes
except ImportError:  # a Python without libffi
    ctypes = None

GRACE = 3  # seconds between asking a program to end and ending it


def end_with_parent():
    """In the child: if the suite is killed, the child ends, too, so that it does not disturb later measurements."""
    if ctypes is not None and sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


class Outcome:
    def __init__(self, code, seconds, is_stopped=False, is_left=False):
        self.code, self.seconds = code, seconds
        self.is_stopped = is_stopped  # at its limit
        self.is_left = is_left        # it could not be ended: it waits for the device in the kernel


class Program:
    """A running program with a time limit. A program that does not exist ends with code 127."""

    def __init__(self, command, limit, log, environment):
        """limit: seconds, including the grace period. log: a path."""
        self.began = time.monotonic()
        self.until = self.began + max(0.5, limit - GRACE)
        self.process = None
        with open(log, "ab") as output:
            try:
                self.process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                                env=environment, start_new_session=True, preexec_fn=end_with_parent)
            except OSError as error:
                output.write(f"{command[0]} does not start: {error.strerror}\n".encode())

    def signal_group(self, number):
        try:
            os.killpg(self.process.pid, number)
        except (ProcessLookupError, PermissionError):
            pass

    def is_running(self):
        return self.process is not None and self.process.poll() is None

    def end(self):
        """Ends the program. False if it does not end."""
        for number, seconds in ((signal.SIGTERM, GRACE), (signal.SIGKILL, 5)):
            self.signal_group(number)
            try:
                self.process.wait(seconds)
                self.signal_group(signal.SIGKILL)  # children that outlived it
                return True
            except subprocess.TimeoutExpired:
                pass
        return False

    def wait(self, seconds):
        """The program's Outcome, if it ends or reaches its limit within these seconds; None if it is still running."""
        if self.process is None:
            return Outcome(127, time.monotonic() - self.began)
        try:
            code = self.process.wait(max(0.01, min(seconds, self.until - time.monotonic())))
            self.signal_group(signal.SIGKILL)
            return Outcome(code, time.monotonic() - self.began)
        except subprocess.TimeoutExpired:
            if time.monotonic() < self.until:
                return None
        has_ended = self.end()
        return Outcome(self.process.returncode, time.monotonic() - self.began, True, not has_ended)


class Runner:
    """Programs one by one, or several at once. `between` is called every half second while one runs."""

    def __init__(self, between=lambda: None):
        self.between = between
        self.programs = []

    def end(self):
        """Ends what runs, when the suite is ended."""
        for program in self.programs:
            if program.is_running():
                program.end()

    def run(self, command, limit, log, environment):
        self.programs = [Program(command, limit, log, environment)]
        while True:
            done = self.programs[0].wait(0.5)
            if done:
                return done
            self.between()

    def run_together(self, most, begin_next, finish):
        """At most `most` at once. begin_next() gives a Program, or None where there is no further one; finish(program, outcome)."""
        self.programs, is_last = [], False
        while True:
            while not is_last and len(self.programs) < most:
                program = begin_next()
                is_last = program is None
                if program:
                    self.programs.append(program)
            if not self.programs:
                return
            for program in list(self.programs):
                done = program.wait(0.02)
                if done:
                    self.programs.remove(program)
                    finish(program, done)
            self.between()

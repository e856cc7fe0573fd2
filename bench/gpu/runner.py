# SPDX-License-Identifier: MIT
"""Runs one program under a time limit, in a session of its own, so that nothing of it is left."""
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
    """In the child: a suite that is killed leaves nothing running, which would be in the way of the next one's times."""
    if ctypes is not None and sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


class Outcome:
    def __init__(self, code, seconds, is_stopped=False, is_left=False):
        self.code, self.seconds = code, seconds
        self.is_stopped = is_stopped  # at its limit
        self.is_left = is_left        # it could not be ended: it waits for the device in the kernel


class Runner:
    """One program at a time. `between` is called every half second while one runs."""

    def __init__(self, between=lambda: None):
        self.between = between
        self.process = None

    def signal_group(self, number):
        try:
            os.killpg(self.process.pid, number)
        except (ProcessLookupError, PermissionError):
            pass

    def end(self):
        """Ends what runs. False where it does not end."""
        for number, seconds in ((signal.SIGTERM, GRACE), (signal.SIGKILL, 5)):
            self.signal_group(number)
            try:
                self.process.wait(seconds)
                self.signal_group(signal.SIGKILL)  # children that outlived it
                return True
            except subprocess.TimeoutExpired:
                pass
        return False

    def run(self, command, limit, log, environment):
        """limit: seconds, the grace included. log: a path. A program that is not there gives code 127."""
        began = time.monotonic()
        with open(log, "ab") as output:
            try:
                self.process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                                env=environment, start_new_session=True, preexec_fn=end_with_parent)
            except OSError as error:
                output.write(f"{command[0]} does not start: {error.strerror}\n".encode())
                return Outcome(127, time.monotonic() - began)
            until = began + max(0.5, limit - GRACE)
            while True:
                try:
                    code = self.process.wait(max(0.01, min(0.5, until - time.monotonic())))
                    self.signal_group(signal.SIGKILL)
                    return Outcome(code, time.monotonic() - began)
                except subprocess.TimeoutExpired:
                    self.between()
                if time.monotonic() >= until:
                    has_ended = self.end()
                    return Outcome(self.process.returncode, time.monotonic() - began, True, not has_ended)

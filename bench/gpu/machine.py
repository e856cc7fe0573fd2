# SPDX-License-Identifier: MIT
"""The properties of the GPU according to nvidia-smi."""
import glob
import os
import platform
import shutil
import subprocess

QUERY = ("name", "compute_cap", "driver_version", "memory.total", "clocks.sm", "clocks.mem", "clocks.max.sm",
         "power.draw", "temperature.gpu", "utilization.gpu", "ecc.errors.uncorrected.volatile.total")


def find_tool(name, *folders):
    """The path of a program in PATH or in the folders, which may be patterns; or None."""
    found = shutil.which(name)
    for pattern in folders:
        for path in [] if found else sorted(glob.glob(f"{pattern}/{name}"), reverse=True):
            if os.access(path, os.X_OK):
                return path
    return found


def nvidia_smi():
    return find_tool("nvidia-smi", "/usr/local/nvidia/bin", "/usr/bin", "/usr/lib/wsl/lib")


def query():
    """({field: value}, None), or ({}, an error message)."""
    program = nvidia_smi()
    if program is None:
        return {}, "there is no nvidia-smi"
    try:
        said = subprocess.run([program, "--query-gpu=" + ",".join(QUERY), "--format=csv,noheader"], capture_output=True,
                              text=True, timeout=20, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        return {}, "nvidia-smi does not answer within 20 s"
    except OSError as error:
        return {}, f"nvidia-smi does not start: {error}"
    lines = [line for line in (said.stdout + said.stderr).splitlines() if line.strip()]
    values = [value.strip() for value in lines[0].split(",")] if lines else []
    if said.returncode != 0 or len(values) != len(QUERY):
        return {}, f"nvidia-smi ends with {said.returncode}: {lines[0] if lines else 'nothing said'}"
    return dict(zip(QUERY, values)), None


def host():
    try:
        processors = len(os.sched_getaffinity(0))
    except AttributeError:
        processors = os.cpu_count()
    return {"system": platform.release(), "processors": processors, "python": platform.python_version()}

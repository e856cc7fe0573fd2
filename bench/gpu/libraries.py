# SPDX-License-Identifier: MIT
"""Finds the CUDA runtime and cuBLASLt: in the toolkit, or in PyTorch's nvidia-* packages."""
import glob
import os
import pathlib
import subprocess
import sys

# Of every program; only these are looked for.
LOOKED_FOR = ("libcudart.so", "libcublasLt.so")


def toolkit_folders():
    homes = [os.environ.get(name) for name in ("CUDA_HOME", "CUDA_PATH", "CUDA_ROOT")]
    homes += ["/usr/local/cuda", *sorted(glob.glob("/usr/local/cuda-*"), reverse=True), "/opt/cuda", "/usr/lib/cuda"]
    for home in filter(None, homes):
        for part in ("lib64", "lib", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib"):
            yield pathlib.Path(home, part)


def package_folders():
    """The package folders of this Python, of the active environment, and of others in the usual places."""
    places = [*sys.path]
    for environment in (os.environ.get("VIRTUAL_ENV"), os.environ.get("CONDA_PREFIX")):
        if environment:
            places += glob.glob(f"{environment}/lib/python3*/site-packages")
    for pattern in ("/opt/*/.venv/lib/python3*/site-packages", "/opt/*/lib/python3*/site-packages",
                    "/usr/lib/python3*/*-packages", "/usr/local/lib/python3*/*-packages"):
        places += sorted(glob.glob(pattern))
    for place in filter(None, places):
        for folder in sorted(glob.glob(f"{place}/nvidia/*/lib")):  # cu13/lib; before CUDA 13 cuda_runtime/lib, cublas/lib
            yield pathlib.Path(folder)


def loader_folders():
    for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":"):
        if folder:
            yield pathlib.Path(folder)
    try:
        cache = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, timeout=20).stdout
    except (OSError, subprocess.TimeoutExpired):
        return
    for line in cache.splitlines():
        name, _, path = line.partition(" => ")
        if path and name.strip().startswith(LOOKED_FOR):
            yield pathlib.Path(path).parent


def find(name):
    """The file with exactly this name, or None."""
    for folders in (loader_folders, toolkit_folders, package_folders):
        for folder in folders():
            if (folder / name).exists():
                return (folder / name).resolve()
    return None


def provide(needed, folder):
    """Makes links to those libraries among `needed` that are searched for in `folder`, which can then be used as LD_LIBRARY_PATH
    and contains nothing else. Returns {name: path}, with None for libraries that were not found."""
    found = {}
    for name in sorted(set(needed)):
        if not name.startswith(LOOKED_FOR):
            continue
        found[name] = find(name)
        link = pathlib.Path(folder, name)
        if found[name] is not None and not link.exists():
            link.symlink_to(found[name])
    return found

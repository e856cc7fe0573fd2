# SPDX-License-Identifier: MIT
"""Builds the three programs on the machine with the GPU, if it has a compiler, by one call of ninja."""
import os
import pathlib
import shutil

import pack
import timetable

CONFIGURE_LIMIT, BUILD_LIMIT = 60, 400  # seconds


def steps(folder, headers):
    """headers: the folder that contains doctest/, nlohmann/ and CLI/, or None."""
    cmake = os.environ.get("CMAKE", "cmake")
    nvcc = os.environ.get("CUDACXX") or shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    configure = [cmake, "-S", str(timetable.ROOT), "-B", folder, "-DHALFTONE_BUILD_CUDA=ON", "-DHALFTONE_BUILD_EMULATOR=OFF",
                 "-DCMAKE_BUILD_TYPE=Release", f"-DCMAKE_CUDA_COMPILER={nvcc}"]
    if shutil.which("ninja"):
        configure += ["-G", "Ninja"]
    if headers:
        configure.append(f"-DCMAKE_INCLUDE_PATH={pathlib.Path(headers).resolve()}")
    compile_all = [cmake, "--build", folder, "--parallel", str(os.cpu_count() or 4), "--target", *pack.PROGRAMS]
    return [timetable.Step("configure", "build", None, CONFIGURE_LIMIT, configure, on_gpu=False),
            timetable.Step("build", "build", None, BUILD_LIMIT, compile_all, on_gpu=False)]


def programs(folder, work):
    paths = {name: str(pathlib.Path(folder, path)) for name, path in pack.PROGRAMS.items()}
    return dict(paths, text=str(pathlib.Path(work, "text.txt")))

#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Compiles the CUDA code that the repository has without a GPU: no warning, no spilled register and no local memory in any kernel,
# and no more kernels than a program may have.
#
#     tests/cuda/compile.sh [--full] [--keep FOLDER] [FILE...]      each source as its line `// compile:` says, which compile.py
#                                                                   explains; --full: all of it, for sm_80, sm_90, sm_100 and
#                                                                   sm_120; FILE: these, for sm_80 and sm_90
#
# --keep leaves the objects in FOLDER, for tests/cuda/gates.py and, with their PTX, for tests/ptx/run.sh.
#
# CUDACXX names the compiler, CXX the one behind it. Prints for each file its seconds of processor time, how many kernels it
# has, and the most registers that one of them uses.
set -euo pipefail
command -v python3 >/dev/null 2>&1 || { echo "skipped: there is no python3"; exit 77; }
exec python3 "$(dirname "${BASH_SOURCE[0]}")/compile.py" "$@"

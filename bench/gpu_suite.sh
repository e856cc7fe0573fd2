#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# All tests and measurements that need a GPU, in one command of at most nine minutes: whether the kernels are correct, how fast they
# are compared with cuBLASLt's and PyTorch's, the speed of training, counters of ncu, the tests, and compute-sanitizer.
#
#     bench/gpu_suite.sh OUT [--binaries FOLDER] [--first | --part NAME...] [--minutes N]
#
#     OUT                the folder of results: at most eight files, rewritten after every step; summary.md begins with failures
#     --binaries FOLDER  a pack of bench/gpu_pack.sh: nothing is built, and libcudart and cuBLASLt are found in the CUDA
#                        toolkit or in PyTorch's packages. Without it everything is built, by one call of ninja
#     --first            all parts with few shapes: 7 minutes
#     --part NAME...     some parts with all shapes: device, ceilings, smoke, tests, sanitizers, products, attention, rows, optimizer,
#                        own_models, torch, training, ncu
#     --minutes N        time limit of all steps, 9 by default; steps that do not fit are skipped and named
#     --jobs N           how many tests and sanitizers run at once; by default half of the processors, at most 8
#     --work FOLDER      the folder of all other files; by default a temporary folder
#     --limits SHARE     a factor of each step's time limit, for a slower device
#     --build FOLDER     the build folder; by default in the work folder
#     --headers FOLDER   the folder that contains doctest/, nlohmann/ and CLI/, to build on a machine without them
#     --dry              prints what would run, how long it may take, and whether arguments and pack are valid
#
# Needs Python 3.9; uses PyTorch, ncu and compute-sanitizer if they are installed. The exit code is 0 if no step failed, 1 if one
# failed, and 2 for wrong arguments.
set -euo pipefail
folder=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
for argument; do
    if [[ $argument == --help || $argument == -h ]]; then
        sed -n '3,/^set/p' "${BASH_SOURCE[0]}" | sed '$d; s/^# \{0,1\}//'
        exit 0
    fi
done
command -v python3 >/dev/null 2>&1 || { echo "gpu_suite.sh: there is no python3" >&2; exit 2; }
exec python3 "$folder/gpu/suite.py" "$@"

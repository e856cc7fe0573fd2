#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Everything that only a GPU can show, in one command of at most nine minutes: whether the kernels are right, how fast they
# are beside cuBLASLt's and PyTorch's, what training reaches, what ncu counts, the tests, and compute-sanitizer.
#
#     bench/gpu_suite.sh OUT [--binaries FOLDER] [--first | --part NAME...] [--minutes N]
#
#     OUT                where results go: at most eight files, renewed after every step; summary.md opens with what failed
#     --binaries FOLDER  a pack of bench/gpu_pack.sh: nothing is built here, and libcudart and cuBLASLt are found in the CUDA
#                        toolkit or in PyTorch's packages. Without it all is built here, by one call of ninja
#     --first            all of it, thin: 7 minutes
#     --part NAME...     some of it, whole: device, ceilings, smoke, tests, sanitizers, products, attention, rows, optimizer,
#                        torch, training, ncu
#     --minutes N        what all of it may take, 9 by default; steps that do not fit are left out and named
#     --jobs N           how many tests and sanitizers run at once; half of the processors by default, 8 at most
#     --work FOLDER      where everything else goes; a temporary folder otherwise
#     --limits SHARE     each step's limit times this, for a device that is slower
#     --build FOLDER     where to build; in the work folder otherwise
#     --headers FOLDER   where doctest/, nlohmann/ and CLI/ lie, to build on a machine that does not have them installed
#     --dry              shows what would be run, how long it may take, and whether arguments and pack are right
#
# Needs Python 3.9; PyTorch, ncu and compute-sanitizer where they are there. Ends with 0 where no step failed, with 1 where one
# did, with 2 for arguments.
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

#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Compiles CUDA code with the newest nvcc of PyPI, which may be newer than the one installed, and runs on the CPU what it compiled.
#
#     tests/cuda/new_toolkit.sh [--folder FOLDER]
#
# The toolkit is assembled in FOLDER/newest, build/toolkits by default, anew where PyPI has a newer one. Nothing is installed. Needs
# Python's pip, the network, and g++.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)

skip() {
    echo "skipped: $*"
    exit 77
}

folder=$root/build/toolkits
if [[ ${1:-} == --folder ]]; then folder=$2; fi
toolkit=$folder/newest
[[ $(uname -sm) == "Linux x86_64" ]] || skip "this gets a toolkit for Linux on x86-64"
command -v python3 >/dev/null 2>&1 && python3 -m pip --version >/dev/null 2>&1 || skip "there is no pip"
[[ ${CXX:-g++} == *g++* && ${CXX:-g++} != *clang* ]] || skip "the programs are compiled with g++, not ${CXX:-g++}"

echo "Getting the newest toolkit, where it is not there yet: $toolkit"
mkdir -p "$folder"
python3 -m pip install -q --disable-pip-version-check --no-deps --upgrade --target "$toolkit" \
    nvidia-cuda-{nvcc,crt,runtime,cccl} nvidia-nvvm nvidia-cublas >"$folder/newest.log" 2>&1 ||
    [[ -e $toolkit/nvidia ]] || skip "PyPI's nvcc is not to be had, see $folder/newest.log"
nvcc=$(find "$toolkit/nvidia" -path "*/bin/nvcc" | LC_ALL=C sort -V | tail -n 1)
[[ -n $nvcc ]] || skip "the wheels have no nvcc"
"$nvcc" --version | sed -n 's/^Cuda compilation tools, /with nvcc of CUDA /p'

CUDACXX=$nvcc bash "$here/../headers/nvcc.sh" --full

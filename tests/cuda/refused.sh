#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Headers and build must stop with an error message for CUDA before 12.4; so must a build for CUDA without nvcc and, if there is an
# nvcc, architectures before sm_80 and arithmetic that is not IEEE 754.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
status=0

# expect WHAT SENTENCE FILE: the file has the sentence, wherever its lines are broken.
expect() {
    if tr -s ' \n' ' ' <"$3" | grep -F "$2" >/dev/null; then return; fi
    echo "$1 does not say '$2' but:"
    cat "$3"
    status=1
}

mkdir "$work/include"
echo '#define CUDART_VERSION 12030' >"$work/include/cuda_runtime_api.h"
echo '#include <halftone/exec/cuda/error.cuh>' >"$work/old.cpp"
if "${CXX:-c++}" -std=c++20 -fsyntax-only -I"$work/include" -I"$root/include" "$work/old.cpp" >"$work/log" 2>&1; then
    echo "the headers are content with CUDA 12.3"
    status=1
fi
expect "a header" "halftone: needs CUDA 12.4 or newer" "$work/log"

refuse() {
    local sentence=$1
    shift
    if "${CMAKE:-cmake}" -S "$root" -B "$work/build" -DCMAKE_CXX_COMPILER="${CXX:-c++}" -DHALFTONE_BUILD_CUDA=ON "$@" >"$work/log" 2>&1; then
        echo "the build accepts $*"
        status=1
    fi
    expect "the build" "$sentence" "$work/log"
    rm -rf "$work/build"
}
printf '#!/bin/sh\necho "Cuda compilation tools, release 12.3, V12.3.107"\n' >"$work/nvcc"
chmod +x "$work/nvcc"
refuse "is of CUDA 12.3; needs 12.4 or newer" -DCMAKE_CUDA_COMPILER="$work/nvcc"
refuse "needs nvcc, which was not found" -DCMAKE_CUDA_COMPILER="$work/missing"

nvcc=${CUDACXX:-nvcc}
if ! command -v "$nvcc" >/dev/null 2>&1; then nvcc=/usr/local/cuda/bin/nvcc; fi
if command -v "$nvcc" >/dev/null 2>&1; then
    echo '#include <halftone/exec/cuda/cuda.cuh>' >"$work/old.cu"
    if "$nvcc" -std=c++20 -arch=sm_75 -I"$root/include" -c "$work/old.cu" -o "$work/old.o" >"$work/log" 2>&1; then
        echo "the headers are content with sm_75"
        status=1
    fi
    expect "a header" "halftone: kernels need an sm_80" "$work/log"

    cat >"$work/fast.cu" <<'CODE'
#include <halftone/exec/cuda/cuda.cuh>
struct twice {
    float* x;
    HALFTONE_HD void operator()() const { *x *= 2; }
};
void run(halftone::cuda& gpu, float* x) { gpu.run(twice{x}); }
CODE
    options=("" -G --use_fast_math -ftz=true)
    # Older ones may keep to themselves how they divide.
    if "$nvcc" --version | grep -E 'release (1[3-9]|[2-9][0-9])' >/dev/null; then options+=(-prec-div=false -prec-sqrt=false); fi
    for option in "${options[@]}"; do
        wanted=refused got=taken
        if [[ -z $option || $option == -G ]]; then wanted=taken; fi
        # The GPU's code alone, but where nothing is unusual.
        what=-cubin
        if [[ -z $option ]]; then what=-c; fi
        # shellcheck disable=SC2086  # one or none
        "$nvcc" -std=c++20 -arch=sm_80 $option -I"$root/include" $what "$work/fast.cu" -o "$work/fast.o" >"$work/log" 2>&1 || got=refused
        if [[ $got != "$wanted" ]]; then
            echo "nvcc $option is $got, and should be $wanted:"
            cat "$work/log"
            status=1
        fi
        if [[ $wanted == taken ]]; then continue; fi
        head -n 1 "$work/log" >"$work/first"
        expect "nvcc $option, first," "halftone: kernels keep their stated errors in IEEE 754's arithmetic alone: compile this file without --use_fast_math" "$work/first"
    done
else
    echo "not checked: what nvcc refuses (there is no nvcc)"
fi
exit "$status"

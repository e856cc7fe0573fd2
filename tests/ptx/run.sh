#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Runs programs compiled by nvcc on a machine without a GPU: the PTX machine of this folder replaces CUDA's runtime.
#
#     tests/ptx/run.sh [--objects FOLDER] [--architecture 90a] [--sanitize] [--seed N] [NAME...] [-- DOCTEST-ARGUMENT...]
#     tests/ptx/run.sh --library FILE
#
# NAME: products, for instance, for tests/cuda/products.cu, or machine and hopper for the tests of this folder; without a NAME all run.
# FOLDER has their objects, as tests/cuda/compile.sh --keep FOLDER leaves them; otherwise they are compiled, which takes seconds to a
# minute each. --sanitize: the address sanitizer checks every byte that kernels access. --seed: blocks and warps take turns in a random
# order. --architecture: the architecture that the tests are compiled for and that the machine imitates; by default sm_80, except for
# tests that need another one. With 90a it has Hopper's additional instructions: mbarriers, bulk copies of tensors, products of
# warpgroups.
#
# --library builds FILE, the machine as a library. It runs any program that is linked with the shared runtime and contains PTX of sm_80:
#
#     nvcc -cudart shared -gencode arch=compute_80,code=compute_80 -no-compress ... && LD_PRELOAD=FILE ./a.out
#
# or PTX of sm_90a (arch=compute_90a,code=compute_90a), if HALFTONE_PTX_ARCHITECTURE=90 is in the environment.
#
# CUDACXX names the CUDA compiler, CXX the C++ compiler.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
nvcc=${CUDACXX:-nvcc}
if ! command -v "$nvcc" >/dev/null 2>&1; then nvcc=/usr/local/cuda/bin/nvcc; fi
command -v "$nvcc" >/dev/null 2>&1 || { echo "skipped: there is no nvcc"; exit 77; }
toolkit=$(cd "$(dirname "$(readlink -f "$(command -v "$nvcc")")")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

objects='' library='' sanitizer='' architecture=''
names=()
while (($#)); do
    case $1 in
        --objects | --library | --seed | --architecture)
            (($# > 1)) || { echo "$1 needs a value" >&2; exit 2; }
            case $1 in
                --objects) objects=$(cd "$2" && pwd) ;;
                --library) library=$(cd "$(dirname "$2")" && pwd)/$(basename "$2") ;;
                --seed) export HALFTONE_PTX_SEED=$2 ;;
                --architecture) architecture=${2#sm_} ;;
            esac
            shift
            ;;
        --sanitize)
            sanitizer=-fsanitize=address
            export HALFTONE_TEST_MEMORY=pageable  # which is watched to the byte
            ;;
        --)
            shift
            break
            ;;
        -*) echo "unknown argument $1" >&2; exit 2 ;;
        *) names+=("$1") ;;
    esac
    shift
done
if [[ -n $objects && -n $sanitizer ]]; then echo "--sanitize compiles the tests itself" >&2; exit 2; fi
if ((${#names[@]} == 0)); then
    names=(machine hopper bytes float8)
    for test in "$root"/tests/cuda/*.cu; do
        name=$(basename "$test" .cu)
        if [[ " ${names[*]} " != *" $name "* && (-z $objects || -e $objects/tests_cuda_$name.cu.o) ]]; then names+=("$name"); fi
    done
fi
export work root nvcc toolkit objects sanitizer asked=$architecture cxx=${CXX:-c++}
# A fused multiply-add is a slow call where a compiler may not use the processor's.
native=
if "$cxx" -march=native -x c++ -c -o "$work/native.o" - <<<'int main() {}' 2>/dev/null; then native=-march=native; fi
export native

compile_machine() {
    # shellcheck disable=SC2086  # none or one each
    "$cxx" -std=c++20 -O2 -fPIC $native $sanitizer -Wall -Wextra -I"$root/tests" -I"$root/include" -isystem "$toolkit/include" \
        -c "$1" -o "$work/machine_$(basename "$1").o"
}
# What the machine poses as: from sm_89 on instructions know numbers of eight bits, and those of sm_90a no other has.
architecture_of() {
    case $1 in
        hopper | warpgroups | *_warpgroups) echo 90a ;;
        bytes | float8) echo "${asked:-89}" ;;
        *) echo "${asked:-80}" ;;
    esac
}
compile_test() {
    local name=$1 source=$root/tests/cuda/$1.cu architecture
    architecture=$(architecture_of "$name")
    if [[ -n $objects && -e $objects/tests_cuda_$name.cu.o && $architecture =~ ^(80|90a)$ ]]; then
        ln -s "$objects/tests_cuda_$name.cu.o" "$work/test_$name.o"
        return
    fi
    if [[ -e $root/tests/ptx/$name.cu ]]; then source=$root/tests/ptx/$name.cu; fi
    "$nvcc" -std=c++20 -O1 ${sanitizer:+-Xcompiler "$sanitizer"} -I"$root/include" -I"$root/tests" \
        -gencode "arch=compute_$architecture,code=compute_$architecture" -no-compress -x cu -c "$source" -o "$work/test_$name.o"
}
run_test() {
    local name=$1 libraries=()
    shift
    # What of tests/cuda/products.cu is about cuBLASLt has to link, and is left out: that is compiled to no PTX.
    if [[ -e $toolkit/lib64/libcublasLt.so ]]; then libraries=(-L"$toolkit/lib64" -lcublasLt -Wl,-rpath,"$toolkit/lib64"); fi
    # shellcheck disable=SC2086
    "$cxx" $sanitizer "$work/test_$name.o" "$work/main.o" "$work/libptx.so" "${libraries[@]}" -Wl,--as-needed,-rpath,"$work" \
        -lpthread -ldl -o "$work/$name" &&
        HALFTONE_PTX_ARCHITECTURE=$(architecture_of "$name" | tr -d a) ASAN_OPTIONS=detect_leaks=0 "$work/$name" -tce='*cublaslt*' "$@" >"$work/$name.log" 2>&1 || touch "$work/$name.failed"
    if [[ -e $work/$name.failed ]]; then
        echo "$name fails:"
        head -n 60 "$work/$name.log"
    else
        echo "$name: $(sed -n 's/^\[doctest\] \(assertions: .*\)/\1/p' "$work/$name.log")"
    fi
}
export -f architecture_of compile_machine compile_test run_test
at_once() { xargs -P "$(nproc)" -I {} bash -c "$1 \"\$@\"" _ "${@:2}"; }

printf '%s\n' "$root"/tests/ptx/*.cpp | at_once compile_machine {}
# shellcheck disable=SC2086
"$cxx" -shared $sanitizer "$work"/machine_*.o -lpthread -o "$work/libptx.so"
if [[ -n $library ]]; then
    cp "$work/libptx.so" "$library"
    exit
fi
# shellcheck disable=SC2086
"$cxx" -std=c++20 -O1 $sanitizer -isystem "$toolkit/include" -c "$root/tests/cuda/main.cpp" -o "$work/main.o"
printf '%s\n' "${names[@]}" | at_once compile_test {}
printf '%s\n' "${names[@]}" | at_once run_test {} "$@"
for name in "${names[@]}"; do [[ ! -e $work/$name.failed ]] || exit 1; done

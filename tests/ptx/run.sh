#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Runs what nvcc has compiled without a GPU: the tests of tests/cuda, over the machine for PTX of this folder in place of CUDA's
# runtime.
#
#     tests/ptx/run.sh [--objects FOLDER] [NAME...] [-- DOCTEST-ARGUMENT...]      # NAME: products, of tests/cuda/products.cu
#
# FOLDER has objects with PTX, as tests/cuda/compile.sh --keep FOLDER leaves them; without it they are compiled, for seconds to
# minutes each. Every test is a program of its own. CUDACXX names the compiler of CUDA, CXX the other one.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
nvcc=${CUDACXX:-nvcc}
if ! command -v "$nvcc" >/dev/null 2>&1; then nvcc=/usr/local/cuda/bin/nvcc; fi
command -v "$nvcc" >/dev/null 2>&1 || { echo "skipped: there is no nvcc"; exit 77; }
toolkit=$(cd "$(dirname "$(readlink -f "$(command -v "$nvcc")")")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

objects=
names=()
while (($#)); do
    case $1 in
        --objects)
            (($# > 1)) || { echo "--objects needs a folder" >&2; exit 2; }
            objects=$(cd "$2" && pwd)
            shift
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
if ((${#names[@]} == 0)); then names=(exec rows updates losses pointwise statistics products attention model steps); fi
export work root nvcc toolkit objects cxx=${CXX:-c++}
# Fused multiply-adds are a call, and slow, where a compiler may not use the processor's.
native=
if "$cxx" -march=native -x c++ -c -o "$work/native.o" - <<<'int main() {}' 2>/dev/null; then native=-march=native; fi
export native

compile_host() {
    "$cxx" -std=c++20 -O2 $native -Wall -Wextra -I"$root/tests" -I"$root/include" -isystem "$toolkit/include" -c "$1" \
        -o "$work/host_$(basename "$1").o"
}
compile_test() {
    [[ -z $objects ]] || { ln -s "$objects/tests_cuda_$1.cu.o" "$work/test_$1.o"; return; }
    "$nvcc" -std=c++20 -O1 -I"$root/include" -I"$root/tests" -gencode arch=compute_80,code=compute_80 -no-compress -x cu \
        -c "$root/tests/cuda/$1.cu" -o "$work/test_$1.o"
}
run_test() {
    local name=$1
    shift
    "$cxx" "$work/test_$name.o" "$work"/host_*.o -lpthread -ldl -o "$work/$name" &&
        { "$work/$name" "$@" >"$work/$name.log" 2>&1 || touch "$work/$name.failed"; } || touch "$work/$name.failed"
    if [[ -e $work/$name.failed ]]; then
        echo "$name fails:"
        head -n 60 "$work/$name.log"
    else
        echo "$name: $(sed -n 's/^\[doctest\] \(assertions: .*\)/\1/p' "$work/$name.log")"
    fi
}
export -f compile_host compile_test run_test
printf '%s\n' "$root"/tests/ptx/*.cpp "$root/tests/cuda/main.cpp" | xargs -P "$(nproc)" -I {} bash -c 'compile_host {}'
printf '%s\n' "${names[@]}" | xargs -P "$(nproc)" -I {} bash -c 'compile_test {}'
printf '%s\n' "${names[@]}" | xargs -P "$(nproc)" -I {} bash -c 'run_test "$@"' _ {} "$@"
for name in "${names[@]}"; do [[ ! -e $work/$name.failed ]] || exit 1; done

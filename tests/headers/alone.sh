#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Compiles each header alone, included twice, with warnings as errors: a header must include everything that it uses, and may be
# included again. The same holds for a SIMD body (*.simd.hpp), except that it is included once: alone it is compiled for the portable
# instruction set (exec/cpu/each_set.hpp).
#
#     tests/headers/alone.sh [header...]            all of include/halftone without arguments, and all bodies
#     tests/headers/alone.sh --all-but-entries      without those directly in include/halftone, which headers.entries compiles
#     tests/headers/alone.sh --public               of those only what docs/api.md names: what programs include
#     tests/headers/alone.sh --bodies               the SIMD bodies, including those of tests and benchmarks
#
# CXX names the compiler. Without an MPI the header that needs one is left out.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=precompiled.sh
source "$root/tests/headers/precompiled.sh"
cd "$root/include"
export CXX=${CXX:-c++}
command -v "$CXX" >/dev/null 2>&1 || { echo "skipped: there is no $CXX"; exit 77; }

flags="-std=c++20 -Wall -Wextra -Wpedantic -Werror"
# One header needs MPI, whose folder its compiler tells.
without=halftone/dist/mpi.hpp
if command -v mpicxx >/dev/null 2>&1 && mpicxx --showme:incdirs >/dev/null 2>&1; then
    for folder in $(mpicxx --showme:incdirs); do flags+=" -isystem $folder"; done
    without=none
fi
export flags
what=all depth=(-mindepth 1)
case ${1:-} in
    --bodies) what=bodies ;;
    --all-but-entries) depth=(-mindepth 2) ;;
    --public) what=public ;;
esac
if [[ ${1:-} == --* ]]; then shift; fi
if (($#)); then
    headers=("$@")
    tasks=$(printf '%s\t\n' "$@")
else
    # What begins or ends a region is no header by itself: compiled are those who include it, and set/*.hpp with its end.
    mapfile -t headers < <(
        if [[ $what == public ]]; then
            grep -oE '`halftone/[a-z0-9_]+/[a-z0-9_/]+\.hpp`' ../docs/api.md | tr -d '`' | LC_ALL=C sort -u | grep -v "^$without$"
            exit
        fi
        find halftone ../tests ../bench -name '*.simd.hpp' | LC_ALL=C sort
        if [[ $what == all ]]; then
            find halftone "${depth[@]}" -name '*.hpp' ! -name '*.simd.hpp' ! -path '*/cpu/set/begin.hpp' \
                ! -path '*/cpu/set/end.hpp' ! -path '*/number/precise/*' ! -path "$without" | LC_ALL=C sort
        fi
    )
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    # What most headers include: the standard library's headers, threads and vectors weigh more than ours.
    precompiled_headers=(error.hpp tensor/shape.hpp tensor/view.hpp memory/resource.hpp tensor/tensor.hpp kernel/common/rows/device.hpp
        autodiff/engine/graph.hpp memory/store.hpp memory/gradient_slabs.hpp autodiff/op/pointwise.hpp exec/cpu/cpu.hpp
        kernel/matmul/cpu/unit/choose.hpp kernel/common/rows/rows.hpp)
    # shellcheck disable=SC2034  # precompile reads them
    if [[ $what == bodies ]]; then precompiled_headers=(exec/cpu/simd.hpp kernel/common/rows/rows.hpp); fi
    # shellcheck disable=SC2086  # several words
    precompile "$work" . "$CXX" $flags
    tasks=$(precompiled_for "$work" . "${headers[@]}")
fi

# program HEADER: what is compiled of it.
program() {
    local first='' last='' times='1 2'
    case $1 in
        *.simd.hpp) times=1 ;;
        halftone/exec/cpu/each_set.hpp)
            first=$'#include <halftone/exec/cpu/simd/vectors.hpp>\n#define HALFTONE_BODY <halftone/exec/cpu/simd/vector_block.simd.hpp>' times=1
            ;;
        halftone/exec/cpu/set/*) last=$'void in_region();\n#include <halftone/exec/cpu/set/end.hpp>' ;;
    esac
    for _ in $times; do printf '%s\n#include <%s>\n%s\n' "$first" "$1" "$last"; done
}
# compile_one HEADER<tab>PRECOMPILED
compile_one() {
    local header=${1%%$'\t'*} before=${1#*$'\t'}
    # shellcheck disable=SC2086  # several words
    program "$header" |
        "$CXX" $flags -fsyntax-only ${before:+-include "$before"} -I. -I../tests -I../bench -x c++ - ||
        { echo "does not compile alone: $header"; return 1; }
}
export -f program compile_one

xargs -d '\n' -n 1 -P "$(nproc)" bash -c 'compile_one "$0"' <<<"$tasks" || exit 1
echo "${#headers[@]} headers compile alone"

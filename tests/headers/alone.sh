#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Compiles each header alone, included twice, with warnings as errors: a header must include everything that it uses, and may be
# included again. The same holds for a SIMD body (*.simd.hpp), except that it is included once: alone it is compiled for the portable
# instruction set (exec/cpu/each_set.hpp).
#
# Headers that include each other are compiled as one source, in an order in which each includes all before it: none finds anything
# that it does not include itself. If that fails they are compiled one by one.
#
#     tests/headers/alone.sh [header...]            all of include/halftone without arguments, and all bodies
#     tests/headers/alone.sh --all-but-entries      without those directly in include/halftone, which headers.entries compiles
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
without=halftone/ranks/mpi.hpp
if command -v mpicxx >/dev/null 2>&1 && mpicxx --showme:incdirs >/dev/null 2>&1; then
    for folder in $(mpicxx --showme:incdirs); do flags+=" -isystem $folder"; done
    without=none
fi
export flags
what=all depth=(-mindepth 1)
case ${1:-} in
    --bodies) what=bodies ;;
    --all-but-entries) depth=(-mindepth 2) ;;
esac
if [[ ${1:-} == --* ]]; then shift; fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
precompiled_headers=()
if (($#)); then
    headers=("$@")
else
    # What begins or ends a region is no header by itself: compiled are those who include it, and exec/cpu/set/*.hpp with
    # its end.
    mapfile -t headers < <(
        find halftone ../tests ../bench -name '*.simd.hpp' | LC_ALL=C sort
        if [[ $what == all ]]; then
            find halftone "${depth[@]}" -name '*.hpp' ! -name '*.simd.hpp' ! -path '*/cpu/set/begin.hpp' \
                ! -path '*/cpu/set/end.hpp' ! -path '*/number/precise/*' ! -path "$without" | LC_ALL=C sort
        fi
    )
    if [[ $without != none && $what != bodies ]]; then echo "not checked: $without (there is no mpicxx)"; fi
    # What most headers include, with nearly all of the standard library that they do. Reading more costs more than it saves.
    precompiled_headers=(memory/resource.hpp)
    # shellcheck disable=SC2034  # precompile reads them
    if [[ $what == bodies ]]; then precompiled_headers=(exec/cpu/simd.hpp kernel/common/rows/rows.hpp); fi
    # shellcheck disable=SC2086  # several words
    precompile "$work" . "$CXX" $flags
fi
# Alone: what must be included once, or between others.
mapfile -t single < <(printf '%s\n' "${headers[@]}" | grep -E '\.simd\.hpp$|/exec/cpu/(each_set\.hpp$|set/)' || true)
mapfile -t several < <(printf '%s\n' "${headers[@]}" | grep -vE '\.simd\.hpp$|/exec/cpu/(each_set\.hpp$|set/)' || true)
tasks=$(
    if ((${#single[@]})); then precompiled_for "$work" . "${single[@]}"; fi
    if ((${#several[@]})); then chained "$work" . "${several[@]}"; fi
)

# program HEADER...: what is compiled of them.
program() {
    local first='' last='' times='1 2'
    case $1 in
        *.simd.hpp) times=1 ;;
        halftone/exec/cpu/each_set.hpp)
            first=$'#include <halftone/exec/cpu/simd/vectors.hpp>\n#define HALFTONE_BODY <halftone/exec/cpu/simd/vector_block.simd.hpp>' times=1
            ;;
        halftone/exec/cpu/set/*) last=$'void in_region();\n#include <halftone/exec/cpu/set/end.hpp>' ;;
    esac
    for header; do
        for _ in $times; do printf '%s\n#include <%s>\n%s\n' "$first" "$header" "$last"; done
    done
}
# compiles "HEADER..." PRECOMPILED
compiles() {
    # shellcheck disable=SC2086  # several words
    program $1 | "$CXX" $flags -fsyntax-only ${2:+-include "$2"} -I. -I../tests -I../bench -x c++ -
}
# compile_line HEADER...<tab>PRECOMPILED
compile_line() {
    local line=${1%%$'\t'*} before=${1#*$'\t'} header status=0
    if compiles "$line" "$before" 2>/dev/null; then return; fi
    for header in $line; do
        compiles "$header" "$before" || { echo "does not compile alone: $header"; status=1; }
    done
    if ((!status)); then echo "do not compile one after the other: $line"; compiles "$line" "$before" || status=1; fi
    return "$status"
}
export -f program compiles compile_line

xargs -d '\n' -n 1 -P "$(nproc)" bash -c 'compile_line "$0"' <<<"$tasks" || exit 1
echo "${#headers[@]} headers compile alone"

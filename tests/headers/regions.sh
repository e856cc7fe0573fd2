#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# No header may be included for the first time in a region of code in which the compiler may use an instruction set (exec/cpu/set/) or
# computes as written (number/precise/): its functions would be compiled for that region, and then used everywhere. The test runs the
# preprocessor on halftone.hpp, on each test and benchmark with SIMD bodies and, if there is a CUDA toolkit, on cuda.cuh with the host
# compiler. First it checks that it would detect such a header.
#
#     tests/headers/regions.sh         CXX names the compiler, CUDACXX nvcc
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cxx=${CXX:-c++}
command -v "$cxx" >/dev/null 2>&1 || { echo "skipped: there is no $cxx"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
flags=(-std=c++20 -I"$root/include" -I"$root/tests" -I"$root/bench" -I"$work")

# first_in_regions LIST: out of what -H lists, the headers that a region includes first. Bodies and the files that begin and end
# regions are included in each anew.
first_in_regions() {
    awk '
        !/^\.+ / { next }
        { file = $2 }
        file ~ /number\/precise\/begin\.hpp$/ { open++; regions++; next }
        file ~ /number\/precise\/end\.hpp$/ { open--; next }
        open > 0 && !(file in seen) && file !~ /\.simd\.hpp$/ && file !~ /exec\/cpu\/set\/[a-z0-9_]+\.hpp$/ { print file }
        { seen[file] = 1 }
        END { if (regions == 0 || open != 0) print "(" regions " regions, of which " open " do not end)" }' "$1"
}

cat >"$work/planted.simd.hpp" <<'CODE'
#include <planted.hpp>
CODE
echo '#pragma once' >"$work/planted.hpp"
cat >"$work/planted.cpp" <<'CODE'
#include <halftone/exec/cpu/simd.hpp>
#define HALFTONE_BODY <planted.simd.hpp>
#include <halftone/exec/cpu/each_set.hpp>
CODE
"$cxx" "${flags[@]}" -E -H -o "$work/out" "$work/planted.cpp" 2>"$work/list"
[[ $(first_in_regions "$work/list") == "$work/planted.hpp" ]] ||
    { echo "regions: does not see a planted header first included in a region; it sees:"; first_in_regions "$work/list"; exit 1; }

count=0 failed=0
# judge WHAT: the list of what it includes lies in $work/list
judge() {
    first_in_regions "$work/list" >"$work/found"
    count=$((count + 1))
    if [[ -s $work/found ]]; then
        echo "$1 includes for the first time in a region of an instruction set:"
        cat "$work/found"
        failed=1
    fi
}

echo '#include <halftone/halftone.hpp>' >"$work/all.cpp"
mapfile -t sources < <(cd "$root" && grep -rlE '^#(define HALFTONE_BODY|include <halftone/exec/cpu/set/)' tests bench \
    --include='*.cpp' --include='*.hpp' | LC_ALL=C sort)
for source in "$work/all.cpp" "${sources[@]/#/$root/}"; do
    "$cxx" "${flags[@]}" -x c++ -E -H -o "$work/out" "$source" 2>"$work/list" || { cat "$work/list"; exit 1; }
    judge "${source#"$root/"}"
done

nvcc=${CUDACXX:-nvcc}
if ! command -v "$nvcc" >/dev/null 2>&1; then nvcc=/usr/local/cuda/bin/nvcc; fi
if command -v "$nvcc" >/dev/null 2>&1; then
    echo '#include <halftone/cuda.cuh>' >"$work/all.cu"
    compiler=()
    if [[ ${CXX:-} == *g++* && ${CXX:-} != *clang* ]]; then compiler=(-ccbin "$CXX"); fi
    "$nvcc" "${compiler[@]}" "${flags[@]}" -arch=sm_90 --dryrun -c -o "$work/out.o" "$work/all.cu" 2>"$work/steps"
    # The preprocessor's run for the host, without __CUDA_ARCH__.
    step=$(sed -n 's/^#\$ //p' "$work/steps" | grep -e ' -E ' | grep -v -e '-D__CUDA_ARCH__=' | head -n 1)
    [[ -n $step ]] || { echo "regions: finds no preprocessor for the host among nvcc's steps"; exit 1; }
    (cd "$work" && eval "${step/ -E / -E -H }") 2>"$work/list" >/dev/null || { cat "$work/list"; exit 1; }
    judge halftone/cuda.cuh
else
    echo "not checked: halftone/cuda.cuh (there is no nvcc)"
fi
if ((failed == 0)); then echo "$count programs, no header first included in a region"; fi
exit $failed

#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Compiles each header alone, and twice over, with every warning an error: a header must bring all that it uses, and
# bear being included again.
#
#     tests/headers/alone.sh [header...]            all of include/halftone without arguments; CXX names the compiler
#     tests/headers/alone.sh --all-but-entries      without those directly in include/halftone, which headers.entries compiles
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=precompiled.sh
source "$root/tests/headers/precompiled.sh"
cd "$root/include"
export CXX=${CXX:-c++}
command -v "$CXX" >/dev/null 2>&1 || { echo "skipped: there is no $CXX"; exit 77; }

flags="-std=c++20 -Wall -Wextra -Wpedantic -Werror"
export flags
depth=(-mindepth 1)
if [[ ${1:-} == --all-but-entries ]]; then depth=(-mindepth 2); shift; fi
if (($#)); then
    headers=("$@")
    tasks=$(printf '%s\t\n' "$@")
else
    mapfile -t headers < <(find halftone "${depth[@]}" -name '*.hpp' | LC_ALL=C sort)
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    # What most headers include: the standard library's headers, threads and vectors weigh more than ours.
    precompiled_headers=(error.hpp tensor/shape.hpp tensor/view.hpp memory/resource.hpp tensor/tensor.hpp kernel/common/rows/device.hpp
        autodiff/engine/graph.hpp memory/store.hpp memory/gradient_slabs.hpp autodiff/op/pointwise.hpp exec/cpu/cpu.hpp
        kernel/matmul/cpu/product.hpp kernel/common/rows/rows.hpp)
    # shellcheck disable=SC2086  # several words
    precompile "$work" . "$CXX" $flags
    tasks=$(precompiled_for "$work" . "${headers[@]}")
fi

# compile_one HEADER<tab>PRECOMPILED
compile_one() {
    local header=${1%%$'\t'*} before=${1#*$'\t'}
    # shellcheck disable=SC2086  # several words
    printf '#include <%s>\n#include <%s>\n' "$header" "$header" |
        "$CXX" $flags -fsyntax-only ${before:+-include "$before"} -I. -x c++ - ||
        { echo "does not compile alone: $header"; return 1; }
}
export -f compile_one

xargs -d '\n' -n 1 -P "$(nproc)" bash -c 'compile_one "$0"' <<<"$tasks" || exit 1
echo "${#headers[@]} headers compile alone"

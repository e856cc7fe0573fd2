#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Compiles each header alone, and twice over, with every warning an error: a header must bring all that it uses, and
# bear being included again.
#
#     tests/headers/alone.sh [header...]      all of include/halftone without arguments; CXX names the compiler
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root/include"
export CXX=${CXX:-c++}
command -v "$CXX" >/dev/null 2>&1 || { echo "skipped: there is no $CXX"; exit 77; }

if (($#)); then
    headers=("$@")
else
    mapfile -t headers < <(find halftone -name '*.hpp' | LC_ALL=C sort)
fi

compile_one() {
    printf '#include <%s>\n#include <%s>\n' "$1" "$1" |
        "$CXX" -std=c++20 -fsyntax-only -Wall -Wextra -Wpedantic -Werror -I. -x c++ - ||
        { echo "does not compile alone: $1"; return 1; }
}
export -f compile_one

printf '%s\0' "${headers[@]}" | xargs -0 -n 1 -P "$(nproc)" bash -c 'compile_one "$0"' || exit 1
echo "${#headers[@]} headers compile alone"

#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The compiler's front end reads the benchmarks of the CPU, with warnings as errors: a change of the library that they miss shows
# here. They are read as one source, each in a namespace of its own behind the headers of all, which takes a fifth of the time.
#
#     tests/headers/benchmarks.sh        CXX names the compiler
#
# tests/programs/benchmarks.sh builds and runs them.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cxx=${CXX:-c++}
command -v "$cxx" >/dev/null 2>&1 || { echo "skipped: there is no $cxx"; exit 77; }
for header in CLI/CLI.hpp nlohmann/json.hpp; do
    "$cxx" -E -x c++ -include "$header" /dev/null >/dev/null 2>&1 || { echo "skipped: there is no $header"; exit 77; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$root"

files=(bench/*.cpp bench/convergence/*.cpp)
{
    # <...> before "...", since the benchmarks' own headers include few of the library's; those of peers are for who has them.
    sed -n '/^#include/p' "${files[@]}" | grep -v 'dnnl\|cblas' | LC_ALL=C sort -ru
    for file in "${files[@]}"; do printf 'namespace of_%s {\n#include "%s"\n}\n' "$(basename "$file" .cpp)" "$root/$file"; done
} >"$work/all.cpp"
"$cxx" -std=c++20 -fsyntax-only -Wall -Wextra -Wpedantic -Werror -DHALFTONE_COMPILED -DHALFTONE_COMMIT='""' -DHALFTONE_BENCH_FOLDER='""' \
    -Iinclude -Ibench -Ibench/convergence "$work/all.cpp"
echo "${#files[@]} benchmarks read"

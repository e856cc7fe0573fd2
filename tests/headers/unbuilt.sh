#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The compiler's front end reads the programs that the other tests do not build, with warnings as errors: a change of the library
# that they miss shows here. The benchmarks of the CPU, the classifiers, the models of one's own, train_gpt's further policies, and
# what runs under valgrind and the fuzzer.
#
#     tests/headers/unbuilt.sh        CXX names the compiler
#
# tests/run.sh --full builds and runs them.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
export CXX=${CXX:-c++}
command -v "$CXX" >/dev/null 2>&1 || { echo "skipped: there is no $CXX"; exit 77; }
for header in CLI/CLI.hpp nlohmann/json.hpp; do
    "$CXX" -E -x c++ -include "$header" /dev/null >/dev/null 2>&1 || { echo "skipped: there is no $header"; exit 77; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$root"

# The benchmarks as one source, each in a namespace of its own behind the headers of all: a fifth of the time. <...> stands before
# "...", since the benchmarks' own headers include few of the library's; those of peers are for who has them.
benchmarks=(bench/*.cpp bench/convergence/*.cpp)
{
    sed -n '/^#include/p' "${benchmarks[@]}" | grep -v 'dnnl\|cblas' | LC_ALL=C sort -ru
    for file in "${benchmarks[@]}"; do printf 'namespace of_%s {\n#include "%s"\n}\n' "$(basename "$file" .cpp)" "$root/$file"; done
} >"$work/benchmarks.cpp"

# Of policies that differ in a type alone one is read.
files=("$work/benchmarks.cpp" examples/train_gpt/more/{llama_amp_bf16,tf32}.cpp examples/classify_{images,text}/{main,amp_bf16,no_gpu}.cpp
    examples/own_models/*.cpp tests/valgrind/*.cpp tests/fuzz/libfuzzer.cpp)
read_one() {
    local folders=(-Iinclude)
    case $1 in
        */benchmarks.cpp) folders+=(-Ibench -Ibench/convergence) ;;
        tests/*) folders+=(-Itests) ;;
    esac
    "$CXX" -std=c++20 -fsyntax-only -Wall -Wextra -Wpedantic -Werror -DHALFTONE_COMPILED -DTRAIN_GPT_MORE -DHALFTONE_COMMIT='""' \
        -DHALFTONE_BENCH_FOLDER='""' "${folders[@]}" "$1"
}
export -f read_one
printf '%s\n' "${files[@]}" | xargs -P "$(nproc)" -I {} bash -c 'read_one {}' || { echo "programs that no other test builds do not compile"; exit 1; }
echo "${#benchmarks[@]} benchmarks and $((${#files[@]} - 1)) other sources read"

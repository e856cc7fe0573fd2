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

# Several as one source take a fifth of the time. Of policies that differ in a type alone one is read.
benchmarks=(bench/*.cpp bench/convergence/*.cpp)
# These instantiate templates explicitly, which no other namespace may: one program's are read one behind the other.
behind=(train_gpt/more/{llama_amp_bf16,tf32} classify_{images,text}/{main,amp_bf16,no_gpu})
units=()
for source in "${behind[@]}"; do
    unit=$work/of_${source%%/*}.cpp
    if [[ ! -e $unit ]]; then units+=("$unit"); fi
    echo "#include \"$root/examples/$source.cpp\"" >>"$unit"
done
others=(examples/own_models/*.cpp tests/valgrind/*.cpp tests/fuzz/libfuzzer.cpp)
files=("${benchmarks[@]}" "${others[@]}")
if command -v python3 >/dev/null 2>&1; then
    python3 tests/tools/together.py join "$work/benchmarks.cpp" "${benchmarks[@]}" >"$work/alone"
    python3 tests/tools/together.py join "$work/together.cpp" "${others[@]}" >>"$work/alone"
    mapfile -t files < <(echo "$work/benchmarks.cpp"; echo "$work/together.cpp"; cat "$work/alone")
fi
read_one() {
    local folders=(-Iinclude)
    case $1 in
        bench/* | */benchmarks.cpp) folders+=(-Ibench -Ibench/convergence) ;;
        # A joined source's main() is a function like others, which may not end without a value.
        */together.cpp) folders+=(-Itests -Wno-return-type) ;;
        tests/*) folders+=(-Itests) ;;
    esac
    "$CXX" -std=c++20 -fsyntax-only -Wall -Wextra -Wpedantic -Werror -DHALFTONE_COMPILED -DTRAIN_GPT_MORE -DHALFTONE_COMMIT='""' \
        -DHALFTONE_BENCH_FOLDER='""' "${folders[@]}" "$1"
}
export -f read_one
printf '%s\n' "${units[@]}" "${files[@]}" | xargs -P "$(nproc)" -I {} bash -c 'read_one {}' || { echo "programs that no other test builds do not compile"; exit 1; }
echo "${#benchmarks[@]} benchmarks and $((${#behind[@]} + ${#others[@]})) other sources read, in $((${#units[@]} + ${#files[@]}))"

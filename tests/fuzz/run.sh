#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Fuzzes the readers of files (targets.hpp) from the seeds in seeds/.
#
#     tests/fuzz/run.sh                      4,000 changed inputs each, the same in every run, under sanitizers
#     tests/fuzz/run.sh --fuzz RUNS [NAME]   clang's libFuzzer under the address sanitizer, RUNS inputs for each target, or for one;
#                                            an input with a finding is left in the folder of the call, as NAME-crash-...
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
flags=(-std=c++20 -g1 -I "$root/include")
if [[ ${1:-} == --fuzz ]]; then
    command -v clang++ >/dev/null 2>&1 || { echo "skipped: there is no clang++"; exit 77; }
    clang++ "${flags[@]}" -O2 -fsanitize=fuzzer,address "$here/libfuzzer.cpp" -pthread -o "$work/fuzzer"
    for seeds in "$here"/seeds/*; do  # a folder for each target
        name=${seeds##*/}
        if [[ ${3:-$name} != "$name" ]]; then continue; fi
        mkdir -p "$work/corpus_$name"
        echo "$name"
        # Without the stacks of allocations, which take time: an input with a finding can be run again with them.
        HALFTONE_FUZZ=$name ASAN_OPTIONS=malloc_context_size=0:quarantine_size_mb=16 "$work/fuzzer" -runs="${2:-1000000}" -seed=1 \
            -max_len=8192 -rss_limit_mb=4096 -print_final_stats=1 -artifact_prefix="$PWD/$name-" "$work/corpus_$name" \
            "$seeds" 2>&1 | tail -n 12
    done
else
    "${CXX:-c++}" "${flags[@]}" -fsanitize=address,undefined -fno-sanitize-recover=all -O0 -I "$root/tests" \
        -DHALFTONE_TEST_DATA="\"$root/tests/golden\"" "$root/tests/io/fuzz.cpp" "$root/tests/main.cpp" -o "$work/readers" -pthread
    "$work/readers"
fi

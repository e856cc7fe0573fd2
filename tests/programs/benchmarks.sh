#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# How the CPU's benchmarks behave as programs: each is built, runs one small case, leaves JSON, and refuses what it must.
#
#     tests/programs/benchmarks.sh BUILD_FOLDER
set -uo pipefail
build=$1
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}

declare -A cases=(
    [matmul]="256x256x256 bf16"
    [attention]="T=128"
    [memory_bound]="rms_norm"
    [linear_cross_entropy]="256"
    [optimizer]=""
    [train_step]="nothing of this name"
)
names=$(cd "$root/bench" && for file in *.cpp; do echo "bench_${file%.cpp}"; done)
# shellcheck disable=SC2086
cmake --build "$build" --target $names || exit 1
for name in $names; do
    program=$build/bench/$name
    short=${name#bench_}
    more=()
    [[ $short == optimizer ]] && more=(--parameters 100000)
    [[ -v cases[$short] ]] || fail "$name: no case is known here"
    "$program" --filter "${cases[$short]:-}" --rounds 1 --seconds 0.001 "${more[@]}" --json "$work/$short.json" >"$work/out" 2>&1 ||
        fail "$name ends with $?: $(tail -n 1 "$work/out")"
    for key in '"program"' '"commit"' '"machine"' '"protocol"' '"peak_bf16_flops"' '"copy_bytes_per_second"' '"rows"'; do
        grep -q "$key" "$work/$short.json" || fail "$name writes no $key"
    done
    "$program" --rounds none >/dev/null 2>"$work/err"
    [[ $? == 2 && $(wc -l <"$work/err") == 1 ]] || fail "$name does not refuse --rounds none in one line"
    "$program" --filter "nothing of this name" --json "$work/no/such/folder" >/dev/null 2>"$work/err"
    [[ $? == 1 && $(wc -l <"$work/err") == 1 ]] || fail "$name does not refuse a file that cannot be written in one line"
done

if command -v python3 >/dev/null 2>&1; then
    row='{"kernel": "k", "shape": "s", "policy": "p", "seconds": 1, "ratio_to": {"torch": 1.5}}'
    echo "{\"rows\": [$row]}" >"$work/rows.json"
    python3 "$root/bench/picture.py" "$work/rows.json" --out "$work/picture.svg" || fail "picture.py ends with $?"
    grep -q '</svg>' "$work/picture.svg" || fail "picture.py draws nothing"
fi

((failures == 0)) && echo "benchmarks: as they should be"
exit $((failures > 0))

#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# bench/gpu_suite.sh goes through without a GPU, refuses what makes no run, and says what it would do. TRAIN_GPT names a
# program that checks the suite's arguments for training.
set -uo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
suite=$root/bench/gpu_suite.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
status=0
fail() {
    echo "FAILED: $*"
    status=1
}

if [[ -n ${TRAIN_GPT:-} && ! -x $TRAIN_GPT ]] || nvidia-smi -L 2>/dev/null | grep -q GPU; then unset TRAIN_GPT; fi
bash "$suite" "$work/out" --dry >"$work/log" 2>&1 || fail "a dry run ends with $?: $(cat "$work/log")"
for name in test_cuda bench_cuda train_gpt_cuda train_gpt_cpu train_gpt2_cuda memcheck_train_gpt racecheck_test_cuda initcheck_train_gpt synccheck_test_cuda; do
    grep -q "^| $name | not run (dry)" "$work/out/summary.md" || fail "the summary lacks $name: $(cat "$work/out/summary.md")"
    grep -q "\"name\": \"$name\"" "$work/out/suite.json" || fail "suite.json lacks $name"
done
if [[ -n ${TRAIN_GPT:-} ]]; then grep -q '^| arguments_large | ok' "$work/out/summary.md" || fail "the arguments of train_gpt were not checked"; fi
if command -v python3 >/dev/null 2>&1; then
    python3 -c 'import json, sys; json.load(open(sys.argv[1]))' "$work/out/suite.json" || fail "suite.json is no JSON"
fi
# Every option that the suite gives to bench_cuda is one that it takes.
for option in --json --matmul-table; do
    grep -q "\"$option\"" "$root/bench/cuda/main.cpp" || fail "bench_cuda takes no $option"
done

refuse() {
    local sentence=$1
    shift
    bash "$suite" "$@" >"$work/log" 2>&1
    local code=$?
    ((code == 2)) && grep -q "$sentence" "$work/log" || fail "gpu_suite.sh $* ends with $code: $(cat "$work/log")"
}
refuse 'where shall the results go'
refuse 'needs a value' "$work/out" --headers
refuse 'expected a whole number' "$work/out" --minutes many
refuse 'unknown argument' "$work/out" --fast
if ! nvidia-smi -L >/dev/null 2>&1; then refuse 'there is no GPU here' "$work/out"; fi
exit "$status"

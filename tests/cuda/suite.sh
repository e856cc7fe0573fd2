#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# bench/gpu_suite.sh without a GPU: it refuses what makes no run, shows what it would do, and is rehearsed with programs that
# stand for the real ones (suite_rehearsal.py). TRAIN_GPT names a program that checks the suite's arguments for training.
set -uo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
suite=$root/bench/gpu_suite.sh
command -v python3 >/dev/null 2>&1 || { echo "skipped: there is no python3"; exit 77; }
export PYTHONDONTWRITEBYTECODE=1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
status=0
fail() {
    echo "FAILED: $*"
    status=1
}

if [[ -n ${TRAIN_GPT:-} && ! -x $TRAIN_GPT ]] || nvidia-smi -L 2>/dev/null | grep GPU >/dev/null; then unset TRAIN_GPT; fi
for profile in --first '--minutes 9'; do
    # shellcheck disable=SC2086  # two words
    bash "$suite" --dry $profile >"$work/log" 2>&1 || fail "a dry run of $profile ends with $?: $(cat "$work/log")"
    for name in configure build smoke products attention gpt2_step train_gpt_cuda train_gpt_cpu ncu test_products memcheck_smoke; do
        grep -q "^$name " "$work/log" || fail "the timetable of $profile lacks $name: $(cat "$work/log")"
    done
    if [[ -n ${TRAIN_GPT:-} ]]; then grep -q 'train_gpt takes these' "$work/log" || fail "the arguments of train_gpt were not checked"; fi
done
# What runs is named by ones that programs take.
bash "$suite" --dry >"$work/log"
for option in $(grep -o '{bench_cuda} .*' "$work/log" | grep -o -- ' --[a-z-]*' | sort -u) --thin --check; do
    grep -q "\"$option\"" "$root/bench/cuda/main.cpp" || fail "bench_cuda takes no $option"
done

refuse() {
    local sentence=$1 script=$2
    shift 2
    bash "$root/bench/$script" "$@" >"$work/log" 2>&1
    local code=$?
    ((code == 2)) && grep -q -- "$sentence" "$work/log" || fail "$script $* ends with $code: $(cat "$work/log")"
}
refuse 'where shall the results go' gpu_suite.sh
refuse 'expected one argument' gpu_suite.sh "$work/out" --headers
refuse 'invalid float' gpu_suite.sh "$work/out" --minutes many
refuse 'expected more than 0' gpu_suite.sh "$work/out" --minutes 0
refuse 'unrecognized arguments' gpu_suite.sh "$work/out" --fast
refuse 'invalid choice' gpu_suite.sh "$work/out" --part everything
refuse 'one of the two' gpu_suite.sh "$work/out" --first --part smoke
refuse 'is no folder' gpu_suite.sh "$work/out" --binaries "$work/nowhere"
refuse 'is no pack' gpu_suite.sh "$work/out" --binaries "$work"
refuse 'where shall the pack go' gpu_pack.sh
refuse 'needs a value' gpu_pack.sh "$work/pack" --build
refuse 'expected a whole number' gpu_pack.sh "$work/pack" --most much
refuse 'unknown argument' gpu_pack.sh "$work/pack" --fast
python3 "$root/tests/cuda/suite_rehearsal.py" || status=1
exit "$status"

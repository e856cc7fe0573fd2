#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Kills two ranks that train under ZeRO 2 at random moments: within a forward pass, at a collective, while a checkpoint is written. The
# newest checkpoint that has a name then loads, and the run goes on with the same losses, to the bit, as one that was not interrupted.
#
#     tests/programs/killed.sh [--times N] [PROGRAM]      N moments of each phase, 6 if not given; SEED chooses them
#
# PROGRAM has the test of tests/ranks/killed.cpp; without one it is compiled.
set -uo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
times=6
if [[ ${1:-} == --times ]]; then
    times=$2
    shift 2
fi
program=${1:-}
if [[ -z $program ]]; then
    program=$work/program
    "${CXX:-c++}" -std=c++20 -O0 -I "$root/include" -I "$root/tests" "$root/tests/ranks/killed.cpp" "$root/tests/main.cpp" -o "$program" -pthread || exit 1
fi
seed=${SEED:-$RANDOM}
RANDOM=$seed
failures=0
fail() {
    echo "FAILED (SEED=$seed): $*"
    failures=$((failures + 1))
}
# train FOLDER [PHASE NUMBER [MICROSECONDS]]: its losses are added to FOLDER.log
train() {
    (
        HALFTONE_KILLED="$1 $1.log ${*:2}" "$program" --no-skip --no-intro --no-version '--test-case=killed: *' >"$work/out" 2>&1
        exit $?
    ) 2>/dev/null
}
newest() { ls "$1" 2>/dev/null | sed -n 's/^checkpoint-\([0-9]*\)$/\1/p' | sort -n | tail -n 1; }
count_of() { sed -n "s/^$1 //p" "$work/whole.out"; }

train "$work/whole" || fail "an uninterrupted run ends with $?: $(cat "$work/out")"
cp "$work/out" "$work/whole.out"
(($(sort -un "$work/whole.log" | wc -l) == 12)) || fail "an uninterrupted run has the losses $(cat "$work/whole.log")"
(($(cut -d ' ' -f 2,3 "$work/whole.log" | sort -u | wc -l) == 12)) || fail "losses repeat: $(cat "$work/whole.log")"
for phase in forward collective checkpoint; do
    all=$(count_of "$phase") resumed='' incomplete=0
    ((all > 0)) || fail "there is no $phase"
    for ((k = 0; k < times; k++)); do
        at=("$phase" $((RANDOM % all + 1)))
        # A save of this size takes some milliseconds; the last one is not chosen, since the run may end before it is killed.
        if [[ $phase == checkpoint ]]; then at=("$phase" $((RANDOM % (all - 1) + 1)) $((RANDOM % 4000 + 1))); fi
        rm -rf "$work/run" "$work/run.log"
        train "$work/run" "${at[@]}"
        code=$?
        ((code == 137)) || fail "${at[*]}: it ends with $code instead of SIGKILL: $(cat "$work/out")"
        last=$(newest "$work/run")
        if ls "$work/run" 2>/dev/null | grep '\.\(part\|gone\|old\)$' >/dev/null; then incomplete=$((incomplete + 1)); fi
        train "$work/run" || fail "${at[*]}: the resumed run ends with $?: $(cat "$work/out")"
        from=$(sed -n 's/^from //p' "$work/out")
        [[ $from == "${last:-0}" ]] || fail "${at[*]}: it goes on from step $from; the newest checkpoint is ${last:-none}"
        [[ $(sort -u "$work/run.log") == "$(sort -u "$work/whole.log")" ]] ||
            fail "${at[*]}, from step $from: other losses: $(diff <(sort -u "$work/run.log") <(sort -u "$work/whole.log"))"
        resumed+=" $from"
    done
    echo "$phase: killed $times times, $incomplete of them within a save; resumed from steps$resumed"
done
((failures == 0))

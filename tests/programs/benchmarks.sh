#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Tests the CPU benchmarks as programs: each is built, runs one small case, writes JSON, and rejects wrong arguments.
#
#     tests/programs/benchmarks.sh BUILD_FOLDER bench_NAME...      the names of all benchmarks, as bench/CMakeLists.txt knows them
set -uo pipefail
build=$1
shift
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}

# A small case of each: what its kernel, shape or policy contains, and arguments that make it smaller.
declare -A cases=(
    [attention]="T=128"
    [checkpoint]="saving"
    [conv2d]="forward"
    [finetune]="lora"
    [generate]="B=1"
    [linear_cross_entropy]="256"
    [loading]="constructing"
    [matmul]="256x256x256 bf16"
    [memory_arenas]="caching"
    [memory_bound]="rms_norm"
    [memory_budget]="checkpoints"
    [optimizer]="adamw"
    [own_numbers]="256x256x256"
    [ranges]="2 x 64"
    [train_step]="fp32"
) smaller=(
    [checkpoint]="--layers 1 --width 32 --heads 2 --vocabulary 256 --batch 1 --length 16 --steps 1 --folder $work/checkpoints"
    [conv2d]="--quick --images 1"
    [finetune]="--tiny"
    [generate]="--tiny"
    [loading]="--layers 1 --width 32 --intermediate 64 --heads 2 --key-value-heads 1 --vocabulary 256 --folder $work/llama"
    [memory_arenas]="--tiny --steps 20"
    [memory_budget]="--layers 2 --width 32 --heads 2 --context 16 --batch 2"
    [optimizer]="--parameters 100000"
    [train_step]="--tiny"
)
(($#)) || fail "no benchmark is named"
for name in "${!cases[@]}"; do
    [[ " $* " == *" bench_$name "* ]] || fail "there is a case of bench_$name, which is none of the benchmarks"
done
cmake --build "$build" --parallel 2 --target "$@" || exit 1
for name in "$@"; do
    program=$build/bench/$name
    short=${name#bench_}
    if [[ ! -v cases[$short] ]]; then
        fail "$name: no case is known here"
        continue
    fi
    read -ra less <<<"${smaller[$short]:-}"
    began=$SECONDS
    "$program" --filter "${cases[$short]}" --rounds 1 "${less[@]}" --json "$work/$short.json" >"$work/out" 2>&1 ||
        fail "$name ends with $?: $(tail -n 1 "$work/out")"
    ((SECONDS - began < 120)) || fail "the small case of $name takes $((SECONDS - began)) s"
    for key in '"program"' '"commit"' '"machine"' '"protocol"' '"rows"' '"kernel"' '"shape"' '"policy"'; do
        grep -q "$key" "$work/$short.json" || fail "$name writes no $key"
    done
    # Those that compare() times have the machine's peaks.
    if "$program" --help | grep -- --seconds >/dev/null; then
        for key in '"peak_bf16_flops"' '"copy_bytes_per_second"'; do
            grep -q "$key" "$work/$short.json" || fail "$name writes no $key"
        done
    fi
    "$program" --rounds none >/dev/null 2>"$work/err"
    [[ $? == 2 && $(wc -l <"$work/err") == 1 ]] || fail "$name does not refuse --rounds none in one line"
    "$program" --filter "nothing of this name" --json "$work/nothing.json" >"$work/out" 2>&1 || fail "$name without a case ends with $?"
    if grep -q '"kernel"' "$work/nothing.json"; then fail "$name does not heed --filter"; fi
    "$program" --filter "nothing of this name" --json "$work/no/such/folder" >/dev/null 2>"$work/err"
    [[ $? == 1 && $(wc -l <"$work/err") == 1 ]] || fail "$name does not refuse a file that cannot be written in one line"
done

# plan PROGRAM ARGUMENT...
plan() { "$build/bench/$1" --plan "${@:2}" >"$work/out" 2>"$work/err"; }
# explains PROGRAM WORDS...: the last plan has each of them.
explains() {
    local words
    for words in "${@:2}"; do grep -qF "$words" "$work/out" || fail "$1 --plan does not say '$words'"; done
}
# refuses_plans PROGRAM [SHAPE] <ARGUMENTS: each line of them, after the shape.
refuses_plans() {
    local arguments status
    while read -r arguments; do
        status=0
        # shellcheck disable=SC2086
        plan "$@" $arguments || status=$?
        [[ $status == 2 && $(wc -l <"$work/err") == 1 ]] || fail "$1 does not refuse --plan ${*:2} $arguments in one line"
    done
}

# How a product is cut, on every instruction set, without timing anything.
plan bench_matmul 256x2304x768 || fail "bench_matmul --plan ends with $?"
explains bench_matmul "fp32, portable, 256 x 2304 x 768, 2 threads" "strategy  shared_b" "of c, 256 of k at a time" "a slice of b, packed" \
    "not small_m: a has more rows"
plan bench_matmul 4x768x768 --threads 3 && grep -qF "strategy  small_m" "$work/out" || fail "bench_matmul --plan 4x768x768 is no small_m"
refuses_plans bench_matmul <<'bad'
256x2304
256x2304x768x1
256x2304x768x
+4x4x4
4x+4x4
4x-4x4
0x4x4
4x4x1048577
4x4x4 --json plan.json
4x4x4 --filter bf16
4x4x4 --device sm_80 --threads 3
bad

# And on a GPU that is not there.
plan bench_matmul 256x2304x768 --device sm_90a --layout nt || fail "bench_matmul --plan --device ends with $?"
explains bench_matmul "bf16, sm_90a, 256 x 2304 x 768 nt, 132 multiprocessors" "family    wgmma" "tiles     128 x 64 of c, 64 of k at a time" \
    "wgmma: 387, taken" "fp8, sm_90a" "family    wgmma_widened" "not mma_sync_8bit: some operand has more than 8 bits"
plan bench_matmul 256x2304x768 --device sm_80 --types tf32,fp32 && [[ $(grep -c "^[a-z]" "$work/out") == 2 ]] || fail "--types tf32,fp32 gives $(cat "$work/out")"
refuses_plans bench_matmul 2x2x2 <<'bad'
--device sm_75
--device sm_90a --types bf17
--device sm_90a --layout rr
--types bf16
bad

plan bench_attention 16x1024x32x64 --device sm_90a --types bf16,fp32 || fail "bench_attention --plan ends with $?"
explains bench_attention "bf16, sm_90a, 16x1024x32x64, forward" "family    wgmma" "tiles of 192 queries" "bf16, sm_90a, 16x1024x32x64, backward" \
    "not mma_sync: they multiply 16-bit operands of the type that they have, and floats in tfloat32" "plain: applies"
refuses_plans bench_attention <<'bad'
1x1024x12x64
1x1024x12 --device sm_90a
1x1024x12x64 --device sm_75
1x1024x12x64 --device sm_90a --types fp8
+1x1024x12x64 --device sm_90a
1x1024x12x64 --device sm_90a --json plan.json
bad

plan bench_conv2d 64x64x56x128x3 --padding 1 --device sm_90a --types bf16 || fail "bench_conv2d --plan ends with $?"
explains bench_conv2d "bf16, sm_90a, 64x64x56x128x3 stride 1 padding 1 groups 1, forward" "family    unfolded" \
    "at once   18 images: a matrix of 576 x 56448, 65028096 bytes" "products  128 x 56448 x 576, 1 in a launch, 4 times" "input gradient" \
    "by        wgmma, tiles of 128 x 256 of c, 64 of k at a time" "not in_place: the window has several elements, a stride or padding"
plan bench_conv2d 8x256x28x64x1 --groups 4 --device sm_80 --types tf32,fp32 && [[ $(grep -c "^[a-z]" "$work/out") == 6 ]] ||
    fail "bench_conv2d --types tf32,fp32 gives $(cat "$work/out")"
refuses_plans bench_conv2d <<'bad'
64x64x56x128x3
64x64x56x128 --device sm_90a
64x64x56x128x+3 --device sm_90a
64x64x56x128x3 --device sm_75
64x64x56x128x3 --device sm_90a --types fp8
64x64x56x128x3 --device sm_90a --groups 3
64x64x2x128x3 --device sm_90a
64x64x56x128x3 --device sm_90a --padding -1
64x64x1048576x128x1048576 --device sm_90a
64x64x56x128x3 --device sm_90a --json plan.json
64x64x56x128x3 --device sm_90a --quick
bad

# Needs nothing that must be measured for hours.
suite() { bash "$root/bench/cpu_suite.sh" "$@" >"$work/out" 2>&1; }
suite "$work/suite" --name here --build "$build" --dry || fail "cpu_suite.sh --dry ends with $?: $(tail -n 1 "$work/out")"
for short in attention conv2d linear_cross_entropy matmul memory_bound optimizer train_step; do
    grep -q "bench_$short .*--json $work/suite/$short.*_here.json" "$work/out" || fail "cpu_suite.sh does not run bench_$short"
done
refuse() {
    local sentence=$1
    shift
    suite "$@"
    [[ $? == 2 && $(wc -l <"$work/out") == 1 ]] && grep -q "$sentence" "$work/out" || fail "cpu_suite.sh $* says $(cat "$work/out")"
}
refuse 'where shall the results go' --name here
refuse "expected small letters" "$work/suite"
refuse 'needs a value' "$work/suite" --name
refuse 'there is no step fast' "$work/suite" --name here --only fast
refuse 'has no PyTorch' "$work/suite" --name here --torch false

if command -v python3 >/dev/null 2>&1; then
    row='{"kernel": "k", "shape": "s", "policy": "p", "seconds": 1, "ratio_to": {"torch": 1.5}}'
    echo "{\"rows\": [$row]}" >"$work/rows.json"
    python3 "$root/bench/plot.py" "$work/rows.json" --out "$work/plot.svg" || fail "plot.py ends with $?"
    grep -q '</svg>' "$work/plot.svg" || fail "plot.py draws nothing"

    # Two builds of a benchmark in turn: of two rows one takes half as long as before, one twice as long.
    for build_and_seconds in "old 2 1" "new 1 2"; do
        read -r which first second <<<"$build_and_seconds"
        cat >"$work/$which" <<-END
			#!/bin/sh
			while [ "\$1" != --json ]; do shift; done
			rows='{"kernel": "k", "shape": "a", "policy": "p", "seconds": $first}, {"kernel": "k", "shape": "b", "policy": "p", "seconds": $second}'
			echo "{\"commit\": \"$which\", \"machine\": {}, \"rows\": [\$rows]}" >"\$2"
		END
        chmod +x "$work/$which"
    done
    versus() { python3 "$root/bench/versus_rows.py" "$work/old" "$work/new" --rounds 2 "$@" >"$work/out" 2>"$work/err"; }
    versus --json "$work/versus.json" -- --filter k || fail "versus_rows.py ends with $?: $(cat "$work/err")"
    grep -qE '^k a p +2\.000' "$work/out" && grep -q 'geometric mean of 2: 1.0000' "$work/out" || fail "versus_rows.py says $(cat "$work/out")"
    versus --lowest 0.98 && fail "versus_rows.py does not mind a row of 0.5"
    grep -qE '^k b p .*below$' "$work/out" || fail "versus_rows.py does not name the row of 0.5"
    versus --mean 1.1 && fail "versus_rows.py does not mind a mean of 1"

    # Of three products one is short of oneDNN, none of PyTorch; a step reaches its target where there is no AMX.
    product() { echo "{\"kernel\": \"matmul\", \"shape\": \"$1\", \"policy\": \"bf16\", \"percent_of_peak\": $2, \"ratio_to\": {\"onednn\": $3, \"torch\": $4}}"; }
    step='{"kernel": "train_step", "shape": "6x384 B=16 T=256", "policy": "bf16", "ratio_to": {"torch eager": 2.5, "torch compiled": 1.75}}'
    for isa in avx512_bf16 amx; do
        echo "{\"commit\": \"0123456789\", \"machine\": {\"cpu\": \"c\", \"isa\": \"$isa\", \"threads\": 2},
            \"rows\": [$(product 256x256x256 80 1.5 1.25), $(product 2048x2048x2048 92 0.75 1.0), $(product 1x1x1 1 0.1 0.1), $step]}" >"$work/$isa.json"
    done
    targets() { python3 "$root/bench/targets.py" "$@" >"$work/out" 2>&1; }
    expect() { grep -qF "$1" "$work/out" || fail "targets.py does not say '$1': $(cat "$work/out")"; }
    targets "$work/avx512_bf16.json" "$work/rows.json" || fail "targets.py ends with $?"
    expect 'compared with onednn | 1 times | 0.75 (2048x2048x2048); 1 of 2 below | **short** |'
    expect 'compared with torch | 1 times | 1.00 (2048x2048x2048), 2 cases | holds |'
    expect 'of the register-only peak | 90% | 92% | holds |'
    expect 'eager and compiled | 1.5 times | 1.75 | holds |'
    expect '3 of 4 hold.'
    targets "$work/amx.json" && expect 'eager and compiled | 2 times | 1.75 | **short** |'
    expect 'compared with onednn | 1.25 times | 1.06, 2 cases | **short** |'
    targets "$work/amx.json" "$work/avx512_bf16.json" && fail "targets.py takes two machines for one"
    expect 'different machines'
    targets "$work/rows.json" && fail "targets.py accepts rows without a library"
    [[ $(wc -l <"$work/out") == 1 ]] || fail "targets.py does not say in one line that nothing was measured"
fi

((failures == 0)) && echo "benchmarks: as they should be"
exit $((failures > 0))

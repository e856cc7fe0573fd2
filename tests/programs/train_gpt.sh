#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Tests train_gpt as a program: the files that it writes, its error messages, how it stops.
#
#     tests/programs/train_gpt.sh PROGRAM
#     EMULATOR=/usr/lib/wine/wine64 tests/programs/train_gpt.sh train_gpt.exe
set -uo pipefail
program=$1
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
failures=0
# A program for another system runs under EMULATOR.
if [[ -n ${EMULATOR:-} ]]; then
    printf '#!/bin/sh\nexec "%s" "%s" "$@" </dev/null\n' "$EMULATOR" "$program" >emulated
    chmod +x emulated
    program=$work/emulated
fi

fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}

# A text of 20,000 bytes with something to learn in it.
for i in {1..400}; do printf 'In the beginning was line %3d, and it was good. \n' "$i"; done >text
small=(--layers 1 --width 32 --heads 2 --context 16 --batch 2 --eval-windows 4 --write 20)

# ---- a run leaves two files and a table

"$program" "${small[@]}" --steps 6 --text text --out a >out 2>err || fail "a good run ends with $?"
[[ $(ls a) == $'metrics.jsonl\nreport.html\nsummary.json' ]] || fail "a run leaves $(ls a)"
head -n 1 out | grep '^cpu, ' >/dev/null || fail "the device does not come first"
for policy in full_fp32 amp_fp16 amp_bf16; do
    grep -Eq "^$policy +[0-9.]+ +[0-9.]+ +[0-9]+ +[0-9.]+ +[0-9]+ \|" out || fail "the table lacks $policy"
    grep -q "^$policy 100%  6/6 " err || fail "the progress lacks $policy"
    (($(grep -c "\"policy\":\"$policy\"" a/metrics.jsonl) == 6)) || fail "metrics.jsonl has not 6 lines of $policy"
    grep -q "\"policy\": \"$policy\"" a/summary.json || fail "summary.json lacks $policy"
done
grep -q 'The amp_bf16 model writes:' out || fail "no text"
for field in step loss lr tokens_per_second step_ms peak_bytes loss_scale skipped; do
    (($(grep -c "\"$field\":" a/metrics.jsonl) == 18)) || fail "a line of metrics.jsonl lacks $field"
done
for field in program commit machine cpu isa threads gpu device train_loss validation_loss tokens_per_second step_ms peak_bytes skipped_steps loss_scale; do
    grep -q "\"$field\":" a/summary.json || fail "summary.json lacks $field"
done
if grep -q $'\r.' err; then fail "control characters in a file"; fi

# ---- the same command gives the same numbers, on any number of threads

losses() { grep -E '"(train|validation)_loss"' "$1/summary.json"; }
writing() { sed -n '/writes:/,$p' "$1"; }
cp out first
"$program" "${small[@]}" --steps 6 --text text --out b --threads 2 >out 2>err || fail "with two threads: $?"
"$program" "${small[@]}" --steps 6 --text text --out c --threads 1 >one 2>err || fail "with one thread: $?"
[[ $(losses a) == "$(losses b)" && $(losses a) == "$(losses c)" ]] || fail "losses depend on the number of threads"
[[ $(writing first) == "$(writing out)" && $(writing first) == "$(writing one)" ]] || fail "the text depends on the number of threads"
"$program" "${small[@]}" --steps 6 --text text --out d --seed 2 >out 2>err || fail "with another seed: $?"
[[ $(losses a) != "$(losses d)" ]] || fail "another seed gives the same losses"

# ---- ranks train together: the first one prints, and the numbers are the same in each run

for out in ranks again; do
    "$program" "${small[@]}" --policy amp_bf16 --steps 6 --text text --out "$out" --ranks 2 --accumulation 2 >"$out.out" 2>err ||
        fail "with two ranks: $? $(<err)"
done
# On a busy machine nothing may have been hidden.
for part in bytes_received seconds_under_way seconds_waited; do
    grep -Eq "\"$part\": [0-9.e-]*[1-9]" ranks/summary.json || fail "summary.json of two ranks lacks $part of its collectives"
done
grep -Eq '"hidden_share": (0\.|1)' ranks/summary.json || fail "summary.json of two ranks lacks hidden_share"
for part in 'received from other ranks, MiB a step' 'collectives, ms a step' 'of these behind computation'; do
    grep -q "$part" ranks/report.html || fail "report.html of two ranks lacks $part"
done
(($(grep -c '"ranks":2' ranks/metrics.jsonl) == 6)) || fail "metrics.jsonl does not say that there are two ranks"
grep -q '6 steps of 8 x 16 bytes on 2 ranks' ranks.out || fail "the steps of two ranks are told as $(sed -n 2p ranks.out)"
(($(grep -c '^amp_bf16 ' ranks.out) == 1)) || fail "not one rank alone prints the table"
[[ $(losses ranks) == "$(losses again)" ]] || fail "two ranks have other losses in another run"
[[ $(writing ranks.out) == "$(writing again.out)" ]] || fail "two ranks write another text in another run"

# ---- collectives of ranks are ranges of the trace, as engines move them: sums of gradients, and what is gathered

"$program" "${small[@]}" --policy amp_bf16 --steps 4 --text text --out told --ranks 2 --trace >out 2>err || fail "--trace with two ranks: $? $(<err)"
"$program" "${small[@]}" --policy amp_bf16 --steps 4 --text text --out told_zero --ranks 2 --zero 3 --trace >out 2>err || fail "--trace with --zero 3: $? $(<err)"
# traced FILE NAME VALUES: the trace has a range of a collective of these values, in the row of collectives
traced() { grep -E "\"name\":\"$2\"" "$1" | grep -E "\"layer\":\"$3\"" >/dev/null || fail "$1 has no range $2 of $3"; }
traced told/trace.json exchange 'gradients.*'
traced told/trace.json 'exchange, its end' 'gradients.*'
traced told/trace.json all_gather 'gradients.*[.]sum'
traced told_zero/trace.json exchange 'h[.]0'
traced told_zero/trace.json 'exchange, its end' 'h[.]0'
traced told_zero/trace.json all_gather 'h[.]0'

# ---- a plan tells what the run will report, and trains nothing

peaks() { grep -A 8 '"peak_bytes"' "$1" | grep -E '"(peak_bytes|master|copy|gradient|moment|activation|workspace|other)"'; }
"$program" "${small[@]}" --steps 6 --text text --out plan --plan >out 2>err || fail "--plan ends with $?"
[[ $(ls plan) == plan.json && ! -s err ]] || fail "--plan leaves $(ls plan), and says $(cat err)"
[[ $(peaks plan/plan.json) == "$(peaks a/summary.json)" ]] || fail "--plan tells $(peaks plan/plan.json); the run reports $(peaks a/summary.json)"
grep -Eq '^amp_bf16 +[0-9.]+ ' out || fail "--plan prints no table: $(cat out)"
grep -q '"path": "h.0.attn"' plan/plan.json || fail "plan.json has no layers"

# A plan of ranks is that of each, and what each of them has.
deep_ranks=(--layers 3 "${small[@]:2}" --steps 4 --text text)
for zero in 0 1 2 3; do
    "$program" "${deep_ranks[@]}" --out "ranks$zero" --ranks 3 --zero $zero --accumulation 2 >out 2>err || fail "--zero $zero: $? $(<err)"
    "$program" "${deep_ranks[@]}" --out "ranks_plan$zero" --ranks 3 --zero $zero --accumulation 2 --plan >out 2>err ||
        fail "--plan of --zero $zero: $? $(<err)"
    grep -q '^each of 3 ranks:$' out || fail "--plan of ranks says $(head -n 2 out)"
    # The peaks of the policies, of a run planned and measured by each of three ranks: each peak is there once in a plan, and five times in a run.
    for policy in full_fp32 amp_fp16 amp_bf16; do
        of() { sed -n "/\"policy\": \"$policy\"/,/\"policy\": /p" "$1" | grep -E '"(peak_bytes|master|copy|gradient|moment|activation|workspace|other)"' | tr -d ' ,'; }
        one=$(of "ranks_plan$zero/plan.json" | head -n 8) all=$(of "ranks$zero/summary.json")
        [[ $all == "$one"$'\n'"$one"$'\n'"$one"$'\n'"$one"$'\n'"$one" ]] ||
            fail "--zero $zero, $policy: the plan tells $one; the run of ranks has $(diff <(echo "$one") <(echo "$all"))"
    done
    grep -q 'peak memory of each rank, MiB' "ranks$zero/report.html" || fail "report.html has no memory of ranks"
done
first_moments() { grep -m 1 -o '"moment": [0-9]*' "$1/plan.json" | grep -o '[0-9]*$'; }
(($(first_moments ranks_plan1) * 2 < $(first_moments ranks_plan0))) || fail "--zero 1 plans $(first_moments ranks_plan1) bytes of moments, --zero 0 $(first_moments ranks_plan0)"

# ---- the history of memory: three formats of one content, and the planned one before the run

for ending in json pickle html; do
    "$program" "${small[@]}" --steps 3 --text text --out "history_$ending" --policy amp_bf16 --memory-history "memory.$ending" >out 2>err ||
        fail "--memory-history memory.$ending ends with $?: $(cat err)"
    [[ -s memory.$ending && ! -e memory.$ending.part ]] || fail "--memory-history leaves no memory.$ending"
done
grep -q '"h.0.attn.qkv"' memory.json || fail "a history has no layers"
grep -q 'Nothing: what a step after the first one allocated' memory.html || fail "train_gpt leaks: $(grep 'outlive' memory.html)"
"$program" "${small[@]}" --steps 3 --text text --out planned --policy amp_bf16,full_fp32 --plan --memory-history planned.json >out 2>err ||
    fail "--plan --memory-history: $? $(cat err)"
[[ $(ls planned_*.json) == $'planned_amp_bf16.json\nplanned_full_fp32.json' ]] || fail "--memory-history of two policies: $(ls planned*)"
[[ $(grep -o '"peak_bytes":[0-9]*' planned_amp_bf16.json | grep -o '[0-9]*$') == "$(grep -m 1 -o '"peak_bytes": [0-9]*' planned/plan.json | grep -o '[0-9]*$')" ]] ||
    fail "the planned history has another peak than the plan"
if command -v python3 >/dev/null 2>&1; then
    python3 "$here/memory_history.py" memory.pickle memory.json memory.html >out 2>&1 || fail "the files of a history: $(cat out)"
fi

# ---- checkpointing has the same bits in less memory

activations() { grep -o '"activation": [0-9]*' "$1/summary.json" | head -n 1 | grep -o '[0-9]*$'; }
three=(--layers 3 "${small[@]:2}")
"$program" "${three[@]}" --steps 6 --text text --out deep >out 2>err || fail "with three blocks: $?"
"$program" "${three[@]}" --steps 6 --text text --out again --checkpointing 1 >out 2>err || fail "--checkpointing: $?"
[[ $(losses deep) == "$(losses again)" ]] || fail "--checkpointing changes the losses"
(($(activations again) < $(activations deep))) || fail "--checkpointing takes $(activations again) bytes of activations, more than $(activations deep)"

# ---- moments in 8 bits: less memory, the same losses within a hundredth; the plan and the summary know it

moments() { grep -o '"moment": [0-9]*' "$1" | head -n 1 | grep -o '[0-9]*$'; }
validation() { grep -m 1 -o '"validation_loss": [0-9.]*' "$1/summary.json" | grep -o '[0-9.]*$'; }
eight=("${small[@]}" --policy amp_bf16 --text text --lr 3e-3)
"$program" "${eight[@]}" --steps 80 --out wide_state >out 2>err || fail "before 8 bits: $?"
"$program" "${eight[@]}" --steps 80 --out narrow_state --optimizer adamw_8bit >out 2>err || fail "--optimizer adamw_8bit: $? $(cat err)"
"$program" "${eight[@]}" --steps 80 --out planned_state --optimizer adamw_8bit --plan >out 2>err || fail "--plan of adamw_8bit: $?"
[[ $(peaks planned_state/plan.json) == "$(peaks narrow_state/summary.json)" ]] || fail "--plan of adamw_8bit tells $(peaks planned_state/plan.json); the run reports $(peaks narrow_state/summary.json)"
(($(grep -c '"optimizer": "adamw_8bit"' narrow_state/summary.json) == 2)) || fail "summary.json does not name adamw_8bit"
(($(moments narrow_state/summary.json) * 2 < $(moments wide_state/summary.json))) || fail "adamw_8bit has $(moments narrow_state/summary.json) bytes of moments, adamw $(moments wide_state/summary.json)"
awk -v a="$(validation wide_state)" -v b="$(validation narrow_state)" 'BEGIN { exit !(a > 0 && a < 4 && b != a && b < 1.01 * a) }' ||
    fail "the validation losses are $(validation wide_state) and $(validation narrow_state)"

# ---- a budget is kept, and refused where nothing fits

deep=(--layers 3 --width 32 --heads 2 --context 16 --batch 8 --eval-windows 4 --write 0 --policy amp_bf16 --text text)
peak() { grep -m 1 -o '"peak_bytes": [0-9]*' "$1/summary.json" | grep -o '[0-9]*$'; }
"$program" "${deep[@]}" --steps 3 --out whole >out 2>err || fail "without a budget: $?"
before=$(peak whole)
for cut in 0 20000 60000; do
    "$program" "${deep[@]}" --steps 3 --out "cut$cut" --budget $((before - cut)) >out 2>err || fail "--budget $((before - cut)) ends with $?: $(cat err)"
    (($(peak "cut$cut") <= before - cut)) || fail "--budget $((before - cut)) takes $(peak "cut$cut")"
    [[ $(grep -m 1 -o '"planned_peak_bytes": [0-9]*' "cut$cut/summary.json" | grep -o '[0-9]*$') == "$(peak "cut$cut")" ]] || fail "--budget: another peak than planned"
done
"$program" "${deep[@]}" --steps 3 --out none --budget 100KiB >out 2>err
code=$?
((code == 2)) && grep -Eq '^train_gpt: --budget: amp_bf16: memory\.budget: the run needs [0-9]+ bytes with .*; [0-9]+ more than the 102400 given; it would take ' err && [[ ! -e none ]] || fail "a budget in which nothing fits ends with $code: $(cat err)"
least=$(grep -o 'needs [0-9]*' err | grep -o '[0-9]*')
"$program" "${deep[@]}" --steps 3 --out least --budget "$least" >out 2>err || fail "the least budget, $least, ends with $?: $(cat err)"
"$program" "${deep[@]}" --steps 3 --out none --budget $((least - 1)) >out 2>err && fail "a byte below the least budget is taken"
"$program" "${deep[@]}" --steps 40 --eval-every 20 --text text --out logs --plan >out 2>err || fail "--plan of 40 steps: $?"
"$program" "${deep[@]}" --steps 40 --eval-every 20 --text text --out logged >out 2>err || fail "40 steps: $?"
[[ $(grep -m 1 -o '"peak_bytes": [0-9]*' logs/plan.json | grep -o '[0-9]*$') == "$(peak logged)" ]] || fail "--plan tells another peak than a run with longer logs has"
grep -A 12 '"path": "h.0.attn"' logs/plan.json | grep -E '"activation": [1-9]' >/dev/null || fail "plan.json has no activations of layers"

small_state=$((least - 30000))
"$program" "${deep[@]}" --steps 3 --out small_state --budget $small_state --optimizer adamw_8bit >out 2>err || fail "a budget with adamw_8bit: $? $(cat err)"
(($(peak small_state) <= small_state)) || fail "--budget $small_state with adamw_8bit takes $(peak small_state)"

# ---- options

"$program" "${small[@]}" --steps 4 --text text --out e --policy amp_bf16,full_fp32 --profile --eval-every 2 --accumulation 2 >out 2>err ||
    fail "with options: $?"
[[ $(grep -o '"policy": "[a-z0-9_]*"' e/summary.json) == $'"policy": "amp_bf16"\n"policy": "full_fp32"' ]] || fail "--policy is not the order"
grep -Eq '^attention +[0-9.]+ +[0-9.]+ ' out || fail "--profile prints no attention"
(($(grep -c validation_loss e/metrics.jsonl) == 4)) || fail "--eval-every 2 over 4 steps of two policies gives not 4 evaluations"
grep -q 'amp_bf16  step 2: validation loss ' err || fail "an evaluation is not told"
"$program" "${small[@]}" --steps 6 --text text --out w --policy amp_fp16 --accumulation 2 --watch --plant h.0.mlp:4 --numerics-every 3 >out 2>err ||
    fail "with a planted overflow: $?"
grep -Eq '^amp_fp16  step 4 skipped \((infinity|not a number)\): h\.0\.mlp, mlp, forward: [0-9]+ [+-]inf.* in float16' err || fail "--watch does not tell of the planted overflow"
grep -Eq '"step":4,"overflow":\{"result":"[a-z ]+","layer":"h.0.mlp",.*"micro_batch":1,' w/metrics.jsonl || fail "metrics.jsonl has no overflow"
[[ $(ls w) == $'metrics.jsonl\nnumerics_amp_fp16_3.html\nnumerics_amp_fp16_3.json\nnumerics_amp_fp16_6.html\nnumerics_amp_fp16_6.json\nreport.html\nsummary.json' ]] ||
    fail "--numerics-every leaves $(ls w)"
grep -q 'numerics_amp_fp16_6.html' w/report.html || fail "the report does not link to numerics"

# ---- what a run did: a timeline, the distance from the machine's peaks, event files, the report

echo '{"flops": {"fp32": 1e11, "bf16": 2e11}, "bytes": 2e10}' >peaks.json
"$program" "${small[@]}" --steps 6 --text text --out seen --policy amp_bf16 --trace --tensorboard --speed-of-light --peaks peaks.json --numerics-every 6 >out 2>err ||
    fail "--trace --tensorboard --speed-of-light: $? $(cat err)"
grep -Eq '^linear_cross_entropy .*backward +1\.0 ' out || fail "--speed-of-light prints no line of the loss: $(cat out)"
grep -q 'MFU .* of 100.0 GFLOP/s in fp32, 200.0 in bf16; copy 20.0 GB/s' out || fail "--peaks is not what is printed"
grep -q '"name":"forward"' seen/trace.json && grep -q '"layer":"h.0.attn.qkv"' seen/trace.json || fail "the trace lacks its parts or layers"
grep -q '"step":4' seen/trace.json && ! grep -q '"step":1[,}]' seen/trace.json || fail "the trace is not that of steps 4 to 6"
[[ -s $(echo seen/tensorboard/amp_bf16/events.out.tfevents.*) ]] || fail "--tensorboard leaves no event file"
for part in 'Loss scale' 'Speed of light, amp_bf16' 'Policy, amp_bf16' 'Numerics, amp_bf16' 'h.\*.norm1\|h.\*' '</html>'; do
    grep -q "$part" seen/report.html || fail "report.html lacks $part"
done
! grep -Eq '<script|https?:' seen/report.html || fail "report.html is not by itself"
"$program" "${small[@]}" --steps 2 --text text --out seen2 --policy amp_bf16,full_fp32 --trace --no-report >out 2>err || fail "--trace of two policies: $?"
[[ $(ls seen2) == $'metrics.jsonl\nsummary.json\ntrace_amp_bf16.json\ntrace_full_fp32.json' ]] || fail "--trace --no-report leaves $(ls seen2)"
echo '{}' >no_peaks.json
"$program" "${small[@]}" --steps 2 --text text --out none --speed-of-light --peaks no_peaks.json >out 2>err
code=$?
((code == 2)) && grep -q '^train_gpt: --peaks: peaks: no_peaks.json has no rates' err && [[ ! -e none ]] || fail "peaks without rates: $code, $(cat err)"
"$program" --layers 1 --width 8 --heads 1 --context 4 --batch 1 --eval-windows 1 --write 0 --steps 300 --text text --out estimated --policy amp_bf16 >out 2>err ||
    fail "300 steps: $?"
grep -Eq '^about [0-9]+:[0-9]{2}$' out || fail "no estimate before 300 steps: $(cat out)"
"$program" "${small[@]}" --steps 2 --out own >out 2>err || fail "on the repository's own text: $?"
# Two policies are built on request alone; elsewhere the refusal says how.
"$program" "${small[@]}" --steps 6 --text text --out m --policy tf32,fp8_hybrid,amp_bf16 --accumulation 2 --threads 2 >out 2>err
code=$?
if ((code == 2)); then
    (($(wc -l <err) == 1)) && grep -q '^train_gpt: --policy: tf32 is not in this build; .*-DHALFTONE_TRAIN_GPT_MORE=ON' err && [[ ! -e m ]] ||
        fail "policies that were not built: $(cat err)"
    "$program" "${small[@]}" --steps 2 --text text --out m --shadow 1 >out 2>err && fail "--shadow runs where it was not built"
    grep -q '^train_gpt: --shadow is not in this build; .*-DHALFTONE_TRAIN_GPT_MORE=ON' err || fail "--shadow that was not built: $(cat err)"
    "$program" "${small[@]}" --steps 2 --text text --out l --model llama >out 2>err && fail "--model llama runs where it was not built"
    grep -q '^train_gpt: --model: a llama is not in this build; .*-DHALFTONE_TRAIN_GPT_MORE=ON' err || fail "a llama that was not built: $(cat err)"
else
    ((code == 0)) || fail "tf32 and fp8_hybrid: $code"
    for policy in tf32 fp8_hybrid; do
        grep -Eq "^$policy +[0-9.]+ +[0-9.]+ +[0-9]+ +[0-9.]+ +0 \|" out || fail "the table lacks $policy"
        (($(grep -c "\"policy\":\"$policy\"" m/metrics.jsonl) == 6)) || fail "metrics.jsonl has not 6 lines of $policy"
    done
    awk '/"train_loss"/ { sub(",", "", $2); loss[n++] = $2 } END { d = loss[1] - loss[2]; exit !(n == 3 && d < 0.02 && d > -0.02 && d != 0) }' \
        m/summary.json || fail "the losses of fp8_hybrid are not near those of amp_bf16: $(losses m)"
    "$program" "${small[@]}" --steps 6 --text text --out m1 --policy tf32,fp8_hybrid,amp_bf16 --accumulation 2 --threads 1 >out 2>err ||
        fail "tf32 and fp8_hybrid with one thread: $?"
    [[ $(losses m) == "$(losses m1)" ]] || fail "losses of tf32 or fp8_hybrid depend on the number of threads"
    "$program" "${small[@]}" --steps 3 --text text --out s --policy amp_fp16,amp_bf16 --accumulation 2 --shadow 2 >out 2>err || fail "--shadow: $?"
    (($(grep -c '^no tensor is beyond its bound$' out) == 2)) || fail "--shadow finds in a sound step: $(grep '^first' out)"
    [[ -s s/shadow_amp_bf16.html ]] && grep -q 'shadow_amp_bf16.html' s/report.html || fail "--shadow leaves no page: $(ls s)"
    "$program" "${small[@]}" --steps 3 --text text --out sp --policy amp_fp16 --plant h.0.mlp:2 --shadow 2 >out 2>err || fail "--shadow with a planted overflow: $?"
    grep -q '^first: h.0.mlp mlp, forward, value: .* beyond the bound in float16' out || fail "--shadow does not name what was planted: $(grep -e ^first -e ^no out)"
    for threads in 1 2; do
        "$program" "${small[@]}" --model llama --kv-heads 1 --steps 6 --text text --out "l$threads" --threads $threads >out 2>err || fail "a llama: $?"
    done
    [[ $(losses l1) == "$(losses l2)" && $(losses l1) != "$(losses a)" ]] || fail "a llama's losses depend on the number of threads, or are a GPT's"
    grep -q '"model": "llama"' l1/summary.json || fail "summary.json does not name the llama"
    awk '/"validation_loss"/ { sub(",", "", $2); loss[n++] = $2 } END { for (i = 1; i < n; i++) { d = loss[i] - loss[0]; if (d > 0.03 || d < -0.03) exit 1 } exit n != 3 }' \
        l1/summary.json || fail "a llama's losses differ from policy to policy: $(losses l1)"
    "$program" "${small[@]}" --model llama --kv-heads 3 --steps 2 --text text --out l3 >out 2>err && fail "three heads of keys for two of queries"
    grep -q '^train_gpt: --kv-heads is 3; expected 1 to 2' err || fail "--kv-heads 3 says: $(cat err)"
fi
"$program" --policy amp_bf16 --layers 1 --heads 1 --width 320 --context 16 --batch 2 --steps 2 --eval-windows 2 --write 0 --text text --out wide >out 2>err ||
    fail "a head wider than flash attention takes: $?"
"$program" "${small[@]}" --steps 2 --isa portable --text text --out p >out 2>err || fail "--isa portable: $?"
head -n 1 out | grep '^cpu, portable, ' >/dev/null || fail "--isa is not heeded"
[[ $("$program" --version | tr -d '\r') =~ ^[0-9]+\.[0-9]+\.[0-9]+$ ]] || fail "--version"
"$program" --help | grep -- --accumulation >/dev/null || fail "--help"
if [[ -z ${EMULATOR:-} ]] && command -v script >/dev/null 2>&1; then
    # A loss scale leaves amp_fp16 less room.
    script -qec "stty cols 80; '$program' ${small[*]} --steps 6 --text text --out t --policy full_fp32,amp_bf16" /dev/null >terminal </dev/null ||
        fail "on a terminal: $?"
    for policy in full_fp32 amp_bf16; do
        grep -Eq $'\r'"$policy +[0-9]+% \\[[#-]{10,}\\]" terminal || fail "no bar of ten characters on a terminal of 80 columns: $(cat -v terminal)"
    done
else
    echo "not checked: the progress on a terminal (there is no script)"
fi

# ---- a file of token ids in place of a text

bytes=
for i in {0..2999}; do printf -v pair '\\x%02x\\x00' $((i * i % 20)); bytes+=$pair; done
printf '%b' "$bytes" >train.bin
"$program" "${small[@]}" --steps 4 --tokens train.bin --vocabulary 20 --policy amp_bf16 --out tokens >out 2>err ||
    fail "--tokens ends with $?: $(cat err)"
grep -q '^3000 tokens, 4 steps of 2 x 16 tokens$' out || fail "--tokens prints $(head -n 2 out)"
grep -q 'nats a token' out || fail "--tokens prints no table of losses by token"
if grep -q 'writes:' out; then fail "--tokens writes a text of ids"; fi

# ---- weights of a GPT-2 to begin with: its sizes, and the same run from a folder and from a file in it

gpt2=$here/../golden/gpt2
few=(--batch 2 --eval-windows 4 --steps 2 --tokens train.bin --policy full_fp32)
"$program" "${few[@]}" --init "$gpt2" --out init >out 2>err || fail "--init ends with $?: $(cat err)"
grep -q '^3000 tokens, 2 steps of 2 x 16 tokens$' out || fail "--init prints $(head -n 2 out)"
"$program" "${few[@]}" --init "$gpt2/model.safetensors" --out init_file >out 2>err || fail "--init with a file ends with $?: $(cat err)"
train_loss() { grep -o '"train_loss": [0-9.]*' "$1/summary.json"; }
[[ -n $(train_loss init) && $(train_loss init) == "$(train_loss init_file)" ]] || fail "--init: a folder and its file give other losses"
"$program" "${few[@]}" --layers 2 --heads 4 --width 16 --context 16 --vocabulary 32 --out no_init >out 2>err || fail "a run of these sizes"
[[ $(train_loss init) != "$(train_loss no_init)" ]] || fail "--init does nothing"

# ---- bad input: one line, exit code 2, nothing left behind

# refuse PATTERN ARGUMENT...; refuse_out PATTERN FOLDER the same for a folder to write to
refuse() { refuse_out "$1" refused/deep "${@:2}"; }
refuse_out() {
    local pattern=$1 code
    shift
    "$program" --out "$@" >out 2>err
    code=$?
    ((code == 2)) || fail "$* ends with $code: $(cat err)"
    (($(wc -l <err) == 1)) || fail "$* says: $(cat err)"
    grep -q "^train_gpt: .*$pattern" err || fail "$* says: $(cat err)"
    [[ ! -e refused ]] || fail "$* leaves $(find refused)"
    rm -rf refused
}

: >empty
mkdir bare
head -c 100 text >short
refuse 'there is no missing' --text missing
refuse 'empty is empty' --text empty
refuse 'holds no files' --text bare
if [[ -z ${EMULATOR:-} ]]; then refuse 'neither a file nor a folder' --text /dev/null; fi
if [[ -e /proc/self/mem ]]; then refuse 'cannot read' --text /proc/self/mem; fi
if ((EUID != 0)); then
    cp text closed && chmod 000 closed
    refuse 'cannot open closed' --text closed
fi
refuse 'has 100 tokens; a context of 128 needs 129' --text short
refuse 'held-out part has 10 tokens; a context of 16 needs 17' --text short --context 16
refuse '3 do not divide a --width of 256' --text text --heads 3
refuse '--ranks is 2, and --budget chooses' --text text --ranks 2 --budget 1GiB
refuse 'there is no missing' --tokens missing
refuse 'empty is empty' --tokens empty
refuse 'token number 3 is 9; the vocabulary has 0 to 8' --tokens train.bin --vocabulary 9
refuse 'expected one of them' --tokens train.bin --text text
refuse '--vocabulary is of --tokens' --text text --vocabulary 9
refuse '--init: io: there is no' --tokens train.bin --init nowhere
refuse '--layers is that of the model of --init' --tokens train.bin --init "$gpt2" --layers 2
refuse 'which are no bytes; give --tokens' --text text --init "$gpt2"
refuse '--context is 17; the model of --init has 16 positions' --tokens train.bin --init "$gpt2" --context 17
refuse 'a GPT-2 is a gpt; --model is llama' --tokens train.bin --init "$gpt2" --model llama
for option in layers heads width context batch accumulation steps; do
    refuse "--$option is 0; expected 1" --text text "--$option" 0
    refuse "--$option is -1; expected 1" --text text "--$option" -1
    refuse "--$option is 9999999999; expected 1" --text text "--$option" 9999999999
    refuse "$option" --text text "--$option" 99999999999999999999999
    refuse "$option" --text text "--$option" many
    refuse "$option" --text text "--$option"
done
refuse 'GiB of memory' --text text --width 65536 --layers 1000
refuse 'GiB of memory' --text text --batch 1048576
refuse 'GiB of memory' --text text --batch 65536 --accumulation 65536 --layers 1 --width 8 --heads 1
refuse '--lr is -1' --text text --lr -1
refuse '--lr is nan' --text text --lr nan
refuse '--lr is 1e+15; expected 0 to 1e6' --text text --lr 1e15
refuse '--threads is -1' --text text --threads -1
refuse "there is no 'adam'; known: adamw, adamw_8bit" --text text --optimizer adam
refuse "there is no 'amp_fp8'" --text text --policy amp_fp8
refuse "there is no 'amp_fp8'" --text text --policy full_fp32,amp_fp8
refuse 'twice' --text text --policy full_fp32,full_fp32
refuse 'expected LAYER:STEP' --text text --plant h.0.mlp
refuse 'expected a file that ends with .html, .json or .pickle' --text text --memory-history memory.txt
refuse 'output: cannot write no/folder_full_fp32.html.part' --text text --context 16 --steps 2 --memory-history no/folder.html
refuse "no layer 'h.9.mlp' has weights" --text text --context 16 --steps 2 --plant h.9.mlp:2
refuse 'expected 1 to 2' --text text --context 16 --steps 2 --plant h.0.mlp:3
refuse 'not an instruction set' --text text --isa mmx
refuse "there is no 'tpu'" --text text --device tpu
refuse "there is no 'bert'" --text text --model bert
refuse 'not expected' --text text --no-such-option
refuse_out 'is no folder\|cannot make the folder' text/below --text text
refuse_out 'the folder.s name is empty' '' --text text
if [[ -d /proc/self ]]; then refuse_out 'cannot' /proc/self --text text; fi

mkdir -p taken/summary.json
refuse_out 'is a folder' taken --text text
[[ $(find taken) == $'taken\ntaken/summary.json' ]] || fail "a refused run leaves $(find taken)"

# Without a GPU, or built without CUDA: one line, 3, nothing left behind. With one: the same files, and its name in them.
"$program" "${small[@]}" --steps 6 --text text --device cuda --out gpu >out 2>err
code=$?
if ((code == 0)); then
    head -n 1 out | grep '^cuda, ' >/dev/null || fail "--device cuda names another device"
    grep -Eq '"gpu": "[^"]+"' gpu/summary.json || fail "summary.json does not name the GPU"
    paste <(losses a) <(losses gpu) | awk '{ split($2, a, ","); split($4, b, ","); d = a[1] - b[1]; if (d < 0) d = -d; if (!(d <= 0.02)) exit 1 }' ||
        fail "the GPU's losses are not the CPU's: $(losses gpu)"
else
    ((code == 3 && $(wc -l <err) == 1)) && grep -q '^train_gpt: --device cuda: ' err && [[ ! -e gpu ]] || fail "--device cuda ends with $code: $(cat err)"
fi

cp -r a kept
"$program" "${small[@]}" --steps 6 --text empty --out kept >out 2>err
diff -r a kept >/dev/null || fail "a refused run changes the files of an earlier one"

# ---- Ctrl-C ends at a step boundary with the summary so far

interrupt() {
    "$program" "${small[@]}" --steps 100000000 --policy amp_bf16,full_fp32 --text text --out "$1" >out 2>err &
    local pid=$! code
    for _ in {1..600}; do
        if [[ -e $1/metrics.jsonl.part ]]; then break; fi
        sleep 0.05
    done
    sleep 0.3
    kill "-$2" "$pid"
    wait "$pid"
    code=$?
    ((code == $3)) || fail "SIG$2 ends with $code"
    [[ $(ls "$1") == $'metrics.jsonl\nreport.html\nsummary.json' ]] || fail "SIG$2 leaves $(ls "$1")"
    (($(grep -c '"policy":' "$1/summary.json") == 1)) || fail "SIG$2 goes on with the next policy"
    grep -q '"validation_loss": null' "$1/summary.json" || fail "SIG$2 evaluates all the same"
    grep -q '^amp_bf16 ' out || fail "SIG$2 prints no table"
}
interrupt i INT 130
if [[ -z ${EMULATOR:-} ]]; then interrupt j TERM 143; fi  # Windows has none

# ---- a run that is killed goes on with the same numbers; SIGTERM saves at the step's end

# What must not depend on an interruption: losses and rates, step by step.
numbers() { grep -v '"at_step"' "$1/metrics.jsonl" | sed 's/"tokens_per_second":[^,]*,"step_ms":[^,]*,"peak_bytes":[^,]*,//'; }
long=("${small[@]}" --steps 100 --accumulation 2 --eval-every 40 --text text)
"$program" "${long[@]}" --out whole_run --save-steps 30 >out 2>err || fail "--save-steps: $? $(cat err)"
[[ $(ls whole_run/amp_fp16) == $'checkpoint-100\ncheckpoint-90' ]] || fail "--save-steps keeps $(ls whole_run/amp_fp16)"
"$program" "${long[@]}" --out without >out 2>err || fail "without --save-steps: $?"
[[ $(numbers whole_run) == "$(numbers without)" ]] || fail "--save-steps changes the numbers"

# Kills the program when a policy's checkpoint exists: kill_at SIGNAL FOLDER CHECKPOINT ARGUMENT...
kill_at() {
    "$program" "${long[@]}" --out "$2" --save-steps 30 "${@:4}" >out 2>err &
    local pid=$!
    for _ in {1..2000}; do
        if compgen -G "$2/$3" >/dev/null || ! kill -0 $pid 2>/dev/null; then break; fi
        sleep 0.01
    done
    kill "-$1" $pid 2>/dev/null
    wait $pid 2>/dev/null
}
if [[ -z ${EMULATOR:-} ]]; then
    kill_at KILL killed 'full_fp32/checkpoint-*'
    kill_at KILL killed 'amp_fp16/checkpoint-*' --resume
    kill_at TERM killed 'amp_bf16/checkpoint-*' --resume
    code=$?
    "$program" "${long[@]}" --out killed --save-steps 30 --resume >out 2>err || fail "--resume: $? $(cat err)"
    [[ $(numbers killed) == "$(numbers whole_run)" ]] || fail "the metrics of a run that was killed three times differ: $(diff <(numbers killed) <(numbers whole_run))"
    [[ $(losses killed) == "$(losses whole_run)" ]] || fail "the losses of a run that was killed differ"
    [[ $(ls killed) == $'amp_bf16\namp_fp16\nfull_fp32\nmetrics.jsonl\nreport.html\nsummary.json' ]] || fail "a run that was killed leaves $(ls killed)"
    # A damaged checkpoint is skipped with a line; other arguments are refused.
    printf x | dd of=killed/amp_bf16/checkpoint-100/model.safetensors bs=1 seek=900 conv=notrunc 2>/dev/null
    "$program" "${long[@]}" --out killed --save-steps 30 --resume >out 2>err || fail "--resume beside a damaged checkpoint: $?"
    grep -q '^train_gpt: skipped .*amp_bf16/checkpoint-100: .*its checksum differs' err || fail "a damaged checkpoint is not told: $(cat err)"
    [[ $(numbers killed) == "$(numbers whole_run)" ]] || fail "the metrics beside a damaged checkpoint differ"
    "$program" "${long[@]}" --out killed --save-steps 30 --resume --lr 0.01 >out 2>err
    [[ $? == 2 && $(wc -l <err) == 1 ]] && grep -q '^train_gpt: --resume: killed/.* was saved with lr 0.001; here it is 0.01' err || fail "--resume with another rate says: $(cat err)"
    "$program" "${small[@]}" --steps 3 --text text --out fresh --resume --policy amp_bf16 >out 2>err || fail "--resume without a checkpoint: $?"

    # Ranks: each saves what it holds, and those of another stage of ZeRO go on with the same numbers.
    of_ranks() { numbers "$1" | sed 's/"ranks":[0-9]*,//; s/"zero":[0-9]*,//'; }
    one=("${small[@]}" --steps 100 --eval-every 40 --text text --policy amp_bf16 --save-steps 30)
    "$program" "${one[@]}" --out whole_ranks --accumulation 2 --ranks 2 >out 2>err || fail "--save-steps with --ranks: $? $(cat err)"
    kill_at KILL killed_ranks 'amp_bf16/checkpoint-*' --policy amp_bf16 --ranks 2 --zero 3
    kill_at TERM killed_ranks 'amp_bf16/checkpoint-[6-9]*' --policy amp_bf16 --ranks 2 --zero 1 --resume
    [[ -e $(compgen -G 'killed_ranks/amp_bf16/checkpoint-*/model-00002-of-00002.safetensors' | head -n 1) ]] || fail "ranks do not save their parts: $(ls killed_ranks/*)"
    cp -r killed_ranks four_ranks
    cp -r killed_ranks no_ranks
    "$program" "${one[@]}" --out killed_ranks --accumulation 2 --ranks 2 --zero 2 --resume >out 2>err || fail "--resume with --ranks: $? $(cat err)"
    [[ $(of_ranks killed_ranks) == "$(of_ranks whole_ranks)" ]] ||
        fail "the metrics of ranks that were killed differ: $(diff <(of_ranks killed_ranks) <(of_ranks whole_ranks))"
    # On another number of ranks, or alone, with the same windows in each step.
    "$program" "${one[@]}" --out four_ranks --accumulation 2 --ranks 4 --zero 2 --resume >out 2>err
    [[ $? == 2 && $(wc -l <err) == 1 ]] && grep -q '^train_gpt: --resume: .* was saved with 8 windows in a step on 2 ranks; here it has 16 on 4' err ||
        fail "--resume with other windows says: $(cat err)"
    "$program" "${one[@]}" --out four_ranks --ranks 4 --accumulation 1 --zero 3 --resume >out 2>err || fail "--resume on four ranks: $? $(cat err)"
    "$program" "${one[@]}" --out no_ranks --accumulation 4 --resume >out 2>err || fail "--resume without ranks: $? $(cat err)"
    for folder in four_ranks no_ranks; do
        awk -v a="$(validation "$folder")" -v b="$(validation whole_ranks)" 'BEGIN { exit !(a > 0 && a < 1.01 * b && b < 1.01 * a) }' ||
            fail "$folder ends with the validation loss $(validation "$folder"); two ranks with $(validation whole_ranks)"
    done
fi

# ---- files that cannot be written: the run ends with one line, or goes on, as --on-write-error says; what was written before stays

short=("${small[@]}" --steps 40 --text text --policy amp_bf16 --tensorboard --trace)
whole() { if command -v python3 >/dev/null 2>&1; then python3 -c 'import json, sys; [json.loads(line) for line in open(sys.argv[1])]' "$1"; fi; }
mkdir full
if [[ -e /dev/full ]] && ln -s /dev/full full/metrics.jsonl.part; then
    "$program" "${small[@]}" --steps 6 --text text --out full >out 2>err
    code=$?
    ((code != 0)) || fail "a full disk goes unnoticed"
    [[ $(tail -n 1 err) == *'cannot write'* ]] || fail "a full disk says $(cat err)"
    [[ ! -e full/metrics.jsonl && ! -e full/summary.json ]] || fail "a full disk leaves $(ls full)"
fi
: >a_file
"$program" "${short[@]}" --out a_file/below >out 2>err && fail "a folder that cannot be made goes unnoticed"
(($(wc -l <err) == 1)) || fail "a folder that cannot be made says $(cat err)"
"$program" "${short[@]}" --out a_file/below --on-write-error continue >out 2>err
code=$?
((code == 2)) && grep -q '^amp_bf16 ' out && grep -q '^train_gpt: output: .*a_file.*; the run goes on without it$' err ||
    fail "a folder that cannot be made, and the run to go on: $code, $(cat err)"
"$program" "${short[@]}" --out refused --on-write-error perhaps >out 2>err && fail "--on-write-error perhaps is taken"
# A disk of 24 KiB, where this user may mount one.
if [[ -z ${EMULATOR:-} ]] && unshare -rm bash -c 'mkdir -p tiny && mount -t tmpfs -o size=24k tmpfs tiny' 2>/dev/null; then
    for what in stop continue; do
        unshare -rm bash -c 'mount -t tmpfs -o size=24k tmpfs tiny; "$@" --out tiny/out; code=$?; cp -r tiny "tiny_$0"; exit $code' \
            $what "$program" "${short[@]}" --on-write-error $what >out 2>err
        code=$?
        ((code == 2)) || fail "a tiny disk and --on-write-error $what: $code, $(cat err)"
        part=$(compgen -G "tiny_$what/out/metrics.jsonl*")
        [[ -s $part ]] && whole "$part" || fail "a tiny disk leaves $(ls -l tiny_$what/out)"
        (($(grep -c 'No space left on device' err) >= 1)) || fail "a tiny disk says $(cat err)"
    done
    grep -q '^amp_bf16 ' out && (($(grep -c 'the run goes on without it' err) >= 1)) || fail "a run on a tiny disk does not go on: $(cat err)"
    # A folder that can be read alone.
    unshare -rm bash -c 'mount -t tmpfs -o size=1m,ro tmpfs tiny; "$@" --out tiny/out' x "$program" "${short[@]}" --on-write-error continue >out 2>err
    code=$?
    ((code == 2)) && grep -q '^amp_bf16 ' out && grep -q 'Read-only file system' err || fail "a folder that can be read alone: $code, $(cat err)"
else
    echo "not checked: a disk that is full, or can be read alone (this user may not mount one)"
fi
# A run that is killed leaves lines and events that can be read.
if [[ -z ${EMULATOR:-} ]]; then
    "$program" "${small[@]}" --steps 100000000 --policy amp_bf16 --text text --out gone --no-estimate --eval-every 20 --tensorboard >out 2>err &
    pid=$!
    for _ in {1..600}; do
        if [[ -s gone/metrics.jsonl.part ]]; then break; fi
        sleep 0.05
    done
    kill -KILL $pid
    wait $pid 2>/dev/null
    [[ -s gone/metrics.jsonl.part ]] && whole gone/metrics.jsonl.part || fail "a run that was killed leaves $(ls gone)"
    [[ -s $(echo gone/tensorboard/amp_bf16/events.out.tfevents.*) ]] || fail "a run that was killed leaves no events"
fi

if ((failures)); then
    echo "$failures failures"
    exit 1
fi
echo "train_gpt behaves"

#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Tests finetune as a program, with the model that it makes: what each method learns and writes, its plans, how it goes on, its error messages.
#
#     tests/programs/finetune.sh PROGRAM
set -uo pipefail
program=$1
golden=$(cd "$(dirname "${BASH_SOURCE[0]}")/../golden" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
failures=0
if [[ -n ${EMULATOR:-} ]]; then
    printf '#!/bin/sh\nexec "%s" "%s" "$@"\n' "$EMULATOR" "$program" >emulated
    chmod +x emulated
    program=$work/emulated
fi
fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}
value() { sed -n "s/^ *\"$1\": \([0-9.e+-]*\),*$/\1/p" "$2" | head -n 1; }

# ---- without arguments: a model and a task of its own, learnt

"$program" --out a >out 2>err || fail "a run without arguments ends with $?: $(tail -n 3 err)"
for file in adapter/adapter_config.json adapter/adapter_model.safetensors merged/config.json merged/model.safetensors merged/tokenizer.json \
    model.gguf report.html summary.json; do
    [[ -s a/$file ]] || fail "a run does not leave $file"
done
grep -q '^  before: ' out || fail "no answer is shown: $(cat out)"
(($(value exact_before a/summary.json) == 0)) || fail "the base gives $(value exact_before a/summary.json) answers in the form of the task"
(($(value exact_after a/summary.json) * 2 >= $(value questions a/summary.json))) || fail "exact answers: $(value exact_after a/summary.json)"
[[ $(value planned_peak_bytes a/summary.json) == "$(value peak_bytes a/summary.json)" ]] ||
    fail "planned $(value planned_peak_bytes a/summary.json), measured $(value peak_bytes a/summary.json)"
if grep -Eq 'https?://|<script' a/report.html; then fail "the page loads something"; fi
grep -q 'Answers to held-out questions' a/report.html || fail "the page has no answers"

# ---- each other method, on the same files

small=(a/example/model a/example/task.jsonl --length 128 --steps 6)
for method in qlora full; do
    "$program" "${small[@]}" --method $method --out $method >out 2>err || fail "$method ends with $?: $(tail -n 1 err)"
    [[ -s $method/merged/model.safetensors && -s $method/model.gguf ]] || fail "$method leaves $(ls $method)"
    [[ $(value planned_peak_bytes $method/summary.json) == "$(value peak_bytes $method/summary.json)" ]] ||
        fail "$method: planned $(value planned_peak_bytes $method/summary.json), measured $(value peak_bytes $method/summary.json)"
done
[[ -s qlora/adapter/adapter_model.safetensors && ! -e full/adapter ]] || fail "adapters: $(ls qlora full)"

# ---- a run that ended is shown again with the same numbers; one of other arguments is refused

cp qlora/merged/model.safetensors first
"$program" "${small[@]}" --method qlora --out qlora >out 2>err || fail "a second start ends with $?: $(tail -n 1 err)"
grep -q '^Goes on from step 6' out || fail "a second start begins anew: $(cat out)"
cmp -s first qlora/merged/model.safetensors || fail "a second start writes other weights"

# ---- a run that a signal ends goes on with the same numbers

long=("${small[@]:0:4}" --method qlora --steps 80)
"$program" "${long[@]}" --out whole >out 2>err || fail "80 steps end with $?: $(tail -n 1 err)"
"$program" "${long[@]}" --save-steps 5 --out parts >out 2>err &
for ((i = 0; i < 200; ++i)); do
    if compgen -G 'parts/checkpoints/checkpoint-*' >found; then break; fi
    sleep 0.05
done
kill -TERM $!
wait $!
code=$?
((code == 143)) || fail "a run that SIGTERM ended has exit code $code: $(tail -n 2 err)"
[[ ! -e parts/merged ]] || fail "a run that is not at its end leaves $(ls parts)"
"$program" "${long[@]}" --save-steps 5 --out parts >out 2>err || fail "it does not go on: $(tail -n 1 err)"
grep -q '^Goes on from step' out || fail "it begins anew: $(head -n 5 out)"
cmp -s {whole,parts}/adapter/adapter_model.safetensors || fail "an interrupted run learns other adapters"

# ---- the plan of a configuration alone

"$program" --plan a/example/model/config.json >out 2>err || fail "--plan ends with $?: $(cat err)"
for method in qlora lora full; do grep -Eq "^$method +[0-9]+ " out || fail "--plan lacks $method: $(cat out)"; done

refused() { # refused EXPECTED ARGUMENTS...: exit code 2, and one line that contains EXPECTED
    local expected=$1
    shift
    "$program" "$@" --out refused </dev/null >out 2>err
    local code=$?
    ((code == 2)) || fail "$* ends with $code"
    (($(wc -l <err) == 1)) || fail "$* says other than a line: $(cat err)"
    grep -qF -- "$expected" err || fail "$* says: $(cat err)"
    [[ ! -e refused ]] || fail "$* leaves $(ls refused)"
}
echo '{"messages": []}' >bad.jsonl
refused 'there is no nothing; expected a folder' nothing bad.jsonl
refused 'there is no config.json in .; expected a folder' . bad.jsonl
refused 'there is no DATA' a/example/model
refused 'bad.jsonl, line 1: messages is no list of messages' a/example/model bad.jsonl
refused 'there is no none.jsonl' a/example/model none.jsonl
refused "--method is 'dora'; expected lora, qlora or full" "${small[@]}" --method dora
refused "--budget is '3 apples'" "${small[@]}" --budget '3 apples'
refused 'no method fits' "${small[@]}" --budget 1KiB
refused 'what fits: --method qlora' "${small[@]}" --method full --budget 4MiB
refused 'expected a llama, a mistral, a qwen2 or a qwen3' "$golden/chat_models/gpt2" bad.jsonl
"$program" "${small[@]}" --rank 4 --method qlora --out qlora >out 2>err
(($? == 2)) && grep -q 'is of a run whose' err || fail "another rank in the same folder is not refused: $(cat err)"
((failures == 0))

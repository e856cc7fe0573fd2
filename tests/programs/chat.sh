#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Tests chat as a program: transformers' answers (tests/golden/chat_models), and its error messages.
#
#     tests/programs/chat.sh PROGRAM
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

# said FOLDER-OR-FILE ARGUMENTS...: a conversation of $questions, with $system; stdout is $expected. One of a single turn also runs by --prompt.
said() {
    local of=$1 name
    shift
    name="${of##*/} $*, ${system:-no system message}, $(wc -l <questions) turns"
    [[ -z $system ]] || set -- "$@" --system "$system"
    "$program" "$golden/chat_models/$of" --greedy --max-new-tokens 64 "$@" <questions >out 2>err || fail "$name: ends with $?: $(cat err)"
    cmp -s expected out || fail "$name: says $(cat out); expected $(cat expected)"
    (($(wc -l <questions) == 1)) || return
    "$program" "$golden/chat_models/$of" --greedy --max-new-tokens 64 "$@" --prompt "$(cat questions)" </dev/null >out 2>err ||
        fail "$name, --prompt: ends with $?: $(cat err)"
    cmp -s expected out || fail "$name, --prompt: says $(cat out); expected $(cat expected)"
}

# conversations FOLDER-OR-FILE ANSWERS ARGUMENTS...: those of ANSWERS/answers.json, in which a turn is a line; printf '%b' reads escapes but for that of ".
conversations() {
    local of=$1 answers=$golden/chat_models/$2/answers.json line count=0
    shift 2
    while IFS= read -r line; do
        case $line in
            '{"system": '*)
                system=$(sed -n 's/^{"system": "\(.*\)", "options".*/\1/p' <<<"$line")
                : >questions
                : >expected
                ;;
            '{"user": '*)
                printf '%b\n' "$(sed 's/^{"user": "\(.*\)", "answer": ".*/\1/; s/\\"/"/g' <<<"$line")" >>questions
                printf '%b\n' "$(sed 's/^.*", "answer": "\(.*\)", "prompt_tokens": .*/\1/; s/\\"/"/g' <<<"$line")" >>expected
                ;;
            ']}'*)
                said "$of" "$@"
                count=$((count + 1))
                ;;
        esac
    done <"$answers"
    ((count >= 2)) || fail "$answers has $count conversations"
}
# The date is that of Llama 3.1's template, which the GGUF file has; Llama 3.2's, which the folder has, is told today's otherwise.
conversations qwen2 qwen2 --policy full_fp32
conversations qwen3 qwen3 --policy full_fp32
conversations llama3 llama3 --policy full_fp32 --date '26 Jul 2024'
conversations llama3 llama3 --policy pure_bf16 --date '26 Jul 2024'
conversations llama3.gguf llama3 --policy full_fp32
conversations gpt2 gpt2 --policy full_fp32 --raw

refused() { # refused EXPECTED ARGUMENTS...: exit code 2, one line that contains EXPECTED, and no answer
    local expected=$1
    shift
    "$program" "$@" --prompt 'Why is the sky blue?' </dev/null >out 2>err
    local code=$?
    ((code == 2)) || fail "$* ends with $code"
    (($(wc -l <err) == 1)) || fail "$* says other than a line: $(cat err)"
    grep -qF -- "$expected" err || fail "$* says: $(cat err)"
    [[ ! -s out ]] || fail "$* answers: $(cat out)"
}
refused 'there is no nothing; expected a folder' nothing
refused 'there is no config.json in .; expected a folder' .
refused 'config.json is a file; expected the folder' "$golden/chat_models/qwen2/config.json"
refused 'model.safetensors is a file; expected the folder' "$golden/chat_models/qwen2/model.safetensors"
refused bert "$golden/bert_folders/classifier"
refused bert "$golden/bert_folders/base"
refused nonsense "$golden/chat_models/qwen3" --policy nonsense
refused 8 "$golden/chat_models/qwen3" --policy full_fp32 --context 8
((failures == 0))

#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Tests tokenize as a program: its file, the same with any number of workers, and its error messages.
#
#     tests/programs/tokenize.sh PROGRAM
set -uo pipefail
program=$1
golden=$(cd "$(dirname "${BASH_SOURCE[0]}")/../golden/tokenizers" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
failures=0
if [[ -n ${EMULATOR:-} ]]; then
    printf '#!/bin/sh\nexec "%s" "%s" "$@" </dev/null\n' "$EMULATOR" "$program" >emulated
    chmod +x emulated
    program=$work/emulated
fi
fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}

# The file gpt2.json holds a tokenizer.json beside its cases: {"tokenizer":{...},"cases":[...]}.
mkdir folder texts
sed 's/^{"tokenizer"://; s/,"cases":\[{"ids".*$//' "$golden/gpt2.json" >folder/tokenizer.json
printf 'first text\nof two lines\n' >texts/a.txt
printf 'second <|endoftext|> text' >texts/b.txt
: >texts/empty.txt

"$program" --tokenizer folder --out 0.bin --behind-each '<|endoftext|>' --workers 0 texts >out 2>err || fail "a good run ends with $?: $(cat err)"
grep -Eq '^0.bin: [0-9]+ tokens of 3 texts, ids below [0-9]+, in ' out || fail "a run says $(cat out)"
[[ ! -s err ]] || fail "a good run complains: $(cat err)"
"$program" --tokenizer folder/tokenizer.json --out 3.bin --behind-each '<|endoftext|>' --workers 3 texts >/dev/null || fail "with workers: $?"
cmp -s 0.bin 3.bin || fail "the file depends on the number of workers"
"$program" --tokenizer folder --out lines.bin --lines texts >out || fail "with --lines: $?"
grep -q ' of 3 texts,' out || fail "--lines finds $(cat out)"
"$program" --tokenizer folder --out nano.bin --nanogpt texts/a.txt >/dev/null || fail "with --nanogpt: $?"
"$program" --tokenizer folder --out special.bin --allow-special texts/b.txt >special || fail "with --allow-special: $?"
"$program" --tokenizer folder --out plain.bin texts/b.txt >plain || fail "without it: $?"
(($(stat -c %s special.bin) < $(stat -c %s plain.bin))) || fail "a special token that a text spells is not taken as one: $(cat special plain)"

refused() { # refused EXPECTED ARGUMENTS...: exit code 2, one line that contains EXPECTED, and no file
    local expected=$1
    shift
    "$program" "$@" >out 2>err
    local code=$?
    ((code == 2)) || fail "$* ends with $code"
    (($(wc -l <err) == 1)) || fail "$* says more than a line: $(cat err)"
    grep -qF -- "$expected" err || fail "$* says: $(cat err)"
    [[ ! -e no.bin && ! -e no.bin.part ]] || fail "$* leaves a file"
}
refused 'is required' --tokenizer folder texts
refused 'there is no ' --tokenizer nothing --out no.bin texts
refused 'there is no ' --tokenizer folder --out no.bin nothing
refused 'has no token <|none|>' --tokenizer folder --out no.bin --behind-each '<|none|>' texts
refused 'there are no tokens' --tokenizer folder --out no.bin texts/empty.txt
refused '--workers is -1' --tokenizer folder --out no.bin --workers -1 texts
refused 'is not valid JSON' --tokenizer texts/a.txt --out no.bin texts
mkdir -p among/below
cp texts/a.txt among/below/a.txt
for name in out.bin below/out.bin; do # the file of an earlier run among the texts, and what one that was interrupted left
    for left in "$name" "$name.part"; do
        echo old >among/$left
        refused 'is one of the texts' --tokenizer folder --out among/$name among
        grep -qx old among/$left || fail "a text is written over"
        rm among/$left
    done
done
"$program" --tokenizer folder --out among/out.bin among >out || fail "a new file in the folder of texts: $?"
grep -q ' of 1 texts' out || fail "a new file in the folder of texts: $(cat out)"
refused 'cannot write' --tokenizer folder --out no/such/folder.bin texts
((failures == 0))

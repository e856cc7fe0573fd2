#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Tests tradeoff as a program: its table, its files, the memory that it plans, its error messages.
#
#     tests/programs/tradeoff.sh PROGRAM
#     EMULATOR=/usr/lib/wine/wine64 tests/programs/tradeoff.sh tradeoff.exe
set -uo pipefail
program=$1
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
small=(--layers 2 --width 32 --heads 2 --length 12 --vocabulary 40 --batch 4 --texts 30)
rows='fp32
bf16
bf16, checkpointing
bf16, adamw_8bit
bf16, checkpointing, adamw_8bit'

# ---- a run leaves a table, two files and the reviews that it invented

"$program" "${small[@]}" --steps 6 --out a >out 2>err || fail "a good run ends with $?: $(cat err)"
[[ $(ls a) == $'metrics.jsonl\nreport.html\nreviews_30_1\nsummary.json\ntradeoff.html' ]] || fail "a run leaves $(ls a)"
[[ $(ls a/reviews_30_1) == $'neg\npos' && $(ls a/reviews_30_1/pos | wc -l) -eq 30 ]] || fail "the reviews are $(ls a/reviews_30_1)"
grep -q '^writing 60 invented reviews to a.reviews_30_1' err || fail "nothing is said of the invented reviews: $(head -n 1 err)"
grep -q 'tradeoff 100%  30/30' err || fail "no progress: $(cat err)"
grep -q '^48 texts to train on, 12 held out, ' out || fail "the texts are not told: $(cat out)"
while read -r name; do
    grep -Eq "^$name +[0-9.]+ +[0-9.]+ +[0-9.]+ +[0-9.]+ +[0-9.]+ +[0-9.]+% \|" out || fail "the table lacks $name"
    grep -q "\"name\": \"$name\"" a/summary.json || fail "summary.json lacks $name"
    (($(grep -c "<li>$name</li>" a/tradeoff.html) == 1)) || fail "the page lacks $name"
done <<<"$rows"
for field in program commit machine cpu isa threads policy optimizer checkpointing steps train_loss validation_loss accuracy step_ms planned_peak_bytes peak_bytes; do
    grep -q "\"$field\":" a/summary.json || fail "summary.json lacks $field"
done
values() { grep -o "\"$1\": [0-9.e+-]*" "$2" | grep -o '[0-9.e+-]*$'; }
[[ $(values planned_peak_bytes a/summary.json) == "$(values peak_bytes a/summary.json)" ]] ||
    fail "planned $(values planned_peak_bytes a/summary.json), measured $(values peak_bytes a/summary.json)"
(($(values planned_peak_bytes a/summary.json | wc -l) == 5)) || fail "there are not 5 rows"
if grep -Eq 'https?://|<script|nan|inf"' a/tradeoff.html; then fail "the page loads something, or has no numbers"; fi
(($(grep -c '<svg' a/tradeoff.html) == 2)) || fail "the page has not 2 drawings"
(($(grep -c 'class="ring"' a/tradeoff.html) == 5)) || fail "the curve has not 5 points"
for part in 'Memory, bf16, checkpointing, adamw_8bit' 'nats a text' 'planned peak, MiB' 'Policy, fp32'; do
    grep -q "$part" a/report.html || fail "report.html lacks $part"
done
(($(grep -c '"policy":"bf16, adamw_8bit"' a/metrics.jsonl) >= 6)) || fail "metrics.jsonl lacks a row: $(cat a/metrics.jsonl)"
if command -v python3 >/dev/null 2>&1; then
    python3 - a/summary.json a/tradeoff.html <<'PYTHON' || fail "summary.json or the page is malformed"
import html.parser, json, sys
runs = json.load(open(sys.argv[1]))["runs"]
assert [r["optimizer"] for r in runs] == ["adamw", "adamw", "adamw", "adamw_8bit", "adamw_8bit"]
assert [r["checkpointing"] for r in runs] == [0, 0, 1, 0, 1]
assert runs[2]["train_loss"] == runs[1]["train_loss"] and runs[4]["train_loss"] == runs[3]["train_loss"] != runs[1]["train_loss"]
assert runs[3]["peak_bytes_by_kind"]["moment"] < runs[1]["peak_bytes_by_kind"]["moment"]
assert runs[2]["peak_bytes_by_kind"]["activation"] < runs[1]["peak_bytes_by_kind"]["activation"]
open_tags = []
class reader(html.parser.HTMLParser):
    def handle_starttag(self, tag, attributes):
        if tag not in ("meta", "br"): open_tags.append(tag)
    def handle_startendtag(self, tag, attributes): pass
    def handle_endtag(self, tag):
        assert open_tags and open_tags.pop() == tag, (tag, open_tags)
reader().feed(open(sys.argv[2]).read())
assert not open_tags
PYTHON
fi

# ---- the same command gives the same losses, and takes the same reviews

cp -r a/reviews_30_1 reviews
"$program" "${small[@]}" --steps 6 --out a --threads 1 >out 2>err || fail "a second run: $?"
if grep -q writing err; then fail "the reviews are written again"; fi
losses() { grep -E '"(train|validation)_loss"|"accuracy"' "$1"; }
losses a/summary.json >first
"$program" "${small[@]}" --steps 6 --out b --text reviews --no-report --trace --tensorboard >out 2>err || fail "with --text: $?"
diff first <(losses b/summary.json) || fail "losses differ with the same texts and another number of threads"
[[ $(ls b) == $'metrics.jsonl\nsummary.json\ntensorboard\ntrace_bf16.json\ntrace_bf16_adamw_8bit.json\ntrace_bf16_checkpointing.json\ntrace_bf16_checkpointing_adamw_8bit.json\ntrace_fp32.json\ntradeoff.html' ]] || fail "with --text a run leaves $(ls b)"
mkdir -p imdb/train && cp -r reviews/* imdb/train && mkdir imdb/train/unsup imdb/test
"$program" "${small[@]}" --steps 6 --out c --text imdb >out 2>err || fail "with the folder of aclImdb: $?"
diff first <(losses c/summary.json) || fail "losses differ with aclImdb's folder"

# ---- the plan: of the 12 layers that are the default, bf16 with checkpointing and adamw_8bit takes at most half of fp32's peak

"$program" --texts 50 --out plan --plan >out 2>err || fail "--plan ends with $?: $(cat err)"
[[ $(ls plan) == reviews_50_1 ]] || fail "--plan leaves $(ls plan)"
awk '/^fp32 / { whole = $2 } /^bf16, checkpointing, adamw_8bit / { least = $4 } END { exit !(whole > 0 && least > 0 && least <= whole / 2) }' out ||
    fail "the planned peaks: $(cat out)"

# ---- bad input: one line, exit code 2, nothing left behind

refuse() {
    local pattern=$1 code
    shift
    "$program" --out refused/deep "$@" >out 2>err
    code=$?
    ((code == 2)) || fail "$* ends with $code: $(cat err)"
    (($(wc -l <err) == 1)) || fail "$* says: $(cat err)"
    grep -q "^tradeoff: .*$pattern" err || fail "$* says: $(cat err)"
    [[ ! -e refused ]] || fail "$* leaves $(find refused)"
    rm -rf refused
}
mkdir -p one/pos none/pos none/neg few/pos few/neg hollow/pos hollow/neg
echo good >one/pos/0.txt
for part in pos neg; do
    echo "a $part film" >few/$part/0.txt
    echo "a $part film" >hollow/$part/0.txt
    : >hollow/$part/1.txt
done
refuse 'there is no missing' --text missing
refuse 'there is no one.neg' --text one
refuse 'holds no files that end in .txt' --text none
refuse '1.txt is empty' --text hollow
refuse '0.2 of 2 .* is none' --text few
refuse 'there is no first.neg' --text first
refuse '3 do not divide a --width of 128' --text few --heads 3
for option in layers width heads batch steps checkpointing; do
    refuse "--$option is 0; expected 1" --text few "--$option" 0
    refuse "$option" --text few "--$option" many
done
refuse '--length is 1; expected 2' --text few --length 1
refuse '--texts is 3; expected 10' --texts 3
refuse '--held-out is 1; expected more than 0' --text few --held-out 1
refuse '--held-out is nan' --text few --held-out nan
refuse '--lr is -1' --text few --lr -1
refuse '--lr is 1e+15; expected 0 to 1e6' --text few --lr 1e15
refuse '--threads is -1' --text few --threads -1
refuse 'not expected' --text few --no-such-option
"$program" --out first --text reviews >out 2>err
code=$?
((code == 2)) && grep -q '^tradeoff: output: .*\(no folder\|cannot make the folder\)' err || fail "--out of a file ends with $code: $(cat err)"
"$program" --help | grep -- --checkpointing >/dev/null || fail "--help"
[[ $("$program" --version | tr -d '\r') =~ ^[0-9]+\.[0-9]+\.[0-9]+$ ]] || fail "--version"

if ((failures)); then
    echo "$failures failures"
    exit 1
fi
echo "tradeoff behaves"

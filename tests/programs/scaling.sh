#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Tests scaling as a program: its tables, its files, its error messages.
#
#     tests/programs/scaling.sh PROGRAM
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
small=(--layers 3 --width 32 --heads 2 --context 16 --vocabulary 50 --batch 2 --step-seconds 0.02 --update-seconds 0.001)

# ---- a table for each strategy, and two files

"$program" "${small[@]}" --ranks 4096 --json a.json --html a.html >out 2>err || fail "a good run ends with $?: $(cat err)"
[[ $(ls) == $'a.html\na.json\nerr\nout' ]] || fail "a run leaves $(ls)"
for name in 'data parallel' 'ZeRO 1' 'ZeRO 2' 'ZeRO 3'; do
    grep -qx "$name" out || fail "there is no table of $name: $(cat out)"
    (($(grep -c "<h2>$name</h2>" a.html) == 1)) || fail "the page lacks $name"
done
(($(grep -Ec '^ *[0-9]+ +[0-9.]+ ' out) == 52)) || fail "there are not 13 rows of each: $(cat out)"
if grep -Eq 'https?://|<script|nan|inf"' a.html; then fail "the page loads something, or has no numbers"; fi
(($(grep -c '<svg' a.html) == 8)) || fail "the page has not 8 drawings"
if command -v python3 >/dev/null 2>&1; then
    python3 - a.json <<'PYTHON' || fail "the JSON is not right"
import json, sys
j = json.load(open(sys.argv[1]))
assert [s["zero"] for s in j["strategies"]] == [0, 1, 2, 3]
for s in j["strategies"]:
    rows = s["rows"]
    assert [r["ranks"] for r in rows] == [1 << k for k in range(13)]
    one = rows[0]
    assert one["reduced_bytes"] == one["gathered_bytes"] == 0 and abs(one["efficiency"] - 1) < 1e-9 and abs(one["step_seconds"] - 0.02) < 1e-9
    for r in rows:
        m = r["memory_bytes"]
        assert sum(v for k, v in m.items() if k != "total") == m["total"]
        assert r["efficiency"] <= (1 / 0.95 if s["zero"] else 1) + 1e-9 and r["hidden_seconds"] <= r["wire_seconds"]
zero = [s["rows"][2]["memory_bytes"] for s in j["strategies"]]  # of 4 ranks
assert zero[0]["moment"] == j["strategies"][0]["rows"][0]["memory_bytes"]["moment"]
assert zero[1]["moment"] < 0.5 * zero[0]["moment"] and zero[2]["gradient"] < 0.5 * zero[1]["gradient"] and zero[3]["master"] < 0.5 * zero[2]["master"]
PYTHON
fi

# ---- one line for what is wrong, exit code 2, and nothing left behind

refuse() {
    local line=$1 status=0
    shift
    "$program" "$@" >out 2>err || status=$?
    [[ $status == 2 && $(cat err) == "scaling: $line" && ! -s out ]] || fail "$* ends with $status and says: $(cat err out)"
}
refuse '--step-seconds is required' --ranks 4
refuse '--step-seconds is 0; expected more than 0, and 1e6 at most' --step-seconds 0
refuse '--zero is 4; expected 0 to 3' "${small[@]}" --zero 1,4
refuse '--zero names 1 twice' "${small[@]}" --zero 1,1
refuse '--bandwidth has 3 values; expected one, or two: within a node, between nodes' "${small[@]}" --bandwidth 1,2,3
refuse "--policy: there is no 'fp7'; known: full_fp32, amp_fp16, amp_bf16" "${small[@]}" --policy fp7
refuse '--update-seconds is 1; expected 0 or more, and less than --step-seconds' --step-seconds 0.5 --update-seconds 1
"$program" "${small[@]}" --html nowhere/a.html >out 2>err && fail "a page in a folder that does not exist"
[[ ! -e nowhere ]] || fail "a folder is left"

echo "$failures failures"
((failures == 0))

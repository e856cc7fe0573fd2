#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Measures what including a header adds to compiling an empty file, in seconds of CPU time, the best of three. The goal
# is printed; the test fails only beyond three times the goal, so that a busy machine does not decide.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cxx=${CXX:-c++}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# milliseconds FILE: user and system time of compiling FILE, the best of three.
milliseconds() {
    local best=999999 spent TIMEFORMAT='%U %S'
    for _ in 1 2 3; do
        spent=$({ time "$cxx" -std=c++20 -O2 -I"$root/include" -c "$1" -o "$work/out.o"; } 2>&1) ||
            { echo "$spent" >&2; return 1; }
        spent=$(awk '{ print int(1000 * ($1 + $2)) }' <<<"$spent")
        if ((spent < best)); then best=$spent; fi
    done
    echo "$best"
}

seconds() { printf '%d.%03d' $(($1 / 1000)) $(($1 % 1000)); }

: >"$work/empty.cpp"
empty=$(milliseconds "$work/empty.cpp")
status=0
while read -r header goal; do
    if [[ ! -e $root/include/halftone/$header ]]; then
        continue
    fi
    echo "#include <halftone/$header>" >"$work/one.cpp"
    whole=$(milliseconds "$work/one.cpp")
    cost=$((whole > empty ? whole - empty : 0))
    verdict="within the goal"
    if ((cost > goal)); then verdict="over the goal"; fi
    if ((cost > 3 * goal)); then verdict="more than three times the goal"; status=1; fi
    echo "<halftone/$header> adds $(seconds "$cost") s, goal $(seconds "$goal") s: $verdict"
done <<'GOALS'
number.hpp 300
amp.hpp 2000
halftone.hpp 2000
GOALS
exit "$status"

#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Counts the instructions of a training step with callgrind: without ranges (-DHALFTONE_NO_RANGES) there are as many as if the
# classes of ranges had no members and no code, whether somebody listens or not; with ranges that a trace records at most 1% more than
# with ranges that nobody hears. Some minutes. Status 77: there is no valgrind.
#
#     tests/valgrind/ranges.sh [FOLDER]          # programs and counts stay in FOLDER
set -uo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
command -v valgrind >/dev/null || { echo "skipped: there is no valgrind"; exit 77; }
work=${1:-$(mktemp -d)}
if (($# == 0)); then trap 'rm -rf "$work"' EXIT; fi
mkdir -p "$work"
cp -r "$root/include" "$work/include_without"
# Classes that nothing is left of.
awk '/^class (range|scoped_range) \{/ { inside = 1; name = $2 }
     !inside { print }
     /^};/ && inside {
         inside = 0
         print "class " name " {\n  public:"
         if (name == "range") print "    range(range_listener*, const char*, pass) {}"
         else {
             print "    scoped_range(range_listener*, const char*, track = track::step) {}"
             print "    template <detail::has_listened_graph Context>\n    scoped_range(Context&&, const char*, track = track::forward) {}"
         }
         print "    " name "(const " name "&) = delete;\n    " name "& operator=(const " name "&) = delete;\n    ~" name "() {}\n};"
     }' "$root/include/halftone/exec/ranges.hpp" >"$work/include_without/halftone/exec/ranges.hpp"
build() { "${CXX:-g++}" -std=c++20 -O2 -I"$1" "${@:3}" "$root/tests/valgrind/step.cpp" -o "$work/$2" -lpthread || exit 1; }
build "$root/include" off -DHALFTONE_NO_RANGES
build "$work/include_without" without -DHALFTONE_NO_RANGES
build "$root/include" on -DSTEP_OF_GPT

# count PROGRAM LISTENER: instructions of a step.
count() {
    valgrind --tool=callgrind --callgrind-out-file=/dev/null --toggle-collect=measured "$work/$1" "$2" 2>&1 |
        sed -n 's/.*Collected : *\([0-9]*\).*/\1/p'
}
failures=0
expect() { if ! "${@:2}"; then echo "FAILED: $1"; failures=$((failures + 1)); fi; }
at_most_one_percent() { (($1 * 100 <= $2 * 101)); }
without=$(count without none)
off=$(count off none)
attached=$(count off attached)
none=$(count on none)
traced=$(count on traced)
echo "instructions of a perceptron's step: $without without the classes, $off with ranges off, $attached with a listener that hears nothing;"
echo "of a GPT's step: $none with ranges that nobody hears, $traced that a trace records"
expect "a count is missing" test -n "$without" -a -n "$off" -a -n "$attached" -a -n "$none" -a -n "$traced"
expect "ranges that are off have $((off - without)) instructions" test "$off" = "$without"
expect "ranges that are off and listened to have $((attached - off)) instructions" test "$attached" = "$off"
expect "ranges that are recorded take more than 1%" at_most_one_percent "$traced" "$none"
((failures == 0)) || exit 1

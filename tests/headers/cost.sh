#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Measures halftone's compile time, in multiples of that of yardstick.cpp, which is compiled in the same run: what makes a machine slow or
# busy makes both slow. cost.txt records the multiples; the test fails beyond 1.3 times one, or HALFTONE_COST_LIMIT tenths. Times are
# those of the processor, user and system; of what is beyond its limit the least of five runs counts, as it does of the yardstick.
# Memory must stay below its limit.
#
#     tests/headers/cost.sh headers              a file that only includes a header
#     tests/headers/cost.sh programs [FOLDER]    the smallest program that trains a GPT, with halftone::compiled, and the
#                                                sources of examples/train_gpt at -O1: time, and that 2 GiB suffice; FOLDER has the
#                                                measurements of measured.sh for the latter
#     tests/headers/cost.sh kernels              that program from the headers alone: with its kernels
#     tests/headers/cost.sh record               measures all, and writes cost.txt: on a machine that does nothing else
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
cxx=${CXX:-c++}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
status=0
recording=${HALFTONE_COST_RECORDING:-}
limit=${HALFTONE_COST_LIMIT:-13}  # tenths of a recorded multiple
declare -A yardstick  # by level of optimisation: the least milliseconds so far

# milliseconds FLAG... FILE: user and system time of compiling the file.
milliseconds() {
    local TIMEFORMAT='%U %S'
    { time "$cxx" -std=c++20 -I"$root/include" -c -o "$work/out.o" "$@" 2>"$work/errors"; } 2>"$work/time" ||
        { cat "$work/errors" >&2; return 1; }
    awk '{ print int(1000 * ($1 + $2)) }' "$work/time"
}

# measure_yardstick LEVEL: once more.
measure_yardstick() {
    local spent
    spent=$(milliseconds "$1" "$here/yardstick.cpp")
    if [[ -z ${yardstick[$1]-} ]] || ((spent < yardstick[$1])); then yardstick[$1]=$spent; fi
}

# recorded NAME: its multiple in cost.txt, in thousandths.
recorded() {
    awk -v name="$1" '$1 == name { print int(1000 * $2 + 0.5); found = 1 } END { exit !found }' "$here/cost.txt" ||
        { echo "cost.sh: cost.txt has no line for $1" >&2; return 1; }
}
# is_within NAME LEVEL MILLISECONDS
is_within() { (($3 * 10000 <= limit * $(recorded "$1") * yardstick[$2])); }

# tell WHAT NAME LEVEL MILLISECONDS
tell() {
    local most=$((limit / 10)).$((limit % 10)) verdict
    verdict="within $most times that"
    if ! is_within "$2" "$3" "$4"; then verdict="MORE THAN $most TIMES THAT"; status=1; fi
    awk -v what="$1" -v spent="$4" -v unit="${yardstick[$3]}" -v level="$3" -v goal="$(recorded "$2")" -v verdict="$verdict" 'BEGIN {
        printf "%s %.2f s, %.3f times the yardstick of %.2f s (%s); recorded: %.3f; %s\n",
               what, spent / 1000, spent / unit, unit / 1000, level, goal / 1000, verdict }'
}

# judge WHAT NAME LEVEL FLAG... FILE: compiles the file at this level.
judge() {
    local what=$1 name=$2 level=$3 least='' spent
    shift 3
    for _ in 1 2 3 4 5; do
        if [[ -n $recording && $name == train_gpt && -n $least ]]; then break; fi  # the largest of many counts
        measure_yardstick "$level"
        spent=$(milliseconds "$level" "$@")
        if [[ -z $least ]] || ((spent < least)); then least=$spent; fi
        if [[ -z $recording ]] && is_within "$name" "$level" "$least"; then break; fi
    done
    if [[ -n $recording ]]; then
        awk -v name="$name" -v spent="$least" -v unit="${yardstick[$level]}" 'BEGIN { printf "%s %.3f\n", name, spent / unit }'
        return
    fi
    tell "$what" "$name" "$level" "$least"
}

case ${1:-} in
    headers)
        for header in number.hpp amp.hpp halftone.hpp; do
            echo "#include <halftone/$header>" >"$work/one.cpp"
            judge "a file that only includes <halftone/$header>" "$header" -O2 "$work/one.cpp"
        done
        ;;
    programs | kernels)
        shopt -s nullglob
        ulimit -v 2097152
        cat >"$work/gpt.cpp" <<'PROGRAM'
#include <cstdint>
#include <vector>

#include <halftone/amp.hpp>

namespace ht = halftone;

struct pair {
    ht::const_view<std::int32_t, 2> tokens, targets;
};

int main() {
    ht::cpu device{{.threads = 1}};
    ht::nn::gpt<ht::amp_bf16> model{device, {.vocabulary = 11, .context = 8, .layers = 1, .heads = 2, .width = 16}};
    ht::adamw optimizer{device, model, {.lr = 1e-2}};
    ht::accumulator acc{model, ht::unscaled};
    ht::tape tape{device};
    const std::vector<std::int32_t> tokens{3, 1, 4, 1, 5, 9, 2, 6}, targets{1, 4, 1, 5, 9, 2, 6, 5};
    for (int step = 0; step < 20; ++step) {
        tape.backward(model.loss(tape, pair{{tokens.data(), {1, 8}}, {targets.data(), {1, 8}}}), acc);
        auto grads = acc.take();
        optimizer.step(grads);
    }
}
PROGRAM
        if [[ $1 == kernels ]]; then
            judge "the smallest GPT from the headers alone" gpt_alone -O2 "$work/gpt.cpp"
            if [[ $(uname -m) == x86_64 ]]; then
                judge "the smallest GPT with one instruction set" gpt_one_set -O2 -march=skylake-avx512 -DHALFTONE_ONE_SET "$work/gpt.cpp"
            fi
            exit "$status"
        fi
        judge "the smallest GPT with halftone::compiled" gpt_compiled -O2 -DHALFTONE_COMPILED "$work/gpt.cpp"
        judge "the smallest GPT with halftone::compiled" gpt_compiled_O0 -O0 -DHALFTONE_COMPILED "$work/gpt.cpp"
        for source in "$root"/examples/train_gpt.cpp "$root"/examples/train_gpt/*.cpp; do
            if [[ ! -e $source ]]; then continue; fi
            spent='' size='' note=${2:-none}/${source##*/}.cost
            what="${source#"$root/"} compiles in less than 2 GiB and"
            if [[ -e $note ]]; then read -r spent size <"$note" || true; fi
            if [[ -n $size ]]; then echo "${source#"$root/"} does not compile in 2 GiB"; status=1; continue; fi
            if [[ -n $spent && -z ${yardstick[-O1]-} ]]; then measure_yardstick -O1; fi
            if [[ -n $spent ]] && is_within train_gpt -O1 "$spent"; then
                tell "$what" train_gpt -O1 "$spent"
            else
                judge "$what" train_gpt -O1 -DHALFTONE_COMPILED "$source"
            fi
        done
        ;;
    record)
        {
            sed -n '/^#/p' "$here/cost.txt"
            for what in headers programs kernels; do HALFTONE_COST_RECORDING=yes bash "$0" "$what"; done |
                awk '{ if (!($1 in most)) order[++n] = $1; if ($2 > most[$1]) most[$1] = $2 } END { for (i = 1; i <= n; i++) print order[i], most[order[i]] }'
        } >"$work/cost.txt"
        cp "$work/cost.txt" "$here/cost.txt"
        cat "$here/cost.txt"
        ;;
    *)
        echo "cost.sh: expected headers, programs, kernels or record, got '${1:-}'" >&2
        exit 2
        ;;
esac
exit "$status"

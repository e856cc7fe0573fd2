#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Wrong programs that must not compile, with the expected error messages. Each case, a .cpp file in this folder, contains
#
#     // expect: a message               one line for each message that must be in the compiler's output
#     // expect-first: its beginning     optional: the compiler's first error, which must be this message
#     // expect-nvcc: another one        optional: replaces these lines for nvcc, which spells types differently
#     // never: a misleading one         optional: messages that must not be in the output
#     // flags: -fsomething              optional: more arguments for the compiler
#
# and two versions of the program: a wrong one, and a right one if HALFTONE_TEST_RIGHT is defined. The right one must compile without
# a warning, which shows that the wrong one fails for the expected reason only. Versions are compiled many at a time, each in its own
# namespace after all their headers. Right ones are compiled one by one if that fails; wrong ones, unless the compiler says what is
# expected in a message about that case's lines (of a function with the same types it says it once, about one of the cases).
#
# Without a compiler argument CXX names it; without cases all run; -v shows the compiler's output. nvcc compiles the programs as CUDA.
#
#     tests/compile_fail/run.sh [-v] [compiler] [case.cpp...]
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
include=$here/../../include
# shellcheck source=../headers/precompiled.sh
source "$here/../headers/precompiled.sh"

verbose=0
if [[ ${1-} == -v ]]; then verbose=1; shift; fi
cxx=${CXX:-c++}
if (($#)) && [[ $1 != *.cpp ]]; then cxx=$1; shift; fi
if [[ $cxx == nvcc ]] && ! command -v nvcc >/dev/null 2>&1; then cxx=/usr/local/cuda/bin/nvcc; fi
command -v "$cxx" >/dev/null 2>&1 || { echo "skipped: there is no $cxx"; exit 77; }
cases=("$@")
if ((!$#)); then cases=("$here"/*.cpp); fi

# complaints FILE OUTPUT EXPECTED...: prints what is missing from the compiler's output, or too much in it.
complaints() {
    local file=$1 output=$2 name sentence first status=0
    name=$(basename "$file" .cpp)
    shift 2
    while IFS= read -r sentence; do
        if grep -qF -- "$sentence" <<<"$output"; then
            echo "$name: the compiler also says: $sentence"
            status=1
        fi
    done < <(sed -n 's|^// never: *||p' "$file")
    first=$(grep -m 1 -E '(^|[ :])error([ :]|$)' <<<"$output" || true)
    while IFS= read -r sentence; do
        if ! grep -qF -- "$sentence" <<<"$first"; then
            echo "$name: the first that the compiler says is not '$sentence' but: $first"
            status=1
        fi
    done < <(sed -n 's|^// expect-first: *||p' "$file")
    for sentence; do
        if ! grep -qF -- "$sentence" <<<"$output"; then
            echo "$name: the compiler does not say: $sentence"
            status=1
        fi
    done
    return "$status"
}

# check_case FILE<tab>PRECOMPILED
check_case() {
    local file=${1%%$'\t'*} before=${1#*$'\t'} name output expected flags
    name=$(basename "$file" .cpp)
    read -ra flags <<<"$(sed -n 's|^// flags: *||p' "$file")"
    mapfile -t expected < <(sed -n 's|^// expect: *||p' "$file")
    if ((${#expected[@]} == 0)); then
        echo "$name: has no '// expect:' line"
        return 1
    fi
    local compile=("$cxx" -std=c++20 -I"$include") strict=-Werror
    case ${cxx##*/} in
        nvcc*)
            compile+=(-x cu -cuda -o /dev/null -Xcompiler -Wall,-Wextra "${flags[@]/#/-Xcompiler=}") strict=-Werror=all-warnings
            local own
            mapfile -t own < <(sed -n 's|^// expect-nvcc: *||p' "$file")
            if ((${#own[@]})); then expected=("${own[@]}"); fi
            expected=("${expected[@]//\`/?}")  # as it prints them
            ;;
        *)
            # Precompiled without more flags.
            if ((${#flags[@]})); then before=; fi
            compile+=(-fsyntax-only -Wall -Wextra -Wpedantic "${flags[@]}" ${before:+-include "$before"})
            ;;
    esac

    if [[ ! -e ${work:-}/$name.right ]] && ! output=$("${compile[@]}" "$strict" -DHALFTONE_TEST_RIGHT "$file" 2>&1); then
        echo "$name: the right program does not compile:"
        echo "$output"
        return 1
    fi
    if [[ -e ${work:-}/$name.wrong ]]; then return; fi
    if output=$("${compile[@]}" "$file" 2>&1); then
        echo "$name: the wrong program compiles"
        return 1
    fi
    # nvcc's own spelling of numbers.
    if [[ ${cxx##*/} == nvcc* ]]; then output=$(sed -E 's/\b([0-9]+)U?L\b/\1/g' <<<"$output"); fi
    local status=0
    complaints "$file" "$output" "${expected[@]}" || status=1
    if ((status || verbose)); then echo "$name: $output"; fi
    return "$status"
}

# write_together FILE CASE...: the right programs of these, as one.
write_together() {
    local together=$1 file folder
    shift
    for file; do
        folder=$(cd "$(dirname "$file")" && pwd)
        sed -nE "s|^#include \"(.*)\"|#include \"$folder/\1\"|; /^#include/p" "$file"
    done | LC_ALL=C sort -ru >"$together"  # <...> before "..."
    for file; do
        printf 'namespace of_%s {\n#include "%s"\n}\n' "$(basename "$file" .cpp)" "$(realpath "$file")"
    done >>"$together"
}
# said_of FOLDER: divides the compiler's messages on standard input by the case whose line is the last before or in an error. What comes
# before an error says where it is; a message without it goes on with the one before.
said_of() {
    awk -v folder="$1" '
        function finish() {
            if (name != "") print message >>(folder "/" name ".said")
            message = name = ""
            is_told = 0
        }
        function note_case(line) { if (match(line, /compile_fail\/[a-z0-9_]+\.cpp:[0-9]/)) name = substr(line, RSTART + 13, RLENGTH - 19) }
        /^In file included from |: In [a-z ]+ .*:$|: At global scope:$|:   (recursively )?required (from|by) |:   in .constexpr. expansion of/ {
            if (is_told) finish()
            note_case($0)
        }
        / error: / {
            if (is_told && /compile_fail\/[a-z0-9_]+\.cpp:[0-9]/) finish()
            if (!is_told) note_case($0)
            is_told = 1
        }
        / (note|warning): / { is_told = 1 }
        { message = message $0 "\n" }
        END { finish() }'
}
# check_wrong_together FILE<tab>PRECOMPILED: notes which wrong programs need not be compiled again.
check_wrong_together() {
    local file=${1%%$'\t'*} before=${1#*$'\t'} case expected
    local folder=$file.said
    if ((verbose)); then return; fi
    mkdir "$folder"
    "$cxx" -std=c++20 -I"$include" -fsyntax-only -Wall -Wextra -Wpedantic ${before:+-include "$before"} "$file" 2>&1 | said_of "$folder" || true
    while IFS= read -r case; do
        if [[ ! -e $folder/$(basename "$case" .cpp).said ]] || grep -E '^// (never|expect-first):' "$case" >/dev/null; then continue; fi
        mapfile -t expected < <(sed -n 's|^// expect: *||p' "$case")
        if ((${#expected[@]})) && complaints "$case" "$(cat "$folder/$(basename "$case" .cpp).said")" "${expected[@]}" >/dev/null; then
            touch "$work/$(basename "$case" .cpp).wrong"
        fi
    done < <(sed -n 's|^#include "\(.*/compile_fail/.*\.cpp\)"$|\1|p' "$file")
}
# check_together FILE<tab>PRECOMPILED: notes which right programs need not be compiled again.
check_together() {
    local file=${1%%$'\t'*} before=${1#*$'\t'}
    if "$cxx" -std=c++20 -I"$include" -fsyntax-only -Wall -Wextra -Wpedantic -Werror ${before:+-include "$before"} \
        -DHALFTONE_TEST_RIGHT "$file" >/dev/null 2>&1; then
        sed -n "s|^namespace of_\(.*\) {$|$work/\1.right|p" "$file" | xargs touch
    fi
}
export -f check_case check_together check_wrong_together complaints said_of
export cxx include verbose

if (($#)) || [[ ${cxx##*/} == nvcc* ]]; then
    tasks=$(printf '%s\t\n' "${cases[@]}")
else
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    # shellcheck disable=SC2034  # precompile reads them
    precompiled_headers=(tensor/view.hpp kernel.hpp amp.hpp)  # for those that are compiled together, and the few that are not
    precompile "$work" "$include" "$cxx" -std=c++20 -Wall -Wextra -Wpedantic
    export work
    # But for those that specialise templates of halftone's, take flags, or name what is global.
    mapfile -t plain < <(grep -LE '^// flags:|^ *#(define|undef)|^template <> *$|^namespace halftone|^int main|[ (]::' "${cases[@]}")
    for ((i = 0; i < ${#plain[@]}; i += 16)); do write_together "$work/together_$i.cpp" "${plain[@]:i:16}"; done
    tasks=$(precompiled_for "$work" "$include" "$work"/together_*.cpp)
    xargs -d '\n' -n 1 -P "$(nproc)" bash -c 'set -u; check_together "$0"; check_wrong_together "$0"' <<<"$tasks"
    tasks=$(precompiled_for "$work" "$include" "${cases[@]}")
fi
xargs -d '\n' -n 1 -P "$(nproc)" bash -c 'set -u; check_case "$0"' <<<"$tasks" || exit 1
echo "$cxx: ${#cases[@]} wrong programs are refused with their sentences"

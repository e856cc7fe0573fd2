#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Wrong programs that must not compile, with the expected error messages. Each case, a .cpp file in this folder, contains
#
#     // expect: a message               one line for each message that must be in the compiler's output
#     // expect-first: its beginning     optional: the compiler's first error, which must be this message
#     // expect-nvcc: another one        optional: replaces the expect lines for nvcc, which spells types differently
#     // never: a misleading one         optional: messages that must not be in the output
#
# and two versions of the program: a wrong one, and a right one if HALFTONE_TEST_RIGHT is defined. The right one must compile without
# a warning, which shows that the wrong one fails for the expected reason only.
#
# All cases are compiled as one (tests/tools/together.py), or as one for each two processors, which takes a third of the time. Right
# versions are compiled one by one if that fails; a wrong one is, unless the compiler says what is expected where it speaks of that case:
# of a function with the same types it says it once, about one of the cases. Without python3 each is compiled by itself.
#
# Without a compiler argument CXX names it; without cases all run; -v shows the compiler's output. nvcc compiles the programs as CUDA.
#
#     tests/compile_fail/run.sh [-v] [compiler] [CASE.cpp...]
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
include=$here/../../include
together=$here/../tools/together.py

verbose=0
if [[ ${1-} == -v ]]; then verbose=1; shift; fi
cxx=${CXX:-c++}
if (($#)) && [[ $1 != *.cpp ]]; then cxx=$1; shift; fi
if [[ $cxx == nvcc ]] && ! command -v nvcc >/dev/null 2>&1; then cxx=/usr/local/cuda/bin/nvcc; fi
command -v "$cxx" >/dev/null 2>&1 || { echo "skipped: there is no $cxx"; exit 77; }
cases=("$@")
if ((!$#)); then cases=("$here"/*.cpp); fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# compile FILE right|wrong: prints what the compiler says of this version.
compile() {
    local options=(-fsyntax-only -Wall -Wextra -Wpedantic) strict=-Werror
    case ${cxx##*/} in
        nvcc*) options=(-x cu -cuda -o /dev/null -Xcudafe --error_limit=10000 -Xcompiler -Wall,-Wextra) strict=-Werror=all-warnings ;;
        *clang*) options+=(-ferror-limit=0) ;;
    esac
    if [[ $2 == right ]]; then options+=("$strict" -DHALFTONE_TEST_RIGHT); fi
    "$cxx" -std=c++20 -I"$include" "${options[@]}" "$1" 2>&1
}

# complaints FILE OUTPUT: prints what is missing from the compiler's output, or too much in it.
complaints() {
    local file=$1 output=$2 name key=expect sentence first status=0
    name=$(basename "$file" .cpp)
    told() { sed -n "s|^// $1: *||p" "$file"; }
    if [[ ${cxx##*/} == nvcc* ]]; then
        if [[ -n $(told expect-nvcc) ]]; then key=expect-nvcc; fi
        output=$(sed -E 's/\b([0-9]+)U?L\b/\1/g' <<<"$output")  # its own spelling of numbers
    fi
    first=$(grep -m 1 -E '(^|[ :])error([ :]|$)' <<<"$output" || true)
    while IFS= read -r sentence; do
        if grep -qF -- "$sentence" <<<"$output"; then echo "$name: the compiler also says: $sentence"; status=1; fi
    done < <(told never)
    while IFS= read -r sentence; do
        if ! grep -qF -- "$sentence" <<<"$first"; then
            echo "$name: the first that the compiler says is not '$sentence' but: $first"
            status=1
        fi
    done < <(told expect-first)
    while IFS= read -r sentence; do
        if [[ ${cxx##*/} == nvcc* ]]; then sentence=${sentence//\`/?}; fi  # as it prints them
        if ! grep -qF -- "$sentence" <<<"$output"; then echo "$name: the compiler does not say: $sentence"; status=1; fi
    done < <(told $key)
    return "$status"
}

# check_unit FILE right|wrong: marks the cases of a unit that need not be compiled by themselves, by a file of their name.
check_unit() {
    local file name
    if [[ $2 == right ]]; then
        compile "$1" right >/dev/null || return 0
    else
        compile "$1" wrong | python3 "$together" attribute "$1" "$work" || true
    fi
    while IFS= read -r file; do
        name=$work/$(basename "$file" .cpp)
        if [[ $2 == right ]] || { [[ -e $name.said ]] && complaints "$file" "$(cat "$name.said")" >/dev/null; }; then touch "$name.$2"; fi
    done < <(python3 "$together" sources "$1")
}

check_case() {
    local file=$1 name output status=0
    name=$(basename "$file" .cpp)
    if ! grep -q '^// expect:' "$file"; then
        echo "$name: has no '// expect:' line"
        return 1
    fi
    if [[ ! -e $work/$name.right ]] && ! output=$(compile "$file" right); then
        echo "$name: the right program does not compile:"
        echo "$output"
        return 1
    fi
    if [[ -e $work/$name.wrong ]]; then return; fi
    if output=$(compile "$file" wrong); then
        echo "$name: the wrong program compiles"
        return 1
    fi
    complaints "$file" "$output" || status=1
    if ((status || verbose)); then echo "$name: $output"; fi
    return "$status"
}
export -f check_case check_unit compile complaints
export cxx include together verbose work

if ((!$# && !verbose)) && command -v python3 >/dev/null 2>&1; then
    size=$((${#cases[@]} / (($(nproc) + 1) / 2) + 1))
    for ((i = 0; i < ${#cases[@]}; i += size)); do
        python3 "$together" join "$work/unit_$i.cpp" "${cases[@]:i:size}" >/dev/null
        printf '%s\n' "$work/unit_$i.cpp "{right,wrong}
    done | xargs -P "$(nproc)" -L 1 bash -c 'set -u; check_unit "$@"' _
    # Once more those about which another case had the message.
    left=()
    for file in "${cases[@]}"; do if [[ ! -e $work/$(basename "$file" .cpp).wrong ]]; then left+=("$file"); fi; done
    if ((${#left[@]})); then
        python3 "$together" join "$work/left.cpp" "${left[@]}" >/dev/null
        check_unit "$work/left.cpp" wrong
    fi
fi
printf '%s\n' "${cases[@]}" | xargs -d '\n' -n 1 -P "$(nproc)" bash -c 'set -u; check_case "$0"' || exit 1
echo "$cxx: ${#cases[@]} wrong programs are refused with their sentences"

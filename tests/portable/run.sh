#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Tests that one binary runs on every CPU: the tests named below, built with just `-std=c++20 -O2 -I include`, pass on this machine, on
# an emulated x86-64 CPU without AVX, and, cross-compiled, on an emulated aarch64.
#
#     tests/portable/run.sh nehalem|aarch64 [doctest argument...]
#
# Exits with 77 if the emulator or the cross compiler is missing (Debian: qemu-user, g++-aarch64-linux-gnu).
set -euo pipefail

# Files and folders of tests/: numbers, matmul, attention and one training step.
sources=(number kernel/matmul kernel/attention train/one_step.cpp)
# Doctest names that an emulator is too slow for.
too_slow=("fp8_hybrid: learns*")

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root/tests"
cpu=${1:-}
if (($#)); then shift; fi

skip() {
    echo "skipped: $*"
    exit 77
}

case $cpu in
    nehalem)
        [[ $(uname -m) == x86_64 ]] || skip "this is no x86-64 machine"
        cxx=${CXX:-g++}
        emulator=(qemu-x86_64 -cpu Nehalem)
        ;;
    aarch64)
        cxx=aarch64-linux-gnu-g++
        emulator=(qemu-aarch64 -L /usr/aarch64-linux-gnu)
        ;;
    *)
        echo "portable/run.sh: expected nehalem or aarch64, got '$cpu'" >&2
        exit 2
        ;;
esac
command -v "$cxx" >/dev/null 2>&1 || skip "there is no $cxx"
command -v "${emulator[0]}" >/dev/null 2>&1 || skip "there is no ${emulator[0]}"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# doctest alone out of the system's headers: the rest of /usr/include belongs to this machine's own architecture.
for folder in /usr/include /usr/local/include; do
    if [[ -e $folder/doctest/doctest.h ]]; then
        mkdir -p "$work/include"
        ln -s "$folder/doctest" "$work/include/doctest"
        break
    fi
done
[[ -e $work/include/doctest ]] || skip "there is no doctest"

files=(main.cpp)
for source in "${sources[@]}"; do
    if [[ -e $source ]]; then
        mapfile -t -O "${#files[@]}" files < <(find "$source" -name '*.cpp' ! -name fast_math.cpp | LC_ALL=C sort)
    fi
done
echo "$("$cxx" --version | head -n 1): ${files[*]}"

export cxx root work
# shellcheck disable=SC2016  # expanded by the inner shell
printf '%s\0' "${files[@]}" | xargs -0 -n 1 -P "$(nproc)" bash -c '
    "$cxx" -std=c++20 -O2 -I"$root/include" -I"$root/tests" -DHALFTONE_TEST_DATA="\"$root/tests/golden\"" \
        -isystem "$work/include" -c "$0" -o "$work/${0//\//_}.o"'
"$cxx" "$work"/*.o -o "$work/tests" -pthread

filter=()
if ((${#too_slow[@]})); then
    filter=("--test-case-exclude=$(IFS=,; echo "${too_slow[*]}")")
fi
SECONDS=0
if [[ $cpu == nehalem ]]; then
    "$work/tests" "${filter[@]}" "$@"
    echo "here: $SECONDS s"
    SECONDS=0
fi
"${emulator[@]}" "$work/tests" "${filter[@]}" "$@"
echo "under ${emulator[*]}: $SECONDS s"

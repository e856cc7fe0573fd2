#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Tests that halftone runs on Windows: the lessons, train_gpt and the tests of the folders named below, cross-compiled by mingw-w64,
# pass under Wine, with portable code and, if this machine has it, with AVX2.
#
#     tests/portable/windows.sh [--build FOLDER] [ctest argument...]
#
#     --build FOLDER     the build folder, which is kept
#
# Exits with 77 if the cross compiler, Wine or a header is missing (Debian: g++-mingw-w64-x86-64-posix, wine64).
set -euo pipefail

# Programs of tests/: numbers, memory, kernels, files, one training step. Others say nothing more about Windows.
programs=(number policy memory_tensor exec kernel scale_optim data_io_observe)

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=$(mktemp -d)
build=$work/build
if [[ ${1:-} == --build && $# -gt 1 ]]; then
    build=$2
    shift 2
fi

skip() {
    echo "skipped: $*"
    exit 77
}
fail() {
    echo "failed: $*"
    exit 1
}
first_of() {
    local name
    for name in "$@"; do
        if command -v "$name" 2>/dev/null; then return; fi
    done
    return 1
}

[[ $(uname -m) == x86_64 ]] || skip "this is no x86-64 machine"
cxx=$(first_of x86_64-w64-mingw32-g++-posix x86_64-w64-mingw32-g++) || skip "there is no g++ of mingw-w64"
cmake=${CMAKE:-cmake}
wine=$(first_of wine64 wine /usr/lib/wine/wine64) || skip "there is no wine"
echo "$("$cxx" --version | head -n 1); $("$wine" --version)"

# Wine's own folder, with nothing asked and nothing left behind. Its server stays from test to test: one that is about to
# end because nobody needs it sends the next program away.
export WINEPREFIX=$work/wine WINEDEBUG=-all WINEDLLOVERRIDES="mscoree,mshtml,winemenubuilder.exe="
server=$(first_of wineserver wineserver64 /usr/lib/wine/wineserver64 /usr/lib/wine/wineserver) || skip "there is no wineserver"
cleanup() {
    "$server" -k || true
    rm -rf "$work"
}
trap cleanup EXIT
mkdir -p "$WINEPREFIX"
"$server" -p

# -O1 takes half the time of -O2 to compile.
(
    cd "$root"
    "$cmake" --preset windows -B "$build" -DCMAKE_BUILD_TYPE=None -DCMAKE_CXX_FLAGS=-O1 \
        -DHALFTONE_MORE_TESTS=OFF >"$work/configured" 2>&1
) || {
    grep -q 'was not found' "$work/configured" && skip "$(grep 'was not found' "$work/configured")"
    cat "$work/configured"
    fail "cmake"
}
targets=(train_gpt "${programs[@]/#/test_}")
for lesson in "$root"/examples/[0-9][0-9]_*.cpp; do
    lesson=${lesson##*/}
    targets+=("lesson_${lesson%.cpp}")
done
SECONDS=0
"$cmake" --build "$build" --parallel "$(nproc)" --target "${targets[@]}"
echo "built in $SECONDS s"

# Windows aligns the stack to 16 bytes: no instruction may require a larger alignment of a vector there.
objdump=$(first_of x86_64-w64-mingw32-objdump objdump) || skip "there is no objdump"
aligned=$("$objdump" -d --no-show-raw-insn "$build/tests/test_kernel.exe" |
    grep -cE 'vmov(aps|apd|dqa|dqa32|dqa64)\s.*%[yz]mm[0-9]+.*\(|vmov(aps|apd|dqa|dqa32|dqa64)\s.*\(.*%[yz]mm' || true)
((aligned == 0)) || fail "$aligned moves of 32 or 64 bytes want an aligned address"

"$wine" wineboot >/dev/null 2>&1 </dev/null || true  # once, and not in the first test's time
names=$(IFS='|'; echo "${programs[*]}")
"${cmake%cmake}ctest" --test-dir "$build" -C Full --output-on-failure --no-tests=error \
    -R "^(($names)(\.(portable|avx2))?|lesson\..*|program\.train_gpt)$" "$@"

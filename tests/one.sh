#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Compiles a single test file and runs it, which takes seconds; the test program of a whole folder takes a minute to build.
#
#     tests/one.sh [-g] FILE.cpp... [-- DOCTEST-ARGUMENT...]        tests/one.sh tests/kernel/softmax/softmax.cpp -- -tc='*width*'
#
# -g: compiles with debug information and without optimisation, for a debugger. Otherwise the file is compiled at -O0 if kernels come
# from halftone::compiled, and at -O1 if they are compiled here. That library is used if tests/run.sh or `cmake --build FOLDER
# --target halftone_compiled` has built it (in build/tests, or in the folder HALFTONE_TEST_BUILD) and no header has changed since.
#
# CXX names the compiler, CXXFLAGS more arguments for it. HALFTONE_ISA chooses an instruction set, as for all tests.
set -euo pipefail
tests=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$tests")
build=${HALFTONE_TEST_BUILD:-$root/build/tests}
kept=$root/build/one
cxx=${CXX:-c++}
mkdir -p "$kept"

debug=
if [[ ${1:-} == -g ]]; then debug=-g; shift; fi
files=()
while (($#)) && [[ $1 != -- ]]; do files+=("$1"); shift; done
if (($#)); then shift; fi
if ((${#files[@]} == 0)); then echo "one.sh: expected a test file, as tests/kernel/softmax/softmax.cpp" >&2; exit 2; fi
for file in "${files[@]}"; do
    if [[ ! -e $file ]]; then echo "one.sh: there is no $file" >&2; exit 2; fi
done

flags=(-std=c++20 -Wall -Wextra -Wpedantic "-I$root/include" "-I$tests" "-DHALFTONE_TEST_DATA=\"$tests/golden\"")
# shellcheck disable=SC2206  # several words
flags+=(${CXXFLAGS:-})
name=$("$cxx" -dumpmachine)_$(basename "$cxx")

# kept_object SOURCE FLAG...: compiled once, until the source or what it includes changes; prints its name.
kept_object() {
    local source=$1 object
    shift
    object=$kept/$name.$(basename "$source").o
    if [[ ! -e $object || -n $(find "$source" "$tests/emulator" "$root/include/halftone/"{exec,number} -name '*.?pp' -newer "$object" | head -n 1) ]]; then
        "$cxx" "${flags[@]}" "$@" -c "$source" -o "$object"
    fi
    echo "$object"
}

objects=("$(kept_object "$tests/main.cpp" -O1)")
libraries=(-lpthread)
if [[ ${files[*]} == *emulator/* ]]; then
    for source in machine asynchronous bulk_store warpgroup; do objects+=("$(kept_object "$tests/emulator/$source.cpp" -O2)"); done
    libraries+=(-lboost_context)
fi
level=-O1
library=$(find "$build" -maxdepth 1 -name 'libhalftone_compiled.a' 2>/dev/null || true)
if [[ -n $library && -z $(find "$root/include" "$root/src" -type f -newer "$library" | head -n 1) ]]; then
    flags+=(-DHALFTONE_COMPILED)
    libraries=("$library" "${libraries[@]}")
    level=-O0
else
    echo "one.sh: compiles the kernels, too; there is no halftone::compiled of the headers as they are" >&2
fi
if [[ -n $debug ]]; then level=-g; fi
"$cxx" "${flags[@]}" "$level" "${files[@]}" "${objects[@]}" "${libraries[@]}" -o "$kept/test.$$"
trap 'rm -f "$kept/test.$$"' EXIT
"$kept/test.$$" "$@"

#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Every ```cpp block of README.md and examples/README.md compiles as it stands there.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=precompiled.sh
source tests/headers/precompiled.sh
export cxx=${CXX:-g++}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

awk -v folder="$folder" '
    /^```cpp$/ { file = sprintf("%s/%02d.cpp", folder, ++count); printf "#line %d \"%s\"\n", FNR + 1, FILENAME > file; next }
    /^```$/ && file { close(file); file = ""; next }
    file { print > file }' README.md examples/README.md

shopt -s nullglob
snippets=("$folder"/*.cpp)
if [ ${#snippets[@]} -eq 0 ]; then
    echo "failed: README.md has no snippets"
    exit 1
fi
export flags="-std=c++20 -Wall -Wextra -Wpedantic -Werror"
compile_one() {
    local file=${1%%$'\t'*} before=${1#*$'\t'}
    # shellcheck disable=SC2086  # several words
    "$cxx" $flags -fsyntax-only -Iinclude ${before:+-include "$before"} "$file"
}
export -f compile_one
precompiled_headers=(amp.hpp)  # most include it
# shellcheck disable=SC2086
precompile "$folder" include "$cxx" $flags
tasks=$(precompiled_for "$folder" include "${snippets[@]}")
xargs -d '\n' -n 1 -P "$(nproc)" bash -c 'compile_one "$0"' <<<"$tasks"
echo "${#snippets[@]} snippets compile"

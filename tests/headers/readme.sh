#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Every ```cpp block of README.md and examples/README.md compiles as it stands there.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
cxx=${CXX:-g++}
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
printf '%s\0' "${snippets[@]}" |
    xargs -0 -P "$(nproc)" -I{} "$cxx" -std=c++20 -Wall -Wextra -Wpedantic -Werror -fsyntax-only -Iinclude {}
echo "${#snippets[@]} snippets compile"

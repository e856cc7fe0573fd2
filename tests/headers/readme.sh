#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Tests of the documentation: every ```cpp block of README.md, CONTRIBUTING.md, docs/ and examples/README.md compiles unchanged; every
# link to a file or to a heading is valid; every <halftone/...> header and every `path/of/a/file` in the text exists.
#
# Blocks with the same #include lines are compiled as one source, each in its own namespace after these lines, so that headers are read
# once for several blocks. A block that opens namespace halftone is compiled alone.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=precompiled.sh
source tests/headers/precompiled.sh
export cxx=${CXX:-g++}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
shopt -s nullglob
status=0

pages=(README.md CONTRIBUTING.md CHANGELOG.md docs/*.md examples/*.md bench/*.md)

# Links and names, outside of ``` blocks but for #include lines. A link within `...` is code.
awk '
    # As GitHub names headings: lower case, without punctuation, blanks as dashes.
    function slug(text) {
        text = tolower(text)
        gsub(/`/, "", text)
        gsub(/[^a-z0-9 _-]/, "", text)
        gsub(/ /, "-", text)
        return text
    }
    function exists(path, line) {
        if ((path, "is") in known) return known[path, "is"]
        return known[path, "is"] = system("test -e \"" path "\"") == 0
    }
    function resolve(from, target, parts, n, i, kept, k, path) {
        sub(/[^\/]*$/, "", from)
        n = split(from target, parts, "/")
        k = 0
        for (i = 1; i <= n; i++) {
            if (parts[i] == ".." && k > 0) k--
            else if (parts[i] != "." && parts[i] != "") kept[++k] = parts[i]
        }
        path = kept[1]
        for (i = 2; i <= k; i++) path = path "/" kept[i]
        return path
    }
    function complain(text) { print FILENAME ":" FNR ": " text; faults++ }
    FNR == 1 { block = 0 }
    /^```/ { block = !block; next }
    /<!--/ { next }
    {
        rest = $0
        while (match(rest, /<halftone\/[A-Za-z0-9_\/]+\.(hpp|cuh)>/)) {
            header = substr(rest, RSTART + 1, RLENGTH - 2)
            if (!exists("include/" header)) complain("there is no header <" header ">")
            rest = substr(rest, RSTART + RLENGTH)
        }
    }
    block { next }
    /^#+ / {
        text = $0
        sub(/^#+ /, "", text)
        heading[FILENAME, slug(text)] = 1
    }
    {
        rest = $0
        while (match(rest, /`[^`]*`/)) {
            name = substr(rest, RSTART + 1, RLENGTH - 2)
            if (name ~ /^(include|tests|docs|bench|examples|cmake|autodiff|exec|kernel|memory|number|nn|observe|optim|policy|scale|tensor|train)\/[A-Za-z0-9_.\/-]*[A-Za-z0-9_\/]$/ &&
                !exists(name) && !exists("include/halftone/" name)) complain("there is no " name)
            rest = substr(rest, RSTART + RLENGTH)
        }
        rest = $0
        gsub(/`[^`]*`/, "", rest)
        while (match(rest, /\]\([^)]*\)/)) {
            target = substr(rest, RSTART + 2, RLENGTH - 3)
            rest = substr(rest, RSTART + RLENGTH)
            if (target ~ /^[a-z]+:/) continue
            anchor = ""
            if (i = index(target, "#")) { anchor = substr(target, i + 1); target = substr(target, 1, i - 1) }
            path = target == "" ? FILENAME : resolve(FILENAME, target)
            if (!exists(path)) complain("the link to " target " leads nowhere")
            else if (anchor != "") wanted[path, anchor] = FILENAME ":" FNR
        }
    }
    END {
        for (key in wanted) {
            split(key, parts, SUBSEP)
            if (parts[1] ~ /\.md$/ && !(key in heading)) { print wanted[key] ": " parts[1] " has no heading #" parts[2]; faults++ }
        }
        exit faults > 0
    }' "${pages[@]}" || status=1

awk -v folder="$folder" '
    function finish(    key, file) {
        # Includes in the order in which they stand; a block of a namespace of its own must not meet others.
        key = alone ? includes "alone " ++blocks : includes
        if (!(key in source)) {
            source[key] = file = sprintf("%s/%02d.cpp", folder, ++files)
            printf "%s", includes > file
        }
        file = source[key]
        ++blocks
        if (alone) printf "%s", body > file
        else printf "namespace snippet_%d {\n%s}  // namespace\n", blocks, body > file
    }
    FNR == 1 && inside { print "a ```cpp block does not end in the page before " FILENAME; exit 1 }
    /^```cpp$/ { inside = 1; alone = 0; includes = ""; body = sprintf("#line %d \"%s\"\n", FNR + 1, FILENAME); next }
    /^```$/ && inside { finish(); inside = 0; next }
    inside && /^#include / { includes = includes $0 "\n"; body = body "\n"; next }
    inside {
        if ($0 ~ /^(inline )?namespace halftone|^template <>|^#define/) alone = 1
        body = body $0 "\n"
    }
    END { for (key in source) close(source[key]); print blocks > (folder "/count") }
    ' README.md CONTRIBUTING.md docs/*.md examples/README.md

sources=("$folder"/*.cpp)
if [ ${#sources[@]} -eq 0 ]; then
    echo "failed: the pages have no snippets"
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
tasks=$(precompiled_for "$folder" include "${sources[@]}")
xargs -d '\n' -n 1 -P "$(nproc)" bash -c 'compile_one "$0"' <<<"$tasks" || status=1
if [ "$status" -eq 0 ]; then echo "$(cat "$folder/count") snippets compile, in ${#sources[@]} sources; all links lead somewhere"; fi
exit "$status"

#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Tests of the documentation: every ```cpp block of README.md, CONTRIBUTING.md, docs/ and examples/README.md compiles unchanged; every
# link to a file or to a heading is valid; every <halftone/...> header and every `path/of/a/file` in the text exists; the rows of
# a table have as many cells as its first; the number of targets that were met is that of the results. So do the files exist that
# comments of sources and scripts name (comments.py).
#
# A compiler hardly reads what a template contains. So a block with a template, or with a function of `auto`, is followed by a comment
# that readers of the page do not see, with what instantiates it, for the devices, models and loaders that the text names; given<T>() is
# some T. It stands behind all blocks, so that its #include lines help none:
#
#     <!-- instantiated:
#     #include <halftone/data/batches.hpp>
#     void use() { train(given<std::vector<ht::language_batch>>()); }
#     -->
#
# Blocks are compiled as two sources, each block in its own namespace after the #include lines of all, so that headers are read once for
# many blocks; includes.py reads whether a block includes what it uses. A block that opens namespace halftone is compiled alone.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=precompiled.sh
source tests/headers/precompiled.sh
export cxx=${CXX:-g++}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
shopt -s nullglob
status=0

python3 tests/headers/comments.py paths || status=1

pages=(README.md CONTRIBUTING.md CHANGELOG.md docs/*.md examples/*.md bench/*.md)

# A reader of the page sees no cell of a table beyond those of its first row. A bar within `...` is code, and \| a character.
awk '
    FNR == 1 { bars = 0; is_code = 0 }
    /^ *```/ { is_code = !is_code }
    is_code || !/^\|/ { bars = 0; next }
    {
        line = $0
        gsub(/`[^`]*`|\\\|/, "", line)
        count = gsub(/\|/, "", line)
        if (bars == 0) bars = count
        if (count != bars) { print FILENAME ":" FNR ": " count - 1 " cells in a table of " bars - 1; wrong = 1 }
    }
    END { exit wrong }
' "${pages[@]}" || status=1

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
    FNR == 1 { block = 0; hidden = 0 }
    /^```/ { block = !block; next }
    /^<!-- instantiated:$/ { hidden = 1; next }
    /^-->$/ { hidden = 0; next }
    /<!--/ { next }
    {
        rest = $0
        while (match(rest, /<halftone\/[A-Za-z0-9_\/]+\.(hpp|cuh)>/)) {
            header = substr(rest, RSTART + 1, RLENGTH - 2)
            if (!exists("include/" header)) complain("there is no header <" header ">")
            rest = substr(rest, RSTART + RLENGTH)
        }
    }
    block || hidden { next }
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

# How many targets were met on the GPU.
table=bench/results/gpu_h200/summary.md
told="$(grep -c '| held |$' "$table") of $(grep -c -e '| held |$' -e '| NOT HELD |$' "$table") targets"
for page in README.md bench/README.md; do
    grep -q "$told" "$page" || { echo "$page does not say that $told are met, as $table does"; status=1; }
done

awk -v folder="$folder" '
    # The block before, with what instantiates it.
    function finish(    key, file, name) {
        if (!pending) return
        pending = 0
        ++blocks
        file = sprintf("%s/%s.cpp", folder, alone ? "alone_" blocks : "together_" blocks % 2)
        heads[file] = heads[file] includes
        name = alone ? "" : "namespace snippet_" blocks " "
        bodies[file] = bodies[file] (alone ? "" : name "{\n") body (alone ? "" : "}  // namespace\n")
        if (use != "") uses[file] = uses[file] use_includes (alone ? "" : name "{\n") use (alone ? "" : "}  // namespace\n")
        else if (is_template) { print begin ": nothing instantiates the template of this block"; faults++ }
        gsub("/", "_", begin)
        file = folder "/" begin ".block"
        printf "%s%s", includes, body > file
        close(file)
    }
    FNR == 1 && inside { print "a ```cpp block does not end in the page before " FILENAME; faults++; exit }
    FNR == 1 { finish() }
    using && (FNR == 1 || /^```/) { print "a comment with what instantiates a block does not end before " FILENAME ":" FNR; faults++; exit }
    /^```cpp$/ {
        finish()
        inside = 1; alone = 0; includes = ""; body = sprintf("#line %d \"%s\"\n", FNR + 1, FILENAME); use = ""; use_includes = ""
        is_template = 0; begin = FILENAME ":" FNR
        next
    }
    /^```$/ && inside { inside = 0; pending = 1; next }
    /^<!-- instantiated:$/ && pending { using = 1; use = sprintf("#line %d \"%s\"\n", FNR + 1, FILENAME); next }
    using && /^-->$/ { using = 0; next }
    using && /^#include / { use_includes = use_includes $0 "\n"; use = use "\n"; next }
    using { use = use $0 "\n"; next }
    inside && /^#include / { includes = includes $0 "\n"; body = body "\n"; next }
    inside {
        if ($0 ~ /^(inline )?namespace halftone|^template <>|^#define/) alone = 1
        if ($0 ~ /^template <[^>]/ || $0 ~ /^[a-z].*[(,] *(const )?auto&* [a-z_]+[,)]/) is_template = 1
        body = body $0 "\n"
    }
    END {
        finish()
        for (file in bodies) {
            printf "%s%s", heads[file], bodies[file] > file
            if (file in uses) printf "template <class T>\nT& given();\n%s", uses[file] > file
        }
        print blocks > (folder "/count")
        exit faults > 0
    }
    ' README.md CONTRIBUTING.md docs/*.md examples/README.md || status=1

sources=("$folder"/*.cpp)
if [ ${#sources[@]} -eq 0 ]; then
    echo "failed: the pages have no snippets"
    exit 1
fi
# With halftone::compiled, whose kernels are then only declared.
export flags="-std=c++20 -Wall -Wextra -Wpedantic -Werror -DHALFTONE_COMPILED"
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
if ctags --version 2>/dev/null | grep 'Universal Ctags' >/dev/null; then
    python3 tests/headers/includes.py "$folder"/*.block >"$folder/said" || { cat "$folder/said"; status=1; }
fi
if [ "$status" -eq 0 ]; then echo "$(cat "$folder/count") snippets compile, in ${#sources[@]} sources; all links lead somewhere"; fi
exit "$status"

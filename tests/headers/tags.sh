#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Editors find halftone's names: Universal Ctags, without knowledge of its macros, lists the names in tags.txt in the namespace in which
# users find them. (api.sh compares all listed names with docs/api.md.)
#
#     tests/headers/tags.sh         CTAGS names the program
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
ctags=${CTAGS:-ctags}
if ! "$ctags" --version 2>/dev/null | grep 'Universal Ctags' >/dev/null; then
    echo "skipped: there is no Universal Ctags"
    exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

names=$root/tests/headers/tags.txt
sed -nE 's/^ht::([A-Za-z0-9_:]+)$/\1/p' "$names" >"$work/names"
count=$(wc -l <"$work/names")
((count >= 40)) || { echo "tags: ${names#"$root/"} has $count names, fewer than 40"; exit 1; }

# A line for each tag: where it is, the namespaces and classes that it stands in, and its name.
(cd "$root" && "$ctags" -R --languages=C++ --langmap=C++:+.cuh --fields=s -f - include) |
    awk -F '\t' '{ scope = $4; sub(/^[a-z]+:/, "", scope); print $2 "\t" scope "::" $1 }' >"$work/tags"

awk -F '\t' -v names="$names" '
    FNR == NR { seen[$2] = 1; next }
    !("halftone::HALFTONE_ABI::" $1 in seen) { print "ctags does not list ht::" $1; missing++ }
    END { exit missing > 0 }' "$work/tags" "$work/names" || exit 1
echo "ctags lists $(wc -l <"$work/tags") names, and $count public ones where users find them"

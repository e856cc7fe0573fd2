#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The public face: what users may call is in halftone, halftone::nn and halftone::reference, and in docs/api.md with its headers
# and one line of meaning; no other name is in either. All else is in `detail`, or in the namespaces of those who write
# operations and devices: kernel, symbolic, scalar, op, simt, and those of instruction sets.
#
# And each public declaration has its comment, three slashes, right above it (or behind the name): functions, classes,
# enumerations, aliases, concepts, variables, and of public classes the functions and classes within that are public, calls of
# objects included. It may do without
#
#   - a constructor, a destructor, `visit`, a function that overrides another, an accessor without arguments whose body is one
#     `return` on the same line: the comment of its class is theirs, and that the class has to have;
#   - an overload right below one of the same name, without a line between them that is empty: the comment is of both;
#   - a specialisation of a commented template, and a definition outside of its class;
#   - other operators, deduction guides, what a using-declaration brings, and calls that are only there to be refused.
#
#     tests/headers/api.sh              compares
#     tests/headers/api.sh update       puts names and headers that have changed into docs/api.md; then read what it wrote
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
command -v python3 >/dev/null 2>&1 || { echo "skipped: there is no python3"; exit 77; }
ctags --version 2>/dev/null | grep -q 'Universal Ctags' || { echo "skipped: there is no universal-ctags"; exit 77; }
exec python3 "$here/api.py" "$@"

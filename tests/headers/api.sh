#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The public interface: the names in halftone, halftone::nn and halftone::reference are exactly those in docs/api.md, where each has
# its headers and one line of meaning. All other names are in `detail`, or in the namespaces for authors of operations and devices:
# kernel, symbolic, scalar, op, operation_kind, simt, and those of instruction sets.
#
# Each public declaration has a comment with three slashes directly above it (or after the name): functions, classes, enumerations,
# aliases, concepts, variables, and the public member functions and classes of public classes, including call operators. No comment
# is required for
#
#   - a constructor, a destructor, `visit`, an overriding function, an accessor without arguments whose body is one `return` on the
#     same line: the comment of the class, which must exist, covers them;
#   - an overload directly below one with the same name, without an empty line between them: the comment is for both;
#   - a specialisation of a commented template, and a definition outside of its class;
#   - other operators, deduction guides, names from a using-declaration, and overloads that only produce an error message.
#
# An editor shows a comment alone. So a comment with three slashes, public or not, does not begin with words that refer to another one:
# "The same", "And", "Its" and such; comments.py has the list.
#
#     tests/headers/api.sh              compares
#     tests/headers/api.sh update       updates names and headers in docs/api.md; review the changes
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
command -v python3 >/dev/null 2>&1 || { echo "skipped: there is no python3"; exit 77; }
if [ "${1:-}" != update ]; then python3 "$here/comments.py" alone; fi
ctags --version 2>/dev/null | grep 'Universal Ctags' >/dev/null || { echo "skipped: there is no universal-ctags"; exit 77; }
exec python3 "$here/api.py" "$@"

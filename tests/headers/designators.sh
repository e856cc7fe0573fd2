#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Nothing that nvcc reads assigns braces with designators, `x = {.a = 1, .c = n}`: inside of a template nvcc 13.0 to 13.5 may hand the host
# compiler `x = {1, n}`, whose values come to other members, without a word. `x = type{.a = 1, .c = n}` and declarations keep their names.
# It reads words, and takes a second.
#
#     tests/headers/designators.sh
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
command -v python3 >/dev/null 2>&1 || { echo "skipped: there is no python3"; exit 77; }
exec python3 "$here/designators.py"

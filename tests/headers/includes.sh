#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Each header includes what declares the names that it uses: those that halftone's headers declare in a namespace, and the common ones
# of the standard library. It reads words, and takes seconds; headers.alone compiles each header by itself (tests/run.sh --full).
#
#     tests/headers/includes.sh
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
command -v python3 >/dev/null 2>&1 || { echo "skipped: there is no python3"; exit 77; }
ctags --version 2>/dev/null | grep 'Universal Ctags' >/dev/null || { echo "skipped: there is no universal-ctags"; exit 77; }
exec python3 "$here/includes.py"

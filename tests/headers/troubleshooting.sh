#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Every error message has a line in docs/troubleshooting.md, and every line there is about a message that there is: troubleshooting.py
# has the rules.
#
#     tests/headers/troubleshooting.sh             compares
#     tests/headers/troubleshooting.sh list        prints all messages, with their places
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
command -v python3 >/dev/null 2>&1 || { echo "skipped: there is no python3"; exit 77; }
exec python3 "$here/troubleshooting.py" "$@"

#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Goes before a compiler in a build, for cost.sh: notes what compiling a source took, so that it need not be done again.
#
#     tests/headers/measured.sh FOLDER COMPILER ARGUMENT...
#
# FOLDER/<source>.cost then holds the milliseconds of CPU time, and `large` behind them where 2 GiB did not suffice.
set -uo pipefail
folder=$1
shift
source=
for argument in "$@"; do
    if [[ $argument == *.cpp ]]; then source=${argument##*/}; fi
done
mkdir -p "$folder"
note=$folder/$source.cost TIMEFORMAT='%U %S'
rm -f "$note"
size=
if ! { time (ulimit -v 2097152 && "$@" >"$note.said" 2>&1); } 2>"$note.time"; then
    size=' large'
    { time "$@" >"$note.said" 2>&1; } 2>"$note.time" || { code=$?; cat "$note.said" >&2; rm -f "$note.said" "$note.time"; exit "$code"; }
fi
cat "$note.said" >&2
awk -v size="$size" '{ print int(1000 * ($1 + $2)) size }' "$note.time" >"$note"
rm -f "$note.said" "$note.time"

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
note=$folder/$source.cost work=$folder/$source.$$ TIMEFORMAT='%U %S'
rm -f "$note"
size=
if ! { time (ulimit -v 2097152 && "$@" >"$work.said" 2>&1); } 2>"$work.time"; then
    size=' large'
    { time "$@" >"$work.said" 2>&1; } 2>"$work.time" || { code=$?; cat "$work.said" >&2; rm -f "$work.said" "$work.time"; exit "$code"; }
fi
cat "$work.said" >&2
awk -v size="$size" '{ print int(1000 * ($1 + $2)) size }' "$work.time" >"$work" && mv "$work" "$note"
rm -f "$work.said" "$work.time"

#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# A compiler launcher for cost.sh: records the time and memory of compiling a source, so that cost.sh need not compile it again.
#
#     tests/headers/measured.sh FOLDER COMPILER ARGUMENT...
#
# FOLDER/<source>.cost then contains the milliseconds of CPU time, followed by `large` if 2 GiB did not suffice.
set -uo pipefail
folder=$1
shift
source=
for argument in "$@"; do
    if [[ $argument == *.cpp ]]; then source=${argument##*/}; fi
done
# As users compile, who need not have 2 GB for each compiler.
if [[ " $* " == *ggc-min-heapsize* ]]; then set -- "$@" --param=ggc-min-heapsize=131072; fi
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

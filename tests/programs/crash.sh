#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Kills a save at each of its system calls, and lets each fail with ENOSPC and EIO: afterwards the old checkpoint loads or the new one,
# never a mixture, and no incomplete one has a checkpoint's name. Prints what was tried. Also a full disk of 64 KiB, if it can be
# mounted. Needs strace. So is a save beside the training (io/checkpoint/saver.hpp), at the calls of the thread that writes it.
#
#     tests/programs/crash.sh [PROGRAM]            each call that writes, flushes, names or removes; ENOSPC for those that need space;
#                                                of a save beside the training kills alone
#     tests/programs/crash.sh --full [PROGRAM]     every call, each with every error; also a save of two ranks together, of
#                                                which strace counts the calls of each
#
# PROGRAM has the test of tests/io/crash.cpp; without one it is compiled.
set -uo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=$(mktemp -d)
trap 'umount "$work/small" 2>/dev/null; rm -rf "$work"' EXIT
command -v strace >/dev/null 2>&1 || { echo "skipped: there is no strace"; exit 77; }
strace -o "$work/none" true 2>/dev/null || { echo "skipped: strace may not trace"; exit 77; }
full=0
calls=(write fsync rename mkdir unlink unlinkat rmdir close)
need_space='write fsync mkdir'
if [[ ${1:-} == --full ]]; then
    full=1
    calls+=(openat newfstatat fstat lseek read pread64 getdents64 fcntl access stat lstat mmap munmap brk)
    need_space=${calls[*]}
    shift
fi
program=${1:-}
if [[ -z $program ]]; then
    program=$work/program
    "${CXX:-c++}" -std=c++20 -O0 -I "$root/include" -I "$root/tests" "$root/tests/io/crash.cpp" "$root/tests/main.cpp" -o "$program" -pthread || exit 1
fi
# crash COMMAND ARGUMENT...: as tests/io/crash.cpp has it
arguments=(--no-skip --no-intro --no-version '--test-case=crash: *')
crash() { HALFTONE_CRASH=$* "$program" "${arguments[@]}"; }
failures=0 tried=0
fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}

# traced COMMAND ARGUMENT...: with strace, whose further arguments are in the array how. A save beside the training begins it itself.
traced() {
    if [[ $1 == save_beside ]]; then
        HALFTONE_CRASH=$* HALFTONE_CRASH_STRACE="-o $work/trace ${how[*]}" "$program" "${arguments[@]}"
    else
        strace -f -E HALFTONE_CRASH="$*" -o "$work/trace" "${how[@]}" "$program" "${arguments[@]}"
    fi
}
# The calls of a kind in a save, for a command in a copy of the folder `before`: strace counts those of each thread by itself.
count() {
    rm -rf "$work/now" && cp -r "$work/before" "$work/now"
    local how=(-e trace="$1")
    traced "${@:2}" >/dev/null 2>&1
    if [[ $2 != save_beside ]]; then grep -c "^[0-9 ]*$1(" "$work/trace"; return; fi
    awk -v call="$1" '$2 ~ "^" call "\\(" { if (++calls[$1] > most) most = calls[$1] } END { print most + 0 }' "$work/trace"
}
# try CALL FAULT OLD NEW LOADER COMMAND...: each call of the command fails in turn.
try() {
    local call=$1 fault=$2 old=$3 new=$4 loader=$5 all kept_old=0 kept_new=0 k code got how
    shift 5
    all=$(count "$call" "$@")
    ((all > 0)) || return 0
    for ((k = 1; k <= all; k++)); do
        rm -rf "$work/now" && cp -r "$work/before" "$work/now"
        # In a shell of its own, which does not tell here that it was killed.
        how=(-e trace="$call" -e inject="$call:$fault:when=$k")
        (
            traced "$@" >"$work/out" 2>&1
            exit $?
        ) 2>/dev/null
        code=$?
        tried=$((tried + 1))
        got=$(crash "$loader" "$work/now" 2>"$work/err") || fail "$call $fault $k of $all: nothing loads: $(cat "$work/err" "$work/out"); left: $(ls "$work/now")"
        if [[ $got == "$new" ]]; then
            kept_new=$((kept_new + 1))
        elif [[ $got == "$old" ]]; then
            kept_old=$((kept_old + 1))
            ((code != 0)) || fail "$call $fault $k of $all: the save says that it succeeded, and the old one loads"
        else
            fail "$call $fault $k of $all: '$got' loads; expected '$old' or '$new'"
        fi
        # A failure that is survived is told in one line.
        if ((code == 3 && $(wc -l <"$work/out") != 1)); then fail "$call $fault $k of $all says: $(cat "$work/out")"; fi
        # The next save works, and cleans up.
        crash "$@" >"$work/out" 2>&1 || fail "$call $fault $k of $all: the next save fails: $(cat "$work/out")"
        got=$(crash "$loader" "$work/now" 2>&1)
        [[ $got == "$new" ]] || fail "$call $fault $k of $all: after the next save '$got' loads"
        if ls "$work/now" | grep '\.\(part\|gone\|old\)$' >/dev/null; then fail "$call $fault $k of $all: after the next save there is $(ls "$work/now")"; fi
    done
    printf '%-14s %-14s %5d %8d %8d\n' "$call" "$fault" "$all" "$kept_old" "$kept_new"
}
table() {
    echo "$1"
    printf '%-14s %-14s %5s %8s %8s\n' call fault calls 'old load' 'new load'
    shift
    local call before=$tried
    for call in "${calls[@]}"; do
        try "$call" signal=SIGKILL "$@"
        if [[ $4 == save_beside ]] && ((!full)); then continue; fi
        case $call in write | fsync | rename | mkdir | openat | close | pread64 | getdents64 | unlink | unlinkat)
            try "$call" error=EIO "$@"
            if [[ " $need_space " == *" $call "* ]]; then try "$call" error=ENOSPC "$@"; fi
            ;;
        esac
    done
    ((tried > before)) || fail "strace sees no call of ${*:4}"
}

mkdir "$work/before"
crash save "$work/before" 1 1 && crash save "$work/before" 2 2 || fail "saving"
table "checkpoint 3 beside 1 and 2" "2 2" "3 3" load save "$work/now" 3 3
table "checkpoint 3 beside 1 and 2, by a thread beside the training" "2 2" "3 3" load save_beside "$work/now" 3 3
table "checkpoint 2 in the place of another of that step" "2 2" "2 7" load save "$work/now" 2 7
if ((full)); then
    rm -rf "$work/before" && mkdir "$work/before"
    crash save_ranks "$work/before" 1 1 && crash save_ranks "$work/before" 2 2 || fail "saving by two ranks"
    table "checkpoint 3 of two ranks beside 1 and 2" "2 2" "3 3" load save_ranks "$work/now" 3 3
fi
rm -rf "$work/before"
crash save_weights "$work/before" 1 || fail "saving weights"
table "weights in three files in the place of others" 1 2 load_weights save_weights "$work/now" 2

# A disk of 64 KiB with room for two checkpoints beside what others have there, where the third does not fit.
mkdir "$work/small"
if ((EUID == 0)) && mount -t tmpfs -o size=64k tmpfs "$work/small" 2>/dev/null; then
    head -c 24000 /dev/zero >"$work/small/else"
    for step in 1 2 3 4 5 6; do
        crash save "$work/small" $step $step >"$work/out" 2>&1
        code=$?
        got=$(crash load "$work/small" 2>&1)
        if ((code == 0)); then
            [[ $got == "$step $step" ]] || fail "a small disk: '$got' loads after $step"
            last=$step
        else
            grep -q 'No space left' "$work/out" && (($(wc -l <"$work/out") == 1)) || fail "a full disk says: $(cat "$work/out")"
            [[ $got == "$last $last" ]] || fail "a full disk: '$got' loads; the last good one was $last"
        fi
    done
    echo "a disk of 64 KiB: the newest of six that loads is $got"
    ((last < 6)) || fail "a disk of 64 KiB takes all"
    rm "$work/small/else"
    crash save "$work/small" 7 7 && [[ $(crash load "$work/small") == "7 7" ]] || fail "a disk with room again"
else
    echo "a disk of 64 KiB: it cannot be mounted here"
fi

echo "$tried faults tried, $failures failures"
((failures == 0))

#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Ranks as processes over MPI, four on this machine: the bytes and sums of all collectives; and runs in which a rank is killed, is
# stopped, throws, returns, ends by exit(0) or quick_exit(0), hangs or skips a call: the others end with a line that names it (for one that is killed the
# launcher's), with a code other than zero, and none is left.
#
#     tests/programs/mpi.sh [--full] [PROGRAM]        --full: in each kind of call; MPI_HOME names the folder of an MPI, see
#                                                     mpi_launcher.sh
#
# PROGRAM is tests/programs/mpi_ranks.cpp; without one it is compiled.
set -uo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck source=mpi_launcher.sh
source "$root/tests/programs/mpi_launcher.sh"
full=no
if [[ ${1:-} == --full ]]; then
    full=yes
    shift
fi
program=$work/mpi_ranks
if (($#)); then
    cp "$1" "$program" # under a name of this run alone, by which its processes are found
else
    "${CXX:-c++}" -std=c++20 -O0 -I "$root/include" "$root/tests/programs/mpi_ranks.cpp" -o "$program" -pthread "${mpi_compile[@]}" || exit 1
fi
failures=0
fail() {
    echo "FAILED: $*"
    sed 's/^/    /' "$work/out"
    failures=$((failures + 1))
}
# run ARGUMENT...: four ranks; leaves the code in $code and what they print in $work/out.
run() {
    timeout -s KILL 60 "${mpi_launch[@]}" -n 4 "$program" "$@" >"$work/out" 2>&1
    code=$?
    return "$code"
}
# ends LINE ARGUMENT...: such a run ends with that line, once, and a code other than zero, and leaves no process.
ends() {
    local line=$1 began=$SECONDS
    shift
    run "$@"
    local took=$((SECONDS - began)) left=0
    ((code != 0 && code != 137 || took < 30)) || { fail "$*: it hung"; return; }
    ((code != 0)) || fail "$*: the exit code is 0"
    [[ $(grep -caE "$line" "$work/out") == 1 ]] || fail "$*: there is not one line with '$line'"
    (($(grep -caE '^(communicator|mpi_session): ' "$work/out") <= 1)) || fail "$*: more than one rank says why"
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        left=$(pgrep -cf "^$program " || true)
        ((left == 0)) && break
        sleep 0.2
    done
    ((left == 0)) || fail "$*: $left processes are left"
    echo "$*: ended after $took s"
}

run moves
((code == 0)) && grep -qx 'moves: all right' "$work/out" || fail "moves: code $code"
run sessions || fail "sessions: code $code"
kinds=(all_gather)
if [[ $full == yes ]]; then kinds=(exchange all_gather broadcast barrier split); fi
for kind in "${kinds[@]}"; do
    # mpirun itself sees that a process was killed, and names it.
    ends "$(mpi_line_of_killed 2)" "$kind" kill 2
    ends '^communicator: .*rank 1 does not answer' "$kind" stop 1
done
ends '^communicator: .*rank 3 does not answer' exchange stop 3 travelling
ends '^communicator: rank 0 has not called barrier "step" within 2000 ms, for which the others wait$' barrier hang 0
ends '^communicator: ranks 0, 1 and 2 call all_gather "step" of 1000 bytes, and rank 3 calls barrier "end";' all_gather skip 3
ends '^mpi_session: rank 1 ends the program by exit\(\) within the session; all ranks end$' all_gather exit 1
ends '^mpi_session: rank 1 ends the program by exit\(\) within the session; all ranks end$' all_gather quick_exit 1
ends '^mpi_session: rank 0 ends the program behind an exception that left the session; all ranks end$' barrier catch 0
run barrier fork 1 || fail "a child of fork() that ends: code $code"
if [[ $full == yes ]]; then
    ends '^communicator: .*rank 0 does not answer' broadcast stop 0
    ends '^mpi_ranks: no disk$' exchange throw 2
    ends '^communicator: rank 2 has not called broadcast "step" of 1000 bytes from rank 0 within 2000 ms' broadcast return 2
fi
# A job that is suspended as a whole, for longer than the deadline, goes on.
run barrier nap 3 &
job=$!
for _ in {1..100}; do
    grep -q napping "$work/out" 2>/dev/null && break
    sleep 0.1
done
mapfile -t processes < <(pgrep -f "^$program ")
kill -STOP "${processes[@]}"
sleep 4
kill -CONT "${processes[@]}"
wait $job || fail "a job that was suspended: code $?"

if ((failures > 0)); then
    echo "$failures failures"
    exit 1
fi

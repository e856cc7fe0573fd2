#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Processes that train together with checkpoints, over MPI, of which one is killed (SIGKILL) or stopped (SIGSTOP): in each phase of a
# step (forward pass, backward pass, optimizer, evaluation, checkpoint, and the collectives of each). The others end within the
# deadline, with a line that names it (for one that is killed the launcher's) and a code other than zero, none is left, and the run
# goes on from the newest checkpoint with the same losses, to the bit, as one that was not interrupted.
#
#     tests/programs/mpi_training.sh [--full] [TRAIN_GPT]
#
# --full: under each stage of ZeRO, several moments of each phase; otherwise under ZeRO 3, and stopped in some phases alone.
# MPI_HOME names the folder of an MPI (mpi_launcher.sh).
# TRAIN_GPT is a train_gpt that knows that MPI (-DHALFTONE_MPI=ON): killed and stopped at random moments; with a rank whose disk is full,
# and one that gets SIGTERM. SEED chooses the moments.
set -uo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck source=mpi_launcher.sh
source "$root/tests/programs/mpi_launcher.sh"
stages=(3) times=1
if [[ ${1:-} == --full ]]; then
    stages=(0 1 2 3) times=3
    shift
fi
train_gpt=${1:-}
ranks=3
program=$work/mpi_training
"${CXX:-c++}" -std=c++20 -O0 -I "$root/include" -I "$root/tests" "$root/tests/programs/mpi_training.cpp" -o "$program" -pthread \
    "${mpi_compile[@]}" || exit 1
seed=${SEED:-$RANDOM}
RANDOM=$seed
failures=0
fail() {
    echo "FAILED (SEED=$seed): $*"
    sed 's/^/    /' "$work/out"
    failures=$((failures + 1))
}
mpi() { timeout -s KILL 120 "${mpi_launch[@]}" -n "$ranks" "$@"; }
newest() { ls "$1" 2>/dev/null | sed -n 's/^checkpoint-\([0-9]*\)$/\1/p' | sort -n | tail -n 1; }
# ended WHAT SIGNAL RANK SECONDS PROGRAM: a run that lasted so many seconds after the signal has ended as it should, and left nothing.
ended() {
    local left=0 line
    line=$(mpi_line_of_killed "$3")
    if [[ $2 == STOP ]]; then line="^communicator: .*rank $3 does not answer"; fi
    ((code != 0)) || fail "$1: the exit code is 0"
    # Twice the deadline of 3 seconds: each call waits for it, and a lowest rank that is gone gives others two seconds more.
    (($4 <= 10)) || fail "$1: it ended after $4 s"
    [[ $(grep -caE "$line" "$work/out") == 1 ]] || fail "$1: there is not one line with '$line'"
    for _ in {1..20}; do
        left=$(pgrep -cf "^$5 " || true)
        ((left == 0)) && break
        sleep 0.2
    done
    ((left == 0)) || fail "$1: $left processes are left"
}

# ---- in each phase of a step

phases=(forward backward backward.collective optimizer optimizer.collective evaluation checkpoint.collective checkpoint)
for stage in "${stages[@]}"; do
    mpi "$program" "$work/whole$stage" "$stage" >"$work/out" 2>&1 || fail "an uninterrupted run of stage $stage ends with $?"
    cp "$work/out" "$work/whole.out"
    (($(grep -c . "$work/whole$stage.log") == 12)) || fail "an uninterrupted run has not 10 steps and 2 evaluations: $(cat "$work/whole$stage.log")"
    cmp "$work/whole$stage.log" "$work/whole${stages[0]}.log" || fail "stage $stage has other losses than stage ${stages[0]}"
    for signal in KILL STOP; do
        # Each that is stopped takes the deadline.
        if [[ $signal == STOP && ${#stages[@]} == 1 ]]; then phases=(backward optimizer.collective checkpoint); fi
        for phase in "${phases[@]}"; do
            all=$(sed -n "s/^$phase //p" "$work/whole.out") resumed='' longest=0
            ((all > 0)) || { fail "stage $stage has no $phase"; continue; }
            for ((k = 0; k < times; k++)); do
                # Saves of this size take some milliseconds.
                rank=$((RANDOM % ranks)) number=$((RANDOM % all + 1)) microseconds=0
                if [[ $phase == checkpoint ]]; then microseconds=$((RANDOM % 3000 + 1)) number=$((RANDOM % (all - 1) + 1)); fi
                what="stage $stage, $phase $number, $signal to rank $rank" run=$work/run
                rm -rf "$run" "$run.log"
                began=$SECONDS
                mpi "$program" "$run" "$stage" "$phase" "$number" "$rank" "$signal" "$microseconds" >"$work/out" 2>&1
                code=$?
                took=$((SECONDS - began))
                ((took > longest)) && longest=$took
                ended "$what" "$signal" "$rank" "$took" "$program"
                last=$(newest "$run")
                mpi "$program" "$run" "$stage" >"$work/out" 2>&1 || fail "$what: the resumed run ends with $?"
                from=$(sed -n 's/^from //p' "$work/out")
                [[ $from == "${last:-0}" ]] || fail "$what: it goes on from step $from; the newest checkpoint is ${last:-none}"
                [[ $(sort -u "$run.log") == "$(sort -u "$work/whole$stage.log")" ]] ||
                    fail "$what, from step $from: other losses: $(diff <(sort -u "$run.log") <(sort -u "$work/whole$stage.log"))"
                resumed+=" $from"
            done
            echo "stage $stage, SIG$signal in $phase, of which there are $all: ended after $longest s at most; resumed from steps$resumed"
        done
    done
done

# ---- a rank that does not answer, where what ends the others is slow: only the first one says so

rm -rf "$work/run" "$work/run.log"
began=$SECONDS
SLOW_ABORT=4 mpi "$program" "$work/run" 3 backward 20 0 STOP >"$work/out" 2>&1
code=$?
ended "rank 0 stopped, MPI_Abort slow" STOP 0 $((SECONDS - began)) "$program"
echo "rank 0 stopped, MPI_Abort slow: ended after $((SECONDS - began)) s"

# ---- train_gpt, at random moments

if [[ -n $train_gpt ]]; then
    cp "$train_gpt" "$work/train_gpt"
    program=$work/train_gpt
    for i in {1..400}; do printf 'In the beginning was line %3d, and it was good. \n' "$i"; done >"$work/text"
    one=("$program" --layers 2 --width 32 --heads 2 --context 16 --eval-windows 4 --write 0 --policy amp_bf16 --text "$work/text"
        --steps 300 --eval-every 50 --save-steps 5 --deadline 3)
    gpt=("${one[@]}" --batch 2)
    # What must not depend on an interruption: losses and rates, step by step. A launcher that binds processes to processors leaves
    # them fewer threads.
    numbers() { grep -v '"at_step"' "$1/metrics.jsonl" | sed 's/ [0-9]* threads\{0,1\}",/",/; s/"tokens_per_second":[^,]*,"step_ms":[^,]*,"peak_bytes":[^,]*,//'; }
    # process_of RANK: its id
    process_of() {
        local id
        for id in $(pgrep -f "^$program "); do
            if tr '\0' '\n' <"/proc/$id/environ" 2>/dev/null | grep -x "$mpi_rank=$1" >/dev/null; then echo "$id"; fi
        done
    }
    # begin ZERO ARGUMENT...: a run in the background, when it has saved its first checkpoint. To be killed a random while later.
    begin() {
        rm -rf "$work/gpt"
        mpi "${gpt[@]}" --out "$work/gpt" --zero "$1" >"$work/out" 2>&1 &
        job=$!
        for _ in {1..2000}; do
            if [[ -n $(newest "$work/gpt/amp_bf16") ]] || ! kill -0 $job 2>/dev/null; then break; fi
            sleep 0.01
        done
    }
    for zero in "${stages[@]}"; do
        mpi "${gpt[@]}" --out "$work/whole_gpt$zero" --zero "$zero" >"$work/out" 2>&1 || fail "train_gpt --zero $zero ends with $?"
        for signal in KILL STOP TERM; do
            for ((k = 0; k < times; k++)); do
                rank=$((RANDOM % ranks))
                what="train_gpt --zero $zero, SIG$signal to rank $rank"
                begin "$zero"
                sleep "0.$(printf '%03d' $((RANDOM % 300)))"
                began=$SECONDS
                kill "-$signal" "$(process_of "$rank")"
                wait $job
                code=$? took=$((SECONDS - began))
                if [[ $signal == TERM ]]; then
                    # All save where it was.
                    ((code == 143)) || fail "$what: it ends with $code"
                    last=$(newest "$work/gpt/amp_bf16")
                    [[ $(grep -o '"step":[0-9]*' "$work/gpt/metrics.jsonl" | tail -n 1) == "\"step\":$last" ]] ||
                        fail "$what: the newest checkpoint is of step $last, and the last line $(tail -n 1 "$work/gpt/metrics.jsonl")"
                else
                    ended "$what" "$signal" "$rank" "$took" "$program"
                fi
                last=$(newest "$work/gpt/amp_bf16")
                mpi "${gpt[@]}" --out "$work/gpt" --zero "$zero" --resume >"$work/out" 2>&1 || fail "$what: the resumed run ends with $?"
                [[ $(numbers "$work/gpt") == "$(numbers "$work/whole_gpt$zero")" ]] ||
                    fail "$what: other numbers: $(diff <(numbers "$work/gpt") <(numbers "$work/whole_gpt$zero"))"
                echo "$what: ended after $took s; resumed from step $last"
            done
        done
    done

    # What processes have saved is resumed by threads, with the same numbers, and by two processes with as many windows in a step.
    begin "$zero"
    kill -KILL "$(process_of 1)"
    wait $job
    cp -r "$work/gpt" "$work/two"
    "${gpt[@]}" --out "$work/gpt" --ranks $ranks --zero "$zero" --resume >"$work/out" 2>&1 || fail "threads that resume the run of processes end with $?"
    [[ $(numbers "$work/gpt") == "$(numbers "$work/whole_gpt$zero")" ]] ||
        fail "threads that resume the run of processes have other numbers: $(diff <(numbers "$work/gpt") <(numbers "$work/whole_gpt$zero"))"
    timeout -s KILL 120 "${mpi_launch[@]}" -n 2 "${one[@]}" --batch 3 --out "$work/two" --zero "$zero" --resume >"$work/out" 2>&1 ||
        fail "two processes that resume the run of three end with $?"
    grep -q '"step":300,' "$work/two/metrics.jsonl" || fail "two processes that resume the run of three do not come to its end"

    # A rank whose files may not grow beyond some KiB: it is told, once, with the rank's number; training goes on to its end.
    # MPICH's memory that processes share is a file, too, which is then too large.
    rm -rf "$work/gpt"
    if [[ $mpi_name == mpich ]]; then export UCX_TLS=self,tcp; fi
    timeout -s KILL 120 "${mpi_launch[@]}" -n 2 "${gpt[@]}" --out "$work/gpt" --zero 2 : \
        -n 1 bash -c 'trap "" XFSZ; ulimit -f 8; exec "$@"' limited "${gpt[@]}" --out "$work/gpt" --zero 2 >"$work/out" 2>&1
    code=$?
    ((code != 0)) || fail "a rank with a full disk: the exit code is 0, though nothing was saved"
    [[ $(grep -c 'rank 2: .*cannot write' "$work/out") -ge 1 ]] || fail "a rank with a full disk is not named"
    grep -q '"step":300,' "$work/gpt/metrics.jsonl.part" "$work/gpt/metrics.jsonl" 2>/dev/null || fail "a rank with a full disk ends the training"
    [[ -z $(newest "$work/gpt/amp_bf16") ]] || fail "a rank with a full disk leaves a checkpoint"
fi

if ((failures > 0)); then
    echo "$failures failures"
    exit 1
fi

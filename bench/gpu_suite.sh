#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Everything that only a GPU can show, in one command of at most nine minutes: builds for the GPU that is there, runs the
# tests, the benchmarks, the training example on both devices, compute-sanitizer's four tools, and PyTorch beside them.
#
#     bench/gpu_suite.sh OUT [--headers FOLDER] [--minutes N] [--build FOLDER] [--dry]
#
#     OUT                where results go: summary.md, suite.json, *.json, and a log of each step
#     --headers FOLDER   where doctest/, nlohmann/ and CLI/ lie, on a machine that does not have them installed
#     --minutes N        what all of it may take, 9 by default; steps that do not fit are left out and named
#     --build FOLDER     where to build, OUT/build by default
#     --dry              without a GPU: configures, shows what would be built and run, and checks the arguments
#
# Needs a CUDA toolkit, CMake and a C++ compiler; PyTorch and compute-sanitizer where they are there. Ends with 0 where no
# step failed, else with 1.
set -uo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

die() {
    echo "gpu_suite.sh: $*" >&2
    exit 2
}

out='' headers='' build='' minutes=9 dry=no
while (($#)); do
    case $1 in
        --headers | --minutes | --build)
            (($# > 1)) || die "$1 needs a value"
            case $1 in --headers) headers=$2 ;; --minutes) minutes=$2 ;; --build) build=$2 ;; esac
            shift
            ;;
        --dry) dry=yes ;;
        --help | -h)
            sed -n '3,/^set/p' "${BASH_SOURCE[0]}" | sed '$d; s/^# \{0,1\}//'
            exit 0
            ;;
        -*) die "unknown argument $1; --help tells what there is" ;;
        *)
            [[ -z $out ]] || die "one folder for results, got $out and $1"
            out=$1
            ;;
    esac
    shift
done
[[ -n $out ]] || die "where shall the results go? bench/gpu_suite.sh OUT"
[[ $minutes =~ ^[0-9]+$ && $minutes -gt 0 ]] || die "--minutes is $minutes; expected a whole number"
mkdir -p "$out" || die "cannot make $out"
out=$(cd "$out" && pwd)
build=${build:-$out/build}
jobs=$(nproc 2>/dev/null || echo 4)
cmake=${CMAKE:-cmake}
SECONDS=0
limit=$((60 * minutes - 15)) # for the summary
names=() results=() times=()

left() { echo $((limit - SECONDS)); }

# note NAME RESULT TIME
note() {
    names+=("$1") results+=("$2") times+=("$3")
    printf '%4d s  %-28s %s\n' "$SECONDS" "$1" "$2"
}

# step NAME MOST COMMAND...: runs it for MOST seconds and no longer than is left; its output is NAME.log.
step() {
    local name=$1 most=$2 began=$SECONDS code
    shift 2
    if [[ $dry == yes ]]; then
        printf '%q ' "$@" >"$out/$name.log"
        note "$name" "not run (dry): $(cut -c1-150 "$out/$name.log")" 0
        return 0
    fi
    if (($(left) < 10)); then
        note "$name" "left out: no time" 0
        return 1
    fi
    if ((most > $(left))); then most=$(left); fi
    timeout --kill-after=5 "$most" "$@" >"$out/$name.log" 2>&1
    code=$?
    case $code in
        0) note "$name" ok $((SECONDS - began)) ;;
        77) note "$name" "skipped: $(grep -m1 skipped "$out/$name.log")" $((SECONDS - began)) ;;
        124 | 137) note "$name" "FAILED: stopped after $most s" $((SECONDS - began)) ;;
        *) note "$name" "FAILED with $code: $(grep -v '^$' "$out/$name.log" | tail -n 1 | cut -c1-160)" $((SECONDS - began)) ;;
    esac
    return "$code"
}
skip() { note "$1" "left out: $2" 0; }

# ---- the machine

if command -v nvidia-smi >/dev/null 2>&1 && nvidia-smi -L >"$out/machine.log" 2>&1 && grep -q GPU "$out/machine.log"; then
    nvidia-smi --query-gpu=name,compute_cap,driver_version,memory.total,clocks.sm,clocks.mem,power.draw --format=csv >>"$out/machine.log" 2>&1
    gpu=$(nvidia-smi --query-gpu=name --format=csv,noheader | head -n 1)
    architectures=()
elif [[ $dry == yes ]]; then
    gpu='none'
    architectures=(-DCMAKE_CUDA_ARCHITECTURES=90)
else
    die "there is no GPU here; --dry goes through all that needs none"
fi

# ---- building

nvcc=${CUDACXX:-nvcc}
if ! command -v "$nvcc" >/dev/null 2>&1; then nvcc=/usr/local/cuda/bin/nvcc; fi
have_nvcc=yes
command -v "$nvcc" >/dev/null 2>&1 || have_nvcc=no
configure=("$cmake" -S "$root" -B "$build" -DHALFTONE_BUILD_CUDA=ON -DHALFTONE_BUILD_EMULATOR=OFF -DCMAKE_BUILD_TYPE=Release "${architectures[@]}")
if command -v ninja >/dev/null 2>&1; then configure+=(-G Ninja); fi
if [[ -n $headers ]]; then configure+=(-DCMAKE_INCLUDE_PATH="$(cd "$headers" && pwd)"); fi
targets=(test_cuda train_gpt bench_cuda)
if [[ $have_nvcc == no ]]; then
    if [[ $dry == no ]]; then die "there is no nvcc"; fi
    skip configure "there is no nvcc"
elif [[ $dry == yes ]]; then
    "${configure[@]}" >"$out/configure.log" 2>&1 || { note configure "FAILED: $(grep -A2 -m1 Error "$out/configure.log" | tr '\n' ' ')" $SECONDS; }
    if ((${#names[@]} == 0)); then
        note configure ok $SECONDS
        # What would be built; a target that is not there fails here.
        if "$cmake" --build "$build" --target "${targets[@]}" -- -n >"$out/build.log" 2>&1; then
            note build "not run (dry): $(grep -c 'Building' "$out/build.log") sources" $SECONDS
        else
            note build "FAILED: $(tail -n 1 "$out/build.log")" $SECONDS
        fi
    fi
else
    step configure 60 "${configure[@]}" || cat "$out/configure.log"
    for target in "${targets[@]}"; do step "build_$target" 270 "$cmake" --build "$build" --target "$target" --parallel "$jobs"; done
fi

# there PROGRAM: it was built, or this is a dry run.
there() { [[ $dry == yes || -x $1 ]]; }
test_cuda=$build/tests/test_cuda
train_gpt=$build/examples/train_gpt
bench_cuda=$build/bench/bench_cuda

# ---- right, fast, trained

if there "$test_cuda"; then step test_cuda 120 "$test_cuda"; else skip test_cuda "it was not built"; fi
if there "$bench_cuda"; then step bench_cuda 150 "$bench_cuda" --json "$out/bench_cuda.json" --matmul-table "$out/matmul_table.txt"; else skip bench_cuda "it was not built"; fi

# The text is the repository's own; both devices train the same weights on the same batches.
small=(--steps 100 --eval-windows 64 --write 0)
large=(--policy amp_bf16 --layers 12 --heads 12 --width 768 --context 1024 --batch 8 --steps 30 --eval-windows 4 --write 0)
tiny=(--policy amp_fp16,amp_bf16 --layers 1 --heads 2 --width 64 --context 32 --batch 2 --steps 3 --eval-windows 2 --write 4)
if there "$train_gpt"; then
    step train_gpt_cuda 60 "$train_gpt" --device cuda "${small[@]}" --out "$out/train_gpt_cuda"
    step train_gpt_cpu 60 "$train_gpt" --device cpu "${small[@]}" --out "$out/train_gpt_cpu"
    step train_gpt2_cuda 60 "$train_gpt" --device cuda "${large[@]}" --profile --out "$out/train_gpt2_cuda"
else
    skip train_gpt "it was not built"
fi
# In a dry run a train_gpt built elsewhere checks these arguments: without a GPU all of them end with 3, wrong ones with 2.
if [[ $dry == yes && -n ${TRAIN_GPT:-} ]]; then
    for arguments in small large tiny; do
        declare -n list=$arguments
        "$TRAIN_GPT" --device cuda "${list[@]}" --out "$out/refused" >"$out/arguments.log" 2>&1
        code=$?
        if ((code == 3)); then note "arguments_$arguments" ok 0; else note "arguments_$arguments" "FAILED with $code: $(tail -n 1 "$out/arguments.log")" 0; fi
    done
fi

losses() { sed -n 's/.*"validation_loss": \([-0-9.e]*\).*/\1/p' "$1"; }
if [[ -e $out/train_gpt_cuda/summary.json && -e $out/train_gpt_cpu/summary.json ]]; then
    if paste <(losses "$out/train_gpt_cuda/summary.json") <(losses "$out/train_gpt_cpu/summary.json") |
        awk '{ d = $1 - $2; if (d < 0) d = -d; printf "%s on cuda, %s on the CPU\n", $1, $2; if (!(d <= 0.02)) far = 1 } END { exit far || NR == 0 }' >"$out/same_losses.log"; then
        note same_losses ok 0
    else
        note same_losses "FAILED: more than 0.02 nats apart: $(tr '\n' ';' <"$out/same_losses.log")" 0
    fi
fi

# ---- compute-sanitizer, on a chosen subset

sanitizer=$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)
if [[ $dry == yes || -x $sanitizer ]]; then
    for tool in memcheck racecheck initcheck synccheck; do
        check=("$sanitizer" --tool "$tool" --error-exitcode 9)
        if there "$train_gpt"; then step "${tool}_train_gpt" 45 "${check[@]}" "$train_gpt" --device cuda "${tiny[@]}" --out "$out/$tool"; fi
        # What reads host memory is no case for initcheck, which knows only the device's.
        if [[ $tool != initcheck ]] && there "$test_cuda"; then step "${tool}_test_cuda" 30 "${check[@]}" "$test_cuda" -tc='*exact*,cuda:*'; fi
    done
else
    skip sanitizers "there is no compute-sanitizer"
fi

# ---- PyTorch on the same GPU

python=$(command -v python3 || true)
if [[ -z $python ]]; then
    skip torch "there is no python3"
elif [[ $dry == yes ]]; then
    if "$python" "$root/bench/peers/torch_gpu.py" --dry >"$out/torch.log" 2>&1; then
        note torch "not run (dry): $(tail -n 1 "$out/torch.log")" 0
    else
        note torch "FAILED: $(tail -n 1 "$out/torch.log")" 0
    fi
elif "$python" -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' 2>/dev/null; then
    step torch 150 "$python" "$root/bench/peers/torch_gpu.py" --json "$out/torch.json" --seconds $(($(left) < 150 ? $(left) : 140))
else
    skip torch "there is no PyTorch that sees a GPU"
fi

# ---- what came of it

failed=0
{
    echo "# GPU suite"
    echo
    echo "GPU: $gpu. Commit: $(git -C "$root" rev-parse --short HEAD 2>/dev/null || echo unknown). $SECONDS s of $((60 * minutes))."
    echo
    echo "| step | result | seconds |"
    echo "| --- | --- | --- |"
    for i in "${!names[@]}"; do echo "| ${names[i]} | ${results[i]//|/ } | ${times[i]} |"; done
    for f in bench_cuda test_cuda train_gpt_cuda train_gpt_cpu train_gpt2_cuda torch same_losses; do
        if [[ -s $out/$f.log && $dry == no ]]; then
            printf '\n## %s\n\n```\n' "$f"
            tail -n 70 "$out/$f.log" | tr '\r' '\n' | grep -v '^ *$' | tail -n 70
            echo '```'
        fi
    done
} >"$out/summary.md"
{
    echo '{"program": "gpu_suite", "gpu": "'"${gpu//\"/}"'", "seconds": '"$SECONDS"', "steps": ['
    for i in "${!names[@]}"; do
        text=${results[i]//\\/ }
        printf '  {"name": "%s", "result": "%s", "seconds": %d}%s\n' "${names[i]}" "${text//\"/ }" "${times[i]}" "$([[ $i -lt $((${#names[@]} - 1)) ]] && echo ,)"
    done
    echo ']}'
} | tr '\t' ' ' >"$out/suite.json"
for result in "${results[@]}"; do if [[ $result == FAILED* ]]; then failed=1; fi; done
echo "results: $out/summary.md"
exit "$failed"

#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# All CPU measurements in one command: builds the benchmarks, runs each together with the libraries that it is compared with, draws
# the plots and prints which targets are met. It takes half an hour; it can be stopped and started again, because existing results
# are not measured again.
#
#     bench/cpu_suite.sh OUT --name NAME [--torch PYTHON] [--llmc PROGRAM] [--build FOLDER] [--only STEP] [--again] [--dry]
#
#     OUT                the folder of results: STEP_NAME.json, cpu_NAME.svg, growth_NAME.svg, targets_NAME.md
#     --name NAME        the name of the machine, as zen4
#     --torch PYTHON     a Python with PyTorch, for comparison in all steps
#     --llmc PROGRAM     the step of llm.c, built as described in peers/llmc_step.c
#     --build FOLDER     the build folder, `build` by default; logs are in its bench/logs
#     --only STEP        one of matmul_bf16, matmul_fp32, matmul_fp16, attention, conv2d, linear_cross_entropy, memory_bound,
#                        optimizer, train_step, growth; may be given more than once
#     --again            measure what is there already, too
#     --dry              show the commands, and do nothing
#
# oneDNN and OpenBLAS are peers where they are installed. Nothing else should run meanwhile. Ends with 0 where no step failed,
# else with 1.
set -uo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

die() {
    echo "cpu_suite.sh: $*" >&2
    exit 2
}

# step: program, rounds, arguments
steps=(matmul_bf16 matmul_fp32 matmul_fp16 attention conv2d linear_cross_entropy memory_bound optimizer train_step growth)
declare -A commands=(
    [matmul_bf16]="bench_matmul --filter bf16 --rounds 7"
    [matmul_fp32]="bench_matmul --filter fp32 --rounds 7"
    [matmul_fp16]="bench_matmul --filter fp16 --rounds 5"
    [attention]="bench_attention --rounds 5"
    [conv2d]="bench_conv2d --rounds 5"
    [linear_cross_entropy]="bench_linear_cross_entropy --rounds 5"
    [memory_bound]="bench_memory_bound --rounds 7"
    [optimizer]="bench_optimizer --rounds 15"
    [train_step]="bench_train_step --filter bf16 --rounds 5"
    [growth]="bench_train_step --growth --filter bf16 --rounds 3"
)

out='' name='' torch='' llmc='' build='' again=no dry=no only=()
while (($#)); do
    case $1 in
        --name | --torch | --llmc | --build | --only)
            (($# > 1)) || die "$1 needs a value"
            case $1 in
                --name) name=$2 ;;
                --torch) torch=$2 ;;
                --llmc) llmc=$2 ;;
                --build) build=$2 ;;
                --only)
                    [[ -v commands[$2] ]] || die "there is no step $2; there are ${steps[*]}"
                    only+=("$2")
                    ;;
            esac
            shift
            ;;
        --again) again=yes ;;
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
[[ -n $out ]] || die "where shall the results go? bench/cpu_suite.sh OUT --name NAME"
[[ $name =~ ^[a-z0-9_]+$ ]] || die "--name is '$name'; expected small letters, digits and underscores"
if [[ -n $torch ]]; then "$torch" -c 'import torch' 2>/dev/null || die "$torch has no PyTorch"; fi
if [[ -n $llmc && ! -x $llmc ]]; then die "$llmc is no program"; fi
mkdir -p "$out" || die "cannot make $out"
out=$(cd "$out" && pwd)
build=${build:-$root/build}
logs=$build/bench/logs
if [[ $dry == no ]]; then mkdir -p "$logs" || die "cannot make $logs"; fi
((${#only[@]})) || only=("${steps[@]}")
failed=0

# run WHAT COMMAND...
run() {
    local what=$1 log=$logs/$1.log began=$SECONDS
    shift
    if [[ $dry == yes ]]; then
        printf '%-22s' "$what"
        printf ' %q' "$@"
        echo
        return 0
    fi
    printf '%5d s  %-22s ' "$SECONDS" "$what"
    if "$@" >"$log" 2>&1; then
        echo "ok, $((SECONDS - began)) s"
    else
        echo "FAILED: $(grep -v '^$' "$log" | tail -n 1 | cut -c1-160)"
        failed=1
        return 1
    fi
}

run configure cmake -S "$root" -B "$build" -DCMAKE_BUILD_TYPE=Release || exit 1
programs=$(for step in "${only[@]}"; do echo "${commands[$step]%% *}"; done | sort -u)
# shellcheck disable=SC2086
run build cmake --build "$build" --parallel "$(nproc 2>/dev/null || echo 2)" --target $programs || exit 1

for step in "${only[@]}"; do
    result=$out/${step}_$name.json
    if [[ -e $result && $again == no ]]; then
        printf '%5d s  %-22s there already\n' "$SECONDS" "$step"
        continue
    fi
    read -ra command <<<"${commands[$step]}"
    command[0]=$build/bench/${command[0]}
    command+=(--json "$result")
    if [[ -n $torch && $step != growth ]]; then command+=(--torch "$torch"); fi
    if [[ -n $llmc && $step == train_step ]]; then command+=(--llmc "$llmc"); fi
    run "$step" "${command[@]}"
done

results=()
for step in "${steps[@]}"; do
    if [[ $step != growth && (-e $out/${step}_$name.json || $dry == yes) ]]; then results+=("$out/${step}_$name.json"); fi
done
if ((${#results[@]})); then
    if [[ -n $torch ]]; then run plot "$root/bench/plot.py" "${results[@]}" --out "$out/cpu_$name.svg"; fi
    run targets "$root/bench/targets.py" "${results[@]}" --out "$out/targets_$name.md"
fi
if [[ -e $out/growth_$name.json ]]; then
    run growth_plot "$root/bench/growth_plot.py" "$out/growth_$name.json" -o "$out/growth_$name.svg"
fi
exit "$failed"

#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Compiles the CUDA code that the repository has without a GPU: no warning, no spilled register and no local memory in any kernel,
# and no more kernels than a program may have.
#
#     tests/cuda/compile.sh [--full] [--keep FOLDER] [FILE...]      the kernels that use registers to the last, and those with
#                                                                   instructions of their own, for sm_90; the other code is read;
#                                                                   --full: all of it, for sm_80, sm_90, sm_100 and sm_120
#
# --keep leaves the objects in FOLDER, for tests/cuda/gates.py and, with their PTX, for tests/ptx/run.sh.
#
# Without --full sm_90 gets its machine code from what the compiler made for sm_80, which is what tests/ptx runs: no source
# asks which of the two it is but that of eight-bit numbers, whose test is compiled for each. Reading is done by the front ends of
# both compilers: all that they say of C++, at a third of the time. The tests of the kernels that are read run on the emulated GPU, too.
#
# CUDACXX names the compiler, CXX the one behind it. Prints for each file its seconds of processor time, how many kernels it
# has, and the most registers that one of them uses.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
nvcc=${CUDACXX:-nvcc}
if ! command -v "$nvcc" >/dev/null 2>&1; then nvcc=/usr/local/cuda/bin/nvcc; fi
command -v "$nvcc" >/dev/null 2>&1 || { echo "skipped: there is no nvcc"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$root"

architectures=(80 90)
full=no
if [[ ${1:-} == --full ]]; then
    full=yes
    architectures+=(100 120)
    shift
fi
keep=
if [[ ${1:-} == --keep ]]; then
    mkdir -p "$2"
    keep=$(cd "$2" && pwd)
    shift 2
fi

# Each file with the most kernels that it may have on one architecture: what users wait for when they compile. With --full each is
# compiled by itself. Without, what is marked
#     read      is read, the files of one number as one;
#     again     is read by itself: other files here have its kernels, too, or like ones (attention_mods.cu, of attention.cu);
#     joined    is compiled to PTX, as one file, which tests/ptx runs;
#     consumer  is compiled by another test;
#     full      is left out: whole models and steps of kernels that the others test one by one, benchmarks, other examples.
# Always those marked `each` are compiled for every architecture from the source; those marked `bytes`, which multiply numbers of
# eight bits, for sm_89 beside these; those marked `hopper`, which is for its own instructions, for sm_90a alone, and without --full
# read. What takes longest comes first.
if (($#)); then
    printf '%s 100000 each\n' "$@" >"$work/files"
else
    cat >"$work/files" <<'FILES'
tests/cuda/model.cu 300 full
tests/cuda/steps.cu 330 again
tests/cuda/products.cu 120
tests/cuda/attention.cu 100 again
tests/cuda/attention_mods.cu 40 joined
tests/cuda/rotary.cu 30 joined
tests/cuda/cache_heads.cu 30 joined
tests/cuda/target_share.cu 20 joined
tests/cuda/images.cu 60 joined
tests/cuda/shapes.cu 60 joined
tests/cuda/updates.cu 60 joined
tests/cuda/adafactor.cu 30 joined
tests/cuda/eight_bit.cu 40 joined
tests/cuda/losses.cu 120 read1
tests/cuda/reductions.cu 150 read1
tests/cuda/conv2d.cu 80 read1
tests/cuda/rows.cu 200 read1
tests/cuda/pointwise.cu 220 read2
tests/cuda/choosing.cu 100 read2
tests/cuda/statistics.cu 60 read2
tests/cuda/trace.cu 10 read2
tests/cuda/ranks/nccl.cu 40 read2
tests/cuda/warpgroups.cu 70 hopper
tests/cuda/attention_backward_warpgroups.cu 20 hopper
tests/cuda/attention_warpgroups.cu 20 hopper
examples/train_gpt/amp_bf16.cu 160 again
examples/03_regression.cpp 40 again
bench/cuda/matmul.cu 40 full
bench/cuda/attention.cu 60 full
bench/cuda/rows.cu 60 full
examples/own_project/main.cu 20 consumer
examples/own_project/one_file.cu 20 full
examples/train_gpt/gpu.cu 10 full
examples/classify_images/gpu.cu 10 full
examples/classify_text/gpu.cu 10 full
tests/cuda/exec.cu 10
tests/cuda/float8.cu 20 each
FILES
    # Much the same once more: tests/cuda/model.cu has these policies, too, and the other lessons' kernels; train_gpt's steps
    # are captured as those are.
    if [[ $full == yes ]]; then
        printf 'examples/train_gpt/%s.cu 160\n' amp_fp16 full_fp32 more/tf32 >>"$work/files"
        echo "examples/train_gpt/more/fp8_hybrid.cu 210" >>"$work/files"
        printf 'examples/classify_%s.cu 200\n' images/amp_bf16 images/small_bf16 text/amp_bf16 text/small_bf16 >>"$work/files"
        printf 'examples/%s.cpp 170\n' 04_loss_scaling 05_own_model 06_gradient_penalty 07_sparse_embeddings >>"$work/files"
        printf '%s 20 bytes\n' bench/cuda/matmul_bytes.cu tests/cuda/bytes.cu >>"$work/files"
        printf '%s 150\n' bench/cuda/smoke.cu bench/cuda/step.cu tests/cuda/captured_step.cu tests/cuda/attention_tf32.cu >>"$work/files"
    fi
fi

flags=(-std=c++20 -DBENCH_CUBLASLT -DHALFTONE_TEST_CUBLASLT -Xptxas -v -Werror all-warnings -Xcompiler -Wall,-Wextra,-Werror -Iinclude -Itests)
export host=g++
if [[ ${CXX:-} == *g++* && ${CXX:-} != *clang* ]]; then host=$CXX flags+=(-ccbin "$CXX"); fi
code=("${architectures[@]/#/-gencode=arch=compute_}")
for i in "${!code[@]}"; do code[i]+=,code=sm_${architectures[i]}; done
all_code="-gencode=arch=compute_80,code=[sm_90]"
if [[ $full == yes ]]; then all_code=${code[*]}; fi
options=${flags[*]} each_code=${code[*]}
if [[ -n $keep ]]; then
    # PTX of the oldest, which the other code is made of.
    all_code=${all_code/sm_90]/sm_90,compute_80]} each_code=${each_code/code=sm_80/code=[sm_80,compute_80]}
    # -O1 is for host code, which says what is right; there g++ finds in CUB that `dispatch` may be uninitialized.
    options+=" -no-compress -O1 -Xcompiler -Wno-maybe-uninitialized"
fi
# one_of MARK NAME: makes one file of those with this mark, each in a namespace of its own behind the headers of all.
one_of() {
    local mark=$1 name=$2 file files
    mapfile -t files < <(awk -v mark="$mark" '$3 == mark { print $1 }' "$work/files")
    if ((${#files[@]} == 0)); then return; fi
    mkdir -p "$work/$(dirname "$name")"
    {
        # <...> before "...", and the device, with all kernels, before the tests' headers.
        sed -n '/^#include/p' "${files[@]}" | LC_ALL=C sort -ru | awk '
            /"/ && !told++ { print "#include \"cuda/device.cuh\"" }
            { print }'
        for file in "${files[@]}"; do printf 'namespace of_%s {\n#include "%s"\n}\n' "$(basename "$file" .cu)" "$root/$file"; done
    } >"$work/$name"
    awk -v mark="$mark" -v name="$name" '$3 != mark { print; next } !told++ { print name, 100000, mark }' "$work/files" >"$work/rest"
    mv "$work/rest" "$work/files"
}
if [[ $full == no ]]; then
    sed -i '/ consumer$/d; / full$/d' "$work/files"
    one_of joined tests/cuda/joined.cu
    for number in 1 2; do one_of read$number tests/cuda/read$number.cu; done
fi
export work nvcc options all_code each_code full

compile_one() {
    local file=$1 name=${1//\//_} code=$all_code what=(-c) result=o TIMEFORMAT=%U
    local reading=(-fdevice-syntax-only -cuda)
    case ${2:-}/$full in
        each/*) code=$each_code ;;
        bytes/*) code="$each_code -gencode=arch=compute_89,code=sm_89" ;;
        hopper/yes) code="-gencode=arch=compute_90a,code=[sm_90a,compute_90a]" ;;
        hopper/no) code="-gencode=arch=compute_90a,code=sm_90a" what=("${reading[@]}") result=ii ;;
        again/no | read?/no) what=("${reading[@]}") result=ii ;;
        joined/no) code="-gencode=arch=compute_80,code=compute_80" ;;
    esac
    if [[ ! -e $file ]]; then file=$work/$file; fi
    # shellcheck disable=SC2086  # several words each
    { time "$nvcc" -x cu $options $code "${what[@]}" "$file" -o "$work/$name.$result" >"$work/$name.log" 2>&1; } 2>"$work/$name.seconds" || touch "$work/$name.failed"
    # nvcc ends before the host's compiler reads what cudafe++ made of the source: it once lost the braces of `return {one value}`.
    if [[ $result == ii && ! -e $work/$name.failed ]]; then
        "$host" -std=c++20 -fsyntax-only -w -x c++ -fpreprocessed "$work/$name.ii" >"$work/$name.log" 2>&1 || touch "$work/$name.failed"
    fi
}
export -f compile_one
awk '{ print $1 (NF > 2 ? " " $3 : "") }' "$work/files" | xargs -P "$(nproc)" -L 1 bash -c 'compile_one "$@"' _

status=0
while read -r file cap _; do
    name=${file//\//_}
    if [[ -e $work/$name.failed ]]; then
        echo "$file does not compile:"
        grep -v '^ptxas info' "$work/$name.log" | head -n 60
        status=1
        continue
    fi
    printf '%s: %s s' "$file" "$(cat "$work/$name.seconds")"
    if [[ ! -e $work/$name.o ]]; then
        echo ", read and not compiled"
        continue
    fi
    awk -v cap="$cap" '
        / Compiling entry function / { split($0, part, "\x27"); kernel = part[2]; architecture = part[4]; count[architecture]++ }
        / bytes stack frame, / {
            # What one thread does once a step may hold the arguments of a cosine in memory.
            if (kernel ~ /function_entry/) $1 = 0
            # The plain form of attention is for shapes that no fast kernel takes: a word or two may spill.
            if (kernel ~ /plain_attention|modified_attention/ && $1 <= 16 && $5 <= 16) $1 = $5 = $9 = 0
            # The gradients of attention by keys, heads of 128: sums and products take 208 of 240 registers, and what the loop
            # over tiles needs rarely is in memory.
            if (kernel ~ /warpgroup_attention_backward.*ELi128E.*attention_sideE1/ && $1 <= 96 && $5 <= 96 && $9 <= 128) $1 = $5 = $9 = 0
            # Attention by three warpgroups: 160 registers a thread, nearly all of them sums and products.
            if (kernel ~ /warpgroup_attention_kernel.*tilingILi64ELi3E/ && $1 <= 48 && $5 <= 96 && $9 <= 120) $1 = $5 = $9 = 0
            # And what CUB and Thrust do is their own business.
            if (kernel ~ /^_ZN(3cub|6thrust)/) $1 = $5 = $9 = 0
            if ($1 + $5 + $9 != 0) bad[kernel " on " architecture] = $0
        }
        / Used [0-9]+ registers/ { for (i = 1; i < NF; i++) if ($i == "Used" && $(i + 1) + 0 > most) { most = $(i + 1) + 0; widest = kernel } }
        END {
            for (a in count) if (count[a] > kernels) kernels = count[a]
            printf ", %d kernels, at most %d registers\n", kernels, most
            if (kernels > cap) { printf "  more kernels than the %d allowed\n", cap; failed = 1 }
            for (b in bad) { print "  " b ": " bad[b]; failed = 1 }
            exit failed
        }' "$work/$name.log" >"$work/$name.report" || status=1
    if command -v c++filt >/dev/null 2>&1; then c++filt <"$work/$name.report"; else cat "$work/$name.report"; fi
done <"$work/files"
if [[ -n $keep ]]; then rm -f "$keep"/tests_cuda_*.o && cp "$work"/tests_cuda_*.o "$keep"; fi
if ((status == 0)); then
    bash tests/headers/statics.sh "$work"/*.o || { (($? == 77)) || status=1; }
fi
exit "$status"

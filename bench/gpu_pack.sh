#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Builds test_cuda, bench_cuda and train_gpt for a machine with a GPU, and packs them with train_gpt's text.
# bench/gpu_suite.sh --binaries FOLDER runs the pack there; that machine needs no compiler.
#
#     bench/gpu_pack.sh FOLDER [--build FOLDER] [--architectures LIST] [--most MB]
#
#     FOLDER                the folder of the pack: each program stripped and compressed, text.gz, manifest.json
#     --build FOLDER        the build folder, which is kept; by default a temporary folder
#     --architectures LIST  CUDA architectures as CMake writes them; by default 90a-real, Hopper with its warpgroup instructions
#     --most MB             the largest size of the pack, 40 by default
#
# manifest.json contains commit, compilers, flags, sizes and SHA-256. Needs nvcc (CUDACXX names it), CMake, ninja or make, and
# cuBLASLt's headers. It compiles for about 20 minutes of processor time.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

die() {
    echo "gpu_pack.sh: $*" >&2
    exit 2
}

folder='' build='' architectures='' most=40
while (($#)); do
    case $1 in
        --build | --architectures | --most)
            (($# > 1)) || die "$1 needs a value"
            case $1 in --build) build=$2 ;; --architectures) architectures=$2 ;; --most) most=$2 ;; esac
            shift
            ;;
        --help | -h)
            sed -n '3,/^set/p' "${BASH_SOURCE[0]}" | sed '$d; s/^# \{0,1\}//'
            exit 0
            ;;
        -*) die "unknown argument $1; --help tells what there is" ;;
        *)
            [[ -z $folder ]] || die "one folder for the pack, got $folder and $1"
            folder=$1
            ;;
    esac
    shift
done
[[ -n $folder ]] || die "where shall the pack go? bench/gpu_pack.sh FOLDER"
[[ $most =~ ^[0-9]+$ && $most -gt 0 ]] || die "--most is $most; expected a whole number of megabytes"
nvcc=${CUDACXX:-nvcc}
command -v "$nvcc" >/dev/null 2>&1 || nvcc=/usr/local/cuda/bin/nvcc
nvcc=$(command -v "$nvcc") || die "there is no nvcc; CUDACXX names it"
cmake=${CMAKE:-cmake}
command -v "$cmake" >/dev/null 2>&1 || die "there is no CMake"
command -v python3 >/dev/null 2>&1 || die "there is no python3"

mkdir -p "$folder" || die "cannot make $folder"
if [[ -z $build ]]; then
    build=$(mktemp -d)
    trap 'rm -rf "$build"' EXIT
fi
mkdir -p "$build" || die "cannot make $build"
architectures=${architectures:-90a-real}

# The C++ library goes along, since that of another machine may be older; the CUDA libraries are found there.
configure=("$cmake" -S "$root" -B "$build" -DHALFTONE_BUILD_CUDA=ON -DHALFTONE_BUILD_EMULATOR=OFF -DCMAKE_BUILD_TYPE=Release
    -DCMAKE_CUDA_COMPILER="$nvcc" -DCMAKE_CUDA_ARCHITECTURES="$architectures"
    -DCMAKE_EXE_LINKER_FLAGS='-static-libstdc++ -static-libgcc')
if command -v ninja >/dev/null 2>&1; then configure+=(-G Ninja); fi
"${configure[@]}" >"$build/configure.log" 2>&1 || {
    tail -n 20 "$build/configure.log"
    die "CMake refuses, see above"
}
"$cmake" --build "$build" --parallel "${JOBS:-$(nproc)}" --target test_cuda bench_cuda train_gpt
python3 "$root/bench/gpu/pack.py" "$folder" --build "$build" --root "$root" --most "$most"

#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Compiles CUDA code with the oldest toolkit that halftone supports, 12.4, as compile.sh does with the current one. With an older one,
# 11.8, the headers and the build must stop with an error message.
#
#     tests/cuda/old_toolkit.sh [--folder FOLDER] [FILE...]      without files those that hold most kernels
#
# The toolkits are assembled in FOLDER, build/toolkits by default, and kept there. Headers come from PyPI's wheels; nvcc,
# which these lack before CUDA 13, from the packages of Debian 13 and 12. Nothing is installed. Needs Python's pip, an apt that
# knows a Debian archive, the network for the first time, and g++ 12 or 13.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
# shellcheck source=../debian.sh
source "$here/../debian.sh"

skip() {
    echo "skipped: $*"
    exit 77
}

folder=$root/build/toolkits
if [[ ${1:-} == --folder ]]; then
    folder=$2
    shift 2
fi
files=("$@")
if ((!$#)); then
    files=(bench/cuda/matmul.cu examples/own_project/main.cu examples/train_gpt/gpu.cu tests/cuda/exec.cu tests/cuda/model.cu tests/cuda/pointwise.cu tests/cuda/statistics.cu)
fi

# CUDA 12.4 takes g++ 13 at most.
compiler=
for candidate in "${CXX:-g++}" g++ g++-13 g++-12; do
    version=$("$candidate" -dumpversion 2>/dev/null) || continue
    if [[ $candidate == *g++* && $candidate != *clang* ]] && ((${version%%.*} == 12 || ${version%%.*} == 13)); then
        compiler=$candidate
        break
    fi
done
[[ -n $compiler ]] || skip "CUDA 12.4 takes neither ${CXX:-g++} nor what else is here; it wants g++ 12 or 13"
[[ $(uname -m) == x86_64 ]] || skip "this gets toolkits for x86-64"
command -v apt-get >/dev/null 2>&1 && debian_archive >/dev/null || skip "apt knows of no Debian archive here"
python3 -m pip --version >/dev/null 2>&1 || skip "there is no pip"

# wheels INTO REQUIREMENT...: all headers in these wheels.
wheels() {
    local into=$1 work
    shift
    work=$(mktemp -d)
    python3 -m pip download -q --disable-pip-version-check --no-deps --dest "$work" "$@" && python3 - "$work" "$into" <<'PYTHON'
import os, sys, zipfile

for wheel in os.listdir(sys.argv[1]):
    with zipfile.ZipFile(os.path.join(sys.argv[1], wheel)) as files:
        for name in files.namelist():
            if "/include/" in name and not name.endswith("/"):
                path = os.path.join(sys.argv[2], name.split("/include/", 1)[1])
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "wb") as out:
                    out.write(files.read(name))
PYTHON
    local status=$?
    rm -rf "$work"
    return "$status"
}

# toolkit FOLDER SUITE REQUIREMENT...: a folder like an installed toolkit's, as far as compiling goes.
toolkit() {
    local to=$1 suite=$2 from
    shift 2
    if [[ -e $to/bin/nvcc.profile ]]; then return; fi
    rm -rf "$to"
    mkdir -p "$to/bin" "$to/nvvm/bin" "$to/include"
    from=$(mktemp -d)
    wheels "$to/include" "$@" && debian_package "$suite" non-free nvidia-cuda-toolkit "$from" &&
        mv "$from"/usr/bin/{bin2c,cudafe++,fatbinary,nvlink,ptxas} "$from/usr/lib/nvidia-cuda-toolkit/bin/nvcc" "$to/bin/" &&
        mv "$from/usr/lib/nvidia-cuda-toolkit/bin/cicc" "$to/nvvm/bin/" && mv "$from/usr/lib/nvidia-cuda-toolkit/libdevice" "$to/nvvm/" ||
        { rm -rf "$from"; return 1; }
    rm -rf "$from"
    cat >"$to/bin/nvcc.profile" <<'PROFILE'
TOP              = $(_HERE_)/..
NVVMIR_LIBRARY_DIR = $(TOP)/nvvm/libdevice
PATH            += $(TOP)/nvvm/bin:$(_HERE_):
INCLUDES        += "-I$(TOP)/include" $(_SPACE_)
PROFILE
}

new=$folder/cuda-12.4 old=$folder/cuda-11.8
echo "Getting the toolkits, where they are not there yet: $folder"
toolkit "$new" trixie nvidia-{cuda-nvcc,cuda-runtime,cuda-cccl,cublas}-cu12'==12.4.*' || skip "CUDA 12.4 is not to be had"
toolkit "$old" bookworm nvidia-{cuda-nvcc,cuda-runtime}-cu11'==11.8.*' || skip "CUDA 11.8 is not to be had"

status=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
refused() {
    local sentence=$1
    shift
    if "$@" >"$work/log" 2>&1; then
        echo "goes through: $*"
        status=1
    elif ! tr -s ' \n' ' ' <"$work/log" | grep -F "$sentence" >/dev/null; then
        echo "does not say '$sentence': $*"
        cat "$work/log"
        status=1
    fi
}
refused "halftone: needs CUDA 12.4 or newer" "$old/bin/nvcc" -ccbin "$compiler" -allow-unsupported-compiler -I"$root/include" -c \
    "$root/examples/own_project/one_file.cu" -o "$work/one_file.o"
refused "is of CUDA 11.8; needs 12.4 or newer" "${CMAKE:-cmake}" -S "$root" -B "$work/build" -DCMAKE_CXX_COMPILER="$compiler" \
    -DCMAKE_CUDA_COMPILER="$old/bin/nvcc" -DHALFTONE_BUILD_CUDA=ON

CUDACXX=$new/bin/nvcc CXX=$compiler bash "$here/compile.sh" "${files[@]}" || status=1
exit "$status"

#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
set -euo pipefail
# shellcheck source=../examples/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/../examples/setup.sh"

help() {
    cat <<'TEXT'
tests/run.sh [--yes] [--more | --full] [--build FOLDER] [-DNAME=VALUE...] [-- CTEST-ARGUMENT...]

Installs the packages that the tests need (after listing them), builds the tests in Release with all cores, and runs them.

    --yes            install without asking; without a terminal it never asks
    --more           also run further tests, which take a third as long again: each public header alone, training steps on the emulated
                     GPU, and, if there is nvcc, the CUDA code: all of it read by nvcc's front ends, that of the tests with
                     instructions of its own compiled, and run from PTX
    --full           --more, and the long tests: every header alone, whole models, lessons and second derivatives on the emulated
                     GPU, all CUDA code compiled for each architecture and run from PTX, its machine code, a CPU without AVX and
                     aarch64 under emulation, Windows under Wine, and CUDA 12.4
    --build FOLDER   the build folder, build/tests by default
    -DNAME=VALUE     passed to cmake, as -DCMAKE_CXX_COMPILER=clang++ or -DHALFTONE_WERROR=ON
    -- ...           passed to ctest, as -R matmul or -L kernel
    --help           this text

Ends with ctest's exit code.
TEXT
}

extent=some
build=$root/build/tests
definitions=()
while (($#)); do
    case $1 in
        --yes) assume_yes=yes ;;
        --more) extent=more ;;
        --full) extent=full ;;
        --build)
            (($# > 1)) || die "--build needs a folder"
            build=$2
            shift
            ;;
        -D?*) definitions+=("$1") ;;
        --help | -h)
            help
            exit 0
            ;;
        --)
            shift
            break
            ;;
        *) die "unknown argument $1; --help tells what there is, and what comes after -- goes to ctest" ;;
    esac
    shift
done

need_compiler
need cmake cmake
need ninja ninja-build
need pkg-config pkg-config
need_header doctest/doctest.h doctest-dev
need_header CLI/CLI.hpp libcli11-dev
need_header nlohmann/json.hpp nlohmann-json3-dev
need_header boost/context/fiber.hpp libboost-context-dev
need_header zlib.h zlib1g-dev
wish ctags universal-ctags
wish strace strace
selection=()
quick=(-DHALFTONE_LESSONS_TOGETHER=ON -DHALFTONE_TRAIN_GPT_QUICK=ON -DHALFTONE_OWN_MODELS=OFF
    -DHALFTONE_CLASSIFIERS=OFF)
more=(-DHALFTONE_MORE_TESTS=OFF -DHALFTONE_FULL_TESTS=OFF "${quick[@]}")
if [[ $extent != some ]]; then
    selection=(-C More)
    wish mpicxx libopenmpi-dev
    wish mpirun openmpi-bin
    more=(-DHALFTONE_MORE_TESTS=ON -DHALFTONE_FULL_TESTS=OFF "${quick[@]}")
fi
if [[ $extent == full ]]; then
    selection=(-C Full)
    more=(-DHALFTONE_MORE_TESTS=ON -DHALFTONE_FULL_TESTS=ON -DHALFTONE_LESSONS_TOGETHER=OFF
        -DHALFTONE_TRAIN_GPT_MORE=ON -DHALFTONE_TRAIN_GPT_QUICK=OFF -DHALFTONE_OWN_MODELS=ON -DHALFTONE_CLASSIFIERS=ON)
    wish clang++ clang
    wish pip3 python3-pip
    wish valgrind valgrind
    if [[ $(uname -m) == x86_64 ]]; then
        wish qemu-x86_64 qemu-user
        wish aarch64-linux-gnu-g++ g++-aarch64-linux-gnu
        wish x86_64-w64-mingw32-g++-posix g++-mingw-w64-x86-64-posix
        if [[ ! -x /usr/lib/wine/wine64 ]]; then wish wine64 wine64; fi
    fi
fi
install_packages
# train_gpt knows MPI then, for program.mpi_training.
if [[ $extent != some ]] && command -v mpicxx >/dev/null; then more+=(-DHALFTONE_MPI=ON); fi

# What takes machine code apart for cuda.gates, which is skipped without it: toolkits often come without.
if [[ $extent != some && -z ${CUOBJDUMP:-} ]] && command -v nvcc /usr/local/cuda/bin/nvcc >/dev/null; then
    tools=$build/machine_code_tools
    if ! command -v cuobjdump /usr/local/cuda/bin/cuobjdump >/dev/null && [[ ! -d $tools ]]; then
        echo "run.sh: brings cuobjdump and nvdisasm from PyPI to $tools"
        python3 -m pip install -q --disable-pip-version-check --no-deps --target "$tools" \
            nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm || echo "run.sh: they do not come; cuda.gates will be skipped" >&2
    fi
    for tool in "$tools"/nvidia/*/bin/{cuobjdump,nvdisasm}; do
        if [[ -x $tool ]]; then export "$(basename "$tool" | tr '[:lower:]' '[:upper:]')=$tool"; fi
    done
fi

configure "$build" -DHALFTONE_BUILD_TESTS=ON -DHALFTONE_COMPILED=ON -DHALFTONE_TEST_PCH=ON "${more[@]}" "${definitions[@]}"
cmake --build "$build" --parallel "$(job_count)"
exec ctest --test-dir "$build" --output-on-failure --no-tests=error --parallel "$(job_count)" "${selection[@]}" "$@"

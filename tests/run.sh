#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
set -euo pipefail
# shellcheck source=../examples/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/../examples/setup.sh"

help() {
    cat <<'TEXT'
tests/run.sh [--yes] [--more | --full [--slice K/N]] [--build FOLDER] [-DNAME=VALUE...] [-- CTEST-ARGUMENT...]

Installs the packages that the tests need (after listing them), builds the tests in Release with all cores, and runs them.

    --yes            install without asking; without a terminal it never asks
    --more           also run further tests, which take a third as long again: each public header alone, training steps on the emulated
                     GPU, and, if there is nvcc, the CUDA code: all of it read by nvcc's front ends, that of the tests with
                     instructions of its own compiled, and run from PTX
    --full           --more, and the long tests: every header alone, whole models, lessons and second derivatives on the emulated
                     GPU, all CUDA code compiled for each architecture and run from PTX, its machine code, a CPU without AVX and
                     aarch64 under emulation, Windows under Wine, libc++, zig c++, CUDA 12.4, and the newest nvcc
                     of PyPI
    --slice K/N      of --full the K-th of N parts that take about as long as each other by tests/full_seconds.tsv, and the build of
                     what that part needs alone; with N of 20 each takes about 20 minutes on 2 cores
    --build FOLDER   the build folder, build/tests by default
    -DNAME=VALUE     passed to cmake, as -DCMAKE_CXX_COMPILER=clang++ or -DHALFTONE_WERROR=ON
    -- ...           passed to ctest, as -R matmul or -L kernel
    --help           this text

The last line tells how many tests passed and failed, and what was not checked because something is missing here, as a package or an
instruction of the processor. Ends with ctest's exit code. The readers of metrics that --more and --full need are brought from PyPI
into BUILD/readers.
TEXT
}

extent=some
slice=
build=$root/build/tests
definitions=()
while (($#)); do
    case $1 in
        --yes) assume_yes=yes ;;
        --more) extent=more ;;
        --full) extent=full ;;
        --slice)
            (($# > 1)) || die "--slice needs K/N"
            slice=$2
            shift
            ;;
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
if [[ -n $slice ]]; then
    [[ $extent == full ]] || die "--slice divides --full; give that, too"
    [[ $slice =~ ^([1-9][0-9]{0,3})/([1-9][0-9]{0,3})$ ]] && ((BASH_REMATCH[1] <= BASH_REMATCH[2])) ||
        die "--slice is '$slice'; expected K/N with K of 1 to N, as 2/8"
    for argument in "$@"; do
        [[ ! $argument =~ ^(-R|--tests-regex|-I|--tests-information) ]] || die "--slice chooses the tests; leave out $argument"
    done
fi

# ctest takes a relative path of its results from the build folder.
if [[ $build != /* ]]; then build=$PWD/$build; fi

need_compiler
need cmake cmake
need ninja ninja-build
need pkg-config pkg-config
need_header doctest/doctest.h doctest-dev
need_header CLI/CLI.hpp libcli11-dev
need_header nlohmann/json.hpp nlohmann-json3-dev
need_header boost/context/fiber.hpp libboost-context-dev
need_header zlib.h zlib1g-dev
need python3 python3
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
    wish pip3 python3-pip
    more=(-DHALFTONE_MORE_TESTS=ON -DHALFTONE_FULL_TESTS=OFF "${quick[@]}")
fi
if [[ $extent == full ]]; then
    selection=(-C Full)
    more=(-DHALFTONE_MORE_TESTS=ON -DHALFTONE_FULL_TESTS=ON -DHALFTONE_LESSONS_TOGETHER=OFF
        -DHALFTONE_TRAIN_GPT_MORE=ON -DHALFTONE_TRAIN_GPT_QUICK=OFF -DHALFTONE_OWN_MODELS=ON -DHALFTONE_CLASSIFIERS=ON)
    wish clang++ clang
    wish clang++-19 clang-19
    if [[ ! -e /usr/lib/llvm-19/include/c++/v1/version ]]; then wished+=(libc++-19-dev); fi
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

# The programs of others that readers.NAME run come while everything is built; pages are looked at where there is a browser.
bringing=
if [[ $extent != some ]]; then
    others=()
    if [[ $extent == full ]]; then
        others=(ziglang==0.17.0)  # 0.17.1 links what the others do not
        if command -v chromium chromium-browser >/dev/null; then others+=(playwright); fi
    fi
    mkdir -p "$build"
    bash "$root/tests/programs/bring_readers.sh" "$build/readers" "${others[@]}" >"$build/readers.log" 2>&1 &
    bringing=$!
    trap 'kill "$bringing" 2>/dev/null || true' EXIT
fi

# has_memory GIGABYTES: each compiler may have so much.
has_memory() { awk -v jobs="$(job_count)" -v most="$1" '/^MemTotal:/ { enough = $2 >= most * 1e6 * jobs } END { exit !enough }' /proc/meminfo 2>/dev/null; }
if has_memory 4; then more+=(-DHALFTONE_COMPILER_MEMORY=ON); fi
# Many processors would wait for the largest sources.
if [[ $extent != full ]] && has_memory 8 && (($(job_count) <= 8)); then more+=(-DHALFTONE_TESTS_AT_A_TIME=16); fi
configure "$build" -DHALFTONE_BUILD_TESTS=ON -DHALFTONE_COMPILED=ON -DHALFTONE_TEST_PCH=ON "${more[@]}" "${definitions[@]}"
targets=()
if [[ -n $slice ]]; then
    plan=$(python3 "$root/tests/slices.py" "$build" "$slice" --jobs "$(job_count)")
    { read -r names && read -ra targets; } <<<"$plan" || true  # there may be no targets
    [[ -n $names ]] || exit 0  # there are fewer groups of tests than slices
    selection+=(-R "$names")
fi
if [[ -z $slice || ${#targets[@]} -gt 0 ]]; then
    cmake --build "$build" --parallel "$(job_count)" ${targets:+--target "${targets[@]}"}
fi
if [[ -n $bringing ]] && ! wait "$bringing"; then
    echo "run.sh: not all programs that read metrics came from PyPI, see $build/readers.log; what they read is not checked" >&2
fi

results=$build/Testing/results.xml
rm -f "$results"
status=0
ctest --test-dir "$build" --output-on-failure --no-tests=error --parallel "$(job_count)" --output-junit "$results" \
    --test-output-size-passed 1000000 "${selection[@]}" "$@" || status=$?
if [[ -e $results ]]; then python3 "$root/tests/summary.py" "$results" || echo "run.sh: cannot read $results" >&2; fi
exit "$status"

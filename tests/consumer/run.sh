#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Builds and runs a small project that uses halftone in one of the possible ways.
#
#     tests/consumer/run.sh package|subdirectory|fetch|pkgconfig|two_libraries|own_project|two_cuda_libraries
#     tests/consumer/run.sh compiled FOLDER      FOLDER: a build of halftone with -DHALFTONE_COMPILED=ON, which is installed
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
cxx=${CXX:-c++}
cmake=${CMAKE:-cmake}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

generator=()
if command -v ninja >/dev/null 2>&1; then generator=(-G Ninja); fi

configure() { "$cmake" "${generator[@]}" -DCMAKE_CXX_COMPILER="$cxx" "$@" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }; }

# Installs into a folder that is then moved: an installed tree must not remember where it was made.
install_into() {
    configure -S "$root" -B "$work/halftone" -DHALFTONE_BUILD_TESTS=OFF -DHALFTONE_BUILD_EXAMPLES=OFF \
        -DHALFTONE_BUILD_BENCH=OFF -DCMAKE_INSTALL_PREFIX="$work/first"
    "$cmake" --build "$work/halftone" >/dev/null
    "$cmake" --install "$work/halftone" >/dev/null
    mv "$work/first" "$1"
}

build_consumer() {
    configure -S "$here" -B "$work/build" "$@"
    "$cmake" --build "$work/build"
    for program in "$work"/build/consumer*; do
        if [[ -f $program && -x $program ]]; then "$program"; fi
    done
}

# The last two need nvcc; a program of theirs that finds no GPU ends with 3.
need_nvcc() {
    nvcc=${CUDACXX:-nvcc}
    if ! command -v "$nvcc" >/dev/null 2>&1; then nvcc=/usr/local/cuda/bin/nvcc; fi
    command -v "$nvcc" >/dev/null 2>&1 || { echo "skipped: there is no nvcc"; exit 77; }
    host=()
    if [[ $cxx == *g++* && $cxx != *clang* ]]; then host=(-ccbin "$cxx"); fi
    architecture=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1 | tr -cd 0-9) || true
    architecture=${architecture:-90}
}

case ${1:-} in
    package)
        install_into "$work/prefix"
        build_consumer -DHALFTONE_BY=package -DCMAKE_PREFIX_PATH="$work/prefix"
        # A version that does not suit is refused.
        if "$cmake" -S "$here" -B "$work/refused" -DCMAKE_PREFIX_PATH="$work/prefix" -DCMAKE_CXX_COMPILER="$cxx" \
            -DHALFTONE_WANTED=99.0 >"$work/log" 2>&1; then
            echo "find_package(halftone 99.0) was content with what is installed"
            exit 1
        fi
        ;;
    subdirectory | fetch)
        build_consumer -DHALFTONE_BY="$1" -DHALFTONE_SOURCE="$root"
        ;;
    compiled)
        "$cmake" --install "$2" --prefix "$work/first" >/dev/null
        mv "$work/first" "$work/prefix"
        build_consumer -DHALFTONE_BY=package -DHALFTONE_WITH_COMPILED=ON -DCMAKE_PREFIX_PATH="$work/prefix"
        # What the library has is not compiled again.
        object=$work/build/CMakeFiles/consumer_compiled.dir/compiled.cpp.o
        if nm -C "$object" | grep -E ' [TW] .*(avx512::(softmax|layer_norm|adamw)|::nn::stack<.*>::operator\(\)|::thread_pool::)'; then
            echo "compiled again although halftone::compiled has it"
            exit 1
        fi
        # A source without HALFTONE_COMPILED may have the same functions; Windows links both where none is a strong definition.
        if nm -C "$(find "$work/prefix" -name 'libhalftone_compiled.a')" | grep -E ' [TDB] .*halftone::'; then
            echo "the library's functions are not inline: a source without HALFTONE_COMPILED does not link beside it on Windows"
            exit 1
        fi
        # Headers of another version do not find it, and none that compute otherwise.
        cp -r "$work/prefix/include" "$work/other"
        sed -i 's/\(HALFTONE_VERSION_PATCH\) .*/\1 99/' "$work/other/halftone/version.hpp"
        sed -i 's/\(HALFTONE_JOIN(v[0-9]*_[0-9]*\)_[0-9]*/\1_99/' "$work/other/halftone/config.hpp"
        if "$cxx" -std=c++20 -DHALFTONE_COMPILED -I"$work/other" "$here/compiled.cpp" \
            "$(find "$work/prefix" -name 'libhalftone_compiled.a')" -pthread -o "$work/other_version" 2>"$work/log"; then
            echo "a program of another version is linked with halftone::compiled"
            exit 1
        fi
        grep -q 'undefined reference to .halftone::' "$work/log" || { cat "$work/log"; exit 1; }
        printf '#include <halftone/config.hpp>\n#if defined(HALFTONE_COMPILED)\n#error\n#endif\n' |
            "$cxx" -std=c++20 -ffast-math -DHALFTONE_COMPILED -I"$work/prefix/include" -fsyntax-only -x c++ -
        ;;
    pkgconfig)
        command -v pkg-config >/dev/null 2>&1 || { echo "skipped: there is no pkg-config"; exit 77; }
        install_into "$work/prefix"
        export PKG_CONFIG_PATH=$work/prefix/share/pkgconfig
        pkg-config --print-errors --exact-version="$(pkg-config --modversion halftone)" halftone
        # shellcheck disable=SC2046  # flags are words
        "$cxx" -std=c++20 -O2 "$here/main.cpp" -o "$work/consumer" $(pkg-config --cflags --libs halftone)
        "$work/consumer"
        ;;
    two_libraries)
        cd "$here/two_libraries"
        flags=(-std=c++20 -fPIC -shared -pthread "-I$root/include")
        "$cxx" "${flags[@]}" -O0 -DLIBRARY=plain library.cpp -o "$work/libplain.so"
        "$cxx" "${flags[@]}" -O1 -ffast-math -DLIBRARY=fast library.cpp -o "$work/libfast.so"
        # Linked in either order: of symbols with one name, those of the first library would win.
        "$cxx" -std=c++20 -O2 -Wall -Wextra main.cpp -o "$work/plain_first" -L"$work" -lplain -lfast -Wl,-rpath,"$work" -pthread
        "$cxx" -std=c++20 -O2 main.cpp -o "$work/fast_first" -L"$work" -lfast -lplain -Wl,-rpath,"$work" -pthread
        "$work/plain_first"
        "$work/fast_first"
        ;;
    own_project)
        need_nvcc
        cuda=(-DCMAKE_CUDA_COMPILER="$nvcc" -DCMAKE_CUDA_ARCHITECTURES="$architecture")
        if ((${#host[@]})); then cuda+=(-DCMAKE_CUDA_HOST_COMPILER="$cxx"); fi
        install_into "$work/prefix"
        # A project that lies elsewhere, and so can have halftone only from where it is installed.
        cp -r "$root/examples/own_project" "$work/project"
        configure -S "$work/project" -B "$work/build" "${cuda[@]}" -DCMAKE_PREFIX_PATH="$work/prefix"
        "$cmake" --build "$work/build"
        code=0
        "$work/build/own_project" || code=$?
        if nvidia-smi -L 2>/dev/null | grep GPU >/dev/null; then ((code == 0)); else ((code == 3)); fi
        # In its own place it takes halftone from beside it.
        configure -S "$root/examples/own_project" -B "$work/beside" "${cuda[@]}"
        ;;
    two_cuda_libraries)
        need_nvcc
        cd "$here/two_cuda_libraries"
        flags=("${host[@]}" -std=c++20 -shared -Xcompiler -fPIC "-I$root/include")
        "$nvcc" "${flags[@]}" -arch=sm_80 -DLIBRARY=one library.cu -o "$work/libone.so"
        # As compilers before CUDA 13 do it, which leave the entries of kernels as visible as any template.
        if "$nvcc" --help | grep device-entity-has-hidden-visibility >/dev/null; then
            flags+=(-static-global-template-stub=false -device-entity-has-hidden-visibility=false)
        fi
        "$nvcc" "${flags[@]}" -arch="sm_$architecture" -fmad=false -DLIBRARY=two library.cu -o "$work/libtwo.so"
        for library in one two; do
            # Ours, and CUB's.
            if nm -D --defined-only "$work/lib$library.so" | grep -E 'kernel_entry|^[0-9a-f]+ . [^ ]*RadixSort[A-Za-z]*Kernel'; then
                echo "lib$library.so shows its kernels to other libraries"
                exit 1
            fi
        done
        "$cxx" -std=c++20 main.cpp -o "$work/one_first" -L"$work" -lone -ltwo -Wl,-rpath,"$work"
        "$cxx" -std=c++20 main.cpp -o "$work/two_first" -L"$work" -ltwo -lone -Wl,-rpath,"$work"
        "$work/one_first"
        "$work/two_first"
        ;;
    *)
        echo "consumer/run.sh: expected package, compiled, subdirectory, fetch, pkgconfig, two_libraries, own_project or" \
            "two_cuda_libraries, got '${1:-}'" >&2
        exit 2
        ;;
esac

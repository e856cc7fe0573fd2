#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Builds and runs a small project that uses halftone in one of the ways a project can.
#
#     tests/consumer/run.sh package|subdirectory|fetch|pkgconfig|two_libraries
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
        "$cxx" "${flags[@]}" -O2 -DLIBRARY=plain library.cpp -o "$work/libplain.so"
        "$cxx" "${flags[@]}" -O3 -ffast-math -DLIBRARY=fast library.cpp -o "$work/libfast.so"
        # Linked in either order: of symbols with one name, those of the first library would win.
        "$cxx" -std=c++20 -O2 -Wall -Wextra main.cpp -o "$work/plain_first" -L"$work" -lplain -lfast -Wl,-rpath,"$work" -pthread
        "$cxx" -std=c++20 -O2 main.cpp -o "$work/fast_first" -L"$work" -lfast -lplain -Wl,-rpath,"$work" -pthread
        "$work/plain_first"
        "$work/fast_first"
        ;;
    *)
        echo "consumer/run.sh: expected package, subdirectory, fetch, pkgconfig or two_libraries, got '${1:-}'" >&2
        exit 2
        ;;
esac

#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# A program built with just `g++ -std=c++20 -O2 -Iinclude` uses the fastest instruction set of this machine and all cores, and its
# innermost kernels have as many multiply-adds as in a build for this machine only (-march=native).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
cxx=${CXX:-g++}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

for tool in "$cxx" objdump c++filt; do
    command -v "$tool" >/dev/null || { echo "skipped: no $tool"; exit 77; }
done

"$cxx" -std=c++20 -O2 -Iinclude tests/portable/plain.cpp -o "$folder/plain"
said=$(env -u HALFTONE_ISA "$folder/plain")
echo "$said"
set_in_use=$(sed -E 's/^cpu, ([a-z0-9_]+), .*/\1/' <<<"$said")
threads=$(sed -E 's/.*, ([0-9]+) threads?$/\1/' <<<"$said")
cores=$(nproc)
if [ "$threads" != "$cores" ]; then
    echo "failed: $threads threads on $cores cores"
    exit 1
fi

case $set_in_use in
    portable) echo "skipped: no vector instructions to compare on this processor"; exit 77 ;;
    avx2) kernels=(avx2::fma_small_tile) ;;
    avx512) kernels=(avx512::fma_rows_of) ;;
    avx512_bf16) kernels=(avx512::fma_rows_of avx512_bf16::pair_rows) ;;
    amx) kernels=(avx512::fma_rows_of amx::tile_multiply amx::tile_multiply_pieces) ;;
    *) echo "failed: cannot read the instruction set in '$said'"; exit 1 ;;
esac

# clang schedules for the processor that it names, whatever -mtune says: the order would differ, and says nothing.
if "$cxx" --version | grep clang >/dev/null; then exit 0; fi

# The multiply-adds of one function, by name and width of the result. Their order, and the instructions for loads, loops and
# pointers, follow from the processor that the compiler schedules for.
instructions() {
    objdump -dC --no-show-raw-insn --no-addresses "$1" |
        awk -v name="::$2[<(]" '$0 ~ name && />:$/ { inside = 1 } /^$/ { inside = 0 } inside' |
        grep -E '^\s*(vfmadd|vfnmadd|vdpbf16|vmul|vadd|tdp)' | sed -E 's/(132|213|231)//; s/\s.*%([a-z]+)[0-9]*$/ \1/' |
        sort || true
}

"$cxx" -std=c++20 -O2 -march=native -Iinclude -c tests/portable/plain.cpp -o "$folder/native.o"
for kernel in "${kernels[@]}"; do
    instructions "$folder/plain" "$kernel" >"$folder/plain.s"
    instructions "$folder/native.o" "$kernel" >"$folder/native.s"
    # AMX multiplies four tiles of 16 x 16 at a time; vectors take at least 20.
    least=$([[ $kernel == amx::* ]] && echo 4 || echo 20)
    if [ "$(wc -l <"$folder/plain.s")" -lt "$least" ]; then
        echo "failed: $kernel holds no multiply-adds: it is missing, or what it calls was not inlined"
        exit 1
    fi
    if ! diff "$folder/plain.s" "$folder/native.s" >"$folder/difference"; then
        echo "failed: $kernel differs from a native build:"
        head -n 20 "$folder/difference"
        exit 1
    fi
    echo "$kernel: $(wc -l <"$folder/plain.s") multiply-adds, the same as in a native build"
done

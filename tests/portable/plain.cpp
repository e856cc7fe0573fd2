// SPDX-License-Identifier: MIT
/// \file
/// What plain.sh compiles without any flag: a program of a user's, and the kernels whose code it compares.
#include <atomic>
#include <cstdio>

#include <halftone/kernel.hpp>

namespace ht = halftone;

// Names the hot kernels, so that they are emitted.
extern const void* const hot_kernels[];
const void* const hot_kernels[] = {
    reinterpret_cast<const void*>(&ht::avx2::fma_multiply),
    reinterpret_cast<const void*>(&ht::avx512::fma_multiply),
#if defined(__x86_64__)
    reinterpret_cast<const void*>(&ht::avx512_bf16::pair_multiply),
    reinterpret_cast<const void*>(&ht::amx::tile_multiply),
    reinterpret_cast<const void*>(&ht::amx::tile_multiply_pieces),
#endif
};

int main() {
    ht::cpu device;
    // Every worker waits for the others: this ends only where all run at the same time.
    std::atomic<int> waiting{device.threads()};
    device.parallel_for(device.threads(), [&waiting](ht::extent) {
        for (--waiting; waiting.load() > 0;) {
        }
    });
    std::puts(device.description().c_str());
}

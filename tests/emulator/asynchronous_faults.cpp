// SPDX-License-Identifier: MIT
/// \file
/// mbarriers, bulk copies and products of warpgroups on the emulated machine: a small product of matrices is right in
/// every schedule, and with one thing wrong it is refused in the right words.
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <emulator/damage.hpp>

namespace {

namespace ht = halftone;
using namespace ht::simt;
using ht::extent;
namespace emulator = ht::emulator;

enum class fault { none };

/// c = a b, m x n over a depth of k; tiles of 64 x 128 by a ring of two slots of 64 of the depth. A block does all tiles of
/// its column, one after the other.
template <class T, bool A, bool B, fault Planted>
struct product_kernel {
    static constexpr int threads = 256;
    static constexpr word slots = 2, a_bytes = 64 * 128, slot_bytes = a_bytes + 128 * 128;
    static constexpr word barriers = slots * slot_bytes, shared_bytes = barriers + 16 * slots + 1024;
    static constexpr bool has(fault f) { return Planted == f; }

    emulator::tile_map a, b;
    global_span<float> c;
    int m, n, k;

    grid_shape grid() const { return {(n + 127) / 128, 1, 1}; }

    template <class Simt>
    void operator()(Simt simt) const {
        const auto full = [](word slot) { return shared_span<mbarrier>{barriers + 8 * slot, 1}; };
        const auto empty = [](word slot) { return shared_span<mbarrier>{barriers + 8 * (slots + slot), 1}; };
        if (simt.thread() == 0) {
            for (word s = 0; s < slots; ++s) {
                simt.mbarrier_init(full(s), 1);
                simt.mbarrier_init(empty(s), 4);
            }
            simt.mbarrier_init_fence();
        }
        simt.barrier();
        const int column = 128 * simt.block().x;
        word slot = 0, parity = 0;
        const auto go_on = [&] {
            if (++slot == slots) slot = 0, parity ^= 1;
        };
        if (simt.warp() >= 4) {
            simt.fewer_registers(constant<40>{});
            if (simt.thread() != 128) return;
            for (int row = 0; row < m; row += 64) {
                for (int depth = 0; depth < k; depth += 64, go_on()) {
                    const word at = slot * slot_bytes;
                    simt.mbarrier_wait(empty(slot), parity ^ 1);
                    simt.mbarrier_expect(full(slot), slot_bytes);
                    A ? simt.bulk_copy(at, a, row, depth, full(slot)) : simt.bulk_copy(at, a, depth, row, full(slot));
                    if constexpr (B) {
                        simt.bulk_copy(at + a_bytes, b, column, depth, full(slot));
                        simt.bulk_copy(at + a_bytes + 8192, b, column + 64, depth, full(slot));
                    } else {
                        simt.bulk_copy(at + a_bytes, b, depth, column, full(slot));
                    }
                }
            }
            return;
        }
        simt.more_registers(constant<232>{});
        for (int row = 0; row < m; row += 64) {
            vec<float, 4> sums[16];
            word before = 0;
            for (int depth = 0; depth < k; depth += 64, go_on()) {
                const word at = slot * slot_bytes;
                simt.mbarrier_wait(full(slot), parity);
                simt.wgmma_fence();
                for (word step = 0; step < 4; ++step) {
                    simt.wgmma(element<T>{}, sums, wgmma_operand<A>{at + step * (A ? 2048 : 32)},
                               wgmma_operand<B>{at + a_bytes + step * (B ? 2048 : 32)}, depth > 0 || step > 0);
                }
                simt.wgmma_commit();
                simt.wgmma_wait(constant<1>{});
                if (depth > 0 && simt.lane() == 0) simt.mbarrier_arrive(empty(before));
                before = slot;
            }
            simt.wgmma_wait(constant<0>{});
            if (simt.lane() == 0) simt.mbarrier_arrive(empty(before));
            for (int j = 0; j < 16; ++j) {
                for (int i = 0; i < 4; ++i) {
                    const int r = row + 16 * simt.warp() + simt.lane() / 4 + 8 * (i / 2);
                    const int q = column + 8 * j + simt.lane() % 4 * 2 + i % 2;
                    if (r < m && q < n) simt.store(c, extent{r} * n + q, sums[j][i]);
                }
            }
        }
    }
};

/// Small integers, so that sums are exact. Around a tensor's lines stands what must not be read.
template <class T>
struct matrix {
    extent inner, outer, leading = (inner + 7) / 8 * 8;
    std::vector<T> all = std::vector<T>(static_cast<std::size_t>(leading * outer + 16), T(1000.0f));
    T* data() {
        const auto past = reinterpret_cast<std::uintptr_t>(all.data()) % 16;
        return all.data() + (16 - past) / 2;
    }
    T& at(extent x, extent y) { return data()[y * leading + x]; }
};

template <class T, bool A, bool B, fault Planted = fault::none>
bool run(emulator::device& device) {
    const int m = 100, n = 136, k = 200;
    matrix<T> a{A ? m : k, A ? k : m}, b{B ? n : k, B ? k : n};
    const auto a_of = [&](int i, int d) -> T& { return A ? a.at(i, d) : a.at(d, i); };
    const auto b_of = [&](int d, int j) -> T& { return B ? b.at(j, d) : b.at(d, j); };
    for (int d = 0; d < k; ++d) {
        for (int i = 0; i < m; ++i) a_of(i, d) = T(static_cast<float>((7 * i + 3 * d) % 11 - 5));
        for (int j = 0; j < n; ++j) b_of(d, j) = T(static_cast<float>((5 * j + 2 * d + d / 13) % 9 - 4));
    }
    std::vector<float> c(static_cast<std::size_t>(m * n));
    device.launch(product_kernel<T, A, B, Planted>{device.tile_map(a.data(), a.inner, a.outer, a.leading, 64),
                                                   device.tile_map(b.data(), b.inner, b.outer, b.leading, B ? 64 : 128),
                                                   {c.data(), m * n},
                                                   m,
                                                   n,
                                                   k});
    bool right = true;
    for (int i = 0; i < m; ++i) {
        for (int j = 0; j < n; ++j) {
            float sum = 0;
            for (int d = 0; d < k; ++d) sum += static_cast<float>(a_of(i, d)) * static_cast<float>(b_of(d, j));
            right = right && c[static_cast<std::size_t>(i * n + j)] == sum;
        }
    }
    return right;
}

const auto hopper = architecture_of(90);

TEST_CASE("asynchronous words: a product is right in every schedule, of K-major and MN-major operands") {
    emulator::check_schedules(run<ht::bfloat16, false, false>, hopper);
    emulator::check_schedules(run<ht::float16, true, true>, hopper);
    emulator::check_schedules(run<ht::bfloat16, true, false>, hopper);
    emulator::check_schedules(run<ht::float16, false, true>, hopper);
}

}  // namespace

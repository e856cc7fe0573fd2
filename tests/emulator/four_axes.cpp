// SPDX-License-Identifier: MIT
/// \file
/// On the emulated GPU: bulk copies of tensors with four axes, and products of warpgroups whose left operand is in
/// registers. They are right in every schedule, and each planted mistake is reported with the right message.
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <emulator/damage.hpp>

namespace emulator_four_axes_tests {

namespace ht = halftone;
using namespace ht::simt;
using ht::bfloat16;
using ht::extent;
namespace emulator = ht::emulator;

enum class fault { none, operand_changed, no_wgmma_fence, two_axes_of_four, four_axes_of_two, store_by_two_axes };

constexpr int rows = 70, columns = 40, heads = 3, batch = 2;
/// Element (b, t, h, c) of a (batch, rows, heads, columns) tensor; small, so that all sums are exact.
int element_at(int b, int t, int h, int c) { return (5 * b + 3 * t + 7 * h + c) % 9 - 4; }
int weight(int row, int k) { return (2 * row + 3 * k) % 5 - 2; }

/// Of every head: c = weights (64 x 64) times the head's rows 10 to 73, of which the last four do not exist; and these
/// rows stored to `copy`.
struct product_kernel {
    static constexpr int threads = 128;
    static constexpr word shared_bytes = 8192 + 8;

    emulator::tile_map map, flat, copy;
    global_span<float> c;  // (batch, heads, 64, 64)
    fault planted;

    bool has(fault f) const { return planted == f; }
    grid_shape grid() const { return {heads, batch, 1}; }

    template <class Simt>
    void operator()(Simt simt) const {
        const shared_span<mbarrier> done{8192, 1};
        const int head = simt.block().x, entry = simt.block().y;
        if (simt.thread() == 0) {
            simt.mbarrier_init(done, 1);
            simt.mbarrier_init_fence();
        }
        simt.barrier();
        if (simt.thread() == 0) {
            simt.mbarrier_expect(done, 8192);
            if (has(fault::two_axes_of_four)) simt.bulk_copy(0, map, 0, 10, done);
            if (has(fault::four_axes_of_two)) simt.bulk_copy(0, flat, 0, 10, 0, 0, done);
            simt.bulk_copy(0, map, 0, 10, head, entry, done);
        }
        simt.mbarrier_wait(done, 0);
        vec<word, 4> a[4];
        vec<float, 4> sums[8];
        for (int step = 0; step < 4; ++step) {
            for (int i = 0; i < 4; ++i) {
                const int row = 16 * simt.warp() + simt.lane() / 4 + i % 2 * 8,
                          k = 16 * step + simt.lane() % 4 * 2 + i / 2 * 8;
                a[step][i] =
                    packed<bfloat16>(static_cast<float>(weight(row, k)), static_cast<float>(weight(row, k + 1)));
            }
        }
        if (!has(fault::no_wgmma_fence)) simt.wgmma_fence();
        for (word step = 0; step < 4; ++step)
            simt.wgmma(element<bfloat16>{}, sums, a[step], wgmma_operand<true>{step * 2048}, step > 0);
        simt.wgmma_commit();
        if (has(fault::operand_changed) && simt.thread() == 37) a[2][1] += 1;
        simt.wgmma_wait(constant<0>{}, sums);
        for (int j = 0; j < 8; ++j) {
            for (int i = 0; i < 4; ++i) {
                const int row = 16 * simt.warp() + simt.lane() / 4 + 8 * (i / 2),
                          column = 8 * j + simt.lane() % 4 * 2 + i % 2;
                simt.store(c, ((extent{entry} * heads + head) * 64 + row) * 64 + column, sums[j][i]);
            }
        }
        if (simt.thread() == 0) {
            if (has(fault::store_by_two_axes)) simt.bulk_store(copy, 0, 10, 0);
            simt.bulk_store(copy, 0, 10, head, entry, 0);
            simt.bulk_commit();
            simt.bulk_wait_read(constant<0>{});
        }
    }
};

/// Whether all is right.
bool multiply(emulator::device& device, fault planted = fault::none) {
    // Rows of a head are `heads` vectors apart, with eight elements between that are not to be read.
    constexpr extent vector = columns + 8, row = heads * vector, size = batch * rows * row;
    std::vector<bfloat16> memory(size + 8, bfloat16(1000.0f)), stored(size + 8, bfloat16(2000.0f));
    const auto aligned = [](std::vector<bfloat16>& v) {
        return v.data() + (16 - reinterpret_cast<std::uintptr_t>(v.data()) % 16) % 16 / 2;
    };
    bfloat16 *const from = aligned(memory), *const to = aligned(stored);
    const auto place = [&](int b, int t, int h) { return (extent{b} * rows + t) * row + h * vector; };
    for (int b = 0; b < batch; ++b) {
        for (int t = 0; t < rows; ++t) {
            for (int h = 0; h < heads; ++h) {
                for (int c = 0; c < columns; ++c)
                    from[place(b, t, h) + c] = bfloat16(static_cast<float>(element_at(b, t, h, c)));
            }
        }
    }
    std::vector<float> c(batch * heads * 64 * 64);
    const tile_axes axes{columns, {rows, heads, batch}, {row, vector, rows * row}};
    device.launch(product_kernel{device.tile_map(from, axes, 64),
                                 device.tile_map(from, columns, rows, row, 64),
                                 device.tile_map(to, axes, 64),
                                 {c.data(), static_cast<extent>(c.size())},
                                 planted});
    bool right = true;
    for (int b = 0; b < batch; ++b) {
        for (int h = 0; h < heads; ++h) {
            for (int i = 0; i < 64; ++i) {
                for (int j = 0; j < 64; ++j) {
                    int sum = 0;
                    for (int k = 0; k < 60 && j < columns; ++k) sum += weight(i, k) * element_at(b, 10 + k, h, j);
                    right = right &&
                            c[static_cast<std::size_t>(((b * heads + h) * 64 + i) * 64 + j)] == static_cast<float>(sum);
                }
            }
            for (int t = 0; t < rows; ++t) {
                for (int i = 0; i < vector; ++i) {
                    const float want = t >= 10 && i < columns ? static_cast<float>(element_at(b, t, h, i)) : 2000.0f;
                    right = right && static_cast<float>(to[place(b, t, h) + i]) == want;
                }
            }
        }
    }
    return right;
}

TEST_CASE("asynchronous words: tensors of four axes, and operands in registers") {
    emulator::check_kernels([](emulator::device& d) { return multiply(d); }, architecture_of(90));
}

TEST_CASE("asynchronous words: faults with four axes and operands in registers are caught in their own words") {
    const struct {
        fault planted;
        const char* sentence;
    } all[] = {
        {fault::operand_changed, "thread 37 changed an operand while a product was under way that reads it: wgmma at"},
        {fault::no_wgmma_fence, "multiplies with no wgmma_fence before"},
        {fault::two_axes_of_four, "copies by 2 axes from a map of 4"},
        {fault::four_axes_of_two, "copies by 4 axes from a map of 2"},
        {fault::store_by_two_axes, "copies by 2 axes to a map of 4"}};
    emulator::device device({}, architecture_of(90));
    for (const auto& one : all) {
        for (int seed = 1; seed <= emulator::seeds; ++seed) {
            const std::string problem =
                emulator::problem_of(device, [&](emulator::device& d) { return multiply(d, one.planted); },
                                     {.seed = static_cast<std::uint64_t>(seed)});
            CAPTURE(std::string(one.sentence));
            CAPTURE(problem);
            CHECK(problem.find(one.sentence) != std::string::npos);
        }
    }
    alignas(16) static const bfloat16 x[4096]{};
    CHECK_NOTHROW(device.tile_map(x, {60, {4, 3, 2}, {64, 8, 256}}, 64));
    CHECK_THROWS_AS(device.tile_map(x, {60, {4, 3, 2}, {64, 4, 256}}, 64), emulator::failure);
    CHECK_THROWS_AS(device.tile_map(x, {60, {4, 3, 2}, {64, 0, 256}}, 64), emulator::failure);
    CHECK_THROWS_AS(device.tile_map(x, {60, {4, 0, 2}, {64, 8, 256}}, 64), emulator::failure);
}

}  // namespace emulator_four_axes_tests

// SPDX-License-Identifier: MIT
/// \file
/// Embedding as a GPU runs it.
#include <algorithm>
#include <numeric>

#include <emulator/damage.hpp>

#include <halftone/kernel/embedding/device.hpp>
#include <halftone/number/classify.hpp>

#include "kernel/embedding/checks.hpp"

namespace {

using namespace embedding_checks;
namespace emulator = ht::emulator;
namespace on_device = ht::kernel::on_device;
using embedding = ht::kernel::embedding<emulator::device>;
using token_order = on_device::token_order<emulator::device>;

TEST_CASE_TEMPLATE("embedding on a GPU: forward is the rounded sum of its two rows", M, all_float, rounding_down,
                   narrow, widening) {
    emulator::device device;
    for (const extent width : {1, 3, 4, 7, 8, 64, 257, 1024}) {
        forward_within_bounds<M>(device, width);
        forward_within_bounds<M>(device, width, alignment::vectors);
    }
}

TEST_CASE_TEMPLATE("embedding on a GPU: backward within its bound of the definition", M, accumulated,
                   accumulated_narrow, accumulated_float) {
    emulator::device device;
    for (const write_mode mode : {write_mode::overwrite, write_mode::add}) {
        for (const extent width : {1, 3, 8, 67, 1024}) {
            backward_within_bounds<M>(device, 11, 4, 14, width, mode);
            backward_within_bounds<M>(device, 11, 4, 40, width, mode, alignment::vectors);
        }
        backward_within_bounds<M>(device, 7, 100, 1000, 33, mode);  // runs over many pieces of places
        backward_within_bounds<M>(device, 3000, 50, 20, 32, mode,
                                  alignment::vectors);  // two passes, most tokens absent, positions beyond the rows
    }
}

TEST_CASE("embedding on a GPU: integers exactly, the same bits in every schedule") {
    emulator::device first{{.seed = 1}}, second{{.seed = 1000, .resident_blocks = 7}};
    const exact_sums one(first), two(second);
    CHECK(one.same_bits(two));
}

/// The order that the kernels find, copied out of the device's memory, against a stable sort.
bool sorts(emulator::device& device, const guarded<std::int32_t>& tokens, std::int32_t vocabulary) {
    const auto rows = static_cast<std::size_t>(tokens.size());
    std::vector<std::int32_t> order(rows), sorted(rows), want(rows);
    {
        const token_order found(device, tokens.const_view(), vocabulary);
        device.memory().read(order.data(), found.order().data, rows * sizeof(std::int32_t));
        device.memory().read(sorted.data(), found.sorted().data, rows * sizeof(std::int32_t));
    }
    const auto key = [&](std::int32_t row) {
        return tokens[row] < 0 || tokens[row] >= vocabulary ? vocabulary : tokens[row];
    };
    std::iota(want.begin(), want.end(), 0);
    std::stable_sort(want.begin(), want.end(), [&](std::int32_t a, std::int32_t b) { return key(a) < key(b); });
    bool right = order == want;
    for (std::size_t i = 0; i < rows; ++i) right = right && sorted[i] == key(want[i]);
    return right;
}

TEST_CASE("embedding on a GPU: rows in the order of their tokens") {
    emulator::device device;
    support::random data(3);
    for (const std::int32_t vocabulary : {1, 2, 63, 64, 65, 4095, 4096, 50257, 262143, 262144, 1 << 30}) {
        CAPTURE(vocabulary);
        for (const extent rows : {1, 31, 33, 2049, 5000}) {
            CAPTURE(rows);
            const guarded<std::int32_t> tokens(data.indices(rows, vocabulary));
            for (extent r = 0; r < rows; r += 17) tokens[r] = r % 2 == 0 ? -5 : vocabulary;
            CHECK(sorts(device, tokens, vocabulary));
        }
    }
    // More rows than the threads take 32 of.
    CHECK(sorts(device, guarded<std::int32_t>(data.indices(32 * 8192 + 33, 63)), 63));
}

TEST_CASE("embedding on a GPU: a token outside the vocabulary gives NaN, and no gradient") {
    emulator::device device;
    constexpr extent vocabulary = 5, rows = 40, width = 8;
    support::random data(5);
    const guarded<float> table(data.integers<float>(vocabulary * width, 9)), dtable(vocabulary * width);
    const guarded<std::int32_t> tokens(data.indices(rows, vocabulary));
    for (extent r = 0; r < rows; r += 3)
        tokens[r] = r % 2 == 0 ? -1 - static_cast<std::int32_t>(r) : vocabulary + static_cast<std::int32_t>(r) * 1000;
    const guarded<float16> out(rows * width);
    const guarded<float> dy(data.integers<float>(rows * width, 9));
    embedding::forward<float, float16>(device, {.tokens = tokens.const_view(),
                                                .table = table.const_view(ht::shape<2>{vocabulary, width}),
                                                .out = out.view(ht::shape<2>{rows, width})});
    embedding::backward<float, float>(device, {.tokens = tokens.const_view(),
                                               .dy = dy.const_view(ht::shape<2>{rows, width}),
                                               .dtable = dtable.view(ht::shape<2>{vocabulary, width}),
                                               .mode = write_mode::overwrite});
    std::vector<float> want(vocabulary * width);
    extent wrong = 0;
    for (extent k = 0; k < rows * width; ++k) {
        const std::int32_t token = tokens[k / width];
        if (token < 0 || token >= vocabulary) {
            wrong += ht::is_nan(out[k]) ? 0 : 1;
        } else {
            wrong += out[k] == table[token * width + k % width] ? 0 : 1;
            want[static_cast<std::size_t>(token * width + k % width)] += dy[k];
        }
    }
    for (extent k = 0; k < vocabulary * width; ++k) wrong += dtable[k] == want[static_cast<std::size_t>(k)] ? 0 : 1;
    CHECK(wrong == 0);
    CHECK(out.intact());
    CHECK(dtable.intact());
}

TEST_CASE("embedding on a GPU: wrong shapes, no rows, no allocation in a steady step") {
    emulator::device device;
    refuses(device);
    const exact_sums first(device), other(device);
    const auto before = device.memory().usage().allocations();
    const exact_sums third(device);
    CHECK(device.memory().usage().allocations() == before);
}

TEST_CASE("embedding on a GPU: any schedule gives the same bits, and every damage shows") {
    constexpr std::int32_t vocabulary = 100;
    constexpr extent rows = 700, width = 12;
    support::random data(9);
    const guarded<std::int32_t> tokens(data.indices(rows, vocabulary));
    const guarded<bfloat16> dy(data.integers<bfloat16>(rows * width, 50), 0);
    std::vector<float> want(vocabulary * width);
    for (extent k = 0; k < rows * width; ++k)
        want[static_cast<std::size_t>(tokens[k / width] * width + k % width)] += static_cast<float>(dy[k]);
    emulator::check_kernels([&](emulator::device& device) {
        const guarded<float> dtable(vocabulary * width, 0);
        embedding::backward<bfloat16, float>(device, {.tokens = tokens.const_view(),
                                                      .dy = dy.const_view(ht::shape<2>{rows, width}),
                                                      .dtable = dtable.view(ht::shape<2>{vocabulary, width}),
                                                      .mode = write_mode::overwrite});
        return std::equal(want.begin(), want.end(), dtable.data()) && dtable.intact();
    });
}

}  // namespace

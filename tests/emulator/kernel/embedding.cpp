// SPDX-License-Identifier: MIT
/// \file
/// Embedding on the emulated GPU.
#include <algorithm>
#include <limits>

#include <emulator/damage.hpp>

#include <halftone/kernel/embedding/device.hpp>
#include <halftone/kernel/packed_positions/device.hpp>
#include <halftone/number/classify.hpp>

#include "kernel/embedding/checks.hpp"
#include "kernel/packed_positions/checks.hpp"

namespace emulator_kernel_embedding_tests {

using namespace embedding_checks;
namespace emulator = ht::emulator;
namespace on_device = ht::kernel::on_device;
using embedding = ht::kernel::embedding<emulator::device>;

TEST_CASE_TEMPLATE("embedding on a GPU: forward is the rounded sum of its two rows", M, all_float, rounding_down,
                   narrow, widening) {
    emulator::device device;
    for (const extent width : {1, 3, 4, 7, 8, 64, 257, 1024}) {
        forward_within_bounds<M>(device, width);
        forward_within_bounds<M>(device, width, alignment::vectors);
    }
}

TEST_CASE("packed positions on a GPU are as defined") {
    emulator::device device;
    packed_positions_checks::as_defined(device);
    emulator::check_kernels([](emulator::device& d) {
        return packed_positions_checks::is_as_defined(d, {0, 300, 300, 310}, 310);
    });
}

TEST_CASE_TEMPLATE("embedding on a GPU: backward within its bound of the definition", M, accumulated,
                   accumulated_narrow, accumulated_float) {
    emulator::device device;
    for (const write_mode mode : {write_mode::overwrite, write_mode::add}) {
        for (const extent width : {1, 3, 8, 67, 1024}) {
            backward_within_bounds<M>(device, 11, 4, 14, width, mode);
            backward_within_bounds<M>(device, 11, 4, 40, width, mode, alignment::vectors);
        }
        backward_within_bounds<M>(device, 7, 100, 1000, 33, mode);  // runs over many pieces of lookups
        backward_within_bounds<M>(device, 3000, 50, 20, 32, mode,
                                  alignment::vectors);  // two passes, most tokens absent, positions beyond the rows
    }
}

TEST_CASE("embedding on a GPU: integers exactly, the same bits in every schedule") {
    emulator::device first{{.seed = 1}}, second{{.seed = 1000, .resident_blocks = 7}};
    const exact_sums one(first), two(second);
    CHECK(one.same_bits(two));
}

TEST_CASE("embedding on a GPU: numbers outside the vocabulary are sorted behind all tokens") {
    emulator::device device;
    constexpr auto least = std::numeric_limits<std::int32_t>::min(), most = std::numeric_limits<std::int32_t>::max();
    const guarded<std::int32_t> tokens(std::vector<std::int32_t>{0, 7, least, -1, 6, most, 1 << 30, most - 1, 8});
    const extent rows = tokens.size();
    for (const ht::simt::word vocabulary : {1u, 7u, 8u, 1u << 30, static_cast<ht::simt::word>(most), 1u << 31}) {
        CAPTURE(vocabulary);
        const guarded<ht::simt::word> keys(rows), sorted(rows);
        const guarded<std::int32_t> numbers(rows), order(rows);
        device.launch(on_device::embedding_keys_kernel{
            {tokens.data(), rows}, {keys.data(), rows}, {numbers.data(), rows}, vocabulary});
        sort_pairs(device, keys.data(), sorted.data(), numbers.data(), order.data(), rows, std::bit_width(vocabulary));
        for (extent r = 0; r < rows; ++r) {
            const std::int64_t token = tokens[r], end = vocabulary;
            CHECK(keys[r] == (token >= 0 && token < end ? token : end));
            CHECK(numbers[r] == r);
            CHECK(sorted[r] == keys[order[r]]);
            if (r > 0) CHECK((sorted[r - 1] < sorted[r] || (sorted[r - 1] == sorted[r] && order[r - 1] < order[r])));
        }
        CHECK(keys.intact());
        CHECK(numbers.intact());
    }
}

TEST_CASE("embedding on a GPU: gradients of any table, repeated tokens, tokens outside the vocabulary") {
    emulator::device device;
    adds_exactly_at_all_sizes(device, 1000);
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

TEST_CASE("embedding on a GPU: wrong shapes, no rows, no allocation after the first steps") {
    emulator::device device;
    refuses(device);
    const exact_sums first(device), other(device);
    const auto before = device.memory().usage().allocations();
    const exact_sums third(device);
    CHECK(device.memory().usage().allocations() == before);
}

TEST_CASE("embedding on a GPU: any schedule gives the same bits, and every damage is found") {
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

}  // namespace emulator_kernel_embedding_tests

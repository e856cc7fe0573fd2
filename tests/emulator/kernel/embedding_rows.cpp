// SPDX-License-Identifier: MIT
/// \file
/// An embedding's gradient by rows on the emulated GPU.
#include <halftone/exec/measure.hpp>
#include <halftone/kernel/embedding/device.hpp>
#include <halftone/kernel/embedding_rows/device.hpp>

#include <emulator/damage.hpp>

#include "kernel/embedding_rows/checks.hpp"

namespace emulator_kernel_embedding_rows_tests {

using namespace embedding_rows_checks;
namespace emulator = ht::emulator;

TEST_CASE("embedding rows on a GPU: the bits of a dense gradient") {
    emulator::device device{{.check = emulator::checking::values_only}};
    as_dense_everywhere(device);
}

TEST_CASE("embedding rows on a GPU: running sums") {
    emulator::device device;
    for (const extent count : {0, 1, 300}) {
        const guarded<ht::simt::word> sums(count);
        ht::simt::word sum = 0;
        std::vector<ht::simt::word> want;
        for (extent i = 0; i < count; ++i) {
            sums[i] = static_cast<ht::simt::word>(i * 7 % 5);
            want.push_back(sum += sums[i]);
        }
        inclusive_sum(device, sums.data(), count);
        CHECK(sums.intact());
        CHECK(std::equal(want.begin(), want.end(), sums.data()));
    }
}

TEST_CASE("embedding rows on a GPU: numbers outside the vocabulary and padding have no row") {
    emulator::device device;
    as_dense<bfloat16, float>(device, 9, 8, {40, 300}, 16, true);
    as_dense<bfloat16, float>(device, 9, 3, {7, 3}, 1, true);
    leaves_out_padding(device);
}

TEST_CASE("embedding rows on a GPU: duplicates overflow where they are summed; wrong shapes are refused") {
    emulator::device device;
    overflows_where_rows_are_summed(device);
    refuses(device);
}

TEST_CASE("embedding rows on a GPU: right in every schedule, and every damage is found") {
    // Several warps and blocks, few new rows in some warps, and rows that move.
    constexpr extent vocabulary = 400, width = 4, first = 40, second = 330;
    const guarded<bfloat16> dy(support::random(3).integers<bfloat16>(second * width, 5), 16);
    support::random data(5);
    const guarded<std::int32_t> one(tokens_of(data, first, vocabulary)), two(tokens_of(data, second, vocabulary));
    std::map<std::int32_t, std::vector<double>> want;
    ht::reference::embedding_rows(one.const_view(), dy.const_view(ht::shape<2>{first, width}), want);
    ht::reference::embedding_rows(two.const_view(), dy.const_view(ht::shape<2>{second, width}), want);
    emulator::check_kernels([&](emulator::device& device) {
        const rows_of<float> rows(first + second, width, 16);
        using kernel = ht::kernel::embedding_rows<emulator::device>;
        kernel::add<bfloat16, float>(device, {.tokens = one.const_view(),
                                              .dy = dy.const_view(ht::shape<2>{first, width}),
                                              .vocabulary = vocabulary,
                                              .rows = rows.view()});
        kernel::add<bfloat16, float>(device, {.tokens = two.const_view(),
                                              .dy = dy.const_view(ht::shape<2>{second, width}),
                                              .vocabulary = vocabulary,
                                              .rows = rows.view(),
                                              .before = first});
        bool right = rows.intact() && rows.count[0] == static_cast<std::int32_t>(want.size());
        extent r = 0;
        for (auto row = want.begin(); right && row != want.end(); ++row, ++r) {
            right = rows.indices[r] == row->first;
            for (extent j = 0; j < width; ++j)
                right = right &&
                        static_cast<double>(rows.values[r * width + j]) == row->second[static_cast<std::size_t>(j)];
        }
        return right;
    });
}

TEST_CASE("embedding rows on a GPU: scratch memory is what workspace_bytes returns") {
    emulator::device device{{.check = emulator::checking::values_only}};
    const std::size_t bytes = ht::workspace_bytes(device, [](auto& d) {
        ht::kernel::embedding_rows<std::remove_cvref_t<decltype(d)>>::template add<bfloat16, float>(
            d, {.tokens = {nullptr, {300}},
                .dy = {nullptr, {300, 4}},
                .vocabulary = 1000,
                .rows = {{nullptr, {320}}, {nullptr, {320, 4}}, nullptr},
                .before = 20});
    });
    as_dense<bfloat16, float>(device, 1000, 4, {20, 300});
    CHECK(device.scratch().peak() == bytes);
}

}  // namespace emulator_kernel_embedding_rows_tests

// SPDX-License-Identifier: MIT
/// \file
/// An embedding's gradient by rows on the CPU.
#include <halftone/exec/measure.hpp>
#include <halftone/kernel/embedding_rows/cpu.hpp>

#include "kernel/embedding_rows/checks.hpp"
#include "support/each_set.hpp"

namespace kernel_embedding_rows_tests {

using namespace embedding_rows_checks;

TEST_CASE("embedding rows: the bits of a dense gradient, on every instruction set and number of threads") {
    support::for_each_set([](ht::isa set) {
        ht::cpu one{{.threads = 1, .instruction_set = set}}, two{{.threads = 2, .instruction_set = set}};
        as_dense_everywhere(one);
        as_dense_everywhere(two);
        CHECK((as_dense<bfloat16, float>(one, 23, 67, {40, 9, 64}) ==
               as_dense<bfloat16, float>(two, 23, 67, {40, 9, 64})));
    });
}

TEST_CASE("embedding rows: padding has no row") {
    for (const int threads : {1, 2}) {
        ht::cpu device{{.threads = threads}};
        leaves_out_padding(device);
    }
}

TEST_CASE("embedding rows: duplicates overflow where they are summed") {
    ht::cpu device;
    overflows_where_rows_are_summed(device);
}

TEST_CASE("embedding rows: wrong shapes and tokens outside the vocabulary are refused") {
    ht::cpu device;
    refuses(device);
    CHECK_THROWS_WITH_AS((as_dense<float, float>(device, 9, 1, {4}, 1, true)),
                         "embedding: the token of row 2 is -1; expected 0 to 8", ht::argument_error);
    const guarded<std::int32_t> tokens(std::vector<std::int32_t>{9});
    const guarded<float> dy(1);
    const rows_of<float> rows(1, 1, 1);
    CHECK_THROWS_AS(
        (ht::kernel::embedding_rows<ht::cpu>::add<float, float>(device, {.tokens = tokens.const_view(),
                                                                         .dy = dy.const_view(ht::shape<2>{1, 1}),
                                                                         .vocabulary = 9,
                                                                         .rows = rows.view()})),
        ht::argument_error);
    CHECK(rows.intact());
}

TEST_CASE("embedding rows: scratch memory is what workspace_bytes returns") {
    ht::cpu device;
    const std::size_t bytes = ht::workspace_bytes(device, [](auto& d) {
        ht::kernel::embedding_rows<std::remove_cvref_t<decltype(d)>>::template add<float, float>(
            d, {.tokens = {nullptr, {30}},
                .dy = {nullptr, {30, 4}},
                .vocabulary = 100,
                .rows = {{nullptr, {60}}, {nullptr, {60, 4}}, nullptr},
                .before = 20});
    });
    CHECK(bytes >= (2 * 30 + 101) * sizeof(std::int32_t));
    as_dense<bfloat16, float>(device, 100, 4, {20, 30});
    CHECK(device.scratch().peak() == bytes);
}

}  // namespace kernel_embedding_rows_tests

// SPDX-License-Identifier: MIT
/// \file
/// Rotary embedding on the CPU against its definition.
#include <halftone/kernel/rotary/cpu.hpp>

#include "kernel/rotary/checks.hpp"
#include "support/each_set.hpp"

namespace kernel_rotary_tests {

using namespace rotary_checks;

TEST_CASE_TEMPLATE("rotary: as its definition, in both layouts, of strided heads and parts of them", T, float, bfloat16,
                   ht::float16, double) {
    support::for_each_set([](ht::isa set) {
        ht::cpu device{{.threads = 2, .instruction_set = set}};
        for (const extent head_size : {2, 4, 6, 8, 10, 32, 62, 64, 128, 258}) {
            CAPTURE(head_size);
            for_each_problem<T>(device, head_size, [](auto& d, const problem& p) { CHECK(is_right<T>(d, p)); });
        }
        CHECK(is_right<T>(device, {.batch = 3, .time = 40, .heads = 12, .head_size = 64}));  // several pieces
    });
}

TEST_CASE_TEMPLATE("rotary: results that are larger than caches", T, float, bfloat16) {
    support::for_each_set([](ht::isa set) {
        ht::cpu device{{.threads = 2, .instruction_set = set}};
        for (const rotary_layout layout : {rotary_layout::half_split, rotary_layout::interleaved}) {
            // 8 MiB and more; the last head is copied. Then heads that do not begin with a cache line.
            const extent heads = 9 * 4 / static_cast<extent>(sizeof(T));
            problem p{.batch = 4, .time = 512, .heads = heads, .head_size = 128, .turned = heads - 1, .layout = layout, .positions = true};
            CHECK(is_right<T>(device, p));
            p.offset = 3;
            CHECK(is_right<T>(device, p));
        }
    });
}

TEST_CASE("rotary: a rotation and its inverse, and wrong arguments") {
    support::for_each_set([](ht::isa set) {
        ht::cpu device{{.threads = 1, .instruction_set = set}};
        turns_and_back(device);
        refuses(device);
    });
}

TEST_CASE("rotary: a position outside the table") {
    ht::cpu device{{.threads = 1}};
    const guarded<float> x(std::vector<float>(12)), table(std::vector<float>(8));
    const ht::view<float, 4> four(x.data(), {1, 3, 1, 4});
    for (const std::int32_t wrong : {-1, 2}) {
        const std::int32_t ids[] = {0, 1, wrong};
        CHECK_THROWS_AS(ht::rotary(device, four, ht::view<float, 2>(table.data(), {2, 4}), four, {},
                                   ht::const_view<std::int32_t, 2>(ids, {1, 3})),
                        ht::argument_error);
    }
}

// From LlamaRotaryEmbedding of transformers 5.24: rope_theta 500, factor 8, 1 to 4 waves in 16 positions, a head of 8.
TEST_CASE("rotary: Llama 3's frequencies") {
    const ht::rotary_angles angles{500, {.factor = 8, .low_frequency = 1, .high_frequency = 4, .original_context = 16}};
    const double want[] = {0.57605636, 0.02643428, 0.0055901702, 0.001182177};
    for (extent i = 0; i < 4; ++i) {
        CHECK(ht::detail::rotary_frequency(angles, i, 4) == doctest::Approx(want[i]).epsilon(1e-6));
    }
    CHECK(ht::detail::rotary_frequency({500, {}}, 2, 4) == doctest::Approx(1 / std::sqrt(500.0)).epsilon(1e-12));
}

}  // namespace kernel_rotary_tests

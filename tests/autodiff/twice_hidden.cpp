// SPDX-License-Identifier: MIT
/// \file
/// Values hidden by attention masks on a double-backward tape, on the CPU. tests/emulator/models/twice_hidden.cpp runs the same
/// tests on the emulated GPU; tests/kernel/attention/hidden_math.cpp has those of plain tapes.
#include <doctest/doctest.h>

#include <halftone/amp.hpp>

#include "autodiff/twice_hidden.hpp"
#include "support/each_set.hpp"

namespace autodiff_twice_hidden_tests {

namespace ht = halftone;
using support::attention_sizes;
using twice_hidden::check;
using twice_hidden::problem;

constexpr auto full = ht::attention_mask::full;
constexpr auto causal = ht::attention_mask::causal;

template <class Test>
void on_each_device(const Test& test) {
    for (const ht::isa set : ht::every_isa) {
        if (!support::is_tested(set)) continue;
        CAPTURE(std::string(ht::name(set)));
        ht::cpu device{{.threads = 2, .instruction_set = set}};
        test(device);
    }
}

template <class P, class T>
void check_causal() {
    on_each_device([](ht::cpu& device) {
        // Batch, queries, keys, heads, key heads, head size.
        check<P>(device, problem<T>({2, 5, 5, 2, 2, 8, causal}), {0, 2, 4}, {0, 1, 3, 4});
        check<P>(device, problem<T>({1, 17, 23, 4, 2, 12, causal}), {0, 9}, {3, 8, 22});
    });
}
template <class P, class T>
void check_packed() {
    const support::sequence_lengths same{{1, 7, 5}, {1, 7, 5}}, holes{{0, 3, 4, 0, 9, 0}, {0, 0, 9, 5, 9, 0}};
    on_each_device([&](ht::cpu& device) {
        for (const auto mask : {causal, full})
            check<P>(device, problem<T>({1, 0, 0, 2, 2, 8, mask}, same), {0, 1, 7, 12}, {0, 1, 7, 8, 12});
        check<P>(device, problem<T>({1, 0, 0, 4, 2, 6, full}, holes), {0, 3, 7, 15}, {0, 8, 9, 14, 22});
    });
}

// In float16 this is the code of bfloat16 once more; tests/kernel/attention/hidden.cpp has its kernels.
TEST_CASE("masked keys have no effect on first and second derivatives, visible keys have") {
    SUBCASE("causal, fp32") { check_causal<ht::full_fp32, float>(); }
    SUBCASE("causal, bf16") { check_causal<ht::amp_bf16, ht::bfloat16>(); }
    SUBCASE("packed, fp32") { check_packed<ht::full_fp32, float>(); }
    SUBCASE("packed, bf16") { check_packed<ht::amp_bf16, ht::bfloat16>(); }
#if defined(HALFTONE_FULL_TESTS)
    SUBCASE("causal, fp16") { check_causal<ht::amp_fp16, ht::float16>(); }
    SUBCASE("packed, fp16") { check_packed<ht::amp_fp16, ht::float16>(); }
#endif
}

}  // namespace autodiff_twice_hidden_tests

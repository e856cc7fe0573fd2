// SPDX-License-Identifier: MIT
/// \file
/// Compiled with -ffast-math: a NaN among the scores or the logits must still come out, or no check for finite
/// gradients would ever see it.
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/cross_entropy/cpu.hpp>
#include <halftone/kernel/softmax/cpu.hpp>
#include <halftone/number/bits.hpp>
#include <halftone/number/classify.hpp>

#include "support/each_set.hpp"

namespace kernel_softmax_fast_math_tests {

namespace ht = halftone;

TEST_CASE_TEMPLATE("fast math: a NaN in a row is a NaN in its softmax and in its loss", T, float, ht::bfloat16,
                   ht::float16) {
    support::for_each_set([](ht::isa set) {
        ht::cpu device{{.threads = 1, .instruction_set = set}};
        for (const ht::extent width : {5, 20, 133}) {
            CAPTURE(width);
            const ht::shape<2> shape{1, width};
            const auto n = static_cast<std::size_t>(width);
            for (std::size_t place : {std::size_t{0}, n / 2, n - 1}) {
                std::vector<T> x(n, T(1.0f)), y(n), log_y(n);
                std::vector<float> loss(1), maximum(1), sum(1);
                x[place] = T(ht::bit_cast<float>(std::uint32_t{0x7fc00000}));
                const std::vector<std::int32_t> target{1};
                ht::kernel::softmax<ht::cpu>::forward<T, T>(device, {.x = {x.data(), shape}, .y = {y.data(), shape}});
                ht::kernel::log_softmax<ht::cpu>::forward<T, T>(device,
                                                                {.x = {x.data(), shape}, .y = {log_y.data(), shape}});
                ht::kernel::cross_entropy<ht::cpu>::forward<T>(device, {.logits = {x.data(), shape},
                                                                        .targets = {target.data(), {1}},
                                                                        .losses = {loss.data(), {1}},
                                                                        .maximum = {maximum.data(), {1}},
                                                                        .sum = {sum.data(), {1}}});
                int finite = 0;
                for (const T& v : y) finite += ht::is_nan(v) ? 0 : 1;
                for (const T& v : log_y) finite += ht::is_nan(v) ? 0 : 1;
                CHECK(finite == 0);
                CHECK(ht::is_nan(loss[0]));
            }
        }
    });
}

}  // namespace kernel_softmax_fast_math_tests

// SPDX-License-Identifier: MIT
/// \file
/// Array conversions, compared element by element with the conversions of number/, which are tested on every bit pattern.
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/convert/cpu.hpp>
#include <halftone/kernel/convert/reference.hpp>

#include "kernel/convert/checks.hpp"
#include "support/each_set.hpp"
#include "support/gradient_check.hpp"

namespace kernel_convert_tests {

using namespace convert_checks;

TEST_CASE_TEMPLATE("convert: every element as a single number", M, down_bf16, down_f16, up_bf16, up_f16, across,
                   back, copy, down_e4m3, up_e5m2) {
    support::for_each_set([](ht::isa set) {
        ht::cpu device{{.threads = 2, .instruction_set = set}};
        for (const extent count : support::widths) converts_each<typename M::X, typename M::Y>(device, count);
        // Several pieces, also of rows; more elements than there are 16-bit patterns.
        converts_each<typename M::X, typename M::Y>(device, 399'999);
    });
}

TEST_CASE("convert: numbers that are too large saturate") {
    support::for_each_set([](ht::isa set) {
        ht::cpu device{{.threads = 2, .instruction_set = set}};
        for (const extent count : support::widths) saturates<bfloat16, ht::float8_e4m3>(device, count);
    });
}

TEST_CASE("convert: in place with a factor, and its gradient") {
    ht::cpu device{{.threads = 1}};
    scales_in_place(device);

    support::random data(3);
    std::vector<double> at = data.normals<double>(3), to(3);
    support::check_gradient(
        [&](const std::vector<double>& from) {
            ht::reference::convert(ht::const_view<double, 1>(from.data(), {3}), ht::view<double, 1>(to.data(), {3}),
                                   0.3);
            return to[0] + 2 * to[1] + 3 * to[2];
        },
        at, {0.3, 0.6, 0.9});
}

TEST_CASE("convert: wrong arguments, empty tensors") {
    ht::cpu device{{.threads = 1}};
    refuses(device);
}

}  // namespace kernel_convert_tests

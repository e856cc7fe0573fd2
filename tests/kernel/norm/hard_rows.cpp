// SPDX-License-Identifier: MIT
/// \file
/// Layer and RMS normalisation on the CPU, for rows that float arithmetic does not resolve.
#include <doctest/doctest.h>

#include <halftone/kernel/norm/cpu.hpp>

#include "kernel/norm/hard_rows.hpp"
#include "support/each_set.hpp"

namespace kernel_norm_hard_rows_tests {

using namespace hard_rows;
using ht::bfloat16, ht::float16;

constexpr extent widths[] = {1, 2, 3, 5, 31, 64, 67, 300, 1000};

TEST_CASE("layer_norm: the result of a constant row is the bias") {
    support::for_each_set([](ht::isa set) {
        ht::cpu device{{.threads = 1, .instruction_set = set}};
        for (const extent width : widths) check_constants<float>(device, width);
        for (const extent width : {4095, 4096, 65537}) check_constants<float>(device, width);
        check_constants<bfloat16>(device, 65537);
    });
    ht::cpu device{{.threads = 1}};
    for (const extent width : widths) check_constants<double>(device, width);
    check_constants<double>(device, 65537);
}

template <class X_, class Y_>
struct types {
    using X = X_;
    using Y = Y_;
};
TEST_CASE_TEMPLATE("layer_norm, rms_norm: rows that float does not resolve", M, types<float, float>, types<float, bfloat16>,
                   types<bfloat16, bfloat16>, types<float16, float>) {
    support::for_each_set([](ht::isa set) {
        ht::cpu device{{.threads = 1, .instruction_set = set}};
        for (const extent width : widths) {
            check_layer_norm<typename M::X, typename M::Y>(device, width);
            check_rms_norm<typename M::X, typename M::Y>(device, width);
        }
        if (sizeof(typename M::Y) == sizeof(float)) check_layer_norm<typename M::X, typename M::Y>(device, 4095);
    });
}
TEST_CASE("layer_norm, rms_norm: rows of doubles that double does not resolve") {
    ht::cpu device{{.threads = 1}};
    for (const extent width : widths) {
        check_layer_norm<double, double>(device, width);
        check_rms_norm<double, double>(device, width);
    }
}

TEST_CASE_TEMPLATE("layer_norm: a row's bits do not depend on other rows, its index, or the stride", X, float, bfloat16) {
    support::for_each_set([](ht::isa set) {
        ht::cpu device{{.threads = 1, .instruction_set = set}};
        for (const extent width : {5, 64, 67, 1000}) check_bits<X, true>(device, width);
    });
}
TEST_CASE_TEMPLATE("rms_norm: a row's bits do not depend on other rows, its index, or the stride", X, float, bfloat16) {
    support::for_each_set([](ht::isa set) {
        ht::cpu device{{.threads = 1, .instruction_set = set}};
        for (const extent width : {5, 64, 67, 1000}) check_bits<X, false>(device, width);
    });
}

}  // namespace kernel_norm_hard_rows_tests

// SPDX-License-Identifier: MIT
/// \file
/// A whole model with number types that the library does not know on a GPU: loss and gradients within rounding errors.
// compile: with --full, at most 200 kernels. A whole model of kernels that the emulated machine tests, too.
// local memory of `attention_add_not_finite_kernel<*>`: at most 8 bytes of stack, 8 of stores, 8 of loads. The conversions of
// a type of one's own take registers.
// local memory of `dropout_kernel<*>`: at most 8 bytes of stack, 4 of stores, 4 of loads. The same.
// local memory of `plain_attention_kernel<*>`: at most 16 bytes of stack, 20 of stores, 100 of loads. The same.
#include <halftone/amp.hpp>
#include <halftone/cuda.cuh>

#include "nn/gpt_gradients.hpp"
#include "support/own_numbers.hpp"

namespace {

namespace ht = halftone;

template <class P, class T>
void within_what_rounding_does(float seed) {
    ht::cuda device;
    nn_test::within_what_rounding_does_on<P, T>(device, seed);
}

TEST_CASE("gpt on cuda: number types of a user's own") {
    SUBCASE("a float of 6 exponent bits") { within_what_rounding_does<support::amp_e6m9, support::float16_e6m9>(1024); }
    SUBCASE("and masters that float does not hold") {
        within_what_rounding_does<support::fixed_masters, support::float16_e6m9>(1024);
    }
    SUBCASE("operands in fixed point") { within_what_rounding_does<support::fixed_operands, support::fixed16>(64); }
}

}  // namespace

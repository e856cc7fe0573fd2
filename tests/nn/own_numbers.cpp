// SPDX-License-Identifier: MIT
/// \file
/// A model whose policy has number types that the library does not know: loss and every gradient within rounding errors.
#include "nn/gpt_gradients.hpp"
#include "support/own_numbers.hpp"

namespace nn_own_numbers_tests {

namespace ht = halftone;
using nn_test::within_what_rounding_does;

TEST_CASE("gpt: loss and every gradient within the bounds of rounding, number types of a user's own") {
    SUBCASE("a float of 6 exponent bits") { within_what_rounding_does<support::amp_e6m9, support::float16_e6m9>(1024); }
    SUBCASE("and masters that float does not hold") {
        within_what_rounding_does<support::fixed_masters, support::float16_e6m9>(1024);
    }
    SUBCASE("operands in fixed point") { within_what_rounding_does<support::fixed_operands, support::fixed16>(64); }
}

}  // namespace nn_own_numbers_tests

// SPDX-License-Identifier: MIT
/// \file
/// Constants by shape and value: zeros and full.
#include <limits>

#include <doctest/doctest.h>

#include <halftone/autodiff/op/full.hpp>
#include <halftone/autodiff/op/reduce.hpp>
#include <halftone/kernel/map/cpu.hpp>
#include <halftone/kernel/sum/cpu.hpp>

#include "support/gradient_sink.hpp"

namespace autodiff_full_tests {

namespace ht = halftone;

TEST_CASE("full: every element is the value, rounded once, in any context") {
    ht::cpu device{{.threads = 1}};
    ht::tape tape{device};
    ht::inference eval{device};
    CHECK(support::doubles(ht::zeros(tape, ht::shape<2>{2, 3}).view()) == std::vector<double>(6, 0.0));
    CHECK(support::doubles(ht::zeros<ht::bfloat16>(eval, ht::shape<1>{4}).view()) == std::vector<double>(4, 0.0));
    CHECK(support::doubles(ht::full<ht::bfloat16>(tape, ht::shape<1>{2}, 0.1).view()) == std::vector<double>(2, 0.10009765625));
    CHECK(support::doubles(ht::full<ht::float16>(tape, ht::shape<1>{2}, 1e6).view()) ==
          std::vector<double>(2, std::numeric_limits<double>::infinity()));
    CHECK(ht::full<double>(tape, ht::shape<0>{}, 0.1).item() == 0.1);
    CHECK(ht::full<std::int32_t>(tape, ht::shape<0>{}, 7).item() == 7);
    CHECK(ht::full(tape, ht::shape<2>{0, 3}, 1).size() == 0);
    CHECK_THROWS_AS(ht::zeros(tape, ht::shape<2>{-1, 3}), ht::shape_error);
}
TEST_CASE("full: a constant, whose sum with a leaf has the leaf's gradient") {
    ht::cpu device{{.threads = 1}};
    ht::tape tape{device};
    const float values[] = {1, 2};
    const auto x = tape.leaf(ht::const_view<float, 1>(values, {2}));
    const auto c = ht::full<float>(tape, ht::shape<1>{2}, 3);
    CHECK(!c.wants_gradient());
    tape.backward(ht::sum(tape, ht::mul(tape, x, c)));
    CHECK(support::doubles(tape.gradient(x)) == std::vector<double>{3, 3});
}

}  // namespace autodiff_full_tests

// SPDX-License-Identifier: MIT
/// \file
/// Copies between strides on the CPU against their definition.
#include <doctest/doctest.h>

#include <halftone/kernel/strided_copy/cpu.hpp>

#include "kernel/strided_copy/checks.hpp"

namespace kernel_strided_copy_tests {

namespace ht = halftone;
using namespace strided_copy_checks;

TEST_CASE("strided_copy: the bytes of its definition") {
    ht::cpu one{{.threads = 1}}, two{{.threads = 2}};
    every_size(one);
    orders<ht::bfloat16>(two, 0);
    // More than one piece, more than one strip of columns.
    CHECK(is_right<ht::bfloat16>(two, ht::shape<2>{70, 9000}, 1, [](const auto& v) { return ht::transpose(v); }));
    CHECK(
        is_right<float>(two, ht::shape<3>{9000, 7, 5}, 0, [](const auto& v) { return ht::transpose(v, axes<0, 2>); }));
}

TEST_CASE("strided_copy: wrong arguments") {
    ht::cpu device{{.threads = 1}};
    refusals(device);
}

TEST_CASE("views of other orders: PyTorch's rules for numbers from the end") {
    const guarded<float> x(24);
    const auto v = x.view(ht::shape<3>{2, 3, 4});
    CHECK(ht::slice(v, axes<2>, -3, 100, 2).shape() == ht::shape<3>{2, 3, 2});
    CHECK(ht::slice(v, axes<2>, -3, 100, 2).data() == x.data() + 1);
    CHECK(ht::slice(v, axes<-1>, 3, 1).shape() == ht::shape<3>{2, 3, 0});
    CHECK(ht::select(v, axes<0>, -1).data() == x.data() + 12);
    CHECK(ht::unsqueeze(v, axes<0, -1>).shape() == ht::shape<5>{1, 2, 3, 4, 1});
    CHECK(ht::unsqueeze(v, axes<0, -1>).is_contiguous());
    CHECK(ht::squeeze(ht::unsqueeze(v, axes<1>), axes<1>).strides() == v.strides());
    CHECK(ht::expand(ht::select(v, axes<0>, 0), ht::shape<3>{9, -1, -1}).strides() == ht::shape<3>{0, 4, 1});
    CHECK_THROWS_AS(ht::expand(v, ht::shape<3>{2, 3, 5}), ht::shape_error);
    CHECK_THROWS_AS(ht::narrow(v, axes<1>, 2, 2), ht::argument_error);
    CHECK_THROWS_AS(ht::squeeze(v, axes<1>), ht::shape_error);
}

}  // namespace kernel_strided_copy_tests

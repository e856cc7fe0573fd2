// SPDX-License-Identifier: MIT
/// \file
/// Tensors: their memory is counted by kind and freed; impossible shapes throw.
#include <utility>

#include <doctest/doctest.h>

#include <halftone/number/bfloat16.hpp>
#include <halftone/tensor/tensor.hpp>

namespace tensor_tests {

namespace ht = halftone;

TEST_CASE("tensor: owns the memory that its view shows") {
    ht::host_memory memory;
    {
        ht::tensor<ht::bfloat16, 2> x{memory, {3, 5}, ht::memory_kind::gradient};
        CHECK(x.shape() == ht::shape<2>{3, 5});
        CHECK(x.size() == 15);
        CHECK(memory.usage().live(ht::memory_kind::gradient) == 64);  // 30 bytes, in whole cache lines
        x(2, 4) = ht::bfloat16(1.5f);
        const ht::view<ht::bfloat16, 2> v = x;
        const ht::const_view<ht::bfloat16, 2> c = x;
        CHECK(v(2, 4) == 1.5f);
        CHECK(c(2, 4) == 1.5f);
        CHECK(v.is_contiguous());
        CHECK(ht::as_view(x).data() == x.data());

        const ht::tensor<ht::bfloat16, 2> y = std::move(x);
        CHECK(y(2, 4) == 1.5f);
        CHECK(memory.usage().allocations() == 1);

        // A tensor that was moved from is empty, and can be assigned to again.
        CHECK(x.data() == nullptr);
        CHECK(x.size() == 0);
        CHECK(x.shape() == ht::shape<2>{});
        CHECK(x.view().data() == nullptr);
        ht::tensor<ht::bfloat16, 2> z;
        z = ht::tensor<ht::bfloat16, 2>{memory, {1, 2}};
        x = std::move(z);
        CHECK(z.data() == nullptr);
        CHECK(z.size() == 0);
        CHECK(x.size() == 2);
    }
    CHECK(memory.usage().live() == 0);
}

TEST_CASE("tensor: without elements") {
    ht::host_memory memory;
    const ht::tensor<float, 2> x{memory, {0, 5}};
    CHECK(x.data() == nullptr);
    CHECK(x.size() == 0);
    CHECK(ht::tensor<float, 1>{}.data() == nullptr);
    CHECK(memory.usage().allocations() == 0);
}

TEST_CASE("tensor: impossible shapes and too little memory") {
    ht::host_memory memory(1 << 10);
    CHECK_THROWS_WITH_AS((ht::tensor<float, 2>{memory, {4, -1}}), "tensor: shape (4, -1) has a negative extent",
                         ht::shape_error);
    CHECK_THROWS_WITH_AS((ht::tensor<double, 2>{memory, {100, 2}, ht::memory_kind::activation}),
                         "memory: no 1600 bytes for activation; held: nothing", ht::out_of_memory);
    CHECK(memory.usage().live() == 0);
}

}  // namespace tensor_tests

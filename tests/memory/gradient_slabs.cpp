// SPDX-License-Identifier: MIT
/// \file
/// Gradient slabs: the first claim in a window overwrites, later ones add, and gradients without a claim are zero at its end.
#include <doctest/doctest.h>

#include <halftone/memory/gradient_slabs.hpp>
#include <halftone/policy.hpp>

namespace memory_gradient_slabs_tests {

namespace ht = halftone;
using storage = ht::storage_signature<ht::amp_bf16, ht::op::linear>;

struct fixture {
    ht::host_memory memory;
    ht::store parameters{memory};
    ht::parameter<storage, 1> a = parameters.add<ht::amp_bf16, ht::op::linear>("a", ht::shape<1>{65}, {});
    ht::parameter<storage, 1> b = parameters.add<ht::amp_bf16, ht::op::linear>("b", ht::shape<1>{3}, {});
    ht::parameter<ht::storage_signature<ht::amp_bf16, ht::op::layer_norm>, 1> c =
        parameters.add<ht::amp_bf16, ht::op::layer_norm>("c", ht::shape<1>{2}, {});
    fixture() { parameters.commit(); }
    static float& first(const ht::gradient_slabs::place& p) { return *reinterpret_cast<float*>(p.data); }
};

TEST_CASE("gradient_slabs: the parameters' layout, with zeros between them") {
    fixture f;
    ht::gradient_slabs slabs(f.parameters);
    CHECK(&slabs.owner() == &f.parameters);
    CHECK(f.memory.usage().live(ht::memory_kind::gradient) == (192 + 64) * 4);
    const auto group = slabs.group<storage>(0);
    REQUIRE(group.shape() == ht::shape<1>{192});
    for (ht::extent i = 0; i < 192; ++i) CHECK(group(i) == 0.0f);
    CHECK(slabs.claim(f.b.entry()).data == reinterpret_cast<std::byte*>(group.data() + 128));
    CHECK(slabs.claim(f.c.entry()).data == reinterpret_cast<std::byte*>(slabs.group<storage>(1).data()));
}

TEST_CASE("gradient_slabs: windows") {
    fixture f;
    ht::gradient_slabs slabs(f.parameters);
    auto place = slabs.claim(0);
    CHECK(place.is_first);
    fixture::first(place) = 3;
    CHECK(!slabs.claim(0).is_first);
    CHECK(slabs.claim(1).is_first);
    fixture::first(slabs.claim(1)) = 4;
    slabs.close();
    CHECK(fixture::first(place) == 3);  // claimed gradients can be read after the window

    place = slabs.claim(0);
    CHECK(place.is_first);
    slabs.close();
    CHECK(fixture::first(place) == 3);                   // claimed again: not set to zero, since the claimant overwrites it
    CHECK(slabs.group<storage>(0)(128) == 0.0f);         // not claimed in the second window: zero
}

TEST_CASE("gradient_slabs: frozen parameters have no place; freezing afterwards is an error") {
    fixture f;
    f.parameters.freeze("a");
    ht::gradient_slabs slabs(f.parameters);
    CHECK(slabs.claim(f.a.entry()).data == nullptr);
    CHECK(slabs.claim(f.b.entry()).data == reinterpret_cast<std::byte*>(slabs.group<storage>(0).data()));
    slabs.close();
    f.parameters.freeze("b");
    CHECK_THROWS_WITH_AS(slabs.claim(f.c.entry()),
                         "gradients: parameters were frozen after these buffers were made; freeze first",
                         ht::state_error);
    CHECK_THROWS_AS(slabs.close(), ht::state_error);
    f.parameters.freeze("*");
    ht::gradient_slabs none(f.parameters);
    CHECK(none.group<storage>(0).size() == 0);
    none.close();
}

TEST_CASE("gradient_slabs: for a store that has no memory yet") {
    ht::host_memory memory;
    ht::store s(memory);
    s.add<ht::amp_bf16, ht::op::linear>("a", ht::shape<1>{65}, {});
    CHECK_THROWS_AS(ht::gradient_slabs{s}, ht::state_error);
}

TEST_CASE("gradient_slabs: in the policy's accumulate type") {
    ht::host_memory memory;
    ht::store s(memory);
    using P = ht::with_accumulate<ht::amp_bf16, ht::bfloat16>;
    s.add<P, ht::op::linear>("a", ht::shape<1>{100}, {});
    s.commit();
    const ht::gradient_slabs slabs(s);
    CHECK(memory.usage().live(ht::memory_kind::gradient) == 128 * 2);
    static_assert(
        std::is_same_v<decltype(slabs.group<ht::storage_signature<P, ht::op::linear>>(0)), ht::view<ht::bfloat16, 1>>);
}

}  // namespace memory_gradient_slabs_tests

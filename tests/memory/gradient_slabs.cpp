// SPDX-License-Identifier: MIT
/// \file
/// Gradients of a store: first claims overwrite, windows end, each parameter finds its own.
#include <doctest/doctest.h>

#include <halftone/memory/gradient_slabs.hpp>
#include <halftone/policy.hpp>

namespace {

namespace ht = halftone;

using P = ht::recipe<ht::amp_bf16, ht::rule<"narrow", ht::with_accumulate<ht::amp_bf16, ht::bfloat16>>>;

struct parameters {
    ht::host_memory memory;
    ht::store store{memory};
    ht::parameter<ht::storage_signature<ht::at<P, "fc">, ht::op::linear>, 2> weight =
        store.add<ht::at<P, "fc">, ht::op::linear>("weight", ht::shape<2>{2, 3}, {});
    ht::parameter<ht::storage_signature<ht::at<P, "narrow">, ht::op::linear>, 1> narrow =
        store.add<ht::at<P, "narrow">, ht::op::linear>("weight", ht::shape<1>{4}, {});
    ht::parameter<ht::storage_signature<ht::at<P, "fc">, ht::op::linear>, 1> bias =
        store.add<ht::at<P, "fc">, ht::op::linear>("bias", ht::shape<1>{3}, {});
    parameters() { store.commit(); }
};

TEST_CASE("gradient_slabs: a parameter's gradient, in its type and shape") {
    parameters p;
    ht::gradient_slabs slabs(p.store);
    const auto claimed = slabs.claim(p.bias.entry());
    CHECK(claimed.is_first);
    CHECK_FALSE(slabs.claim(p.bias.entry()).is_first);
    reinterpret_cast<float*>(claimed.data)[2] = 7;
    reinterpret_cast<ht::bfloat16*>(slabs.claim(p.narrow.entry()).data)[3] = ht::bfloat16(5);

    CHECK(slabs.of(p.bias)(2) == 7);
    CHECK(slabs.of(p.bias)(0) == 0);
    CHECK(slabs.of(p.narrow)(3) == 5);
    CHECK(slabs.of(p.weight)(1, 2) == 0);
    static_assert(std::is_same_v<decltype(slabs.of(p.narrow)), ht::const_view<ht::bfloat16, 1>>);
    static_assert(std::is_same_v<decltype(slabs.of(p.weight)), ht::const_view<float, 2>>);

    // What no claim reached is zero in the next window, too.
    slabs.close();
    CHECK(slabs.of(p.bias)(2) == 7);
    slabs.close();
    CHECK(slabs.of(p.bias)(2) == 0);
}

TEST_CASE("gradient_slabs: frozen parameters and parameters of others have no gradient here") {
    parameters p, other;
    const ht::gradient_slabs before(p.store);
    CHECK_THROWS_WITH_AS(static_cast<void>(before.of(other.bias)), "gradients: a parameter of another store",
                         ht::argument_error);
    p.store.freeze("fc.bias");
    CHECK_THROWS_AS(static_cast<void>(before.of(p.weight)), ht::state_error);
    ht::gradient_slabs slabs(p.store);
    CHECK(slabs.claim(p.bias.entry()).data == nullptr);
    CHECK_THROWS_WITH_AS(static_cast<void>(slabs.of(p.bias)), "gradients: fc.bias is frozen and has no gradient",
                         ht::state_error);
}

}  // namespace

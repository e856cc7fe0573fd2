// SPDX-License-Identifier: MIT
#include <optional>
#include <type_traits>

#include <doctest/doctest.h>

#include <halftone/autodiff/engine/variable.hpp>
#include <halftone/scale/grad_scaler.hpp>

#include "optim/small_model.hpp"

namespace scale_scaled_tests {

namespace ht = halftone;

TEST_CASE("scaled: the seed is the inner one times the scale, whatever the loss is") {
    ht::cpu device{{.threads = 1}};
    ht::grad_scaler scaler{device, {.init_scale = 4096}};
    const small::loss mine{0.25f};
    const auto s = scaler.scale(mine);
    static_assert(std::is_same_v<decltype(s), const ht::scaled<small::loss>>);
    static_assert(ht::is_scaled<std::remove_const_t<decltype(s)>> && !ht::is_scaled<small::loss>);
    CHECK(loss_seed(s).value() == 1024);
    CHECK(&loss_variable(s) == &s.value());
    CHECK(loss_seed(scaler.scale(ht::variable<float, 0>{})).value() == 4096);
    CHECK(loss_seed(scaler.scale(ht::variable<float, 0>{} / 8)).value() == 512);
}

TEST_CASE("scaled: knows whether its scale is still current") {
    ht::cpu device{{.threads = 1}};
    ht::grad_scaler a{device}, b{device};
    const auto first = a.scale(1), second = a.scale(2), other = b.scale(1);
    CHECK(first.stamp() == second.stamp());
    CHECK_FALSE(first.stamp() == other.stamp());
    a.update(2.0f);
    CHECK_FALSE(first.stamp().is_current());
    CHECK(a.scale(1).stamp().is_current());
    CHECK(other.stamp().is_current());
    CHECK_FALSE(ht::scale_stamp{}.is_current());
}

TEST_CASE("scaled: a new scaler at the address of another one is not confused with it") {
    ht::cpu device{{.threads = 1}};
    std::optional<ht::grad_scaler<ht::cpu>> scaler;
    scaler.emplace(device, ht::grad_scaler_options{.init_scale = 1024});
    const auto stamp = scaler->scale(1).stamp();
    scaler.emplace(device, ht::grad_scaler_options{.init_scale = 4});
    CHECK_FALSE(stamp.is_current());
    CHECK_FALSE(stamp == scaler->scale(1).stamp());
    scaler.reset();
    CHECK_FALSE(stamp.is_current());
}

}  // namespace scale_scaled_tests

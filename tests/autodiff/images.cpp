// SPDX-License-Identifier: MIT
/// \file
/// Pooling, batch norm and group norm on tapes of the CPU: gradients, types, running statistics, refusals.
#include <halftone/kernel.hpp>

#include "autodiff/images_checks.hpp"

namespace autodiff_images_tests {

namespace ht = halftone;
using ht::bfloat16;

TEST_CASE("pooling, batch_norm and group_norm on tapes: gradients against differences") {
    ht::cpu device{{.threads = 2}};
    images_checks::gradients(device);
}

TEST_CASE("batch_norm and group_norm on tapes, far from zero") {
    ht::cpu device{{.threads = 2}};
    images_checks::far_from_zero(device);
}

using tape = ht::tape<ht::cpu>;
using region = ht::region<ht::amp_bf16, tape>;
using narrow = ht::variable<bfloat16, 4>;
using wide = ht::variable<float, 4>;
template <class Context, class X>
using max_type = decltype(ht::max_pool2d(std::declval<Context&>(), std::declval<X>(), {2}));
template <class Context, class X>
using batch_type = decltype(ht::batch_norm(std::declval<Context&>(), std::declval<X>(), ht::absent{}, ht::absent{},
                                           ht::absent{}, ht::absent{}));
template <class Context, class X>
using group_type = decltype(ht::group_norm(std::declval<Context&>(), std::declval<X>(), 2));
static_assert(std::is_same_v<max_type<region, narrow>, narrow> && std::is_same_v<max_type<region, wide>, wide>);
static_assert(std::is_same_v<batch_type<region, narrow>, narrow> && std::is_same_v<batch_type<region, wide>, wide>);
static_assert(std::is_same_v<group_type<region, narrow>, wide> && std::is_same_v<group_type<tape, narrow>, narrow>);
static_assert(
    std::is_same_v<decltype(ht::avg_pool2d<float>(std::declval<tape&>(), std::declval<narrow>(), {2})), wide>);

TEST_CASE("max_pool2d: indices are kept where a gradient is wanted") {
    ht::cpu device{{.threads = 1}};
    const std::vector<float> x(4 * 36, 1.0f);
    const ht::const_view<float, 4> image(x.data(), {2, 2, 6, 6});
    ht::tape tape{device};
    ht::max_pool2d(tape, tape.constant(image), {2});
    CHECK(tape.graph().records() == 0);
    const auto leaf = tape.leaf(image);
    const auto y = ht::max_pool2d(tape, leaf, {2});
    CHECK(tape.graph().records() == 1);
    tape.backward(ht::sum(tape, y));
    // Of equally large numbers the first gets all.
    CHECK((tape.gradient(leaf)(1, 1, 2, 2) == 1 && tape.gradient(leaf)(1, 1, 2, 3) == 0));
}

TEST_CASE("batch_norm, group_norm on tapes: refusals") {
    ht::cpu device{{.threads = 1}};
    ht::inference eval{device};
    std::vector<float> x(24), three(3, 1.0f);
    const auto v = eval.constant(ht::const_view<float, 4>(x.data(), {2, 3, 2, 2}));
    const auto two = eval.constant(ht::const_view<float, 1>(three.data(), {2}));
    const ht::view<float, 1> running(three.data(), {3}), short_one(three.data(), {2});
    const ht::absent none;
    CHECK_THROWS_WITH_AS(ht::batch_norm(eval, v, running, running, two, none),
                         "batch_norm: weight is (2); expected (3)", ht::shape_error);
    CHECK_THROWS_WITH_AS(ht::batch_norm(eval, v, running, short_one, none, none),
                         "batch_norm: running statistics is (2); expected (3)", ht::shape_error);
    CHECK_THROWS_WITH_AS(ht::batch_norm(eval, v, none, none, none, none),
                         "batch_norm: no running statistics, and without training none of the batch",
                         ht::argument_error);
    CHECK_THROWS_WITH_AS(ht::group_norm(eval, v, 3, none, two), "group_norm: bias is (2); expected (3)",
                         ht::shape_error);
}

}  // namespace autodiff_images_tests

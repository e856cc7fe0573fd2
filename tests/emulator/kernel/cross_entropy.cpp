// SPDX-License-Identifier: MIT
/// \file
/// Cross-entropy's GPU kernels on the emulated GPU.
#include <cmath>
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/cross_entropy/device.hpp>

#include "emulator/damage.hpp"
#include "kernel/cross_entropy/checks.hpp"

namespace emulator_kernel_cross_entropy_tests {

using namespace cross_entropy_checks;
namespace emulator = ht::emulator;
using cross_entropy = ht::kernel::cross_entropy<emulator::device>;

TEST_CASE_TEMPLATE("cross_entropy on a GPU: within its bound of the definition", M, all_float, mixed, widening) {
    emulator::device device;
    for (const extent apart : {0, 1}) {
        CAPTURE(apart);
        for (const extent classes : {1, 7, 8, 17, 32, 67, 129, 768, 1021})
            within_bounds<M>(device, 5, classes, 0, 2.0, apart);
        within_bounds<M>(device, 1, 257, 0, 4.0, apart);
        within_bounds<M>(device, 3, 257, 7, 8.0, apart);  // a padded vocabulary
        within_bounds<M>(device, 3, 1048, 8, 1.0, apart);
        within_bounds<M>(device, 3, 5003, 5, 1.0, apart);
    }
}

TEST_CASE_TEMPLATE("cross_entropy on a GPU: large logits, and a constant added to a row's logits", M, all_float, mixed,
                   widening) {
    emulator::device device;
    for (const extent classes : {2, 37, 128, 1100}) {
        no_constant_matters<typename M::X, typename M::D>(device, classes);
        equal_logits(device, classes);
    }
    for (const double deviation : {1e2, 1e4}) {
        within_bounds<M>(device, 3, 67, 0, deviation);
        within_bounds<M>(device, 3, 1500, 3, deviation);
    }
    for (const double centre : {1e4, -5e4}) within_bounds<M>(device, 3, 67, 0, 3.0, 1, centre);
}

TEST_CASE("cross_entropy on a GPU: exact results, ignored rows, a gradient of each row's loss") {
    emulator::device device;
    for (const extent classes : {2, 37, 128, 4099}) what_is_exact(device, classes);
    ignored_rows(device);
    gradient_of_each_loss(device, 11, 67);
    gradient_of_each_loss(device, 2, 1032);
}

TEST_CASE("cross_entropy on a GPU: a target that is no class makes its row and the mean NaN, and nothing else") {
    emulator::device device;
    for (const extent classes : {8, 1100}) {
        constexpr extent rows = 4;
        const ht::shape<2> shape{rows, classes};
        support::random data(2);
        const guarded<float> x(data.normals<float>(rows * classes)), losses(rows), maximum(rows), sum(rows), loss(1),
            count(1), dx(rows * classes);
        const guarded<float> gradient(std::vector<float>{1.0f});
        const guarded<std::int32_t> targets(std::vector<std::int32_t>{0, static_cast<std::int32_t>(classes), 3, -1});
        cross_entropy::check_targets(device, classes, targets.const_view());
        cross_entropy::forward<float>(device, {.logits = x.const_view(shape),
                                               .targets = targets.const_view(),
                                               .losses = losses.view(),
                                               .maximum = maximum.view(),
                                               .sum = sum.view(),
                                               .loss = loss.view(),
                                               .count = count.view()});
        cross_entropy::backward<float, float>(device, {.logits = x.const_view(shape),
                                                       .targets = targets.const_view(),
                                                       .maximum = maximum.const_view(),
                                                       .sum = sum.const_view(),
                                                       .gradient = gradient.const_view(),
                                                       .dlogits = dx.view(shape)});
        CHECK(ht::is_nan(loss[0]));
        CHECK(count[0] == 4);
        for (extent i = 0; i < rows; ++i) {
            CHECK(ht::is_nan(losses[i]) == (i % 2 == 1));
            CHECK_FALSE(ht::is_nan(maximum[i]));
            CHECK_FALSE(ht::is_nan(sum[i]));
            for (extent j = 0; j < classes; ++j) CHECK(ht::is_nan(dx[i * classes + j]) == (i % 2 == 1));
        }
    }
}

TEST_CASE("cross_entropy on a GPU: in place, in memory that the host cannot read, and no rows") {
    emulator::device device;
    constexpr extent rows = 3, classes = 72;
    const ht::shape<2> shape{rows, classes};
    support::random data(9);
    const guarded<bfloat16> x(data.normals<bfloat16>(rows * classes), 0), apart(rows * classes, 0),
        back(rows * classes, 0);
    const std::vector<std::int32_t> targets{5, ignored, 71};
    const std::vector<float> one{1};
    ht::buffer memory(device.memory(), 1 << 16, ht::memory_kind::workspace);
    std::byte* at = memory.data();
    const auto take = [&](const void* from, std::size_t bytes) {
        std::byte* const here = at;
        if (from != nullptr) device.memory().write(here, from, bytes);
        at += ht::round_up(bytes, 64u);
        return here;
    };
    const ht::view<bfloat16, 2> logits(reinterpret_cast<bfloat16*>(take(x.data(), rows * classes * 2)), shape);
    const ht::view<bfloat16, 2> other(reinterpret_cast<bfloat16*>(take(nullptr, rows * classes * 2)), shape);
    const ht::const_view<std::int32_t, 1> to(reinterpret_cast<const std::int32_t*>(take(targets.data(), 12)), {rows});
    const auto floats = [&](extent n, const float* from) {
        return ht::view<float, 1>(reinterpret_cast<float*>(take(from, static_cast<std::size_t>(n) * 4)), {n});
    };
    const auto losses = floats(rows, nullptr), maximum = floats(rows, nullptr), sum = floats(rows, nullptr),
               loss = floats(1, nullptr), count = floats(1, nullptr), gradient = floats(1, one.data());
    cross_entropy::forward<bfloat16>(device, {.logits = logits,
                                              .targets = to,
                                              .losses = losses,
                                              .maximum = maximum,
                                              .sum = sum,
                                              .loss = loss,
                                              .count = count});
    for (const auto& dlogits : {other, logits}) {
        cross_entropy::backward<bfloat16, bfloat16>(device, {.logits = logits,
                                                             .targets = to,
                                                             .maximum = maximum,
                                                             .sum = sum,
                                                             .gradient = gradient,
                                                             .count = count,
                                                             .dlogits = dlogits});
    }
    device.memory().read(apart.data(), other.data(), rows * classes * 2);
    device.memory().read(back.data(), logits.data(), rows * classes * 2);
    CHECK(apart.same_bits(back));
    float counted = 0;
    device.memory().read(&counted, count.data(), 4);
    CHECK(counted == 2);

    const guarded<float> none(1), number(1);
    cross_entropy::forward<float>(device, {.logits = {nullptr, {0, 4}},
                                           .targets = {nullptr, {0}},
                                           .losses = {nullptr, {0}},
                                           .maximum = {nullptr, {0}},
                                           .sum = {nullptr, {0}},
                                           .loss = none.view(),
                                           .count = number.view()});
    CHECK(ht::is_nan(none[0]));
    CHECK(number[0] == 0);
}

/// Rows with one large logit and others far below, so that all results are exact.
bool forward_and_backward(emulator::device& device, extent rows, extent classes, extent apart) {
    const ht::shape<2> shape{rows, classes};
    const guarded<float> x(rows * classes, apart), dx(rows * classes, apart), losses(rows), maximum(rows), sum(rows),
        loss(1), count(1);
    const guarded<float> gradient(std::vector<float>{static_cast<float>(rows)});
    const guarded<std::int32_t> targets(rows);
    bool right = true;
    for (extent place = 0; place < 3; ++place) {
        const extent at = place * (classes - 1) / 2;
        for (extent k = 0; k < rows * classes; ++k)
            x[k] = k % classes == at ? 9e4f : static_cast<float>(-1e4 * static_cast<double>(1 + k % 3));
        for (extent i = 0; i < rows; ++i) targets[i] = static_cast<std::int32_t>(i % 2 == 0 ? at : (at + i) % classes);
        cross_entropy::forward<float>(device, {.logits = x.const_view(shape),
                                               .targets = targets.const_view(),
                                               .losses = losses.view(),
                                               .maximum = maximum.view(),
                                               .sum = sum.view(),
                                               .loss = loss.view(),
                                               .count = count.view()});
        cross_entropy::backward<float, float>(device, {.logits = x.const_view(shape),
                                                       .targets = targets.const_view(),
                                                       .maximum = maximum.const_view(),
                                                       .sum = sum.const_view(),
                                                       .gradient = gradient.const_view(),
                                                       .count = count.const_view(),
                                                       .dlogits = dx.view(shape)});
        double total = 0;
        for (extent i = 0; i < rows; ++i) {
            const float want = 9e4f - x[i * classes + targets[i]];
            total += static_cast<double>(want);
            right = right && losses[i] == want && maximum[i] == 9e4f && sum[i] == 1;
            for (extent j = 0; j < classes; ++j)
                right =
                    right && dx[i * classes + j] == static_cast<float>((j == at ? 1 : 0) - (j == targets[i] ? 1 : 0));
        }
        right = right && loss[0] == static_cast<float>(total / static_cast<double>(rows)) &&
                count[0] == static_cast<float>(rows);
    }
    // Equal logits: the sum is the number of classes.
    for (extent k = 0; k < rows * classes; ++k) x[k] = 0;
    cross_entropy::forward_rows<float>(device, {.logits = x.const_view(shape),
                                                .targets = targets.const_view(),
                                                .losses = losses.view(),
                                                .maximum = maximum.view(),
                                                .sum = sum.view()});
    for (extent i = 0; i < rows; ++i) right = right && losses[i] == std::log(static_cast<float>(classes));
    return right;
}

TEST_CASE("cross_entropy on a GPU: right in every schedule, and every damage is found") {
    struct trial {
        extent rows, classes, apart;
    };
    for (const trial t : {trial{5, 72, 0}, {3, 67, 1}, {40, 8, 0}, {1, 4097, 1}}) {
        CAPTURE(t.classes);
        emulator::check_kernels(
            [&](emulator::device& device) { return forward_and_backward(device, t.rows, t.classes, t.apart); });
    }
}

}  // namespace emulator_kernel_cross_entropy_tests

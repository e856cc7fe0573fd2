// SPDX-License-Identifier: MIT
/// \file
/// Second derivatives of convolutions, pooling, batch norm and group norm against central differences in double.
#include <halftone/autodiff/op/channel_norm.hpp>
#include <halftone/autodiff/op/pooling.hpp>
#include <halftone/kernel.hpp>
#include <halftone/kernel/channel_norm/reference.hpp>
#include <halftone/kernel/pooling/reference.hpp>

#include "autodiff/second_order.hpp"
#include "autodiff/twice_conv2d.hpp"

namespace autodiff_twice_images_tests {

namespace ht = halftone;
using second_order::check;
using second_order::doubles;
using second_order::weigh;
using second_order::weighed;

constexpr ht::shape<4> images{1, 2, 3, 4};

/// The tape's x of (2, 12) as images.
auto image_of(const ht::variable<float, 2>& x) { return ht::detail::reshaped(x, images); }
ht::view<double, 4> shown(doubles& x, const ht::shape<4>& s = images) { return {x.data(), s}; }
template <class Y>
auto as_matrix(const Y& y) {
    return ht::detail::reshaped(y, ht::shape<2>{2, y.size() / 2});
}

TEST_CASE("second derivatives of conv2d") {
    ht::cpu device{{.threads = 1}};
    twice_checks::check_conv2d(device);
}

TEST_CASE("second derivatives of pooling") {
    ht::cpu device{{.threads = 1}};
    const ht::max_pool_options largest{{1, 2}, 1};  // so that most elements are some window's largest
    const ht::avg_pool_options mean{{2, 3}, {1, 2}, {1, 1}, false, false};
    check(
        device, nullptr, {2, 12}, 12,
        [&](auto& t, const auto& x) {
            const auto y = ht::max_pool2d(t, image_of(ht::mul(t, x, x)), largest);
            return weigh(t, as_matrix(ht::exp(t, y)));
        },
        [&](doubles x) {
            for (double& v : x) v *= v;
            doubles y(18);
            std::vector<std::int32_t> index(18);
            const ht::shape<4> windows{1, 2, 3, 3};
            ht::reference::max_pool2d(shown(x), largest, shown(y, windows),
                                      ht::view<std::int32_t, 4>(index.data(), windows));
            for (double& v : y) v = std::exp(v);
            return weighed(y);
        });
    const auto of_mean = [&](const auto& run, const auto& options, const ht::shape<4>& windows) {
        check(
            device, nullptr, {2, 12}, 12,
            [&](auto& t, const auto& x) {
                return weigh(t, as_matrix(ht::exp(t, run(t, image_of(ht::mul(t, x, x))))));
            },
            [&](doubles x) {
                for (double& v : x) v *= v;
                doubles y(static_cast<std::size_t>(windows.size()));
                ht::reference::mean_pool2d(shown(x), options, shown(y, windows));
                for (double& v : y) v = std::exp(v);
                return weighed(y);
            });
    };
    of_mean([&](auto& t, const auto& x) { return ht::avg_pool2d(t, x, mean); }, mean, {1, 2, 4, 2});
    of_mean(
        [](auto& t, const auto& x) {
            return ht::adaptive_avg_pool2d(t, x, {2, 3});
        },
        ht::reference::adaptive{}, {1, 2, 2, 3});
}

TEST_CASE("second derivatives of batch_norm and group_norm, by their input, weight and bias") {
    ht::cpu device{{.threads = 1}};
    using P = ht::at<ht::full_fp32, "norm">;
    for (const ht::extent groups : {0, 1, 2}) {
        ht::store parameters{device.memory()};
        const auto weight = parameters.add<P, ht::op::group_norm>("weight", ht::shape<1>{2},
                                                                  ht::initial{.mean = 1.5f, .deviation = 0.5f});
        const auto bias =
            parameters.add<P, ht::op::group_norm>("bias", ht::shape<1>{2}, ht::initial{.deviation = 0.5f});
        parameters.commit(3);
        check(
            device, &parameters, {2, 12}, 24,
            [&](auto& t, const auto& x) {
                const auto in = image_of(x);
                const auto y = groups == 0
                                   ? ht::batch_norm(t, in, ht::absent{}, ht::absent{}, weight, bias, {.training = true})
                                   : ht::group_norm(t, in, groups, weight, bias);
                return weigh(t, as_matrix(ht::tanh(t, y)));
            },
            [&](const doubles& all) {
                const auto sets =
                    groups == 0 ? ht::detail::batch_sets(images) : ht::detail::group_sets("test", images, groups);
                const ht::shape<3> parts{1, 2, 12};
                doubles y(24), mean(2), var(2), rstd(2);
                const ht::const_view<double, 3> x(all.data(), parts);
                ht::reference::channel_statistics(sets, x, 1e-5, mean.data(), var.data(), rstd.data());
                ht::reference::channel_norm(sets, x, mean.data(), rstd.data(), all.data() + 24, all.data() + 26,
                                            ht::view<double, 3>(y.data(), parts));
                for (double& v : y) v = std::tanh(v);
                return weighed(y);
            });
    }
}

}  // namespace autodiff_twice_images_tests

// SPDX-License-Identifier: MIT
/// \file
/// Shadow runs of batch norm, group norm and mean pooling: their differences are what rounding allows for, and not
/// more.
#include <doctest/doctest.h>

#include <halftone/amp.hpp>
#include <halftone/nn/channel_norm.hpp>
#include <halftone/observe/shadow/shadow.hpp>

#include "support/random.hpp"

namespace train_shadow_images_tests {

namespace ht = halftone;

template <class P>
struct net : ht::nn::model {
    using policy = P;
    ht::nn::batch_norm2d<ht::at<P, "bn">> bn;
    ht::nn::group_norm<ht::at<P, "gn">> gn;
    double eps;
    net(auto& device, double e) : model(device), bn(parameters(), 6), gn(parameters(), 3, 6, e), eps(e) {
        commit(*this, 3);
    }
    auto operator()(auto&& t, const auto& x) const {
        return ht::adaptive_avg_pool2d(t, gn(t, ht::avg_pool2d(t, bn(t, x), {3, 2, 1})), {2, 3});
    }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.bn, self.gn); }
};

ht::shadow_report report_of(double eps) {
    ht::cpu device{{.threads = 1}};
    net<ht::amp_bf16> model{device, 1e-5};
    net<ht::full_fp32> twin{device, eps};
    const auto images = support::random(3).normals<float>(4 * 6 * 9 * 11, 2, 0.5);
    const std::vector<float> targets(4 * 6 * 2 * 3);
    return ht::shadow_run(device, model, twin, [&](auto& tape, const auto& m) {
        const auto x = tape.leaf(ht::const_view<float, 4>(images.data(), {4, 6, 9, 11}));
        return ht::mean_squared_error(tape, m(tape, x), ht::const_view<float, 4>(targets.data(), {4, 6, 2, 3}));
    });
}

TEST_CASE("shadow: batch_norm, group_norm and mean pooling are held to what rounding allows for") {
    CHECK(report_of(1e-5).first() == nullptr);
    // A twin whose group norm divides by something else.
    const auto other = report_of(0.05);
    REQUIRE(other.first() != nullptr);
    CHECK(other.first()->by.operation == "group_norm");
}

}  // namespace train_shadow_images_tests

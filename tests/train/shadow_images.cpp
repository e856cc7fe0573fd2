// SPDX-License-Identifier: MIT
/// \file
/// Shadow runs of batch norm, group norm and mean pooling: their differences are what rounding allows for, and not
/// more.
#include <stdexcept>

#include <doctest/doctest.h>

#include <halftone/amp.hpp>
#include <halftone/nn/channel_norm.hpp>
#include <halftone/observe/shadow/shadow.hpp>

#include "support/random.hpp"
#include "support/store_bytes.hpp"

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
    const auto before = support::bytes_of(model.parameters());
    const ht::shadow_report report = ht::shadow_run(device, model, twin, [&](auto& tape, const auto& m) {
        const auto x = tape.leaf(ht::const_view<float, 4>(images.data(), {4, 6, 9, 11}));
        return ht::mean_squared_error(tape, m(tape, x), ht::const_view<float, 4>(targets.data(), {4, 6, 2, 3}));
    });
    CHECK(support::bytes_of(model.parameters()) == before);  // with running statistics
    return report;
}

TEST_CASE("shadow: batch_norm, group_norm and mean pooling are held to what rounding allows for") {
    CHECK(report_of(1e-5).first() == nullptr);
    // A twin whose group norm divides by something else.
    const auto other = report_of(0.05);
    REQUIRE(other.first() != nullptr);
    CHECK(other.first()->by.operation == "group_norm");
}

template <class P>
struct one_layer : ht::nn::model {
    using policy = P;
    ht::nn::linear<ht::at<P, "fc">> fc;
    explicit one_layer(auto& device) : model(device), fc(parameters(), 16, 8) { commit(*this, 3); }
    auto operator()(auto&& ctx, const auto& x) const { return fc(ctx, x); }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.fc); }
};

TEST_CASE("shadow: the amaxes of a window of delayed scaling are as they were, also when the step throws") {
    ht::cpu device{{.threads = 1}};
    one_layer<ht::with_scaling<ht::fp8_hybrid, ht::delayed_scaling<3>>> model{device};
    one_layer<ht::full_fp32> twin{device};
    const std::vector<std::uint32_t> before{1, 2, 3};
    model.parameters().amaxes().set_window_amaxes(before);
    const auto values = support::random(3).normals<float>(4 * 16);
    for (const bool throws : {false, true}) {
        const auto step = [&](auto& tape, const auto& m) {
            const auto y = m(tape, tape.leaf(ht::const_view<float, 2>(values.data(), {4, 16})));
            if (throws) throw std::runtime_error("stop");
            return ht::mean(tape, ht::mul(tape, y, y));
        };
        if (throws) {
            CHECK_THROWS_AS(ht::shadow_run(device, model, twin, step), std::runtime_error);
        } else {
            CHECK(!ht::shadow_run(device, model, twin, step).rows.empty());
        }
        CHECK(model.parameters().amaxes().window_amaxes() == before);
    }
}

}  // namespace train_shadow_images_tests

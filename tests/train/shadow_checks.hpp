// SPDX-License-Identifier: MIT
/// \file
/// Shadow runs of small networks with a mistake in one layer, on any device.
///
///     shadow_checks::names_what_is_wrong<ht::amp_bf16>(device);
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/amp.hpp>
#include <halftone/observe/shadow/shadow.hpp>

#include "support/random.hpp"

namespace shadow_checks {

namespace ht = halftone;

inline constexpr ht::extent rows = 6, width = 16;

/// Sums of rows, rounded to T after every addition.
template <class T>
struct sum_rows {
    const T* x;
    T* y;
    ht::extent rows, columns;
    HALFTONE_HD void operator()() const {
        for (ht::extent i = 0; i < rows; ++i) {
            T sum(0.0f);
            for (ht::extent j = 0; j < columns; ++j)
                sum = T(static_cast<float>(sum) + static_cast<float>(x[i * columns + j]));
            for (ht::extent j = 0; j < columns; ++j) y[i * columns + j] = sum;
        }
    }
};
/// Rounds to a narrower type if T has 16 bits.
template <class T>
struct through_float8 {
    const T* x;
    T* y;
    ht::extent count;
    HALFTONE_HD void operator()() const {
        for (ht::extent i = 0; i < count; ++i) {
            const float v = static_cast<float>(x[i]);
            y[i] = sizeof(T) == 2 ? T(static_cast<float>(ht::float8_e4m3(v))) : T(v);
        }
    }
};

/// The fault of an operation in 16 bits; in fp32 it is correct.
enum class fault { none, swamped, narrow, narrow_gradient };
template <fault Fault>
struct own {
    static constexpr const char* name = "own";

    static auto forward(auto& ctx, const auto& x) {
        using T = typename std::remove_cvref_t<decltype(x)>::value_type;
        if constexpr (Fault == fault::swamped) {
            auto y = ctx.template make<T>(x.shape());
            ctx.device().run(sum_rows<T>{x.view().data(), y.view().data(), x.shape()[0], x.shape()[1]});
            return ht::keep(y, x);
        } else if constexpr (Fault == fault::narrow) {
            return ht::keep(narrow(ctx, x), x);
        } else {
            return ht::keep(ht::map(
                                ctx, [](auto a) { return a * a; }, x),
                            x);
        }
    }
    static auto backward(auto& ctx, const auto& dy, const auto& x) {
        auto dx = ht::map(
            ctx, [](auto g, auto a) { return 2.0f * a * g; }, dy, x);
        if constexpr (Fault == fault::narrow_gradient) return narrow(ctx, dx);
        if constexpr (Fault != fault::narrow_gradient) return dx;
    }

  private:
    static auto narrow(auto& ctx, const auto& x) {
        using T = typename std::remove_cvref_t<decltype(x)>::value_type;
        auto y = ctx.template make<T>(x.shape());
        ctx.device().run(through_float8<T>{x.view().data(), y.view().data(), x.size()});
        return y;
    }
};

/// Layers in, mid and out, and the custom operation mix between the first two.
template <class P, fault Fault>
struct network_of : ht::nn::model {
    using policy = P;
    ht::nn::linear<ht::at<P, "in">> in;
    ht::nn::linear<ht::at<P, "mid">> mid;
    ht::nn::linear<ht::at<P, "out">> out;

    explicit network_of(auto& device)
        : model(device), in(parameters(), width, width), mid(parameters(), width, width), out(parameters(), width, 4) {
        commit(*this, 5);
    }
    auto operator()(auto&& ctx, const auto& x) const {
        return out(ctx, mid(ctx, ht::apply<own<Fault>>(ht::autocast<ht::at<P, "mix">>(ctx), in(ctx, x))));
    }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.in, self.mid, self.out); }
};
struct data_set {
    std::vector<float> inputs = support::random(3).normals<float>(rows * width),
                       targets = support::random(4).normals<float>(rows * 4);
};

/// The report for the squared error times `scale`; `prepare` changes the model before the run.
template <fault Fault, class P, class Device, class Prepare>
ht::shadow_report report_of(Device& device, float scale, const Prepare& prepare) {
    const data_set data;
    network_of<P, Fault> model{device};
    prepare(model);
    network_of<ht::full_fp32, Fault> twin{device};
    return ht::shadow_run(device, model, twin, [&](auto& tape, const auto& m) {
        const auto x = tape.to_device(ht::const_view<float, 2>(data.inputs.data(), {rows, width}));
        return ht::mean_squared_error(tape, m(tape, x), ht::const_view<float, 2>(data.targets.data(), {rows, 4})) *
               scale;
    });
}
inline constexpr auto as_it_is = [](auto&) {};

inline std::string first_of(const ht::shadow_report& r) {
    const ht::shadow_row* f = r.first();
    if (f == nullptr) return "";
    return f->by.layer + (f->by.operation.empty() ? "" : " " + f->by.operation) + " " +
           (f->is_weight() ? "weight" : ht::name(f->pass)) + " " +
           (f->parameter.empty() ? ht::name(f->role) : f->parameter);
}

/// Sets a weight to `times` normally distributed numbers.
inline void scale_weight(const auto& weight, float times, std::uint64_t seed = 9) {
    const auto count = weight.shape().size();
    auto values = support::random(seed).normals<float>(count, 1 / std::sqrt(static_cast<double>(width)));
    for (float& v : values) v *= times;
    weight.assign(values);
}

/// Correct networks have nothing to report, and a fault in one operation or weight is reported with its name.
template <class P>
void names_what_is_wrong(auto& device) {
    const auto healthy = report_of<fault::none, P>(device, 1024, as_it_is);
    CHECK(first_of(healthy) == "");
    CHECK(healthy.rows.size() > 20);
    CHECK(first_of(report_of<fault::swamped, P>(device, 1024, as_it_is)) == "mix own forward value");
    CHECK(first_of(report_of<fault::narrow, P>(device, 1024, as_it_is)) == "mix own forward value");
    CHECK(first_of(report_of<fault::narrow_gradient, P>(device, 1024, as_it_is)) == "mix own backward gradient");

    // A master that was changed by 2%, with an old copy.
    const auto stale = report_of<fault::none, P>(device, 1024, [&](auto& model) {
        const auto master = model.mid.weight.master();
        std::vector<float> values(static_cast<std::size_t>(master.size()));
        device.memory().read(values.data(), master.data(), values.size() * sizeof(float));
        for (float& v : values) v *= 1.02f;
        device.memory().write(master.data(), values.data(), values.size() * sizeof(float));
    });
    CHECK(first_of(stale) == "mid weight mid.weight");
    // It is the only finding: later operations read the copy, and so does the twin.
    for (const ht::shadow_row& r : stale.rows) CHECK(r.diverges() == (r.parameter == "mid.weight" && r.is_weight()));
}

/// Gradients that leave the range of float16 in one layer.
void names_what_leaves_the_range(auto& device) {
    const auto small = [](auto& model) { scale_weight(model.mid.weight, 0x1p-11f); };
    const auto lost = report_of<fault::none, ht::amp_fp16>(device, 0.125f, small);
    CHECK(first_of(lost) == "mid linear backward gradient");
    REQUIRE(lost.first() != nullptr);
    CHECK(lost.first()->format == ht::value_format::float16);
    CHECK(std::fabs(lost.first()->expected) < ht::number_traits<ht::float16>::min_normal);
    CHECK(first_of(report_of<fault::none, ht::amp_fp16>(device, 4096, small)) == "");

    const auto large = [](auto& model) { scale_weight(model.mid.weight, 0x1p8f); };
    const auto beyond = report_of<fault::none, ht::amp_fp16>(device, 64, large);
    CHECK(first_of(beyond) == "mid linear backward gradient");
    REQUIRE(beyond.first() != nullptr);
    CHECK(beyond.first()->ratio == HUGE_VAL);
    CHECK(first_of(report_of<fault::none, ht::amp_fp16>(device, 0.25f, large)) == "");
}

}  // namespace shadow_checks

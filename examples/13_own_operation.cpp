// SPDX-License-Identifier: MIT
/// \file
/// Lesson 13: writing an operation with both passes, and checking it.
///
/// The operation scales every row to length 1, y = x / |x|, as torch.nn.functional.normalize does. Composed of existing
/// operations it would keep the squares, their sums and the root for the backward pass, and in fp16 the squares of values
/// of 256 and more would be infinite. A custom operation chooses what it keeps and in which type it computes. Four checks
/// show that it is correct: its values against its definition, its gradient against finite differences, its types in a
/// region, and training a model with it.
#include <cmath>
#include <cstdio>
#include <vector>

#include <halftone/amp.hpp>
#include <halftone/observe/check_gradients.hpp>

#include "with_device.hpp"

namespace ht = halftone;

/// The definition comes first: the obvious loop, in double.
std::vector<double> definition(const std::vector<float>& x, std::size_t columns) {
    std::vector<double> y(x.begin(), x.end());
    for (std::size_t row = 0; row < y.size(); row += columns) {
        double squares = 0;
        for (std::size_t i = row; i < row + columns; ++i) squares += y[i] * y[i];
        for (std::size_t i = row; i < row + columns; ++i) y[i] /= std::sqrt(squares);
    }
    return y;
}

struct unit_rows {
    static constexpr const char* name = "unit_rows";                     // in profiles, errors and overflow reports
    static constexpr auto cast_rule = ht::category::fp32;                // in a region inputs become floats first, doubles stay
    static auto forward(auto& ctx, const auto& x) {                      // (…, columns)
        const auto squares = ht::map(ctx, [](auto a) { return a * a; }, x);
        const auto inverse = ht::rsqrt(ctx, ht::sum(ctx, squares, ht::axes<-1>, ht::keepdim));  // (…, 1)
        const auto y = ht::mul(ctx, x, inverse);
        return ht::keep(y, y, inverse);                                  // the result, and what backward gets
    }
    // dx = (dy - y (y·dy)) / |x|: a change along the row only changes its length, which does not change y.
    static auto backward(auto& ctx, const auto& dy, const auto& y, const auto& inverse) {
        const auto along = ht::sum(ctx, ht::mul(ctx, dy, y), ht::axes<-1>, ht::keepdim);
        return ht::map(ctx, [](auto g, auto u, auto a, auto i) { return (g - u * a) * i; }, dy, y, along, inverse);
    }
};

/// The same with an incomplete backward pass: an error that training would not show.
struct half_done : unit_rows {
    static auto backward(auto& ctx, const auto& dy, const auto&, const auto& inverse) { return ht::mul(ctx, dy, inverse); }
};

std::vector<float> numbers(std::size_t count, float size) {
    std::vector<float> all(count);
    for (std::size_t i = 0; i < count; ++i) all[i] = size * (2 * ht::uniform(ht::random_bits(1, 0, 0, i)) - 1);
    return all;
}

/// A linear layer whose rows are scaled to length 1.
template <class P>
struct compass : ht::nn::model {
    using policy = P;
    ht::nn::linear<ht::at<P, "fc">> fc;
    explicit compass(auto& device) : model{device}, fc{parameters(), 4, 3} { commit(*this, 7); }
    auto operator()(auto&& ctx, const auto& x) const {
        return ht::apply<unit_rows>(ht::autocast<P>(ctx), fc(ctx, x));
    }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.fc); }
};

/// The lesson; `device` is a ht::cpu, or a ht::cuda.
void lesson(auto& device) {
    constexpr ht::extent rows = 8, columns = 16;
    ht::inference eval{device};

    // 1. The values. A square and columns - 1 additions each have a relative rounding error of 2^-24, which the root
    // halves. The root itself has an error of two units in the last place, at most 4 * 2^-24, and the product rounds once more.
    const auto x = numbers(rows * columns, 3);
    const auto y = ht::apply<unit_rows>(eval, eval.to_device(ht::const_view<float, 2>(x.data(), {rows, columns})));
    const auto values = ht::to_host(device, y);
    const auto expected = definition(x, columns);
    int beyond = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
        const double bound = (columns / 2.0 + 5) * 0x1p-24 * std::fabs(expected[i]);
        beyond += std::fabs(static_cast<double>(values.data()[i]) - expected[i]) <= bound ? 0 : 1;
    }
    std::printf("values: %d of %zu beyond the bound\n", beyond, expected.size());
    // Prints: values: 0 of 128 beyond the bound
    // 2. The gradient, compared with finite differences in double.
    ht::host_tensor<double, 2> wide({2, 3});
    for (int i = 0; i < 6; ++i) wide.data()[i] = static_cast<double>(x[static_cast<std::size_t>(i)]);
    const auto check = [&]<class Op>(Op) {
        return ht::check_gradients(device, [](auto& tape, const auto& in) { return ht::apply<Op>(tape, in); }, wide.view());
    };
    const auto good = check(unit_rows{}), bad = check(half_done{});
    std::printf("unit_rows: %d of 6 elements disagree, half_done: %d\n", static_cast<int>(good.disagree),
                static_cast<int>(bad.disagree));
    // Prints: unit_rows: 0 of 6 elements disagree, half_done: 6

    // 3. The types. In a region of fp16 the category casts the inputs to float; the composition squares them in fp16,
    // because pointwise operations there compute in the type of their inputs, as in PyTorch.
    const std::vector<ht::float16> large(4, ht::float16(300.0f));
    const auto in = eval.to_device(ht::const_view<ht::float16, 2>(large.data(), {1, 4}));
    const auto region = ht::autocast<ht::amp_fp16>(eval);
    const auto own = ht::apply<unit_rows>(region, in);
    static_assert(std::is_same_v<typename decltype(own)::value_type, float>);
    const auto sum = ht::sum(region, ht::mul(region, in, in), ht::axes<-1>, ht::keepdim);
    const auto composed = ht::mul(region, in, ht::rsqrt(region, sum));
    std::printf("rows of 300: own %g, composed %g\n", static_cast<double>(ht::to_host(device, own)(0, 0)),
                static_cast<double>(static_cast<float>(ht::to_host(device, composed)(0, 0))));
    // Prints: rows of 300: own 0.5, composed 0

    // 4. In a model, with loss scaling: it learns directions. The targets are unit rows, too, made by the definition.
    compass<ht::amp_fp16> model{device};
    ht::adamw optimizer{device, model, {.lr = 3e-2}};
    ht::grad_scaler scaler{device};
    ht::accumulator acc{model};
    ht::tape tape{device};
    const auto inputs = numbers(64 * 4, 1);
    std::vector<float> threes;
    for (std::size_t i = 0; i < inputs.size(); i += 4) threes.insert(threes.end(), &inputs[i], &inputs[i] + 3);
    const std::vector<double> exact = definition(threes, 3);
    const std::vector<float> targets(exact.begin(), exact.end());
    float first = 0, last = 0;
    for (int step = 0; step < 60; ++step) {
        const auto out = model(tape, tape.to_device(ht::const_view<float, 2>(inputs.data(), {64, 4})));
        const auto loss = ht::mean_squared_error(tape, out, ht::const_view<float, 2>(targets.data(), {64, 3}));
        last = loss.item();
        if (step == 0) first = last;
        tape.backward(scaler.scale(loss), acc);
        auto grads = scaler.unscale(acc.take());
        optimizer.step(grads);
        scaler.update();
    }
    std::printf("trained: the loss is %s\n", last < first / 10 ? "less than a tenth of the first" : "not small");
    // Prints: trained: the loss is less than a tenth of the first
}

int main(int argc, char** argv) {
    return with_device(argc, argv, [](auto& device) { lesson(device); });
}

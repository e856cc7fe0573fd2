// SPDX-License-Identifier: MIT
/// \file
/// A gradient penalty through a bf16 network with a norm and attention, compared with the same in double.
///
/// The penalty is p = (|g| - 1)^2 of the input's gradient g. With v = 2 (|g| - 1) g / |g| its gradient by the parameters is
/// the derivative of their gradients as x moves along v: a difference of two backward passes on a plain tape of doubles.
///
/// The bound: values that are stored in bf16 are known to a unit roundoff, and so are their gradients and the derivatives
/// of both along v. In double each of them, y, is given errors of that size that stay the same in all passes,
/// (1 + a) y + b; the factor also changes the gradients that pass through it. support::spread gives the resulting bound.
#include <cmath>
#include <deque>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/amp.hpp>
#include <halftone/autodiff/double_backward/double_backward.hpp>

#include "support/bounds.hpp"
#include "support/gradient_sink.hpp"
#include "support/noisy.hpp"
#include "support/random.hpp"

namespace autodiff_twice_low_precision_tests {

namespace ht = halftone;
using doubles = std::vector<double>;

constexpr ht::shape<3> input{2, 3, 4};

template <class P>
struct network : ht::nn::model {
    using policy = P;
    ht::nn::layer_norm<ht::at<P, "norm">> norm;
    ht::nn::attention<ht::at<P, "attn">> attn;
    ht::nn::linear<ht::at<P, "out">> out;

    explicit network(ht::cpu& device)
        : model(device),
          norm(parameters(), 4),
          attn(parameters(), 4, 2, {.deviation = 0.5f}, {.deviation = 0.5f}),
          out(parameters(), 4, 1, {.deviation = 0.5f}) {
        commit(*this, 3);
        // Weights that bf16 holds, none of them 0.
        support::random data(7);
        const auto assign = [&](const auto& p, double at) {
            std::vector<typename P::param> values;
            for (ht::extent i = 0; i < p.shape().size(); ++i)
                values.push_back(
                    static_cast<typename P::param>(float(ht::bfloat16(static_cast<float>(at + data.uniform(-1, 1))))));
            p.assign(values);
        };
        assign(norm.gain, 1.5), assign(norm.bias, 0);
        assign(attn.qkv.weight, 0), assign(attn.qkv.bias, 0);
        assign(attn.proj.weight, 0), assign(attn.proj.bias, 0);
        assign(out.weight, 0), assign(out.bias, 0);
    }
    /// The sum of all results; stored(tape, y) is what becomes of each that is stored.
    auto operator()(auto& tape, const auto& x, const auto& stored) const {
        const auto qkv = stored(tape, attn.qkv(tape, stored(tape, norm(tape, x))));
        const auto mixed =
            stored(tape, ht::self_attention<ht::layer_roles<ht::at<P, "attn">, ht::op::attention, decltype(tape)>>(
                             tape, qkv, attn.heads, attn.options));
        const auto h = stored(tape, ht::gelu(tape, stored(tape, attn.proj(tape, mixed))));
        return stored(tape, out(tape, h));
    }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.norm, self.attn, self.out); }

    doubles gradients(const support::gradient_sink& sink) const {
        doubles all;
        const auto add = [&](const auto& p) {
            for (const double g : sink.of(p)) all.push_back(g);
        };
        add(norm.gain), add(norm.bias), add(attn.qkv.weight), add(attn.qkv.bias);
        add(attn.proj.weight), add(attn.proj.bias), add(out.weight), add(out.bias);
        return all;
    }
};

doubles numbers_of_bfloat16(std::size_t count) {
    support::random data(5);
    doubles all;
    for (std::size_t i = 0; i < count; ++i)
        all.push_back(static_cast<double>(float(ht::bfloat16(static_cast<float>(data.uniform(-1, 1))))));
    return all;
}

/// The errors of one sample, the same whenever the network runs.
class stored_with_errors {
  public:
    explicit stored_with_errors(double roundoff) : roundoff_(roundoff) {}
    void begin() { at_ = 0; }

    template <int Rank>
    ht::variable<double, Rank> operator()(ht::tape<ht::cpu>& tape, const ht::variable<double, Rank>& y) {
        if (at_ == factors_.size()) {
            factors_.emplace_back(), shifts_.emplace_back();
            for (ht::extent i = 0; i < y.size(); ++i) {
                factors_.back().push_back(1 + roundoff_ * support::noise());
                shifts_.back().push_back(roundoff_ * support::noise() * y.view().data()[i]);
            }
        }
        const auto constant = [&](const doubles& all) {
            return tape.constant(ht::const_view<double, Rank>(all.data(), y.shape()));
        };
        const auto factor = constant(factors_[at_]), shift = constant(shifts_[at_]);
        ++at_;
        return ht::add(tape, ht::mul(tape, y, factor), shift);
    }

  private:
    double roundoff_;
    std::deque<doubles> factors_{}, shifts_{};
    std::size_t at_ = 0;
};

/// In double: the penalty's gradients, where what is stored has these errors.
doubles penalty_in_double(ht::cpu& device, network<ht::full_fp64>& model, const doubles& x, stored_with_errors stored) {
    const auto gradients_at = [&](const doubles& at, doubles& dx) {
        ht::tape tape{device};
        support::gradient_sink sink(model.parameters());
        stored.begin();
        const auto leaf = tape.leaf(ht::const_view<double, 3>(at.data(), input));
        tape.backward(ht::sum(tape, model(tape, leaf, [&](auto& t, const auto& y) { return stored(t, y); })), sink);
        dx = support::doubles(tape.gradient(leaf));
        return model.gradients(sink);
    };
    doubles g, unused;
    static_cast<void>(gradients_at(x, g));
    double squares = 0;
    for (const double a : g) squares += a * a;
    const double norm = std::sqrt(squares), step = 1e-5;
    doubles above = x, below = x;
    for (std::size_t i = 0; i < x.size(); ++i) {
        const double v = 2 * (norm - 1) * g[i] / norm;
        above[i] += step * v, below[i] -= step * v;
    }
    doubles slopes = gradients_at(above, unused);
    const doubles others = gradients_at(below, unused);
    for (std::size_t i = 0; i < slopes.size(); ++i) slopes[i] = (slopes[i] - others[i]) / (2 * step);
    return slopes;
}

TEST_CASE("second derivatives in bf16: a gradient penalty through a norm and attention, within rounding") {
    ht::cpu device{{.threads = 1}};
    const doubles x = numbers_of_bfloat16(24);
    network<ht::full_fp64> exact{device};
    const doubles want = penalty_in_double(device, exact, x, stored_with_errors(0));
    support::spread spread(want.size());
    for (int i = 0; i < support::spread::samples; ++i) {
        const doubles sample = penalty_in_double(device, exact, x, stored_with_errors(ht::unit_roundoff<ht::bfloat16>));
        spread.add({sample.begin(), sample.end()}, want);
    }

    network<ht::amp_bf16> model{device};
    const std::vector<float> in(x.begin(), x.end());
    ht::tape tape{device, ht::double_backward};
    support::gradient_sink sink(model.parameters());
    const auto leaf = tape.leaf(ht::const_view<float, 3>(in.data(), input));
    const auto loss = ht::sum<float>(tape, model(tape, leaf, [](auto&, const auto& y) { return y; }));
    const auto norm = ht::norm(tape, tape.gradients(loss, leaf));
    tape.backward(ht::map(
                      tape, [](auto n) { return ht::square(n - 1.0f); }, norm),
                  sink);
    const doubles got = model.gradients(sink);
    REQUIRE(got.size() == want.size());
    support::comparison all;
    for (std::size_t i = 0; i < want.size(); ++i) all.expect(got[i], want[i], spread.bound(i));
    CHECK_WITHIN(all);
}

}  // namespace autodiff_twice_low_precision_tests

// SPDX-License-Identifier: MIT
/// \file
/// What the tests of optimizers' steps share: the operands of a step by any rule, its definition in double with the
/// bounds of its errors, and skipped steps.
///
///     step_checks::slabs<ht::kernel::adamw_rule, float, ht::bfloat16, float, float> s(data, n);
///     step_checks::run(device, s.arguments(step_checks::third));
#pragma once

#include <cmath>
#include <cstdint>
#include <deque>
#include <string_view>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/optimizer_step/optimizer_step.hpp>
#include <halftone/kernel/optimizer_step/reference.hpp>
#include <halftone/number/bfloat16.hpp>
#include <halftone/number/float16.hpp>
#include <halftone/number/round_to.hpp>

#include "support/bounds.hpp"
#include "support/guarded.hpp"
#include "support/random.hpp"

namespace step_checks {

namespace ht = halftone;
namespace kernel = ht::kernel;
using kernel::adamw_rule, kernel::lion_rule, kernel::sgd_rule;
using support::guarded;

/// Numbers of parameters around vectors, and more than one piece.
inline constexpr ht::extent sizes[] = {1, 3, 5, 15, 17, 67, 1009, 16384 + 33};
inline const kernel::gradient_factors factors{1.0f / 128, 0.75f, 1.5f};
inline const kernel::gradient_factors plain;
inline const kernel::step_record third{.steps = 3, .lr = 0.01};
inline constexpr double decay = 0.1;

enum class placement { aligned, unaligned };
inline constexpr placement placements[] = {placement::aligned, placement::unaligned};

/// The rules of a kind that these tests run; most take the last one.
template <class Rule>
std::vector<Rule> rules() {
    if constexpr (std::is_same_v<Rule, adamw_rule>) {
        return {{0.9, 0.99, 1e-6}};
    } else if constexpr (std::is_same_v<Rule, lion_rule>) {
        return {{0.9, 0.98}};
    } else {
        static_assert(std::is_same_v<Rule, sgd_rule>);
        return {{},
                {.momentum = 0.9},
                {.momentum = 0.9, .dampening = 0.5},
                {.momentum = 0.9, .kind = kernel::momentum_kind::nesterov}};
    }
}

/// All operands of a step. Some gradients are 0 where the first moment is, too; second moments are positive.
template <class Rule_, class Param_, class Copy_, class Accumulate, class State_>
struct slabs {
    using Rule = Rule_;
    using Param = Param_;
    using Copy = Copy_;
    using State = State_;
    using arguments_type = kernel::optimizer_step_arguments<Rule, Param, Copy, Accumulate, State>;
    /// Of parameters: those without a master are rounded stochastically.
    static constexpr ht::rounding rounding = sizeof(Param) < 4 ? ht::rounding::stochastic : ht::rounding::nearest_even;

    guarded<Param> master;
    guarded<Copy> copy;
    guarded<Accumulate> gradient;
    std::deque<guarded<State>> moments;
    Rule rule = rules<Rule>().back();

    slabs(support::random& data, ht::extent n, placement where = placement::unaligned)
        : master(data.normals<Param>(n), where == placement::aligned ? 0 : 1 + n % 3),
          copy(n, where == placement::aligned ? 0 : 1 + n % 5),
          gradient(data.normals<Accumulate>(n, 100), where == placement::aligned ? 0 : n % 3) {
        for (int k = 0; k < Rule::moments; ++k) {
            const auto& m = moments.emplace_back(data.normals<State>(n, k == 0 ? 0.1 : 0.01),
                                                 where == placement::aligned ? 0 : n % (5 + 2 * k));
            for (ht::extent i = 0; i < n && std::string_view(Rule::moment_names[k]) == "second"; ++i)
                m[i] = State(std::fabs(static_cast<float>(m[i])));
        }
        for (ht::extent i = 4; i < n; i += 10) gradient[i] = Accumulate(0.0f), moments[0][i] = State(0.0f);
    }
    arguments_type arguments(const kernel::step_record& s) const {
        arguments_type a{.master = master.view(),
                         .copy = copy.view(),
                         .gradient = gradient.const_view(),
                         .rule = rule,
                         .rates = {.weight_decay = decay},
                         .factors = &factors,
                         .step = &s,
                         .key = {.seed = 5, .tensor = 8, .first = 64}};
        for (int k = 0; k < Rule::moments; ++k) a.moments[k] = moment(k).view();
        return a;
    }
    const guarded<State>& moment(int k) const { return moments[static_cast<std::size_t>(k)]; }
    bool intact() const {
        bool all = master.intact() && copy.intact() && gradient.intact();
        for (const auto& m : moments) all = all && m.intact();
        return all;
    }
    bool same_bits(const slabs& o) const {
        bool all = master.same_bits(o.master) && copy.same_bits(o.copy);
        for (int k = 0; k < Rule::moments; ++k) all = all && moment(k).same_bits(o.moment(k));
        return all;
    }
};

template <ht::rounding Rounding = ht::rounding::nearest_even, class Device, class Arguments>
void run(Device& device, const Arguments& a) {
    kernel::optimizer_step<Device>::template run<Rounding>(device, a);
}
/// A step of slabs, whose parameters have their own rounding.
template <class S, class Device>
void step(Device& device, const S& s, const kernel::step_record& record = third) {
    run<S::rounding>(device, s.arguments(record));
}

template <class T>
std::vector<double> doubles(const guarded<T>& g) {
    std::vector<double> d;
    for (ht::extent i = 0; i < g.size(); ++i) d.push_back(static_cast<double>(g[i]));
    return d;
}
inline ht::view<double, 1> view_of(std::vector<double>& d) { return {d.data(), {static_cast<ht::extent>(d.size())}}; }

/// The operands of a step in double, and its definition.
struct in_doubles {
    std::vector<double> w, g, m[3];

    template <class S>
    explicit in_doubles(const S& s) : w(doubles(s.master)), g(doubles(s.gradient)) {
        for (int k = 0; k < S::Rule::moments; ++k) m[k] = doubles(s.moment(k));
    }
    void step(const adamw_rule& r, const kernel::step_record& at, const kernel::gradient_factors& f = factors) {
        ht::reference::adamw(view_of(w), view_of(g), view_of(m[0]), view_of(m[1]), r, at.lr, decay,
                             static_cast<double>(at.steps), f);
    }
    void step(const lion_rule& r, const kernel::step_record& at, const kernel::gradient_factors& f = factors) {
        ht::reference::lion(view_of(w), view_of(g), view_of(m[0]), r, at.lr, decay, f);
    }
    void step(const sgd_rule& r, const kernel::step_record& at, const kernel::gradient_factors& f = factors) {
        ht::reference::sgd(view_of(w), view_of(g), view_of(m[0]), r, at.lr, decay, static_cast<double>(at.steps), f);
    }
};

/// Bounds of what float arithmetic adds to a step of one element, from w0 and m0 to w and m with a gradient g.
struct element {
    double w0, m0, w, m[2], g;
};
struct errors {
    double master, moments[2];
    bool is_clear = true;  ///< whether no rounding may change the parameter's way
};
inline errors errors_of(const adamw_rule& r, const kernel::step_record& at, const element& e) {
    const double t = static_cast<double>(at.steps);
    // Sums of magnitudes: two factors of the gradient, and four or five further roundings.
    const double error_m =
        support::gamma(6) * (r.beta1 * std::fabs(e.m0) + (1 - r.beta1) * (std::fabs(e.g) + std::fabs(e.m0)));
    const double update = std::fabs(e.w - e.w0 * (1 - at.lr * decay)), size = at.lr / (1 - std::pow(r.beta1, t));
    const double denominator = std::sqrt(e.m[1] / (1 - std::pow(r.beta2, t))) + r.epsilon;
    return {support::gamma(3) * std::fabs(e.w0) + update * support::gamma(12) + size * error_m / denominator +
                support::u * std::fabs(e.w),
            {error_m, support::gamma(9) * e.m[1]}};
}
/// Where rounding may change the sign of a direction, a parameter may go either way.
inline errors errors_of(const lion_rule& r, const kernel::step_record& at, const element& e) {
    // Factors of the gradient, weights rounded to float, a product and a sum.
    const auto error = [&](double beta) {
        return support::gamma(6) * (beta * std::fabs(e.m0) + (1 - beta) * std::fabs(e.g));
    };
    const bool is_clear = std::fabs(r.beta1 * e.m0 + (1 - r.beta1) * e.g) > error(r.beta1) || (e.m0 == 0 && e.g == 0);
    return {(is_clear ? 0 : 2 * at.lr) + support::gamma(3) * (std::fabs(e.w0) + at.lr), {error(r.beta2), 0}, is_clear};
}
/// Without momentum the stored one does not change.
inline errors errors_of(const sgd_rule& r, const kernel::step_record& at, const element& e) {
    const double sum = std::fabs(e.g) + decay * std::fabs(e.w0) + r.momentum * std::fabs(e.m0);
    return {at.lr * support::gamma(13) * 2 * sum + support::u * std::fabs(e.w),
            {r.momentum == 0 ? 0 : support::gamma(8) * sum, 0}};
}

/// Compares steps with their definition: parameters and moments within their bounds; copies are their masters, rounded.
template <class S>
class definition {
  public:
    /// s: behind a step from `before`.
    void expect(const S& s, const in_doubles& before, const kernel::step_record& at,
                const kernel::gradient_factors& f = factors) {
        in_doubles want = before;
        want.step(s.rule, at, f);
        bool copied = true;
        for (ht::extent i = 0; i < s.master.size(); ++i) {
            const auto k = static_cast<std::size_t>(i);
            const element e{before.w[k],
                            before.m[0][k],
                            want.w[k],
                            {want.m[0][k], S::Rule::moments > 1 ? want.m[1][k] : 0.0},
                            ht::reference::read_gradient(before.g[k], f)};
            const errors error = errors_of(s.rule, at, e);
            masters_.expect(static_cast<double>(s.master[i]), e.w, rounded<typename S::Param>(e.w, error.master));
            for (int j = 0; j < S::Rule::moments; ++j)
                moments_[j].expect(static_cast<double>(s.moment(j)[i]), e.m[j],
                                   rounded<typename S::State>(e.m[j], error.moments[j]));
            copied = copied && static_cast<float>(s.copy[i]) ==
                                   static_cast<float>(typename S::Copy(static_cast<float>(s.master[i])));
            unclear_ += error.is_clear ? 0 : 1, still_ += e.m0 == 0 && e.g == 0 ? 1 : 0, ++all_;
        }
        CHECK(copied);
        CHECK(s.intact());
    }
    void check() const {
        CHECK_WITHIN(masters_);
        for (int j = 0; j < S::Rule::moments; ++j) CHECK_WITHIN(moments_[j]);
        CHECK(unclear_ * 1000 <= all_);
        CHECK(still_ * 20 > all_);
    }

  private:
    /// Numbers of 16 bits may be rounded up or down, by up to one unit in the last place.
    template <class T>
    static double rounded(double x, double error) {
        return error + (sizeof(T) < 4 ? 2 * support::rounding<T>(std::fabs(x) + error) : 0);
    }
    support::comparison masters_, moments_[2];
    std::int64_t unclear_ = 0, still_ = 0, all_ = 0;
};

/// A skipped step changes nothing, and the copy is optional. step(record, has_copy) runs a step over s, which begins with the
/// bits of `untouched`; `steps`: the number of earlier steps in the record of the skipped one.
template <class S, class Step>
void check_skips(const S& s, const S& untouched, const Step& step, std::int64_t steps = 0) {
    const kernel::step_record skipping{.steps = steps, .lr = 0.01, .skips = 1};
    step(skipping, true);
    CHECK(s.same_bits(untouched));
    step(third, false);
    CHECK(s.copy.same_bits(untouched.copy));
    CHECK_FALSE(s.master.same_bits(untouched.master));
}

}  // namespace step_checks

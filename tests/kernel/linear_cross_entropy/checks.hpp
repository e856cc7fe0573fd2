// SPDX-License-Identifier: MIT
/// \file
/// linear_cross_entropy of any device compared with its definition: a product, a cross-entropy, two products. Bounds by running
/// error analysis.
///
///     linear_cross_entropy_checks::within_bounds<linear_cross_entropy_checks::types<float, float, float>>(
///         kernel::linear_cross_entropy<cpu>{}, device, {37, 19, 53}, write_mode::overwrite);
#pragma once

#include <cmath>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/cross_entropy/reference.hpp>
#include <halftone/kernel/linear_cross_entropy/linear_cross_entropy.hpp>

#include "support/guarded.hpp"
#include "support/layers.hpp"
#include "support/random.hpp"

namespace linear_cross_entropy_checks {

namespace ht = halftone;
using ht::bfloat16;
using ht::extent;
using ht::write_mode;
using support::guarded;
using support::matrix;
using support::tracked;

template <class Number>
struct definition {
    Number loss;
    matrix<Number> dx, dw;

    /// Logits are stored, and their gradients, which the products of the backward pass then read in their own type.
    template <class StoreLogit, class ReadGradient>
    definition(const matrix<Number>& x, const matrix<Number>& w, const std::vector<std::int32_t>& targets, double seed,
               const StoreLogit& store_logit, const ReadGradient& read_gradient) {
        const matrix<Number> logits = each(product(x, transposed(w)), store_logit);
        const support::cross_entropy_of<Number> ce(logits, targets, seed);
        const matrix<Number> dlogits = each(each(ce.dlogits, store_logit), read_gradient);
        loss = ce.loss;
        dx = product(dlogits, w);
        dw = product(transposed(dlogits), x);
    }
};

struct sizes {
    int rows, width, classes;
};

inline std::vector<std::int32_t> some_targets(const sizes& s) {
    std::vector<std::int32_t> targets = support::random(9).indices(s.rows, s.classes);
    for (std::size_t i = 3; i < targets.size(); i += 7) targets[i] = -100;
    return targets;
}

/// Types: T of x, w and dx; Logit of stored logits and their gradients; Compute of the products.
template <class T_, class Logit_, class Compute_>
struct types {
    using T = T_;
    using Logit = Logit_;
    using Compute = Compute_;
};

template <class M>
struct run {
    using T = typename M::T;
    sizes s;
    guarded<T> x, w;
    std::vector<std::int32_t> targets;
    guarded<float> losses{s.rows}, maximum{s.rows}, sum{s.rows}, loss{1}, count{1},
        dw{static_cast<extent>(s.classes) * s.width};
    guarded<T> dx{static_cast<extent>(s.rows) * s.width};

    explicit run(const sizes& given)
        : s(given),
          x(support::random(1).normals<T>(static_cast<extent>(s.rows) * s.width)),
          w(support::random(2).normals<T>(static_cast<extent>(s.classes) * s.width, 0.3)),
          targets(some_targets(s)) {
        // The values to which write mode `add` adds.
        for (extent i = 0; i < dx.size(); ++i) dx[i] = T(0.25f);
        for (extent i = 0; i < dw.size(); ++i) dw[i] = 0.5f;
    }
    ht::kernel::linear_cross_entropy_rows rows() const {
        return {ht::const_view<std::int32_t, 1>(targets.data(), {s.rows}),
                losses.view(),
                maximum.view(),
                sum.view(),
                loss.view(),
                count.view()};
    }
    /// By the passes for a frozen w.
    template <class Head, class Device>
    void frozen(Head, Device& device, float seed, write_mode mode) const {
        const auto xs = x.const_view(ht::shape<2>{s.rows, s.width}),
                   ws = w.const_view(ht::shape<2>{s.classes, s.width});
        const guarded<float> sums(static_cast<extent>(s.rows) * s.width);
        Head::template forward_frozen<typename M::Compute, typename M::Logit, typename M::Compute>(
            device, xs, ws, rows(), sums.view(ht::shape<2>{s.rows, s.width}));
        Head::backward_frozen(device, ws, rows(), ht::const_view<float, 1>(&seed, {1}),
                              sums.const_view(ht::shape<2>{s.rows, s.width}),
                              ht::kernel::gradient_result<T>{dx.view(ht::shape<2>{s.rows, s.width}), mode});
        CHECK(sums.intact());
    }
    template <class Head, class Device>
    void operator()(Head, Device& device, float seed, write_mode mode, typename M::Logit* kept = nullptr,
                    ht::square_sum* squares = nullptr) const {
        const auto xs = x.const_view(ht::shape<2>{s.rows, s.width}),
                   ws = w.const_view(ht::shape<2>{s.classes, s.width});
        Head::template forward<typename M::Compute, typename M::Logit>(device, xs, ws, rows(), kept);
        Head::template backward<typename M::Compute, typename M::Logit, typename M::Compute>(
            device, xs, ws, rows(), ht::const_view<float, 1>(&seed, {1}),
            ht::kernel::gradient_result<T>{dx.view(ht::shape<2>{s.rows, s.width}), mode},
            ht::kernel::gradient_result<float>{dw.view(ht::shape<2>{s.classes, s.width}), mode, squares}, kept);
    }
};

/// Head: the operation as a type.
template <class M, class Head, class Device>
void within_bounds(Head head, Device& device, const sizes& s, write_mode mode) {
    CAPTURE(s.rows);
    CAPTURE(s.classes);
    using T = typename M::T;
    const run<M> r(s);
    const float seed = 8;
    r(head, device, seed, mode);
    const definition<tracked> want(
        matrix<tracked>(s.rows, s.width, r.x.data()), matrix<tracked>(s.classes, s.width, r.w.data()), r.targets,
        static_cast<double>(seed), support::stored_as<typename M::Logit>{}, support::stored_as<typename M::Compute>{});
    support::comparison loss, dx, dw;
    loss.expect(static_cast<double>(r.loss[0]), want.loss.value,
                support::rounded<float>(want.loss.value, want.loss.error));
    const auto compare = [mode](support::comparison& c, const auto& got, const matrix<tracked>& expected, double before,
                                auto element) {
        for (extent i = 0; i < got.size(); ++i) {
            tracked e = expected.values[static_cast<std::size_t>(i)];
            if (mode == write_mode::add) e = e + tracked(before);
            c.expect(static_cast<double>(got[i]), e.value, support::rounded<decltype(element)>(e.value, e.error));
        }
    };
    compare(dx, r.dx, want.dx, 0.25, T());
    if constexpr (requires { requires Head::has_frozen_passes; }) {
        const run<M> frozen(s);
        frozen.frozen(head, device, seed, mode);
        CHECK(frozen.loss.same_bits(r.loss));
        CHECK(frozen.sum.same_bits(r.sum));
        compare(dx, frozen.dx, want.dx, 0.25, T());
        CHECK(frozen.dx.intact());
    }
    compare(dw, r.dw, want.dw, 0.5, 0.0f);
    CHECK_WITHIN(loss);
    CHECK_WITHIN(dx);
    CHECK_WITHIN(dw);
    CHECK(r.dx.intact());
    CHECK(r.dw.intact());
    CHECK(r.losses.intact());
}

/// Kept logits give the same bits as recomputed ones, in memory that is aligned like scratch memory.
template <class M, class Head, class Device>
void the_same_if_kept(Head head, Device& device, const sizes& s, write_mode mode) {
    CAPTURE(s.rows);
    CAPTURE(s.classes);
    const run<M> again(s), kept(s);
    const guarded<typename M::Logit> logits(Head::kept_logits(s.rows, s.classes), 0);
    again(head, device, 8, mode);
    kept(head, device, 8, mode, logits.data());
    CHECK(kept.loss.same_bits(again.loss));
    CHECK(kept.maximum.same_bits(again.maximum));
    CHECK(kept.sum.same_bits(again.sum));
    CHECK(kept.dx.same_bits(again.dx));
    CHECK(kept.dw.same_bits(again.dw));
    CHECK(logits.intact());
}

/// Gradients that are not requested, and a batch without rows.
template <class Head, class Device>
void less_than_everything(Head head, Device& device) {
    const run<types<float, float, float>> r({5, 4, 7}), both({5, 4, 7});
    both(head, device, 1, write_mode::overwrite);
    const auto x = r.x.const_view(ht::shape<2>{5, 4}), w = r.w.const_view(ht::shape<2>{7, 4});
    const float one = 1;
    const ht::const_view<float, 1> gradient(&one, {1});
    Head::template forward<float, float>(device, x, w, r.rows());
    Head::template backward<float, float, float>(
        device, x, w, r.rows(), gradient, ht::kernel::gradient_result<float>{},
        ht::kernel::gradient_result<float>{r.dw.view(ht::shape<2>{7, 4}), write_mode::overwrite});
    CHECK(r.dw.same_bits(both.dw));
    CHECK(r.dx[0] == 0.25f);
    Head::template backward<float, float, float>(
        device, x, w, r.rows(), gradient,
        ht::kernel::gradient_result<float>{r.dx.view(ht::shape<2>{5, 4}), write_mode::overwrite},
        ht::kernel::gradient_result<float>{});
    CHECK(r.dx.same_bits(both.dx));

    const ht::const_view<float, 2> none(nullptr, {0, 4});
    const ht::kernel::linear_cross_entropy_rows no_rows{{}, {}, {}, {}, r.loss.view(), r.count.view()};
    Head::template forward<float, float>(device, none, w, no_rows);
    CHECK(std::isnan(r.loss[0]));  // the mean of no losses, as in PyTorch
    Head::template backward<float, float, float>(
        device, none, w, no_rows, gradient, ht::kernel::gradient_result<float>{},
        ht::kernel::gradient_result<float>{r.dw.view(ht::shape<2>{7, 4}), write_mode::overwrite});
    for (extent i = 0; i < r.dw.size(); ++i) CHECK(r.dw[i] == 0.0f);
}

}  // namespace linear_cross_entropy_checks

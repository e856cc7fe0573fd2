// SPDX-License-Identifier: MIT
/// \file
/// The fused head against its definition: a product, a cross-entropy, two products. Bounds by running error analysis; the
/// definition's gradients against central differences.
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/cross_entropy/cpu.hpp>
#include <halftone/kernel/cross_entropy/reference.hpp>
#include <halftone/kernel/linear_cross_entropy/linear_cross_entropy.hpp>
#include <halftone/kernel/matmul/cpu.hpp>

#include "support/each_set.hpp"
#include "support/gradient_check.hpp"
#include "support/guarded.hpp"
#include "support/layers.hpp"
#include "support/random.hpp"

namespace {

namespace ht = halftone;
using ht::bfloat16;
using ht::extent;
using ht::write_mode;
using head = ht::kernel::linear_cross_entropy<ht::cpu>;
using support::guarded;
using support::matrix;
using support::tracked;

template <class Number>
struct definition {
    Number loss;
    matrix<Number> dx, dw;

    /// Logits are stored, and their gradients, which the products of the backward pass then read in their own type.
    template <class StoreLogit, class ReadGradient>
    definition(const matrix<Number>& x, const matrix<Number>& w, const std::vector<std::int32_t>& targets, double seed, const StoreLogit& store_logit,
               const ReadGradient& read_gradient) {
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

std::vector<std::int32_t> some_targets(const sizes& s) {
    std::vector<std::int32_t> targets = support::random(9).indices(s.rows, s.classes);
    for (std::size_t i = 3; i < targets.size(); i += 7) targets[i] = -100;
    return targets;
}

/// Types: T of x, w and dx; Logit of what is stored in between; Compute of the products.
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
    guarded<float> losses{s.rows}, logsumexp{s.rows}, loss{1}, count{1}, dw{static_cast<extent>(s.classes) * s.width};
    guarded<T> dx{static_cast<extent>(s.rows) * s.width};

    explicit run(const sizes& given)
        : s(given),
          x(support::random(1).normals<T>(static_cast<extent>(s.rows) * s.width)),
          w(support::random(2).normals<T>(static_cast<extent>(s.classes) * s.width, 0.3)),
          targets(some_targets(s)) {
        // What "add" adds to.
        for (extent i = 0; i < dx.size(); ++i) dx[i] = T(0.25f);
        for (extent i = 0; i < dw.size(); ++i) dw[i] = 0.5f;
    }
    ht::kernel::linear_cross_entropy_rows rows() const {
        return {ht::const_view<std::int32_t, 1>(targets.data(), {s.rows}), losses.view(), logsumexp.view(), loss.view(), count.view()};
    }
    void operator()(ht::cpu& device, float seed, write_mode mode) const {
        const auto xs = x.const_view(ht::shape<2>{s.rows, s.width}), ws = w.const_view(ht::shape<2>{s.classes, s.width});
        head::forward<typename M::Compute, typename M::Logit>(device, xs, ws, rows());
        head::backward<typename M::Compute, typename M::Logit, typename M::Compute>(
            device, xs, ws, rows(), ht::const_view<float, 1>(&seed, {1}), ht::kernel::gradient_result<T>{dx.view(ht::shape<2>{s.rows, s.width}), mode},
            ht::kernel::gradient_result<float>{dw.view(ht::shape<2>{s.classes, s.width}), mode});
    }
};

template <class M>
void within_bounds(ht::cpu& device, const sizes& s, write_mode mode) {
    CAPTURE(s.rows);
    CAPTURE(s.classes);
    using T = typename M::T;
    const run<M> r(s);
    const float seed = 8;
    r(device, seed, mode);
    const definition<tracked> want(matrix<tracked>(s.rows, s.width, r.x.data()), matrix<tracked>(s.classes, s.width, r.w.data()), r.targets,
                                   static_cast<double>(seed), support::stored_as<typename M::Logit>{}, support::stored_as<typename M::Compute>{});
    support::comparison loss, dx, dw;
    loss.expect(static_cast<double>(r.loss[0]), want.loss.value, support::rounded<float>(want.loss.value, want.loss.error));
    const auto compare = [mode](support::comparison& c, const auto& got, const matrix<tracked>& expected, double before, auto element) {
        for (extent i = 0; i < got.size(); ++i) {
            tracked e = expected.values[static_cast<std::size_t>(i)];
            if (mode == write_mode::add) e = e + tracked(before);
            c.expect(static_cast<double>(got[i]), e.value, support::rounded<decltype(element)>(e.value, e.error));
        }
    };
    compare(dx, r.dx, want.dx, 0.25, T());
    compare(dw, r.dw, want.dw, 0.5, 0.0f);
    CHECK_WITHIN(loss);
    CHECK_WITHIN(dx);
    CHECK_WITHIN(dw);
    CHECK(r.dx.intact());
    CHECK(r.dw.intact());
    CHECK(r.losses.intact());
}

template <class M>
void on_every_set() {
    for (const ht::isa set : ht::every_isa) {
        const std::string instruction_set = ht::name(set);
        CAPTURE(instruction_set);
        if (!support::is_tested(set)) {
            MESSAGE("not tested here: ", instruction_set);
            continue;
        }
        ht::cpu device{{.threads = 2, .instruction_set = set}};
        within_bounds<M>(device, {2, 1, 3}, write_mode::overwrite);
        within_bounds<M>(device, {37, 19, 53}, write_mode::overwrite);
        within_bounds<M>(device, {64, 33, 17}, write_mode::add);
    }
}

TEST_CASE("linear_cross_entropy: loss and gradients within their bounds") {
    SUBCASE("fp32") { on_every_set<types<float, float, float>>(); }
    SUBCASE("bf16") { on_every_set<types<bfloat16, bfloat16, bfloat16>>(); }
    SUBCASE("bf16 with fp32 logits") { on_every_set<types<bfloat16, float, bfloat16>>(); }
}

TEST_CASE("linear_cross_entropy: rows in several chunks") {
    const sizes s{67, 3, 40000};
    REQUIRE(head::chunk_rows<float>(s.rows, s.classes) == 64);
    CHECK(head::workspace_bytes<float>(s.rows, s.classes) == 64 * 40000 * sizeof(float));
    ht::cpu device{{.threads = 2}};
    within_bounds<types<float, float, float>>(device, s, write_mode::overwrite);
}

TEST_CASE("linear_cross_entropy: the same bits with one thread and with two") {
    using M = types<bfloat16, bfloat16, bfloat16>;
    for (const ht::isa set : ht::every_isa) {
        if (!support::is_tested(set)) continue;
        ht::cpu one{{.threads = 1, .instruction_set = set}}, two{{.threads = 2, .instruction_set = set}};
        const run<M> a({200, 65, 301}), b({200, 65, 301});
        a(one, 1, write_mode::overwrite);
        b(two, 1, write_mode::overwrite);
        CHECK(a.loss.same_bits(b.loss));
        CHECK(a.dx.same_bits(b.dx));
        CHECK(a.dw.same_bits(b.dw));
    }
}

TEST_CASE("linear_cross_entropy: the definition is the reference's, its gradients are central differences") {
    constexpr int rows = 4, width = 3, classes = 5;
    support::random data(1);
    const std::vector<double> x = data.normals<double>(rows * width), w = data.normals<double>(classes * width);
    const std::vector<std::int32_t> targets = {4, 0, -100, 2};
    const auto loss = [&](const std::vector<double>& at_x, const std::vector<double>& at_w) {
        std::vector<double> logits(rows * classes), losses(rows);
        for (int i = 0; i < rows; ++i) {
            for (int j = 0; j < classes; ++j) {
                double& sum = logits[static_cast<std::size_t>(i * classes + j)];
                for (int k = 0; k < width; ++k) sum += at_x[static_cast<std::size_t>(i * width + k)] * at_w[static_cast<std::size_t>(j * width + k)];
            }
        }
        return ht::reference::cross_entropy(ht::view<double, 2>(logits.data(), {rows, classes}), ht::const_view<std::int32_t, 1>(targets.data(), {rows}), -100,
                                            ht::view<double, 1>(losses.data(), {rows}));
    };
    const definition<double> d(matrix<double>(rows, width, x.data()), matrix<double>(classes, width, w.data()), targets, 1, support::stored_exactly{},
                               support::stored_exactly{});
    CHECK(d.loss == doctest::Approx(loss(x, w)).epsilon(1e-14));
    support::check_gradient([&](const std::vector<double>& at) { return loss(at, w); }, x, d.dx.values);
    support::check_gradient([&](const std::vector<double>& at) { return loss(x, at); }, w, d.dw.values);
}

TEST_CASE("linear_cross_entropy: gradients that nobody wants, and a batch without rows") {
    ht::cpu device{{.threads = 1}};
    const run<types<float, float, float>> r({5, 4, 7}), both({5, 4, 7});
    both(device, 1, write_mode::overwrite);
    const auto x = r.x.const_view(ht::shape<2>{5, 4}), w = r.w.const_view(ht::shape<2>{7, 4});
    const float one = 1;
    const ht::const_view<float, 1> gradient(&one, {1});
    head::forward<float, float>(device, x, w, r.rows());
    head::backward<float, float, float>(device, x, w, r.rows(), gradient, ht::kernel::gradient_result<float>{},
                                        ht::kernel::gradient_result<float>{r.dw.view(ht::shape<2>{7, 4}), write_mode::overwrite});
    CHECK(r.dw.same_bits(both.dw));
    CHECK(r.dx[0] == 0.25f);
    head::backward<float, float, float>(device, x, w, r.rows(), gradient,
                                        ht::kernel::gradient_result<float>{r.dx.view(ht::shape<2>{5, 4}), write_mode::overwrite}, ht::kernel::gradient_result<float>{});
    CHECK(r.dx.same_bits(both.dx));

    const ht::const_view<float, 2> none(nullptr, {0, 4});
    const ht::kernel::linear_cross_entropy_rows no_rows{{}, {}, {}, r.loss.view(), r.count.view()};
    head::forward<float, float>(device, none, w, no_rows);
    CHECK(std::isnan(r.loss[0]));  // the mean of nothing, as PyTorch has it
    head::backward<float, float, float>(device, none, w, no_rows, gradient, ht::kernel::gradient_result<float>{},
                                        ht::kernel::gradient_result<float>{r.dw.view(ht::shape<2>{7, 4}), write_mode::overwrite});
    for (extent i = 0; i < r.dw.size(); ++i) CHECK(r.dw[i] == 0.0f);
}

TEST_CASE("linear_cross_entropy: a target that is no class") {
    ht::cpu device{{.threads = 1}};
    run<types<float, float, float>> r({5, 4, 7});
    r.targets[2] = 7;
    const auto x = r.x.const_view(ht::shape<2>{5, 4}), w = r.w.const_view(ht::shape<2>{7, 4});
    CHECK_THROWS_WITH_AS((head::forward<float, float>(device, x, w, r.rows())),
                         "cross_entropy: the target of row 2 is 7; expected 0 to 6, or -100 to ignore the row", ht::argument_error);
}

}  // namespace

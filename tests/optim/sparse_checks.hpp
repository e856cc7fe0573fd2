// SPDX-License-Identifier: MIT
/// \file
/// Tests of training with sparse gradients, for every device: the same results as with dense ones, if both define the same step.
///
///     sparse_checks::sgd_agrees(one, two);
#pragma once

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/autodiff/op/embedding.hpp>
#include <halftone/autodiff/op/loss.hpp>
#include <halftone/kernel/optimizer_step/reference.hpp>
#include <halftone/nn/model.hpp>
#include <halftone/nn/sparse_embedding.hpp>
#include <halftone/optim/adamw.hpp>
#include <halftone/optim/clip.hpp>
#include <halftone/optim/sgd.hpp>
#include <halftone/scale/grad_scaler.hpp>

#include "support/bounds.hpp"
#include "support/random.hpp"

namespace sparse_checks {

namespace ht = halftone;
using ht::extent;

template <class P, class Op>
struct table_layer {
    using policy = P;
    using operation = Op;
    static constexpr bool owns_parameters = true;
    ht::parameter<ht::storage_signature<P, Op>, 2> table;

    table_layer(ht::store& s, extent rows, extent width, extent most_rows = 0)
        : table(s.add<P, Op>("table", ht::shape<2>{rows, width}, {.deviation = 0.5f}, most_rows)) {}
    static decltype(auto) visit(auto&&, auto&& f) { return f(); }
};

struct batch {
    ht::const_view<std::int32_t, 2> tokens, targets;

    template <class Function>
    batch with_views(const Function& f) const {
        return {f(tokens), f(targets)};
    }
};

/// The logits are rows of a table of tokens, whose gradient is dense or sparse by Op, plus rows of a table of positions, whose
/// gradient is dense.
template <class P, class Op>
struct net : ht::nn::model {
    using policy = P;
    table_layer<ht::at<P, "tokens">, Op> tokens;
    table_layer<ht::at<P, "positions">, ht::op::embedding> positions;

    template <class Device>
    explicit net(Device& device, extent vocabulary = 40, extent width = 8, extent most_rows = 0)
        : ht::nn::model(device),
          tokens(parameters(), vocabulary, width, most_rows),
          positions(parameters(), 12, width) {
        commit(*this, 1);
    }
    template <class Context>
    ht::variable<float, 0> loss(Context&& ctx, const batch& b) const {
        return ht::cross_entropy(
            ctx,
            ht::embedding<ht::layer_roles<P, ht::op::embedding, Context>>(ctx, b.tokens, tokens.table, positions.table),
            b.targets);
    }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.tokens, self.positions); }
};
template <class P>
using dense = net<P, ht::op::embedding>;
template <class P>
using sparse = net<P, ht::op::sparse_embedding>;

template <class T>
std::vector<T> copy_of(const ht::store& s, const void* data, std::size_t count) {
    std::vector<T> values(count);
    s.memory().read(values.data(), data, count * sizeof(T));
    return values;
}
template <class Parameter>
auto masters_of(const Parameter& p) {
    return copy_of<typename Parameter::param>(p.owner(), p.master().data(), static_cast<std::size_t>(p.shape().size()));
}
template <class Parameter>
auto copies_of(const Parameter& p) {
    return copy_of<typename Parameter::compute>(p.owner(), p.values().data(),
                                                static_cast<std::size_t>(p.shape().size()));
}
template <class State = float, class Optimizer, class Parameter>
std::vector<State> moments_of(const Optimizer& o, int which, const Parameter& p) {
    const ht::store::entry& e = p.owner().entries()[p.entry()];
    return copy_of<State>(p.owner(), o.moment(which, e.group).data() + e.gradient * sizeof(State), e.count);
}
template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

/// A model with all objects of a training step.
template <class Device, class Model, class Optimizer, class Options>
struct run {
    Device& device;
    Model model;
    Optimizer optimizer;
    ht::grad_scaler<Device> scaler;
    ht::accumulator<ht::through_scaler, ht::types<Model>> acc{model};
    ht::tape<Device> tape{device};
    float max_norm = std::numeric_limits<float>::infinity();

    run(Device& d, const Options& options, extent vocabulary = 40, float scale = 0x1p15f, extent width = 8)
        : device(d), model(d, vocabulary, width), optimizer(d, model, options), scaler(d, {.init_scale = scale}) {}

    /// A micro-batch for each row of the batch.
    ht::variable<float, 0> body(const batch& b) {
        ht::variable<float, 0> last;
        const extent micros = b.tokens.extent_of(0), time = b.tokens.extent_of(1);
        for (extent row = 0; row < micros; ++row) {
            const ht::shape<2> one{1, time};
            last = {};
            last = model.loss(tape, batch{{b.tokens.data() + row * time, one}, {b.targets.data() + row * time, one}});
            tape.backward(scaler.scale(last / static_cast<float>(micros)), acc);
        }
        auto grads = scaler.unscale(acc.take());
        ht::clip_grad_norm(grads, max_norm);
        optimizer.step(grads);
        scaler.update();
        return last;
    }
};
template <class Model, class Device>
auto with_sgd(Device& device, const ht::sgd_options& o, extent vocabulary = 40) {
    return run<Device, Model, ht::sgd<Device, Model>, ht::sgd_options>(device, o, vocabulary);
}
template <class Model, class Device>
auto with_adamw(Device& device, const ht::adamw_options& o, extent vocabulary = 40) {
    return run<Device, Model, ht::adamw<Device, Model>, ht::adamw_options>(device, o, vocabulary);
}

/// Ids in host memory, different ones in each step.
class ids {
  public:
    batch next(extent rows, extent time, int vocabulary = 40) {
        support::random data(++seed_);
        tokens_ = data.indices(rows * time, vocabulary), targets_ = data.indices(rows * time, 8);
        tokens_[1] = tokens_[0];
        return {{tokens_.data(), {rows, time}}, {targets_.data(), {rows, time}}};
    }

  private:
    std::uint64_t seed_ = 0;
    std::vector<std::int32_t> tokens_, targets_;
};

/// Stochastic rounding of moments, and by P of parameters, in rows of any width: a step has the bits of the dense one in the
/// rows that it updates.
template <class P, class Device>
void random_rounding_agrees(Device& one, Device& two, extent width) {
    CAPTURE(width);
    using state = typename P::state;
    const ht::adamw_options options{.lr = 0.1, .weight_decay = 0.1, .seed = 7};
    run<Device, dense<P>, ht::adamw<Device, dense<P>>, ht::adamw_options> d(one, options, 20, 0x1p10f, width);
    run<Device, sparse<P>, ht::adamw<Device, sparse<P>>, ht::adamw_options> s(two, options, 20, 0x1p10f, width);
    const auto start = masters_of(s.model.tokens.table);
    const std::vector<std::int32_t> tokens{3, 19, 0, 3, 17, 3}, targets{0, 2, 1, 2, 1, 0};
    const batch b{{tokens.data(), {1, 6}}, {targets.data(), {1, 6}}};
    d.body(b), s.body(b);
    CHECK(s.optimizer.steps() == 1);
    const auto here = masters_of(s.model.tokens.table), there = masters_of(d.model.tokens.table);
    for (std::size_t i = 0; i < here.size(); ++i) {
        const std::size_t row = i / static_cast<std::size_t>(width);
        const bool is_touched = row == 0 || row == 3 || row == 17 || row == 19;
        CHECK(std::memcmp(&here[i], is_touched ? &there[i] : &start[i], sizeof here[i]) == 0);
    }
    for (int which = 0; which < 2; ++which) {
        CHECK(same_bits(moments_of<state>(s.optimizer, which, s.model.tokens.table),
                        moments_of<state>(d.optimizer, which, d.model.tokens.table)));
    }
}

/// Without momentum and decay a dense step does not change the other rows: the bits of dense gradients in every step.
template <class P, class Device>
void sgd_agrees(Device& one, Device& two) {
    auto d = with_sgd<dense<P>>(one, {.lr = 0.5});
    auto s = with_sgd<sparse<P>>(two, {.lr = 0.5});
    ids b;
    const auto start = masters_of(s.model.tokens.table);
    for (int t = 0; t < 12; ++t) {
        const batch here = b.next(3, 5 + t % 3);
        CHECK(d.body(here).item() == s.body(here).item());
        CHECK(same_bits(masters_of(d.model.tokens.table), masters_of(s.model.tokens.table)));
        CHECK(same_bits(copies_of(d.model.tokens.table), copies_of(s.model.tokens.table)));
        CHECK(same_bits(masters_of(d.model.positions.table), masters_of(s.model.positions.table)));
        CHECK(d.optimizer.last_step_skipped() == s.optimizer.last_step_skipped());
    }
    CHECK(s.optimizer.steps() > 8);
    CHECK_FALSE(same_bits(start, masters_of(s.model.tokens.table)));
}

/// Rows that every step looks up have the bits of dense gradients, moments included; the others are unchanged.
template <class Device>
void adamw_agrees(Device& one, Device& two) {
    using P = ht::full_fp32;
    const ht::adamw_options options{.lr = 0.1, .weight_decay = 0.1};
    auto d = with_adamw<dense<P>>(one, options);
    auto s = with_adamw<sparse<P>>(two, options);
    const auto start = masters_of(s.model.tokens.table);
    const std::vector<std::int32_t> tokens{3, 39, 0, 3, 17, 3};
    constexpr std::size_t width = 8;
    for (int t = 0; t < 10; ++t) {
        const auto targets = support::random(static_cast<std::uint64_t>(t)).indices(6, 8);
        const batch b{{tokens.data(), {2, 3}}, {targets.data(), {2, 3}}};
        CHECK(d.body(b).item() == s.body(b).item());
    }
    CHECK(same_bits(masters_of(d.model.positions.table), masters_of(s.model.positions.table)));
    const auto is_touched = [&](std::size_t row) { return row == 0 || row == 3 || row == 17 || row == 39; };
    const auto here = masters_of(s.model.tokens.table), there = masters_of(d.model.tokens.table);
    for (std::size_t i = 0; i < here.size(); ++i) {
        CHECK(here[i] == (is_touched(i / width) ? there : start)[i]);
        CHECK(here[i] != (is_touched(i / width) ? start : there)[i]);
    }
    for (int which = 0; which < 2; ++which) {
        const auto m = moments_of(s.optimizer, which, s.model.tokens.table),
                   n = moments_of(d.optimizer, which, d.model.tokens.table);
        CHECK(same_bits(m, n));  // zero where nothing was looked up
    }
}

/// Any rows: one step after another against the definition, applied to the rows in the gradient.
template <class Device>
void adamw_is_lazy(Device& device) {
    using P = ht::full_fp32;
    const ht::adamw_options options{.lr = 0.03, .beta1 = 0.8, .beta2 = 0.95, .weight_decay = 0.2};
    using model = sparse<P>;
    run<Device, model, ht::adamw<Device, model>, ht::adamw_options> s(device, options);
    const auto& table = s.model.tokens.table;
    constexpr std::size_t width = 8;
    ids all;
    support::comparison c;
    for (int t = 1; t <= 8; ++t) {
        const batch b = all.next(2, 4);
        for (extent row = 0; row < 2; ++row) {
            const auto loss =
                s.model.loss(s.tape, batch{{b.tokens.data() + 4 * row, {1, 4}}, {b.targets.data() + 4 * row, {1, 4}}});
            s.tape.backward(s.scaler.scale(loss / 2), s.acc);
        }
        auto grads = s.scaler.unscale(s.acc.take());
        const ht::host_rows<float> rows = grads.read_rows(table);
        for (std::size_t r = 1; r < rows.indices.size(); ++r) CHECK(rows.indices[r - 1] < rows.indices[r]);
        const auto w0 = masters_of(table);
        const auto m0 = moments_of(s.optimizer, 0, table), v0 = moments_of(s.optimizer, 1, table);
        s.optimizer.step(grads);
        s.scaler.update();
        const auto w1 = masters_of(table), m1 = moments_of(s.optimizer, 0, table),
                   v1 = moments_of(s.optimizer, 1, table);
        std::size_t next = 0;
        for (std::size_t row = 0; row < 40; ++row) {
            const bool is_there = next < rows.indices.size() && static_cast<std::size_t>(rows.indices[next]) == row;
            for (std::size_t j = 0; j < width; ++j) {
                const std::size_t i = row * width + j;
                if (!is_there) {
                    CHECK(w1[i] == w0[i]);
                    CHECK(m1[i] == m0[i]);
                    CHECK(v1[i] == v0[i]);
                    continue;
                }
                double w = static_cast<double>(w0[i]), m = static_cast<double>(m0[i]), v = static_cast<double>(v0[i]);
                const double g = static_cast<double>(rows.values[next * width + j]) / 0x1p15, old = std::fabs(m);
                const double begin = w;
                ht::reference::adamw(ht::view<double, 1>(&w, {1}), ht::view<const double, 1>(&g, {1}),
                                     ht::view<double, 1>(&m, {1}), ht::view<double, 1>(&v, {1}),
                                     {options.beta1, options.beta2, options.epsilon}, options.lr, options.weight_decay,
                                     t);
                // As for a dense step (tests/kernel/optimizer_step).
                const double error_m =
                    support::gamma(6) * (options.beta1 * old + (1 - options.beta1) * (std::fabs(g) + old));
                const double update = std::fabs(w - begin * (1 - options.lr * options.weight_decay));
                const double size = options.lr / (1 - std::pow(options.beta1, t)),
                             denominator = std::sqrt(v / (1 - std::pow(options.beta2, t))) + options.epsilon;
                c.expect(static_cast<double>(w1[i]), w,
                         support::gamma(3) * std::fabs(begin) + update * support::gamma(12) +
                             size * error_m / denominator + support::u * std::fabs(w));
                c.expect(static_cast<double>(m1[i]), m, error_m);
                c.expect(static_cast<double>(v1[i]), v, support::gamma(9) * v);
            }
            next += is_there ? 1 : 0;
        }
        CHECK(next == rows.indices.size());
        CHECK(next > 1);
    }
    CHECK_WITHIN(c);
}

/// The norm contains the rows: it equals that of the same gradients in dense storage within the rounding of both sums.
template <class Device>
void norms_agree(Device& one, Device& two) {
    using P = ht::full_fp32;
    auto d = with_sgd<dense<P>>(one, {.lr = 0.5});
    auto s = with_sgd<sparse<P>>(two, {.lr = 0.5});
    ids all;
    for (int t = 0; t < 3; ++t) {
        // From the second window on the capacity contains many old rows of an earlier window after the current ones.
        const batch b = all.next(1, 12 - 2 * t, t == 0 ? 40 : 3);
        const auto norm_of = [&](auto& r) {
            r.tape.backward(r.scaler.scale(r.model.loss(r.tape, b)), r.acc);
            auto grads = r.scaler.unscale(r.acc.take());
            const float norm = ht::clip_grad_norm(grads, 0.25f).value();
            r.optimizer.step(grads);
            r.scaler.update();
            return static_cast<double>(norm);
        };
        const double dense_norm = norm_of(d), sparse_norm = norm_of(s);
        CHECK(dense_norm > 0.25);
        // Two sums of at most 320 + 96 squares each, whose errors the root halves; and the errors of earlier steps.
        CHECK(std::fabs(dense_norm - sparse_norm) <= (t + 1) * support::gamma(2 * 416 + 8) * dense_norm);
    }
}

/// Duplicates are summed before the check: two gradients within fp16's range, whose sum is not.
template <class Device>
void duplicates_overflow(Device& device) {
    using P = ht::with_accumulate<ht::amp_fp16, ht::float16>;
    using model = sparse<P>;
    run<Device, model, ht::sgd<Device, model>, ht::sgd_options> s(device, {.lr = 0.5}, 40, 0x1p17f);
    const auto begin = [&] {
        s.model.tokens.table.assign(std::vector<float>(40 * 8)),
            s.model.positions.table.assign(std::vector<float>(12 * 8));
        s.scaler.update(0x1p17f);
    };
    begin();
    const auto step = [&](const std::vector<std::int32_t>& tokens) {
        const std::vector<std::int32_t> targets{0, 0};
        s.body(batch{{tokens.data(), {1, 2}}, {targets.data(), {1, 2}}});
        return s.optimizer.last_step_skipped();
    };
    // Two rows with eight equal logits each: (1/8 - 1) / 2 times 2^17 is -57344, and twice that exceeds fp16's range.
    CHECK_FALSE(step({4, 5}));
    begin();
    const auto before = masters_of(s.model.tokens.table);
    CHECK(step({5, 5}));
    CHECK(s.scaler.get_scale() == 0x1p16f);
    CHECK(same_bits(masters_of(s.model.tokens.table), before));
    CHECK_FALSE(step({5, 5}));
}

}  // namespace sparse_checks

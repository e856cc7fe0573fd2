// SPDX-License-Identifier: MIT
/// \file
/// Sparse gradients on the CPU: memory, growth, limits, and the steps of torch's optimizers.
#include <string>

#include <halftone/autodiff/op/reduce.hpp>
#include <halftone/kernel/cross_entropy/cpu.hpp>
#include <halftone/kernel/embedding_rows/cpu.hpp>
#include <halftone/kernel/gradient_norm/cpu.hpp>
#include <halftone/kernel/map/cpu.hpp>
#include <halftone/kernel/optimizer_step/cpu.hpp>
#include <halftone/kernel/quantize/cpu.hpp>
#include <halftone/kernel/sum/cpu.hpp>
#include <halftone/observe/watch/watched_tape.hpp>

#include "optim/golden.hpp"
#include "optim/sparse_checks.hpp"
#include "optim/tracked_adamw.hpp"
#include "support/each_set.hpp"

namespace optim_sparse_tests {

using namespace sparse_checks;
constexpr auto of_gradients = ht::memory_kind::gradient;

TEST_CASE("sparse gradients: SGD has the bits of dense ones, at any number of threads") {
    support::for_each_set([](ht::isa set) {
        ht::cpu one{{.threads = 1, .instruction_set = set}}, two{{.threads = 2, .instruction_set = set}};
        sgd_agrees<ht::amp_fp16>(one, two);
    });
}

TEST_CASE("sparse gradients: AdamW has the bits of dense ones in rows of every step, and updates no other rows") {
    ht::cpu one{{.threads = 1}}, two{{.threads = 2}};
    adamw_agrees(one, two);
    adamw_is_lazy(two);
}

TEST_CASE("sparse gradients: with stochastic rounding they have the bits of dense ones, in rows of any width") {
    ht::cpu one{{.threads = 1}}, two{{.threads = 2}};
    for (const extent width : {3, 6}) {
        random_rounding_agrees<ht::with_state<ht::pure_bf16, ht::bfloat16>>(one, two, width);
        random_rounding_agrees<ht::with_state<ht::amp_bf16, ht::bfloat16>>(one, two, width);
    }
}

/// A model with one table only, so that the store has the same layout whether the gradient is sparse or dense.
template <class P, class Op>
struct lone_table : ht::nn::model {
    using policy = P;
    sparse_checks::table_layer<ht::at<P, "items">, Op> items;

    lone_table(ht::cpu& device, ht::extent width) : ht::nn::model(device), items(parameters(), 30, width) {
        commit(*this, 3);
    }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.items); }
};

/// Its numbers after each of four steps, in each of which two micro-batches look up all rows, some of them twice.
template <class P, class Op, template <class, class> class Optimizer, class Options>
auto steps_over_all_rows(ht::extent width, int threads, const Options& options) {
    ht::cpu device{{.threads = threads}};
    lone_table<P, Op> model(device, width);
    Optimizer<ht::cpu, lone_table<P, Op>> optimizer(device, model, options);
    ht::grad_scaler scaler{device, {.init_scale = 16}};
    ht::accumulator acc{model};
    ht::tape tape{device};
    std::vector<std::vector<typename P::param>> seen;
    for (int t = 0; t < 4; ++t) {
        std::vector<std::int32_t> ids(40);
        for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int32_t>((7 * i + seen.size()) % 30);
        for (int micro = 0; micro < 2; ++micro) {
            const auto rows = ht::embedding<ht::layer_roles<P, ht::op::embedding, ht::tape<ht::cpu>&>>(
                tape, ht::const_view<std::int32_t, 2>(ids.data() + 20 * micro, {2, 10}), model.items.table,
                ht::absent{});
            const auto loss = ht::sum<float>(tape, ht::mul(tape, rows, ht::add(tape, rows, 0.5f)));
            tape.backward(scaler.scale(loss / 2), acc);
        }
        auto grads = scaler.unscale(acc.take());
        optimizer.step(grads);
        scaler.update();
        seen.push_back(masters_of(model.items.table));
    }
    CHECK(optimizer.steps() == 4);
    return seen;
}

TEST_CASE("sparse gradients: rows of every step have the bits of dense ones in each step, also with stochastic rounding") {
    using P = ht::with_state<ht::pure_bf16, ht::bfloat16>;
    for (const ht::extent width : {1, 2, 3, 8, 33, 100}) {
        CAPTURE(width);
        const ht::adamw_options adam{.lr = 0.02, .weight_decay = 0.1, .seed = 5};
        CHECK((steps_over_all_rows<P, ht::op::sparse_embedding, ht::adamw>(width, 2, adam) ==
               steps_over_all_rows<P, ht::op::embedding, ht::adamw>(width, 1, adam)));
        const ht::sgd_options plain{.lr = 0.05, .seed = 5};
        CHECK((steps_over_all_rows<P, ht::op::sparse_embedding, ht::sgd>(width, 2, plain) ==
               steps_over_all_rows<P, ht::op::embedding, ht::sgd>(width, 1, plain)));
    }
}

TEST_CASE("sparse gradients: a step updates and decays the rows that were looked up, except that of padding") {
    using P = ht::with_state<ht::pure_bf16, ht::bfloat16>;
    constexpr std::size_t width = 3;
    ht::cpu device{{.threads = 1}};
    lone_table<P, ht::op::sparse_embedding> model(device, width);
    ht::adamw optimizer{device, model, {.lr = 0.02, .weight_decay = 0.1}};
    ht::accumulator acc{model, ht::unscaled};
    ht::tape tape{device};
    const std::vector<std::int32_t> ids{4, 7, 29, 7, 29, 4};
    const auto before = masters_of(model.items.table);
    const auto rows = ht::embedding<ht::layer_roles<P, ht::op::embedding, ht::tape<ht::cpu>&>>(
        tape, ht::const_view<std::int32_t, 2>(ids.data(), {2, 3}), model.items.table, ht::absent{}, {}, -1);
    tape.backward(ht::sum<float>(tape, ht::mul(tape, rows, ht::add(tape, rows, 0.5f))), acc);
    auto grads = acc.take();
    optimizer.step(grads);
    const auto after = masters_of(model.items.table);
    for (std::size_t row = 0; row < 30; ++row) {
        CAPTURE(row);
        const bool same = std::equal(after.begin() + static_cast<std::ptrdiff_t>(row * width),
                                     after.begin() + static_cast<std::ptrdiff_t>((row + 1) * width),
                                     before.begin() + static_cast<std::ptrdiff_t>(row * width));
        CHECK(same == (row != 4 && row != 7));
    }
}

TEST_CASE("sparse gradients: the norm contains them; the finite check reads sums of duplicates") {
    ht::cpu one, two;
    norms_agree(one, two);
    duplicates_overflow(one);
}

TEST_CASE("sparse gradients: memory for the rows of the largest window, and dense moments") {
    ht::cpu device;
    constexpr extent vocabulary = 5000, width = 8;
    auto s = with_adamw<sparse<ht::full_fp32>>(device, {}, vocabulary);
    ht::memory_usage& usage = device.memory().usage();
    // The slab of positions, in granules of 64 numbers; the count of the table's rows, in a separate block; and the
    // accumulator's record.
    const std::size_t fixed = usage.live(of_gradients);
    CHECK(s.acc.find(s.model.parameters())->bytes() == 128 * sizeof(float) + 64);
    CHECK(fixed < 1024);
    CHECK(usage.live(ht::memory_kind::moment) >= 2 * vocabulary * width * sizeof(float));
    ids all;
    const auto rows_of = [&](std::size_t rows) {
        return ht::round_up(rows * sizeof(std::int32_t), 64u) + ht::round_up(rows * width * sizeof(float), 64u);
    };
    s.body(all.next(3, 7, 5000));
    CHECK(usage.live(of_gradients) == fixed + rows_of(21));
    CHECK(s.model.parameters().entries()[0].path == "tokens.table");
    s.body(all.next(2, 5, 5000));
    CHECK(usage.live(of_gradients) == fixed + rows_of(21));
    const std::uint64_t before = usage.allocations();
    for (int t = 0; t < 3; ++t) s.body(all.next(3, 7, 5000));
    CHECK(usage.allocations() == before);
    s.body(all.next(4, 7, 5000));
    CHECK(usage.live(of_gradients) == fixed + rows_of(28));

    // Never more rows than the table has.
    ht::cpu other;
    auto small = with_adamw<sparse<ht::full_fp32>>(other, {}, 6);
    const std::size_t none = other.memory().usage().live(of_gradients);
    small.body(all.next(3, 7, 6));
    CHECK(other.memory().usage().live(of_gradients) == none + rows_of(6));

    ht::cpu third;
    auto d = with_adamw<dense<ht::full_fp32>>(third, {}, vocabulary);
    CHECK(third.memory().usage().live(of_gradients) > vocabulary * width * sizeof(float));
}

TEST_CASE("sparse gradients: a table with a limit allocates its memory at once, and refuses a window with more rows") {
    ht::cpu device;
    sparse<ht::full_fp32> model{device, 40, 8, 10};
    ht::accumulator acc{model, ht::unscaled};
    ht::tape tape{device};
    const std::uint64_t before = device.memory().usage().allocations();
    ids all;
    const auto add = [&](extent lookups) { tape.backward(model.loss(tape, all.next(1, lookups)), acc); };
    add(6);
    CHECK(device.memory().usage().live(of_gradients) > 10 * 8 * sizeof(float));
    CHECK_THROWS_WITH_AS(add(5),
                         "gradient of tokens.table: room for 10 rows (its most_rows), and this window may have looked "
                         "up 6; no room for 5 tokens more",
                         ht::argument_error);
    acc.discard();
    add(6), add(4);
    const auto grads = acc.take();
    CHECK(grads.read_rows(model.tokens.table).indices.size() <= 10);
    CHECK(device.memory().usage().allocations() >= before);
    // As many rows as the table has suffice for any window.
    sparse<ht::full_fp32> whole{device, 7, 8, 7};
    ht::accumulator any{whole, ht::unscaled};
    const batch b = all.next(1, 12, 7);
    tape.backward(whole.loss(tape, b), any);
    tape.backward(whole.loss(tape, b), any);
    CHECK(any.take().read_rows(whole.tokens.table).indices.size() <= 7);
    CHECK_THROWS_AS((sparse<ht::full_fp32>{device, 7, 8, -1}), ht::argument_error);
    CHECK_THROWS_AS((dense<ht::full_fp32>{device, 7, 8, 3}), ht::argument_error);
}

TEST_CASE("sparse gradients: none for frozen tables, and no rows for windows without lookups") {
    ht::cpu device;
    auto s = with_adamw<sparse<ht::full_fp32>>(device, {});
    const auto& table = s.model.tokens.table;
    ids all;
    s.tape.backward(s.scaler.scale(s.model.loss(s.tape, all.next(1, 5))), s.acc);
    CHECK(s.scaler.unscale(s.acc.take()).read_rows(table).indices.size() > 1);
    s.scaler.update();
    // A backward pass that reaches only the positions.
    const std::vector<std::int32_t> some{1, 2, 3};
    const auto x = ht::embedding<ht::layer_roles<ht::full_fp32, ht::op::embedding, ht::tape<ht::cpu>&>>(
        s.tape, ht::const_view<std::int32_t, 2>{some.data(), {1, 3}}, s.model.positions.table, ht::absent{});
    s.tape.backward(s.scaler.scale(ht::cross_entropy(s.tape, x, ht::const_view<std::int32_t, 2>{some.data(), {1, 3}})),
                    s.acc);
    auto grads = s.scaler.unscale(s.acc.take());
    CHECK(grads.read_rows(table).indices.empty());
    const auto before = masters_of(table);
    s.optimizer.step(grads);
    CHECK(same_bits(masters_of(table), before));
    CHECK_THROWS_AS(s.acc.find(s.model.parameters())->claim(table.entry()), ht::argument_error);

    sparse<ht::full_fp32> frozen{device};
    frozen.parameters().freeze("tokens");
    ht::accumulator acc{frozen, ht::unscaled};
    s.tape.backward(frozen.loss(s.tape, all.next(1, 5)), acc);
    const auto left = acc.take();
    CHECK_THROWS_WITH_AS(left.rows(frozen.tokens.table), "gradients: tokens.table is frozen and has no gradient",
                         ht::state_error);
}

TEST_CASE("sparse gradients: groups give tables different rates") {
    ht::cpu device;
    using model = sparse<ht::full_fp32>;
    ids all;
    const batch b = all.next(2, 5);
    const auto trained = [&](std::vector<ht::parameter_group> groups, double lr) {
        model m{device};
        ht::sgd optimizer{device, m, {.lr = lr}, std::move(groups)};
        ht::accumulator acc{m, ht::unscaled};
        ht::tape tape{device};
        tape.backward(m.loss(tape, batch{{b.tokens.data(), {1, 5}}, {b.targets.data(), {1, 5}}}), acc);
        optimizer.step(acc.take());
        return masters_of(m.tokens.table);
    };
    CHECK(same_bits(trained({{"tokens", {.lr = 0.25}}}, 0.5), trained({}, 0.25)));
    CHECK_FALSE(same_bits(trained({{"tokens", {.lr = 0.25}}}, 0.5), trained({}, 0.5)));
}

struct row_watcher : ht::tensor_listener {
    explicit row_watcher(const ht::store& s) : parameters(s) {}
    void on_tensor(const ht::watched_tensor& t) override {
        if (t.role != ht::tensor_role::parameter_gradient || t.parameter != std::string("tokens.table")) return;
        seen.push_back(copy_of<float>(parameters, t.data, static_cast<std::size_t>(t.count)));
        layers.push_back(t.by->layer + ' ' + t.by->operation);
    }
    const ht::store& parameters;
    std::vector<std::vector<float>> seen;
    std::vector<std::string> layers;
};

TEST_CASE("sparse gradients: a watched tape shows the rows, and zeros in the remaining capacity") {
    ht::cpu device;
    sparse<ht::full_fp32> model{device};
    ht::accumulator acc{model, ht::unscaled};
    ht::tape tape{device, ht::watched};
    row_watcher watcher(model.parameters());
    tape.watch(watcher);
    ids all;
    for (int window = 0; window < 2; ++window) {
        watcher.seen.clear();
        for (int micro = 0; micro < 3; ++micro) {
            tape.backward(model.loss(tape, all.next(1, 6 + micro)), acc);
            const auto rows = acc.find(model.parameters())->read_rows(model.tokens.table);
            REQUIRE(watcher.seen.size() == static_cast<std::size_t>(micro + 1));
            std::vector<float> want = rows.values;
            want.resize(watcher.seen.back().size());
            CHECK(want.size() > rows.values.size());
            CHECK(same_bits(watcher.seen.back(), want));
        }
        static_cast<void>(acc.take());
    }
    CHECK(watcher.layers[0].find("embedding") != std::string::npos);
}

// ---- torch.optim.SparseAdam, torch.optim.SGD

constexpr int lookups = 5, rows = 7, width = 3;
std::int32_t row_of(int t, int k) {
    const int r = (t + t * k + 3 * k * k) % rows;
    return t % 3 == 0 ? r % 3 : r;
}
float gradient_of(int t, int e, double amplitude) {
    return static_cast<float>(((7919 * t + 104729 * e) % 2049 - 1024) / 1024.0 * amplitude);
}

/// A hundred steps with the gradients of a case; calls after(t) after each.
template <class Optimizer, class After>
void train(ht::cpu& device, sparse<ht::full_fp32>& model, Optimizer& optimizer, double amplitude, const After& after) {
    std::vector<float> start;
    for (int i = 0; i < rows * width; ++i) start.push_back(static_cast<float>(((31 * i) % 65 - 32) / 16.0));
    model.tokens.table.assign(start);
    ht::accumulator acc{model, ht::unscaled};
    struct loss {};
    for (int t = 1; t <= 100; ++t) {
        acc.receive(loss{});
        std::vector<std::int32_t> tokens;
        std::vector<float> dy;
        for (int k = 0; k < lookups; ++k) tokens.push_back(row_of(t, k));
        for (int e = 0; e < lookups * width; ++e) dy.push_back(gradient_of(t, e, amplitude));
        const auto place = acc.find(model.parameters())->claim_rows(device, model.tokens.table, lookups);
        ht::kernel::embedding_rows<ht::cpu>::add<float, float>(device, {.tokens = {tokens.data(), {lookups}},
                                                                        .dy = {dy.data(), {lookups, width}},
                                                                        .vocabulary = rows,
                                                                        .rows = place.rows,
                                                                        .before = place.before});
        optimizer.step(acc.take());
        after(t);
    }
}

TEST_CASE(
    "sparse gradients: steps equal torch.optim.SparseAdam and torch.optim.SGD within fp32 rounding, over 100 steps") {
    const std::vector<support::golden_line> lines = support::read_golden("sparse.txt");
    int cases = 0;
    for (std::size_t at = 0; at < lines.size();) {
        const support::golden_line& head = lines[at++];
        REQUIRE(head.kind == "case");
        CAPTURE(head.words[0]);
        const bool is_adam = head.words[1] == "adam";
        const ht::adamw_options o{.lr = head.number(2),
                                  .beta1 = head.number(3),
                                  .beta2 = head.number(4),
                                  .epsilon = head.number(5),
                                  .weight_decay = 0};
        const double amplitude = head.number(6);
        ht::cpu device{{.threads = 1}};
        sparse<ht::full_fp32> model{device, rows, width};
        std::vector<golden::tracked_adamw> exact(rows * width);
        std::vector<double> by_epsilon(rows * width);
        for (std::size_t i = 0; i < exact.size(); ++i) exact[i].w = ((31 * static_cast<int>(i)) % 65 - 32) / 16.0;
        support::comparison with_exact, with_torch;
        const auto after = [&](int t) {
            std::vector<double> g(rows * width);
            std::vector<bool> is_there(rows);
            for (int k = 0; k < lookups; ++k) {
                const auto r = static_cast<std::size_t>(row_of(t, k));
                is_there[r] = true;
                for (int j = 0; j < width; ++j)
                    g[r * width + static_cast<std::size_t>(j)] +=
                        static_cast<double>(gradient_of(t, width * k + j, amplitude));
            }
            for (std::size_t i = 0; i < exact.size(); ++i) {
                golden::tracked_adamw& p = exact[i];
                if (!is_there[i / width]) continue;
                if (is_adam) {
                    p.step(g[i], 0, o, o.lr, 0, t);
                    // SparseAdam adds epsilon before the bias is corrected, and AdamW after it.
                    const double root = std::sqrt(1 - std::pow(o.beta2, t)),
                                 denominator = std::sqrt(p.v) / root + o.epsilon;
                    by_epsilon[i] += o.lr / (1 - std::pow(o.beta1, t)) * std::fabs(p.m) / denominator * o.epsilon *
                                     (1 / root - 1) / denominator;
                } else {
                    p.error_w += 2 * support::u * std::fabs(o.lr * g[i]);
                    p.w -= o.lr * g[i];
                    p.error_w += support::u * std::fabs(p.w);
                }
            }
            if (at == lines.size() || lines[at].kind != "step" || lines[at].number(0) != t) return;
            const std::vector<float> ours = masters_of(model.tokens.table);
            for (std::size_t i = 0; i < exact.size(); ++i) {
                with_exact.expect(static_cast<double>(ours[i]), exact[i].w, exact[i].bound());
                with_torch.expect(static_cast<double>(ours[i]), lines[at].number(i + 1),
                                  2 * exact[i].bound() + by_epsilon[i]);
                CHECK(exact[i].bound() + by_epsilon[i] < 1e-4 * std::max(std::fabs(exact[i].w), 1.0));
            }
            ++at;
        };
        if (is_adam) {
            ht::adamw optimizer{device, model, o};
            train(device, model, optimizer, amplitude, after);
        } else {
            ht::sgd optimizer{device, model, {.lr = o.lr}};
            train(device, model, optimizer, amplitude, after);
        }
        CHECK_WITHIN(with_exact);
        CHECK_WITHIN(with_torch);
        ++cases;
    }
    CHECK(cases == 4);
}

}  // namespace optim_sparse_tests

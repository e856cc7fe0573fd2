// SPDX-License-Identifier: MIT
/// \file
/// Linear layers of eight-bit products on the CPU: exact where eight bits are enough, within the formats' bounds
/// elsewhere, half the bytes, and scales that follow windows.
#include <cmath>
#include <limits>

#include <halftone/amp.hpp>

#include "autodiff/scaled_linear_checks.hpp"
#include "support/each_set.hpp"

namespace autodiff_scaled_linear_tests {

using namespace scaled_linear_checks;
using powers = ht::with_scaling<ht::fp8_hybrid, ht::current_scaling<0, ht::scale_steps::powers_of_two>>;

TEST_CASE("linear in eight bits: exact on small integers, on every instruction set") {
    for (const ht::isa set : {ht::isa::portable, ht::isa::avx2, ht::isa::avx512, ht::isa::avx512_bf16, ht::isa::amx}) {
        if (!support::is_tested(set)) continue;
        ht::cpu device{{.threads = 2, .instruction_set = set}};
        exact<powers>(device, {6, 5, 7}, 6);
        exact<powers>(device, {33, 64, 32}, 1);
    }
}

TEST_CASE("linear in eight bits: within the bounds of the formats") {
    ht::cpu device{{.threads = 2}};
    within_bounds<ht::fp8_hybrid>(device, {9, 6, 7});
    // A type that the policy states for one product holds for that product.
    within_bounds<ht::with_weight_grad<ht::fp8_hybrid, bfloat16>>(device, {9, 6, 7});
    using coarse = ht::tape<ht::cpu>;
    static_assert(std::is_same_v<ht::layer_roles<ht::fp8_hybrid, ht::op::linear, coarse>::input_grad, ht::float8_e5m2>);
    static_assert(
        std::is_same_v<ht::layer_roles<ht::with_grad<ht::fp8_hybrid, bfloat16>, ht::op::linear, coarse>::input_grad,
                       bfloat16>);
    static_assert(std::is_same_v<ht::layer_roles<ht::fp8_hybrid, ht::op::attention, coarse>::grad, bfloat16>);
}

/// Bytes that a layer keeps of its input for the backward pass.
template <class P>
std::size_t kept_bytes() {
    ht::cpu device{{.threads = 1}};
    const sizes n{64, 256, 24};
    fixture<P, ht::cpu> f(device, n, std::vector<float>(256 * 24, 0.5f), std::vector<float>(24),
                          std::vector<bfloat16>(64 * 256, bfloat16(1.0f)), std::vector<bfloat16>(64 * 24),
                          std::vector<bfloat16>(64 * 24));
    ht::tape tape{device};
    auto x = ht::mul(tape, tape.leaf(f.input()), tape.constant(f.input()));
    const std::size_t alone = tape.memory().live();
    auto y = ht::linear<typename fixture<P, ht::cpu>::roles>(tape, x, f.weight, f.bias);
    CHECK(tape.memory().live() > alone);
    x = {}, y = {};
    return tape.memory().live();
}

TEST_CASE("linear in eight bits: saves half the bytes of bf16 for its input, and two scales") {
    const std::size_t narrow = kept_bytes<ht::fp8_hybrid>(), wide = kept_bytes<ht::amp_bf16>();
    CHECK(wide == 64 * 256 * 2);
    CHECK(narrow == 64 * 256 + 2 * ht::block_alignment);
}

template <class P>
struct network : ht::nn::model {
    using policy = P;
    ht::nn::mlp<ht::at<P, "mlp">> mlp;
    network(ht::cpu& device, extent width, extent hidden) : ht::nn::model{device}, mlp{parameters(), width, hidden} {
        commit(*this);
    }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.mlp); }
};

TEST_CASE("mlp in eight bits: within bounds, and saves half the bytes for its inputs") {
    using P = ht::fp8_hybrid;
    using m = matrix<tracked>;
    constexpr int rows = 8, width = 5, hidden = 6;
    ht::cpu device{{.threads = 2}};
    support::random data{5};
    network<P> net{device, width, hidden};
    // All of one sign: gelu's derivative is near 1, and sums do not cancel.
    const auto numbers = [&](int count, double low, double high) {
        std::vector<bfloat16> v;
        for (int i = 0; i < count; ++i) v.push_back(bfloat16(static_cast<float>(data.uniform(low, high))));
        return v;
    };
    const auto up = numbers(hidden * width, 0.3, 1), down = numbers(width * hidden, 0.3, 1);
    net.mlp.up.weight.assign(std::vector<float>(up.begin(), up.end()));
    net.mlp.down.weight.assign(std::vector<float>(down.begin(), down.end()));
    const guarded<bfloat16> x(numbers(rows * width, 0.5, 1)), residual(numbers(rows * width, 0, 1)),
        dy(numbers(rows * width, 0.001, 0.004));
    const auto run = [&](auto& ctx, const auto& at, const auto& add) { return net.mlp(ctx, at, add); };

    const support::stored_as<bfloat16> store{};
    const auto e4 = in_eight_bits<ht::float8_e4m3>;
    const auto e5 = in_eight_bits<ht::float8_e5m2>;
    const m x8 = e4(m(rows, width, x.data())), up8 = e4(m(hidden, width, up.data())),
            down8 = e4(m(width, hidden, down.data())), dy8 = e5(m(rows, width, dy.data()));
    const auto scaled_back = [](const m& v) {
        return each(v, [](const tracked& t) { return support::further_roundings(t, 4); });
    };
    const m pre = scaled_back(product(x8, transposed(up8)));
    const m hidden8 = e4(each(each(pre, [](const tracked&v) { return support::gelu<bfloat16>(v); }), store)),
            kept = each(pre, store);
    const m want_y = plus(scaled_back(product(hidden8, transposed(down8))), m(rows, width, residual.data()));
    m dpre = scaled_back(product(dy8, down8));
    for (std::size_t i = 0; i < dpre.values.size(); ++i)
        dpre.values[i] = store(dpre.values[i] * support::gelu_derivative<bfloat16>(kept.values[i]));
    const m dpre8 = e5(dpre);
    const auto within = [](const doubles& got, const m& want, auto stored) {
        using T = decltype(stored);
        support::comparison c;
        for (std::size_t i = 0; i < got.size(); ++i)
            c.expect(got[i], want.values[i].value, support::rounded<T>(want.values[i].value, want.values[i].error));
        CHECK_MESSAGE(c.within(), c);
        return c.telling();
    };

    ht::tape tape{device};
    support::gradient_sink sink(net.parameters());
    const ht::shape<2> of_x{rows, width};
    const auto at = tape.leaf(x.view(of_x)), add = tape.leaf(residual.view(of_x));
    const auto y = run(tape, at, add);
    CHECK(within(support::doubles(y.view()), want_y, bfloat16{}));
    tape.backward(autodiff_test::weigh(tape, y, dy.view()), sink);
    CHECK(within(sink.of(net.mlp.down.weight), scaled_back(product(transposed(dy8), hidden8)), float{}));
    CHECK(within(sink.of(net.mlp.down.bias), column_sums(m(rows, width, dy.data())), float{}));
    // Behind two products and a gelu the bounds are wide.
    within(sink.of(net.mlp.up.bias), column_sums(dpre), float{});
    within(sink.of(net.mlp.up.weight), scaled_back(product(transposed(dpre8), x8)), float{});
    within(support::doubles(tape.gradient(at)), scaled_back(product(dpre8, up8)), bfloat16{});
    CHECK(support::doubles(tape.gradient(add)) == support::doubles(dy.view()));

    ht::inference eval{device};
    CHECK(support::doubles(run(eval, eval.constant(x.view(of_x)), eval.constant(residual.view(of_x))).view()) ==
          support::doubles(y.view()));
    // Values that only a frozen weight's gradient would read are not saved.
    const auto live = [&] {
        auto result = run(tape, tape.leaf(x.view(of_x)), tape.leaf(residual.view(of_x)));
        result = {};
        const std::size_t bytes = tape.memory().live();
        tape.clear();
        return bytes;
    };
    const std::size_t all = live();
    CHECK(net.parameters().freeze("mlp.down.weight") == 1);
    CHECK(live() == all - 2 * ht::block_alignment);  // hidden, 48 bytes, and its scale
    CHECK(net.parameters().freeze("mlp.up.*") == 2);
    CHECK(live() == all - 4 * ht::block_alignment);
}

template <class P>
struct layer : ht::nn::model {
    using policy = P;
    ht::nn::linear<ht::at<P, "fc">> fc;
    explicit layer(ht::cpu& device) : ht::nn::model{device}, fc{parameters(), 4, 3} { commit(*this, 2); }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.fc); }
};

TEST_CASE("delayed scaling: one window per step, of any number of micro-batches; skipped steps do not count") {
    using P = ht::with_scaling<ht::fp8_hybrid, ht::delayed_scaling<3>>;
    ht::cpu device{{.threads = 1}};
    layer<P> model{device}, other{device};
    ht::sgd optimizer{device, model, {.lr = 0}};
    ht::accumulator acc{model, ht::unscaled};
    ht::tape tape{device};
    const auto state = [&](ht::scaled_tensor t) {
        return model.parameters().amaxes().read()[static_cast<std::size_t>(t)];
    };
    const auto input = ht::scaled_tensor::input, weight = ht::scaled_tensor::weight,
               gradient = ht::scaled_tensor::gradient;
    // x and dy of a given amax.
    const auto micro = [&](float x_amax, float dy_amax) {
        const guarded<bfloat16> x(std::vector<bfloat16>(8, bfloat16(x_amax))),
            dy(std::vector<bfloat16>(6, bfloat16(-dy_amax)));
        x[3] = bfloat16(-x_amax / 2), dy[1] = bfloat16(dy_amax / 4);
        const auto y = model.fc(tape, tape.constant(x.view(ht::shape<2>{2, 4})));
        tape.backward(autodiff_test::weigh(tape, y, dy.view()), acc);
    };
    const auto step = [&] {
        auto grads = acc.take();
        optimizer.step(grads);
    };
    double w_amax = 0;
    for (const float v : support::read_masters(model.parameters(), 0))
        w_amax = std::max(w_amax, std::fabs(static_cast<double>(static_cast<float>(bfloat16(v)))));

    REQUIRE(model.parameters().amaxes().size() == 3);
    CHECK(state(weight).path == "fc.weight");
    CHECK(state(input).scale == 1);
    micro(2, 0.5f);
    micro(4, 0.25f);
    CHECK(state(input).scale == 1);  // the window lasts
    step();
    CHECK(state(input).scale == 448.0f / 4);
    CHECK(state(gradient).scale == 57344.0f / 0.5f);
    CHECK(state(weight).scale == 448.0f / static_cast<float>(w_amax));
    CHECK(state(input).history == std::vector<float>{0, 0, 4});

    micro(1, 8);
    step();
    CHECK(state(input).scale == 448.0f / 4);  // the largest of three windows
    CHECK(state(gradient).scale == 57344.0f / 8);
    // An overflow: nothing in its window counts, not even finite magnitudes.
    micro(64, std::numeric_limits<float>::infinity());
    step();
    CHECK(optimizer.last_step_skipped());
    CHECK(state(input).scale == 448.0f / 4);
    CHECK(state(gradient).scale == 57344.0f / 8);
    CHECK(state(input).history == std::vector<float>{0, 4, 1});
    micro(1, 0);
    step();
    CHECK(state(input).history == std::vector<float>{4, 1, 1});
    micro(1, 0);
    step();
    CHECK(state(input).scale == 448.0f / 1);  // the 4 is forgotten
    CHECK(state(gradient).scale == 57344.0f / 8);
    // A forward pass without a backward pass adds nothing to the history.
    ht::inference eval{device};
    const guarded<bfloat16> large(std::vector<bfloat16>(8, bfloat16(512.0f)));
    const auto y = model.fc(eval, eval.constant(large.view(ht::shape<2>{2, 4})));
    micro(0.5f, 1);
    step();
    CHECK(state(input).history == std::vector<float>{1, 1, 0.5f});

    // An overflowing micro-batch whose gradients are discarded does not count either.
    micro(1e4f, std::numeric_limits<float>::infinity());
    acc.discard();
    micro(0.25f, 1);
    step();
    CHECK(state(input).history == std::vector<float>{1, 0.5f, 0.25f});
    CHECK(state(gradient).history == std::vector<float>{8, 1, 1});  // two windows of zeros told nothing
    // Values that are not finite never count as a magnitude.
    const guarded<bfloat16> odd(std::vector<bfloat16>(8, bfloat16(std::numeric_limits<float>::infinity())));
    (void)model.fc(tape, tape.constant(odd.view(ht::shape<2>{2, 4})));
    tape.clear();
    micro(0.125f, 1);
    step();
    CHECK(state(input).history == std::vector<float>{0.5f, 0.25f, 0.125f});

    // Another model continues from this one's state.
    const auto saved = model.parameters().amaxes().read();
    other.parameters().amaxes().load(saved);
    const auto loaded = other.parameters().amaxes().read();
    REQUIRE(loaded.size() == saved.size());
    for (std::size_t i = 0; i < saved.size(); ++i)
        CHECK((loaded[i].scale == saved[i].scale && loaded[i].history == saved[i].history));
    auto wrong = saved;
    wrong[1].path = "elsewhere";
    CHECK_THROWS_AS(other.parameters().amaxes().load(wrong), ht::argument_error);
    wrong = saved;
    wrong[2].scale = 0;
    CHECK_THROWS_AS(other.parameters().amaxes().load(wrong), ht::argument_error);
    wrong[2].scale = 1e-45f;  // without an inverse
    CHECK_THROWS_AS(other.parameters().amaxes().load(wrong), ht::argument_error);
    for (const float bad : {-1.0f, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
        wrong = saved;
        wrong[1].history[1] = bad;
        CHECK_THROWS_AS(other.parameters().amaxes().load(wrong), ht::argument_error);
    }
    wrong = saved;
    wrong[0].history.pop_back();
    CHECK_THROWS_AS(other.parameters().amaxes().load(wrong), ht::argument_error);
    wrong.pop_back();
    CHECK_THROWS_AS(other.parameters().amaxes().load(wrong), ht::argument_error);

    // A weight whose layer keeps no history.
    layer<ht::amp_bf16> plain{device};
    using roles = ht::layer_roles<P, ht::op::linear, ht::tape<ht::cpu>>;
    CHECK_THROWS_AS(
        ht::linear<roles>(tape, tape.constant(large.view(ht::shape<2>{2, 4})), plain.fc.weight, plain.fc.bias),
        ht::state_error);
    tape.clear();
}

template <class P>
struct branches : ht::nn::model {
    using policy = P;
    ht::nn::linear<ht::at<P, "often">> often;
    ht::nn::linear<ht::at<P, "seldom">> seldom;
    explicit branches(ht::cpu& device)
        : ht::nn::model{device}, often{parameters(), 4, 3}, seldom{parameters(), 4, 3} {
        commit(*this, 2);
    }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.often, self.seldom); }
};

TEST_CASE("delayed scaling: windows in which a layer does not run leave its histories and scales as they are") {
    for (const bool saves : {false, true}) {
        CAPTURE(saves);
        using P = ht::with_scaling<ht::fp8_hybrid, ht::delayed_scaling<3>>;
        ht::cpu device{{.threads = 1}};
        branches<P> first{device}, second{device};
        branches<P>* model = &first;
        ht::sgd one{device, first, {.lr = 0}}, two{device, second, {.lr = 0}};
        ht::tape tape{device};
        ht::inference eval{device};
        enum class runs { often, forward_alone, both };
        const auto window = [&](float amax, runs which) {
            ht::accumulator acc{*model, ht::unscaled};
            const guarded<bfloat16> x(std::vector<bfloat16>(8, bfloat16(amax))),
                dy(std::vector<bfloat16>(6, bfloat16(amax / 2)));
            const auto in = tape.constant(x.view(ht::shape<2>{2, 4}));
            (void)model->seldom(eval, eval.constant(x.view(ht::shape<2>{2, 4})));
            // The layer sees an input, but no gradient.
            if (which == runs::forward_alone) (void)model->seldom(tape, in);
            tape.backward(autodiff_test::weigh(tape, model->often(tape, in), dy.view()), acc);
            if (which == runs::both) {
                const auto again = tape.constant(x.view(ht::shape<2>{2, 4}));
                tape.backward(autodiff_test::weigh(tape, model->seldom(tape, again), dy.view()), acc);
            }
            auto grads = acc.take();
            (model == &first ? one : two).step(grads);
        };
        const auto states = [&] { return model->parameters().amaxes().read(); };
        for (const float amax : {1.0f, 100.0f, 1.0f}) window(amax, runs::both);
        const auto before = states();
        REQUIRE(before.size() == 6);
        CHECK(before[3].history == std::vector<float>{1, 100, 1});
        CHECK(before[3].scale == 448.0f / 100);
        for (int i = 0; i < 4; ++i) window(2, runs::often);
        for (std::size_t i = 3; i < 6; ++i) {
            CAPTURE(i);
            CHECK(states()[i].history == before[i].history);
            CHECK(states()[i].scale == before[i].scale);
        }
        CHECK(states()[0].history == std::vector<float>{2, 2, 2});
        if (saves) {
            second.parameters().amaxes().load(states());
            model = &second;
        }
        // A gradient that is not reached keeps its history; the input's history has a new entry.
        window(4, runs::forward_alone);
        CHECK(states()[3].history == std::vector<float>{100, 1, 4});
        CHECK(states()[5].history == before[5].history);
        CHECK(states()[5].scale == before[5].scale);
        window(8, runs::both);
        CHECK(states()[3].history == std::vector<float>{1, 4, 8});
        CHECK(states()[5].history == std::vector<float>{50, 0.5f, 4});
        CHECK(states()[3].scale == 448.0f / 8);
        CHECK(states()[5].scale == 57344.0f / 50);
    }
}

TEST_CASE("delayed scaling: a model whose parameters are all frozen updates its scales, too") {
    using P = ht::with_scaling<ht::fp8_hybrid, ht::delayed_scaling<2>>;
    ht::cpu device{{.threads = 1}};
    layer<P> frozen{device}, head{device};
    ht::sgd none{device, frozen, {}, {{"*", ht::frozen}}};
    ht::sgd optimizer{device, head, {.lr = 0}};
    ht::accumulator acc{frozen, head, ht::unscaled};
    ht::tape tape{device};
    const guarded<bfloat16> x(std::vector<bfloat16>(8, bfloat16(14.0f))), dy(std::vector<bfloat16>(6, bfloat16(1.0f)));
    const auto input = [](layer<P>& of) { return of.parameters().amaxes().read()[0]; };
    for (int window = 0; window < 2; ++window) {
        (void)frozen.fc(tape, tape.constant(x.view(ht::shape<2>{2, 4})));
        const auto y = head.fc(tape, tape.constant(x.view(ht::shape<2>{2, 4})));
        tape.backward(autodiff_test::weigh(tape, y, dy.view()), acc);
        auto grads = acc.take();
        CHECK(none.step(grads).result() == ht::step_result::nothing);
        optimizer.step(grads);
        CHECK(input(frozen).scale == 32);
        CHECK(input(head).scale == 32);
    }
    CHECK(input(frozen).history == std::vector<float>{14, 14});
}

}  // namespace autodiff_scaled_linear_tests

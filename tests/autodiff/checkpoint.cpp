// SPDX-License-Identifier: MIT
/// \file
/// Gradient checkpointing: the bits of the pass without it, dropout included, with less memory in between.
#include <vector>

#include <doctest/doctest.h>

#include <halftone/amp.hpp>
#include <halftone/autodiff/op/checkpoint.hpp>
#include <halftone/nn/channel_norm.hpp>
#include <halftone/observe/watch/watched_tape.hpp>

#include "support/random.hpp"
#include "support/store_bytes.hpp"

namespace autodiff_checkpoint_tests {

namespace ht = halftone;
using ht::extent;

/// Two layers with dropout between them; a residual where both are.
template <class P>
struct network : ht::nn::model {
    using policy = P;
    ht::nn::linear<ht::at<P, "up">> up;
    ht::nn::linear<ht::at<P, "down">> down;

    explicit network(auto& device) : model{device}, up{parameters(), 8, 32}, down{parameters(), 32, 8} {
        commit(*this, 3);
    }
    auto operator()(auto&& ctx, const auto& x) const {
        return ht::add(ctx, x, down(ctx, ht::dropout(ctx, ht::gelu(ctx, up(ctx, x)), {0.25f})));
    }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.up, self.down); }
};

struct outcome {
    float loss;
    std::vector<float> leaf;
    std::vector<std::byte> parameters;  // after a step by the gradients
    std::size_t between = 0;            // bytes of results when the forward pass has ended
};

/// A loss of three calls of the network, each as `call(ctx, network, x)` has it, then its gradients and a step.
template <class P, class Call>
outcome train(const Call& call) {
    ht::cpu device{{.threads = 2}};
    network<P> net{device};
    ht::sgd optimizer{device, net, {.lr = 0.1}};
    ht::grad_scaler scaler{device, {.init_scale = 256, .enabled = ht::model_needs_scaling<network<P>>}};
    ht::accumulator acc{net};
    ht::tape tape{device};
    tape.seed(7);
    const std::vector<float> values = support::random(2).normals<float>(16 * 8);
    outcome r;
    for (int step = 0; step < 2; ++step) {
        const auto x = tape.leaf(ht::const_view<float, 2>{values.data(), {16, 8}});
        {
            const auto loss = [&] {
                // Drawn before, between and after the checkpoints, too.
                auto h = ht::dropout(tape, x, {0.1f});
                for (int i = 0; i < 3; ++i) h = ht::dropout(tape, call(tape, net, h), {0.1f});
                return ht::mean(tape, ht::mul(tape, h, h));
            }();
            r.between = tape.memory().live();
            r.loss = loss.item();
            tape.backward(scaler.scale(loss), acc);
        }
        const auto dx = tape.gradient(x);
        r.leaf.assign(dx.data(), dx.data() + dx.size());
        optimizer.step(scaler.unscale(acc.take()));
        scaler.update();
    }
    r.parameters = support::bytes_of(net.parameters());
    return r;
}

void expect_same(const outcome& a, const outcome& b) {
    CHECK(a.loss == b.loss);
    CHECK(a.leaf == b.leaf);
    CHECK(a.parameters == b.parameters);
}

TEST_CASE_TEMPLATE("checkpoint: the bits of a pass without it, in less memory", P, ht::full_fp32, ht::amp_fp16) {
    const outcome plain = train<P>([](auto& ctx, const auto& net, const auto& x) { return net(ctx, x); });
    const outcome each =
        train<P>([](auto& ctx, const auto& net, const auto& x) { return ht::checkpoint(ctx, net, x); });
    expect_same(plain, each);
    CHECK(each.between < plain.between / 2);

    SUBCASE("a lambda, with what it captured") {
        expect_same(plain, train<P>([](auto& ctx, const auto& net, const auto& x) {
                        return ht::checkpoint(ctx, [&net, x](auto& c) { return net(c, x); });
                    }));
    }
    SUBCASE("in a region, which stays the same") {
        expect_same(plain, train<P>([](auto& ctx, const auto& net, const auto& x) {
                        return ht::checkpoint(ht::autocast<ht::inherit>(ctx), net, x);
                    }));
    }
    SUBCASE("within one another") {
        const outcome nested = train<P>([](auto& ctx, const auto& net, const auto& x) {
            return ht::checkpoint(
                ctx,
                [&net](auto& c, const auto& in) {
                    return ht::add(c, in,
                                   ht::checkpoint(c, [&net](auto& inner, const auto& h) {
                                       return net.down(inner, ht::dropout(inner, ht::gelu(inner, net.up(inner, h)), {0.25f}));
                                   }, in));
                },
                x);
        });
        expect_same(plain, nested);
        CHECK(nested.between == each.between);
    }
}

TEST_CASE("checkpoint: no record where nothing takes a gradient, where nothing is recorded, and of an identity") {
    ht::cpu device{{.threads = 1}};
    const float values[] = {1, 2, 3};
    const ht::const_view<float, 1> given{values, {3}};
    const auto square = [](auto& c, const auto& x) { return ht::mul(c, x, x); };

    ht::tape tape{device};
    const auto y = ht::checkpoint(tape, square, tape.constant(given));
    CHECK_FALSE(y.wants_gradient());
    CHECK(tape.graph().records() == 0);

    ht::inference eval{device};
    CHECK(ht::checkpoint(eval, square, eval.constant(given)).view()(2) == 9);

    const auto x = tape.leaf(given);
    const auto same = ht::checkpoint(tape, [](auto&, const auto& in) { return in; }, x);
    CHECK(tape.graph().records() == 0);
    tape.backward(ht::sum(tape, ht::checkpoint(tape, square, same)));
    CHECK(tape.gradient(x)(2) == 6);
}

TEST_CASE_TEMPLATE("checkpoint: a function that returns what it captured hands its gradient on", Kind, ht::plain_tape,
                   ht::watched_tape) {
    ht::cpu device{{.threads = 1}};
    const float values[] = {1, 2, 3};
    ht::tape<ht::cpu, Kind> tape{device};
    const auto square_sum = [&tape](const auto& y) { return ht::sum(tape, ht::mul(tape, y, y)); };
    for (const bool nested : {false, true}) {
        for (const bool is_leaf : {false, true}) {
            const auto x = tape.leaf(ht::const_view<float, 1>{values, {3}});
            {
                const auto h = is_leaf ? x : ht::mul(tape, x, x);
                const auto captured = [h](auto&) { return h; };
                const auto y = nested
                                   ? ht::checkpoint(tape, [captured](auto& c) { return ht::checkpoint(c, captured); })
                                   : ht::checkpoint(tape, captured);
                tape.backward(square_sum(y));
            }
            CHECK(tape.gradient(x)(2) == (is_leaf ? 6 : 4 * 27));
        }
        CHECK(tape.memory().live() == 0);  // the gradients' blocks are free again
    }
}

TEST_CASE("checkpoint: an exception on the way leaves a tape that records again") {
    ht::cpu device{{.threads = 1}};
    ht::tape tape{device};
    const float values[] = {1, 2, 3};
    const auto x = tape.leaf(ht::const_view<float, 1>{values, {3}});
    int calls = 0;
    const auto fails_at = [&](int call) {
        return [&calls, call](auto& c, const auto& in) {
            if (++calls == call) throw ht::state_error("stop");
            return ht::mul(c, in, in);
        };
    };
    CHECK_THROWS_AS(static_cast<void>(ht::checkpoint(tape, fails_at(1), x)), ht::state_error);
    const auto loss = ht::sum(tape, ht::checkpoint(tape, fails_at(3), x));
    CHECK_THROWS_AS(tape.backward(loss), ht::state_error);  // the third call is the second one's repetition
    CHECK(tape.graph().records() == 0);
    const auto sum = ht::sum(tape, ht::mul(tape, x, x));
    CHECK(tape.graph().records() != 0);
    tape.backward(sum);
    CHECK(tape.gradient(x)(1) == 4);
}

TEST_CASE("checkpoint: a watched tape shows each tensor once") {
    struct counter : ht::tensor_listener {
        void on_tensor(const ht::watched_tensor& t) override { ++count[static_cast<int>(t.role)]; }
        long count[8] = {};
    };
    const auto counts = [](bool checkpointed) {
        ht::cpu device{{.threads = 1}};
        network<ht::amp_fp16> net{device};
        ht::accumulator acc{net};
        ht::tape tape{device, ht::watched};
        counter shown;
        tape.watch(shown);
        const std::vector<float> values = support::random(2).normals<float>(16 * 8);
        const auto x = tape.leaf(ht::const_view<float, 2>{values.data(), {16, 8}});
        const auto y = checkpointed ? ht::checkpoint(tape, net, x) : net(tape, x);
        ht::grad_scaler scaler{device, {.init_scale = 256}};
        tape.backward(scaler.scale(ht::mean(tape, ht::mul(tape, y, y))), acc);
        acc.discard();
        tape.unwatch(shown);
        return std::vector<long>(std::begin(shown.count), std::end(shown.count));
    };
    const auto plain = counts(false);
    CHECK(plain[static_cast<int>(ht::tensor_role::value)] > 4);
    CHECK(counts(true) == plain);
}

/// A GPT with dropout, under each number of blocks between two checkpoints.
TEST_CASE("checkpoint: every n-th block of a GPT has the bits of none, and less memory") {
    const ht::nn::gpt_config config{.vocabulary = 23, .context = 16, .layers = 4, .heads = 2, .width = 32, .dropout = 0.1f};
    const std::vector<std::int32_t> ids = support::random(1).indices(4 * 17, 23);
    const auto run = [&](int every, std::size_t& between) {
        ht::nn::gpt_config c = config;
        c.checkpointing = every;
        ht::cpu device{{.threads = 2}};
        ht::nn::gpt<ht::amp_bf16> model{device, c, 3};
        ht::adamw optimizer{device, model, {.lr = 1e-2}};
        ht::accumulator acc{model, ht::unscaled};
        ht::tape tape{device};
        struct {
            ht::const_view<std::int32_t, 2> tokens, targets;
        } batch{{ids.data(), {4, 16}}, {ids.data() + 1, {4, 16}}};
        for (int step = 0; step < 2; ++step) {
            const auto loss = model.loss(tape, batch);
            between = tape.memory().live();
            tape.backward(loss, acc);
            optimizer.step(acc.take());
        }
        return support::bytes_of(model.parameters());
    };
    std::size_t none = 0, every_other = 0, each = 0;
    const auto plain = run(0, none);
    CHECK(run(1, each) == plain);
    CHECK(run(2, every_other) == plain);
    CHECK(2 * each < none);
    CHECK(each < every_other);
    CHECK(every_other < none);
    ht::cpu device;
    CHECK_THROWS_AS((ht::nn::gpt<ht::amp_bf16>{device, {.layers = 1, .checkpointing = -1}}), ht::argument_error);
}

/// Batch norm of one channel.
struct one_channel : ht::nn::model {
    using policy = ht::full_fp32;
    ht::nn::batch_norm2d<ht::at<policy, "bn">> bn;

    explicit one_channel(ht::cpu& device) : model{device}, bn{parameters(), 1} { commit(*this, 3); }
    auto operator()(auto&& ctx, const auto& x) const { return bn(ctx, x); }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.bn); }
};

/// One step on 1, 2, 3, 4, whose mean is 2.5 and whose unbiased variance is 5/3; `call(ctx, net, x)` gives the result. The
/// running statistics are those of one forward pass.
template <class Kind, class Call>
void expect_one_update(const Call& call) {
    ht::cpu device{{.threads = 1}};
    one_channel net{device};
    ht::accumulator acc{net, ht::unscaled};
    ht::tape<ht::cpu, Kind> tape{device};
    const float values[] = {1, 2, 3, 4};
    const auto x = tape.leaf(ht::const_view<float, 4>{values, {1, 1, 2, 2}});
    tape.backward(ht::sum(tape, call(tape, net, x)), acc);
    acc.discard();
    CHECK(net.bn.running_mean.values()(0) == doctest::Approx(0.25).epsilon(1e-6));
    CHECK(net.bn.running_var.values()(0) == doctest::Approx(0.9 + 0.1 * 5 / 3).epsilon(1e-6));
}

TEST_CASE_TEMPLATE("checkpoint: running statistics are updated once", Kind, ht::plain_tape, ht::watched_tape) {
    expect_one_update<Kind>([](auto& ctx, const auto& net, const auto& x) { return net(ctx, x); });
    expect_one_update<Kind>([](auto& ctx, const auto& net, const auto& x) { return ht::checkpoint(ctx, net, x); });
    expect_one_update<Kind>([](auto& ctx, const auto& net, const auto& x) {
        return ht::checkpoint(ctx, [&net](auto& c, const auto& in) { return ht::checkpoint(c, net, in); }, x);
    });
    expect_one_update<Kind>([](auto& ctx, const auto& net, const auto& x) {
        return ht::checkpoint(ctx, [&net](auto& c, const auto& in) {
            return ht::batch_norm(c, in, net.bn.running_mean, net.bn.running_var, net.bn.weight, net.bn.bias, {.training = true});
        }, x);
    });
    // A pass behind one that threw while it was recomputed is a first one again.
    expect_one_update<Kind>([](auto& ctx, const auto& net, const auto& x) {
        int calls = 0;
        const auto y = ht::checkpoint(ctx, [&calls](auto& c, const auto& in) {
            if (++calls == 2) throw ht::state_error("stop");
            return ht::mul(c, in, in);
        }, x);
        CHECK_THROWS_AS(ctx.backward(ht::sum(ctx, y)), ht::state_error);
        return ht::checkpoint(ctx, net, x);
    });
}

TEST_CASE("checkpoint: a function's own counter asks whether it is called again") {
    ht::cpu device{{.threads = 1}};
    ht::tape tape{device};
    const float values[] = {1, 2, 3};
    const auto x = tape.leaf(ht::const_view<float, 1>{values, {3}});
    int passes = 0, calls = 0;
    const auto counted = [&](auto& c, const auto& in) {
        ++calls;
        if (!ht::is_recomputing(c)) ++passes;
        return ht::mul(c, in, in);
    };
    tape.backward(ht::sum(tape, ht::checkpoint(tape, counted, x)));
    CHECK((calls == 2 && passes == 1));
    ht::inference eval{device};
    CHECK_FALSE(ht::is_recomputing(eval));
    CHECK(ht::checkpoint(eval, counted, eval.constant(ht::const_view<float, 1>{values, {3}})).view()(2) == 9);
    CHECK((calls == 3 && passes == 2));
}

TEST_CASE("checkpoint: delayed scaling has the scales and histories of passes without it") {
    using P = ht::with_scaling<ht::fp8_hybrid, ht::delayed_scaling<3>>;
    const auto states = [](bool checkpointed) {
        ht::cpu device{{.threads = 1}};
        network<P> net{device};
        ht::sgd optimizer{device, net, {.lr = 0.1}};
        ht::accumulator acc{net, ht::unscaled};
        ht::tape tape{device};
        for (int step = 0; step < 5; ++step) {
            for (int micro = 0; micro < 2; ++micro) {
                const auto values = support::random(static_cast<unsigned>(2 * step + micro)).normals<ht::bfloat16>(16 * 8);
                const auto x = tape.leaf(ht::const_view<ht::bfloat16, 2>{values.data(), {16, 8}});
                const auto y = checkpointed ? ht::checkpoint(tape, net, x) : net(tape, x);
                tape.backward(ht::mean(tape, ht::mul(tape, y, y)), acc);
            }
            optimizer.step(acc.take());
        }
        return net.parameters().amaxes().read();
    };
    const auto plain = states(false), again = states(true);
    REQUIRE(plain.size() == 6);
    for (std::size_t i = 0; i < plain.size(); ++i) {
        CHECK(plain[i].scale == again[i].scale);
        CHECK(plain[i].history == again[i].history);
        CHECK(plain[i].history.back() > 0);
    }
}

}  // namespace autodiff_checkpoint_tests

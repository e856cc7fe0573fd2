// SPDX-License-Identifier: MIT
/// \file
/// Contexts: what is recorded, what backward consumes, and errors, after which everything can still be used.
#include <optional>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/autodiff/op/linear.hpp>
#include <halftone/kernel/column_sum/cpu.hpp>
#include <halftone/kernel/matmul/cpu.hpp>

#include "autodiff/weigh.hpp"
#include "support/gradient_sink.hpp"
#include "support/guarded.hpp"

namespace autodiff_tape_tests {

namespace ht = halftone;
using support::guarded;
using doubles = std::vector<double>;
using roles = ht::roles<float, float, float>;
using storage = ht::storage_signature<ht::full_fp32, ht::op::linear>;

/// One linear layer, y = x wᵀ, and an input.
struct fixture {
    explicit fixture(std::size_t memory_limit = static_cast<std::size_t>(-1))
        : device({.threads = 1, .memory_limit = memory_limit}) {
        parameters.commit();
        support::set(weight, std::vector<float>{1, 2, 3, 4});
    }
    ht::cpu device;
    ht::store parameters{device.memory()};
    ht::parameter<storage, 2> weight = parameters.add<ht::full_fp32, ht::op::linear>("weight", ht::shape<2>{2, 2}, {});
    guarded<float> x{std::vector<float>{1, -1, 2, 5}};
    ht::view<float, 2> input() const { return x.view(ht::shape<2>{2, 2}); }

    template <class Context, class X>
    auto apply(Context&& ctx, const X& v) const {
        return ht::linear<roles>(ctx, v, weight, ht::absent{});
    }
};

TEST_CASE("leaves: no gradient before a pass, the sum of all passes after") {
    fixture f;
    ht::tape tape{f.device};
    const auto x = tape.leaf(f.input());
    CHECK_THROWS_WITH_AS(static_cast<void>(tape.gradient(x)),
                         "tape: no gradient arrived at this variable of shape (2, 2)", ht::state_error);
    tape.backward(ht::sum(tape, x));
    CHECK(support::doubles(tape.gradient(x)) == doubles{1, 1, 1, 1});
    tape.backward(ht::sum(tape, x) / 2);
    CHECK(support::doubles(tape.gradient(x)) == doubles{1.5, 1.5, 1.5, 1.5});
    const auto y = tape.constant(f.input());
    CHECK(!y.wants_gradient());
    CHECK(y.view().data() == f.x.data());
    CHECK_THROWS_AS(tape.leaf(ht::transpose(ht::view<float, 2>(f.x.data(), {1, 4}, {8, 2}))), ht::shape_error);
}

TEST_CASE("detach: the same value, and no gradient behind it") {
    fixture f;
    ht::tape tape{f.device};
    const auto x = tape.leaf(f.input());
    const auto y = ht::mul(tape, x, x);
    const auto cut = tape.detach(y);
    CHECK(cut.view().data() == y.view().data());
    CHECK(!cut.wants_gradient());
    tape.backward(ht::sum(tape, ht::mul(tape, cut, x)));  // d = y, as if y were a constant
    CHECK(support::doubles(tape.gradient(x)) == doubles{1, 1, 4, 25});
    ht::tape other{f.device};
    CHECK_THROWS_WITH_AS(static_cast<void>(other.detach(y)),
                         "tape: detach of a variable that belongs to another context", ht::argument_error);
}

TEST_CASE("detach: in a region of a tape and in an inference context, without a copy") {
    fixture f;
    ht::tape tape{f.device};
    const auto x = tape.leaf(f.input());
    const auto cut = ht::detach(ht::autocast<ht::amp_bf16>(tape), x);
    CHECK(cut.view().data() == x.view().data());
    CHECK(!cut.wants_gradient());
    tape.backward(ht::sum(tape, ht::mul(tape, ht::detach(tape, ht::mul(tape, cut, cut)), x)));
    CHECK(support::doubles(tape.gradient(x)) == doubles{1, 1, 4, 25});
    ht::inference eval{f.device};
    const auto y = ht::sum(eval, eval.constant(f.input()));
    const auto same = ht::detach(ht::autocast<ht::amp_bf16>(eval), y);
    CHECK(same.view().data() == y.view().data());
    CHECK_THROWS_AS(static_cast<void>(ht::detach(eval, x)), ht::argument_error);
}

TEST_CASE("backward: invalid losses, which the accumulator does not receive") {
    fixture f;
    support::gradient_sink sink(f.parameters);
    ht::tape tape{f.device}, other{f.device};
    const auto x = tape.leaf(f.input());
    const auto loss = ht::sum(tape, f.apply(tape, x));
    CHECK_THROWS_WITH_AS(other.backward(loss, sink), "tape: backward of a loss that is on another tape",
                         ht::argument_error);
    const auto nothing = ht::sum(tape, tape.constant(f.input()));
    CHECK_THROWS_WITH_AS(tape.backward(nothing, sink),
                         "tape: backward of a loss that depends on no parameter and no leaf", ht::argument_error);
    CHECK(sink.received == 0);
    tape.backward(loss, sink);
    CHECK(sink.received == 1);
    CHECK_THROWS_WITH_AS(tape.backward(loss, sink),
                         "tape: backward of a loss that was on the tape before; a backward pass consumes the tape",
                         ht::state_error);
    // Also while other operations are recorded.
    const auto next = ht::sum(tape, f.apply(tape, x));
    CHECK_THROWS_AS(tape.backward(loss, sink), ht::state_error);
    tape.backward(next, sink);
    CHECK(sink.received == 2);
    float one = 1;
    const auto leaf = tape.leaf(ht::view<float, 0>(&one, {}));
    CHECK_THROWS_WITH_AS(tape.backward(leaf, sink), "tape: backward of an empty tape", ht::state_error);
}

TEST_CASE("backward: a result of an earlier pass takes no gradient, unless it is detached") {
    fixture f;
    support::gradient_sink sink(f.parameters);
    ht::tape tape{f.device};
    const auto x = tape.leaf(f.input());
    const auto hidden = ht::mul(tape, x, x);
    tape.backward(ht::sum(tape, hidden));
    const auto loss = ht::sum(tape, f.apply(tape, hidden));
    CHECK_THROWS_WITH_AS(tape.backward(loss, sink),
                         "tape: a gradient arrives at a result of shape (2, 2) whose operation an earlier backward "
                         "pass has consumed; compute it again, or detach it",
                         ht::state_error);
    CHECK(tape.graph().records() == 0);
    sink.close();
    tape.backward(ht::sum(tape, f.apply(tape, tape.detach(hidden))), sink);
    CHECK(sink.of(f.weight) == doubles{5, 26, 5, 26});
    // The same holds for a gradient that would only pass through.
    const auto again = ht::linear<roles>(tape, tape.constant(f.input()), f.weight, ht::absent{}, hidden);
    CHECK_THROWS_AS(tape.backward(ht::sum(tape, again), sink), ht::state_error);
}

TEST_CASE("backward: variables on which the loss does not depend have no gradient") {
    fixture f;
    support::gradient_sink sink(f.parameters);
    ht::tape tape{f.device};
    const auto x = tape.leaf(f.input()), z = tape.leaf(f.input());
    const auto unused = ht::sum(tape, f.apply(tape, z));
    tape.backward(ht::sum(tape, x), sink);
    CHECK_THROWS_AS(static_cast<void>(tape.gradient(z)), ht::state_error);
    CHECK(tape.graph().records() == 0);
    sink.close();
    CHECK(sink.of(f.weight) == doubles{0, 0, 0, 0});
}

TEST_CASE("backward: parameters that the accumulator does not know") {
    fixture f, other;
    support::gradient_sink sink(other.parameters);
    ht::tape tape{f.device};
    CHECK_THROWS_WITH_AS(tape.backward(ht::sum(tape, f.apply(tape, tape.constant(f.input()))), sink),
                         "tape: the loss depends on parameters that the accumulator was not made for; name their model "
                         "in ht::accumulator acc{...}, or take them for constants: acc.leave_out(model)",
                         ht::state_error);
    CHECK(tape.memory().live() == 0);
    CHECK_THROWS_AS(tape.backward(ht::sum(tape, f.apply(tape, tape.constant(f.input())))), ht::state_error);
}

TEST_CASE("two contexts: a result of inference is a constant, one of another tape an error") {
    fixture f;
    support::gradient_sink sink(f.parameters);
    ht::inference frozen{f.device};
    ht::tape tape{f.device}, other{f.device};
    std::optional<ht::variable<float, 2>> features = f.apply(frozen, frozen.constant(f.input()));
    auto loss = ht::sum(tape, f.apply(tape, *features));
    features.reset();  // the tape keeps what it needs
    tape.backward(loss, sink);
    CHECK(sink.of(f.weight) == doubles{-1 + 12, -1 + 26, -1 + 12, -1 + 26});

    const auto x = other.leaf(f.input());
    loss = ht::sum(tape, ht::mul(tape, x, x));
    CHECK_THROWS_WITH_AS(tape.backward(loss), "tape: an operation has inputs on two tapes", ht::argument_error);
    CHECK_THROWS_AS(static_cast<void>(tape.gradient(x)), ht::argument_error);
}

TEST_CASE("inference: records nothing and keeps nothing") {
    fixture f;
    ht::inference eval{f.device};
    const auto x = eval.leaf(f.input());
    CHECK(!x.wants_gradient());
    {
        const auto y = f.apply(eval, f.apply(eval, x));
        CHECK(!y.wants_gradient());
        CHECK(eval.memory().live() == ht::block_alignment);
    }
    CHECK(eval.memory().live() == 0);
    CHECK(eval.graph().records() == 0);
}

TEST_CASE("clear: drops an unfinished forward pass") {
    fixture f;
    support::gradient_sink sink(f.parameters);
    ht::tape tape{f.device};
    const auto x = tape.leaf(f.input());
    CHECK_THROWS_AS(
        f.apply(tape, ht::mul(tape, f.apply(tape, x), tape.constant(ht::view<float, 2>(f.x.data(), {1, 4})))),
        ht::shape_error);
    CHECK(tape.graph().records() == 1);
    CHECK(tape.memory().live() == 0);  // the result is gone, the record refers to its gradient alone
    tape.clear();
    CHECK(tape.graph().records() == 0);
    tape.backward(ht::sum(tape, f.apply(tape, x)), sink);
    CHECK(sink.of(f.weight) == doubles{3, 4, 3, 4});
    // Without clear(), an unfinished forward pass has no effect either.
    CHECK_THROWS_AS(
        f.apply(tape, ht::mul(tape, f.apply(tape, x), tape.constant(ht::view<float, 2>(f.x.data(), {1, 4})))),
        ht::shape_error);
    sink.close();
    tape.backward(ht::sum(tape, f.apply(tape, x)), sink);
    CHECK(sink.of(f.weight) == doubles{3, 4, 3, 4});
}

/// y = a + b, whose gradient is that of both: they share its memory.
struct both {
    using operation = ht::op::add;
    ht::gradient_of<float, 2> da, db, dy;
    void backward(ht::tape<ht::cpu>& tape) {
        if (!dy.is_there()) return;
        ht::detail::pass_gradient(tape, dy, da);
        ht::detail::pass_gradient(tape, dy, db);
        tape.finish(dy);
    }
};

TEST_CASE("gradients that share memory are separated as soon as one of them changes") {
    fixture f;
    ht::tape tape{f.device};
    const auto a = tape.leaf(f.input()), b = tape.leaf(f.input());
    const auto more = ht::mul(tape, a, tape.constant(f.input()));
    auto y = tape.make<float>(a.shape(), true);
    tape.device().fill(y.view().data(), 4, 1.0f);
    tape.record(both{ht::gradient_of(a), ht::gradient_of(b), ht::gradient_of(y)});
    tape.backward(ht::add(tape, ht::sum(tape, more), ht::sum(tape, y)));
    CHECK(support::doubles(tape.gradient(a)) == doubles{2, 0, 3, 6});
    CHECK(support::doubles(tape.gradient(b)) == doubles{1, 1, 1, 1});
}

struct thrower {
    using operation = ht::op::map;
    ht::gradient_of<float, 2> dx, dy;
    void backward(ht::tape<ht::cpu>& tape) {
        static_cast<void>(tape.gradient_target(dx));
        throw std::string("in the middle");
    }
};

TEST_CASE("an exception in the middle of a backward pass empties the tape, which then works as before") {
    fixture f;
    support::gradient_sink sink(f.parameters);
    ht::tape tape{f.device};
    const auto x = tape.leaf(f.input());
    for (int round = 0; round < 3; ++round) {
        std::optional<ht::variable<float, 0>> loss;
        {
            const auto hidden = f.apply(tape, x);
            auto y = tape.make<float>(hidden.shape(), true);
            tape.device().fill(y.view().data(), 4, 1.0f);
            tape.record(thrower{ht::gradient_of(hidden), ht::gradient_of(y)});
            loss = ht::sum(tape, f.apply(tape, y));
        }
        CHECK_THROWS_AS(tape.backward(*loss, sink), std::string);
        CHECK(tape.graph().records() == 0);
        loss.reset();
        CHECK(tape.memory().live() == 0);
        sink.close();
        tape.backward(ht::sum(tape, f.apply(tape, tape.constant(f.input()))), sink);
        CHECK(sink.of(f.weight) == doubles{3, 4, 3, 4});
        sink.close();
    }
}

TEST_CASE("out of memory at any point of a step: the tape works as a new one") {
    constexpr std::size_t megabyte = std::size_t{1} << 20;
    int failed = 0;
    for (std::size_t limit = 4 * megabyte; limit < 40 * megabyte; limit += megabyte + 77'777) {
        ht::cpu device{{.threads = 1, .memory_limit = limit}};
        std::vector<float> x(megabyte / 2, 2.0f);
        const ht::view<float, 2> large(x.data(), {512, 1024}), small(x.data(), {2, 4});
        ht::tape tape{device};
        const auto step = [&](const ht::view<float, 2>& input) {
            const auto leaf = tape.leaf(input);
            auto y = ht::mul(tape, leaf, leaf);
            for (int i = 0; i < 6; ++i) y = ht::mul(tape, ht::tanh(tape, y), leaf);
            tape.backward(ht::sum(tape, y));
            return support::doubles(tape.gradient(leaf));
        };
        const doubles want = step(small);
        try {
            step(large);
        } catch (const ht::out_of_memory&) {
            ++failed;
            tape.clear();
        }
        CHECK(tape.memory().live() == 0);
        CHECK(step(small) == want);
    }
    CHECK(failed > 10);
}

TEST_CASE("memory: values go as soon as nothing needs them, and a steady step takes none from the system") {
    ht::cpu device{{.threads = 1}};
    std::vector<float> x(1 << 16, 0.5f);
    const ht::view<float, 1> view(x.data(), {1 << 16});
    const std::size_t bytes = x.size() * sizeof(float);
    ht::tape tape{device};
    std::uint64_t allocations = 0;
    for (int round = 0; round < 5; ++round) {
        const auto leaf = tape.leaf(view);
        {
            // The sum keeps nothing of its input; tanh keeps its own input alone.
            const auto loss = ht::sum(tape, ht::tanh(tape, ht::mul(tape, leaf, leaf)));
            CHECK(tape.memory().live() < bytes + 1024);
            CHECK(tape.memory().live() >= bytes);
            tape.backward(loss);
        }
        CHECK(tape.memory().live() == bytes);  // the leaf's gradient
        if (round == 2) allocations = device.memory().usage().allocations();
    }
    CHECK(tape.memory().live() == 0);
    CHECK(device.memory().usage().allocations() == allocations);
    CHECK(device.memory().usage().live(ht::memory_kind::activation) == 0);
}

TEST_CASE("a tape that is destroyed before its variables and records") {
    fixture f;
    std::optional<ht::variable<float, 2>> y;
    {
        ht::tape tape{f.device};
        y = f.apply(tape, tape.leaf(f.input()));
        CHECK(tape.graph().records() == 1);
    }
    CHECK(support::doubles(y->view()) == doubles{-1, -1, 12, 26});
    CHECK(f.device.memory().usage().live(ht::memory_kind::activation) == ht::block_alignment);
    y.reset();
    CHECK(f.device.memory().usage().live(ht::memory_kind::activation) == 0);
}

struct listener : ht::range_listener {
    std::string text;
    void begin(const char* operation, ht::pass p) override {
        text += std::string(p == ht::pass::forward ? "+" : "-") + operation + "(";
    }
    void end() override { text += ")"; }
};

TEST_CASE("listeners receive every operation, forward and backward") {
    fixture f;
    support::gradient_sink sink(f.parameters);
    ht::tape tape{f.device};
    listener heard;
    tape.listen(&heard);
    tape.backward(ht::sum(tape, ht::tanh(ht::autocast<ht::full_fp32>(tape), f.apply(tape, tape.leaf(f.input())))),
                  sink);
    CHECK(heard.text == "+linear()+tanh()+sum()-sum()-tanh()-linear()");
    tape.listen(nullptr);
    tape.backward(ht::sum(tape, f.apply(tape, tape.leaf(f.input()))), sink);
    CHECK(heard.text.size() == 44);
}

TEST_CASE("regions: refer to their root, nest, and are temporaries") {
    fixture f;
    ht::tape tape{f.device};
    auto region = ht::autocast<ht::amp_bf16>(tape);
    CHECK(&region.root() == &tape);
    CHECK(&ht::autocast<ht::amp_fp16>(region).root() == &tape);
    static_assert(std::is_same_v<ht::policy_of<decltype(ht::autocast<ht::amp_fp16>(region))>, ht::amp_fp16>);
    static_assert(std::is_same_v<ht::policy_of<ht::tape<ht::cpu>&>, ht::as_given>);
    static_assert(decltype(region)::records && !ht::region<ht::amp_bf16, ht::inference<ht::cpu>>::records);
    // A layer's own policy wins; one that inherits takes the region's; on a bare tape it is fp32.
    static_assert(std::is_same_v<ht::layer_roles<ht::amp_fp16, ht::op::linear, decltype(region)>,
                                 ht::roles<ht::float16, ht::float16, ht::float16>>);
    static_assert(std::is_same_v<ht::layer_roles<ht::inherit, ht::op::linear, decltype(region)>,
                                 ht::roles<ht::bfloat16, ht::bfloat16, ht::bfloat16>>);
    static_assert(std::is_same_v<ht::layer_roles<ht::inherit, ht::op::linear, ht::tape<ht::cpu>>,
                                 ht::roles<float, float, float>>);
    static_assert(std::is_same_v<ht::layer_roles<ht::amp_bf16, ht::op::layer_norm, decltype(region)>,
                                 ht::roles<float, ht::bfloat16, ht::bfloat16>>);
}

}  // namespace autodiff_tape_tests

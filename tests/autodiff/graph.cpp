// SPDX-License-Identifier: MIT
/// \file
/// The graph of a tape: blocks live as long as something refers to them; records are destroyed once, in reverse order.
#include <vector>

#include <doctest/doctest.h>

#include <halftone/autodiff/engine/graph.hpp>
#include <halftone/policy/operations.hpp>

namespace autodiff_graph_tests {

namespace ht = halftone;
using ht::detail::graph;

/// A graph that lets go of itself at the end of the test.
struct holder {
    ht::host_memory memory;
    graph& g = *new graph(memory);
    ~holder() { g.let_go(); }
};

TEST_CASE("graph: a value goes with the last handle, a slot with the last reference") {
    holder h;
    graph& g = h.g;
    const auto block = g.make_block(100);
    CHECK(g.arena().live() == 128);
    const auto slot = g.make_result(block, true);
    g.retain(slot);
    g.retain_reference(slot);
    g.release(slot);
    CHECK(g.arena().live() == 128);
    g.release(slot);  // the last handle: the value goes, the slot stays for who refers to its gradient
    CHECK(g.arena().live() == 0);
    g.make_gradient(slot, 64);
    CHECK(g.arena().live() == 64);
    g.release_reference(slot);
    CHECK(g.arena().live() == 0);
    CHECK(g.make_result(g.make_block(1), false) == slot);  // used again
    g.release(slot);
}

TEST_CASE("graph: gradients are shared, exchanged and replaced without losing memory") {
    holder h;
    graph& g = h.g;
    const auto a = g.make_result(g.make_block(64), true), b = g.make_result(g.make_block(64), true);
    g.make_gradient(a, 64);
    g.share_gradient(a, b);
    CHECK(g.gradient(a) == g.gradient(b));
    CHECK(g.is_shared(g.gradient_block(a)));
    const auto old = g.replace_gradient(b, 64);
    CHECK(g.gradient(a) != g.gradient(b));
    g.release_block(old);
    CHECK(!g.is_shared(g.gradient_block(a)));
    g.make_gradient(a, 128);  // in the place of the first
    CHECK(g.arena().live() == 64 + 64 + 64 + 128);
    g.give_value(b, a);
    CHECK(g.gradient(a) == g.value(b));
    CHECK(g.arena().live() == 64 + 64 + 64);
    g.release(b);
    CHECK(g.arena().live() == 64 + 64);  // b's value is a's gradient still
    g.release(a);
    CHECK(g.arena().live() == 0);
}

TEST_CASE("graph: the user's memory is not given back") {
    holder h;
    const float mine[4] = {1, 2, 3, 4};
    const auto slot = h.g.make_leaf(h.g.make_block_over(mine, sizeof mine), true);
    CHECK(h.g.value(slot) == reinterpret_cast<const std::byte*>(mine));
    CHECK(h.g.arena().live() == 0);
    h.g.release(slot);
    CHECK(mine[3] == 4);
}

TEST_CASE("graph: a failed allocation changes nothing") {
    ht::host_memory memory(std::size_t{3} << 20);
    graph& g = *new graph(memory);
    const auto first = g.make_block(100);
    for (int i = 0; i < 100; ++i) CHECK_THROWS_AS(g.make_block(std::size_t{1} << 30), ht::out_of_memory);
    const auto second = g.make_block(100);
    CHECK(second == first + 1);
    g.release_block(first);
    g.release_block(second);
    CHECK(g.arena().live() == 0);
    g.let_go();
}

/// Writes down what happens to it.
struct traced {
    using operation = ht::op::map;
    std::vector<int>* log;
    int id;
    bool throws = false;
    unsigned char ballast[3000] = {};

    traced(std::vector<int>& l, int i, bool t = false) : log(&l), id(i), throws(t) {}
    traced(traced&& other) noexcept : log(std::exchange(other.log, nullptr)), id(other.id), throws(other.throws) {}
    ~traced() {
        if (log != nullptr) log->push_back(-id);
    }
    void backward(int&) {
        log->push_back(id);
        if (throws) throw 1;
    }
};

TEST_CASE("graph: records run in reverse and are destroyed after they ran, for any chunks") {
    holder h;
    int tape = 0;
    std::vector<int> log, want;
    for (int round = 0; round < 2; ++round) {
        log.clear(), want.clear();
        for (int i = 1; i <= 20; ++i) h.g.push<int>(traced(log, i));
        CHECK(h.g.records() == 20);
        h.g.run_backward(&tape);
        for (int i = 20; i >= 1; --i) want.push_back(i), want.push_back(-i);
        CHECK(log == want);
        CHECK(h.g.records() == 0);
    }
}

TEST_CASE("graph: where a record throws, the rest is destroyed without being run") {
    holder h;
    int tape = 0;
    std::vector<int> log;
    for (int i = 1; i <= 4; ++i) h.g.push<int>(traced(log, i, i == 3));
    CHECK_THROWS_AS(h.g.run_backward(&tape), int);
    CHECK(log == std::vector<int>{4, -4, 3, -3, -2, -1});
    CHECK(h.g.records() == 0);

    log.clear();
    h.g.push<int>(traced(log, 1)), h.g.push<int>(traced(log, 2));
    h.g.clear();
    CHECK(log == std::vector<int>{-2, -1});
}

TEST_CASE("graph: a pass ends with its records") {
    holder h;
    const auto result = h.g.make_result(h.g.make_block(4), true), leaf = h.g.make_leaf(h.g.make_block(4), true);
    CHECK(!h.g.is_consumed(result));
    h.g.clear();
    CHECK(h.g.is_consumed(result));
    CHECK(!h.g.is_consumed(leaf));
    const auto later = h.g.make_result(h.g.make_block(4), true);
    CHECK(!h.g.is_consumed(later));
    h.g.release(result), h.g.release(leaf), h.g.release(later);
}

}  // namespace autodiff_graph_tests

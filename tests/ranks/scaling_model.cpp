// SPDX-License-Identifier: MIT
/// \file
/// What the scaling model of examples/scaling says of 1, 2, 3 and 4 ranks is what ranks as threads have in use, receive and
/// take: bytes to the byte, times over a slowed wire. Its formulas, by hand.
#include <algorithm>
#include <chrono>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/amp.hpp>
#include <halftone/ranks/counted.hpp>
#include <halftone/ranks/data_parallel.hpp>
#include <halftone/ranks/shard.hpp>
#include <halftone/ranks/threads.hpp>

#include "../../examples/scaling/model.hpp"

namespace ranks_scaling_model_tests {

namespace ht = halftone;
using ht::memory_kind;

using policy = ht::amp_bf16;
constexpr ht::extent width = 24, rows = 2;
constexpr int depth = 4;

template <class P>
struct block {
    ht::nn::linear<ht::at<P, "up">> up;
    ht::nn::linear<ht::at<P, "down">> down;

    explicit block(ht::store& s) : up{s, width, 40}, down{s, 40, width} {}
    template <class Context, class X>
    X operator()(Context&& ctx, const X& x) const {
        return ht::add(ctx, x, down(ctx, up(ctx, x)));
    }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.up, self.down); }
};

template <class P>
struct network : ht::nn::model {
    using policy = P;
    ht::nn::stack<block, P, "h"> h;
    ht::nn::linear<ht::at<P, "head">> head;

    explicit network(auto& device) : model{device}, h{parameters(), depth}, head{parameters(), width, 7} { commit(*this, 7); }
    auto loss(auto& tape) const {
        static const std::vector<ht::bfloat16> data(static_cast<std::size_t>(rows * width), ht::bfloat16(0.5f));  // the backward pass reads them
        const auto y = head(tape, h(tape, tape.to_device(ht::const_view<ht::bfloat16, 2>(data.data(), {rows, width}))));
        return ht::mean(tape, ht::mul(tape, y, y));
    }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.h, self.head); }
};
using model = network<policy>;

/// Sleeps where linear layers begin, so that passes take known times whatever else the machine does.
struct sleeper final : ht::range_listener {
    std::chrono::duration<double> forward{0}, backward{0};
    void begin(const char* operation, ht::pass p) override {
        if (std::string(operation) == "linear") std::this_thread::sleep_for(p == ht::pass::forward ? forward : backward);
    }
    void end() override {}
};

/// The training on one device.
scaling::subject subject_of(int micro_batches, const char* frozen = nullptr) {
    scaling::subject s;
    ht::cpu device{{.threads = 1}};
    s.plan = ht::plan(device, [&](auto& twin) {
        model m{twin};
        if (frozen != nullptr) m.parameters().freeze(frozen);
        ht::adamw optimizer{twin, m};
        ht::accumulator acc{m, ht::unscaled};
        ht::tape tape{twin};
        s.parameters = scaling::parameters_of(m);
        for (int step = 0; step < 2; ++step) {
            for (int k = 0; k < micro_batches; ++k) tape.backward(m.loss(tape), acc);
            auto grads = acc.take();
            optimizer.step(grads);
        }
    });
    // The arithmetic of linear layers alone, which sleep equally long.
    for (int i = 0; i < depth; ++i) s.layers.push_back({"h." + std::to_string(i) + ".up", 2, 2});
    s.layers.push_back({"head", 1, 1});
    return s;
}

struct measured {
    std::size_t master = 0, copy = 0, gradient = 0, moment = 0, most_gradient = 0;
    std::uint64_t exchanged = 0, gathered = 0;  // in a step, without agreements
    double seconds = 0;                         // of the fastest step
};

/// What rank 0 measures, bytes in the last step.
measured measure(int ranks, int zero, int micro_batches, const char* frozen, std::size_t bucket_bytes, sleeper& passes, const ht::thread_options& wire, int steps = 3) {
    measured result;
    ht::run_ranks(ranks, [&](ht::communicator& inner) {
        ht::counted_communicator comm{inner};
        ht::cpu device{{.threads = 1}};
        model m{device};
        if (frozen != nullptr) m.parameters().freeze(frozen);
        const auto train = [&](auto& acc, auto& optimizer, auto& over) {
            ht::tape tape{device};
            tape.listen(&passes);
            for (int step = 0; step < steps; ++step) {
                comm.barrier("step");
                comm.clear();
                device.memory().usage().reset_peaks();
                const auto begin = std::chrono::steady_clock::now();
                for (int k = 0; k < micro_batches; ++k) tape.backward(m.loss(tape) / over, acc);
                auto grads = acc.take();
                optimizer.step(grads);
                const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
                if (comm.rank() == 0 && step > 0) result.seconds = step == 1 ? seconds : std::min(result.seconds, seconds);
            }
            const ht::memory_usage& usage = device.memory().usage();
            if (comm.rank() != 0) return;
            result.master = usage.live(memory_kind::master), result.copy = usage.live(memory_kind::copy);
            result.gradient = usage.live(memory_kind::gradient), result.moment = usage.live(memory_kind::moment);
            result.most_gradient = usage.peak(memory_kind::gradient);
            result.exchanged = comm.bytes("exchange");
            const std::set<std::string> agreements{"reached parameters", "which gradients there are", "norm of gradients", "amaxes"};
            for (const ht::traffic_row& r : comm.traffic())
                result.gathered += r.kind == "all_gather" && agreements.count(r.what) == 0 ? r.bytes : 0;
        };
        if (zero == 0) {
            ht::accumulator acc{m, ht::unscaled};
            ht::data_parallel over{device, comm, acc, {.micro_batches = micro_batches, .bucket_bytes = bucket_bytes}};
            ht::adamw optimizer{device, m};
            train(acc, optimizer, over);
        } else {
            ht::shard over{device, m, comm, ht::zero(zero, {"h.*"}), {.micro_batches = micro_batches, .bucket_bytes = bucket_bytes}};
            ht::accumulator acc{over, ht::unscaled};
            ht::adamw optimizer{device, over};
            train(acc, optimizer, over);
        }
    }, wire);
    return result;
}

constexpr scaling::machine slow{.within = {1e6, 0}, .between = {1e6, 0}, .per_node = 64};

TEST_CASE("scaling: one rank is the plan, receives nothing and takes the measured time") {
    const scaling::subject s = subject_of(1);
    for (int zero = 0; zero < 4; ++zero) {
        const scaling::row r =
            scaling::scale_to(s, {.zero = zero}, slow, {.forward = 1, .backward = 2, .update = 0.5}, 1);
        CHECK(r.memory.bytes == s.plan.bytes_at_peak);
        CHECK(r.memory.total() == s.plan.peak_bytes);
        CHECK(r.traffic.total() == 0);
        CHECK(r.step_seconds == doctest::Approx(3.5).epsilon(1e-12));
        CHECK(r.efficiency == doctest::Approx(1).epsilon(1e-12));
    }
}

TEST_CASE("scaling: bytes that ranks have in use and receive, to the byte") {
    sleeper passes;
    const auto check = [&](int ranks, int zero, int micro_batches, std::size_t bucket_bytes, const char* frozen) {
        CAPTURE(ranks);
        CAPTURE(zero);
        CAPTURE(micro_batches);
        CAPTURE(bucket_bytes);
        const scaling::subject s = subject_of(micro_batches, frozen);
        const scaling::strategy how{.zero = zero, .micro_batches = micro_batches, .bucket_bytes = bucket_bytes};
        const scaling::rank_memory m = scaling::memory_of_rank(s, how, ranks);
        const auto layout = scaling::layout_of(s, how, ranks);
        const std::size_t units = scaling::gathered_bytes(layout), unsummed = m.gathered - units;
        const measured seen = measure(ranks, zero, micro_batches, frozen, bucket_bytes, passes, {});
        CHECK(seen.master == m.of(memory_kind::master));
        CHECK(seen.copy == m.of(memory_kind::copy) + units);
        CHECK(seen.gradient == m.of(memory_kind::gradient) + m.wire);
        CHECK(seen.moment == m.of(memory_kind::moment));
        CHECK(seen.most_gradient == seen.gradient + unsummed);
        const scaling::row r = scaling::scale_to(s, how, slow, {.forward = 1, .backward = 2, .update = 1}, ranks);
        CHECK(seen.exchanged == r.traffic.reduced);
        CHECK(seen.gathered == r.traffic.gathered);
    };
    for (int zero = 0; zero < 4; ++zero) {
        for (const int ranks : {2, 3, 4}) check(ranks, zero, 1, std::size_t{25} << 20, nullptr);
        check(2, zero, 3, 4096, nullptr);
        check(2, zero, 1, 1, nullptr);
        check(4, zero, 1, std::size_t{25} << 20, "h.1");
    }
}

void check_times(const std::vector<int>& stages, const std::vector<int>& numbers) {
    const scaling::subject s = subject_of(1);
    sleeper passes;
    passes.forward = std::chrono::duration<double>(0.004), passes.backward = std::chrono::duration<double>(0.008);
    // A step on one device, as measured: twice as long backward as forward.
    const double one = measure(1, 0, 1, nullptr, 8192, passes, {}, 6).seconds;
    const scaling::times times{.forward = one / 3, .backward = one * 2 / 3, .update = 0};
    for (const int zero : stages) {
        for (const int ranks : numbers) {
            for (const double bytes_per_second : {0.5e6, 2e6}) {  // the wire is longer than the passes, or shorter
                CAPTURE(zero);
                CAPTURE(ranks);
                CAPTURE(bytes_per_second);
                const scaling::machine machine{.within = {bytes_per_second, 0}, .between = {}, .per_node = 8};
                const scaling::row r =
                    scaling::scale_to(s, {.zero = zero, .bucket_bytes = 8192}, machine, times, ranks);
                // What else the machine does makes steps longer, and never shorter.
                double seen = 0;
                for (int attempt = 0; attempt < 4 && (attempt == 0 || r.step_seconds < 0.9 * seen); ++attempt) {
                    const double fastest = measure(ranks, zero, 1, nullptr, 8192, passes, {.bytes_per_second = bytes_per_second}, 6).seconds;
                    seen = attempt == 0 ? fastest : std::min(seen, fastest);
                }
                INFO("predicted " << 1e3 * r.step_seconds << " ms, measured " << 1e3 * seen << " ms");
                CHECK(r.step_seconds / seen == doctest::Approx(1).epsilon(0.15).scale(0));
            }
        }
    }
}

TEST_CASE("scaling: the time of a step of 2 ranks over a slowed wire is predicted within 15%" * doctest::test_suite("times") * doctest::skip()) {
    check_times({0, 3}, {2});
}
TEST_CASE("scaling: the same for 4 ranks, and the stages between" * doctest::test_suite("times") * doctest::skip()) {
    check_times({1, 2}, {2, 4});
    check_times({0, 3}, {4});
}

TEST_CASE("scaling: gathers and reductions on two levels, by hand") {
    const scaling::machine m{.within = {100, 0.1}, .between = {10, 1}, .per_node = 4};
    // Pieces of 50 bytes: within a node a round takes 0.1 + 0.5, between nodes 1 + 5.
    CHECK(scaling::ring_seconds(m, 1, 50) == 0);
    CHECK(scaling::ring_seconds(m, 4, 50) == doctest::Approx(3 * 0.6));
    CHECK(scaling::ring_seconds(m, 8, 50) == doctest::Approx(7 * 6.0));
    CHECK(scaling::pairwise_seconds(m, 1, 50) == 0);
    CHECK(scaling::pairwise_seconds(m, 3, 50) == doctest::Approx(2 * 0.6));
    CHECK(scaling::pairwise_seconds(m, 8, 50) == doctest::Approx(3 * 0.6 + 4 * (1 + 20.0)));
    // Nodes of one rank have no link within.
    CHECK(scaling::pairwise_seconds({.within = {}, .between = {10, 1}, .per_node = 1}, 3, 50) ==
          doctest::Approx(2 * 6.0));
}

TEST_CASE("scaling: what is hidden behind a backward pass, by hand") {
    scaling::subject s;
    // Two units of 1,024 elements each, all fp32: no copies.
    ht::detail::storage_layout fp32;
    fp32.param_bytes = fp32.accumulate_bytes = fp32.state_bytes = 4;
    s.parameters.groups = {fp32};
    for (std::size_t i = 0; i < 2; ++i) {
        ht::store_entry e;
        e.path = "h." + std::to_string(i) + ".weight", e.count = 1024, e.master = e.gradient = e.moment = 1024 * i;
        s.parameters.entries.push_back(e);
        s.layers.push_back({"h." + std::to_string(i), 1, 1});
        s.plan.parameters.push_back({e.path, {}});
        s.plan.parameters.back().bytes[static_cast<std::size_t>(memory_kind::moment)] = 8192;
    }
    for (const auto& [kind, bytes] : {std::pair{memory_kind::master, 8192}, {memory_kind::gradient, 8192}, {memory_kind::moment, 16384}})
        s.plan.bytes_at_peak[static_cast<std::size_t>(kind)] = static_cast<std::size_t>(bytes);
    const scaling::times times{.forward = 2, .backward = 4, .update = 1};
    // Two ranks; 2,048 bytes in a piece of a unit; at 2,048 bytes/s a reduction of one takes 1 s, a pass of a unit backward 2.
    const scaling::machine machine{.within = {2048, 0}, .between = {}, .per_node = 2};
    const auto seconds_at = [&](const scaling::machine& at, const scaling::strategy& how) {
        return scaling::scale_to(s, how, at, times, 2).step_seconds;
    };
    const auto seconds = [&](const scaling::strategy& how) { return seconds_at(machine, how); };
    // Buckets of one unit: that of h.1 is sent in second 4, within the pass of h.0, that of h.0 in second 6; when it begins,
    // the gather of the first goes on behind it: 7 to 8, and then its own, 8 to 9. Then the update.
    CHECK(seconds({.zero = 0, .bucket_bytes = 4096}) == doctest::Approx(6 + 1 + 1 + 1 + 1));
    // ZeRO 1: reductions end in second 7; half of the update; a gather of 2 s.
    CHECK(seconds({.zero = 1}) == doctest::Approx(7 + 0.5 + 2));
    // ZeRO 3: h.0 is waited for, 1 s; h.1 comes meanwhile; both are still there backward; the last reduction, half of the update.
    CHECK(seconds({.zero = 3}) == doctest::Approx(1 + 6 + 1 + 0.5));
    // A wire without limits leaves the update's division; one that is far too slow takes the time of its bytes.
    CHECK(seconds_at({.within = {1e15, 0}, .between = {}, .per_node = 2}, {.zero = 3}) == doctest::Approx(6.5));
    const scaling::row slow_row =
        scaling::scale_to(s, {.zero = 1}, {.within = {1, 0}, .between = {}, .per_node = 2}, times, 2);
    CHECK(slow_row.wire_seconds == doctest::Approx(static_cast<double>(slow_row.traffic.total())));
    CHECK(slow_row.step_seconds > slow_row.wire_seconds);
    CHECK(slow_row.step_seconds < slow_row.wire_seconds + times.total());
    // Two ranks that share one core compute in turns.
    CHECK(seconds_at({.within = {1e15, 0}, .between = {}, .per_node = 2, .at_once = 1}, {.zero = 1}) == doctest::Approx(2 * 6.5));
    // ZeRO 3 of two ranks has half of everything.
    const scaling::rank_memory half = scaling::memory_of_rank(s, {.zero = 3}, 2);
    CHECK(half.of(memory_kind::master) == 4096);
    CHECK(half.of(memory_kind::gradient) == 4096);
    CHECK(half.of(memory_kind::moment) == 8192);
}

TEST_CASE("scaling: what is refused, in one sentence") {
    const scaling::subject s = subject_of(1);
    const auto sentence = [&](const auto& f) -> std::string {
        try {
            f();
        } catch (const ht::argument_error& e) {
            return e.what();
        }
        return "";
    };
    const scaling::times one{.forward = 1, .backward = 1, .update = 0};
    CHECK(sentence([&] { scaling::memory_of_rank(s, {.zero = 4}, 2); }) == "scaling: zero is 4; expected 0, 1, 2 or 3");
    CHECK(sentence([&] { scaling::memory_of_rank(s, {}, 0); }) == "scaling: 0 ranks; expected 1 or more");
    CHECK(sentence([&] { scaling::scale_to(s, {.micro_batches = 0}, slow, one, 2); }) ==
          "scaling: 0 micro-batches; expected 1 or more");
    CHECK(sentence([&] {
              scaling::scale_to(s, {}, {}, one, 2);
          }).find("the link between nodes has 0 bytes per second") != std::string::npos);
    CHECK(sentence([&] { scaling::scale_to(s, {}, slow, {}, 2); }).find("a step of 0 + 0 + 0 s") != std::string::npos);
    scaling::subject other = s;
    other.plan.bytes_at_peak = {};
    CHECK(sentence([&] { scaling::memory_of_rank(other, {}, 2); }).find("the plan's peak has 0 bytes of kind master") !=
          std::string::npos);
}

TEST_CASE("scaling: the table has powers of two and the last; more bandwidth is never slower, more ranks never need more") {
    const scaling::subject s = subject_of(1);
    const scaling::times times{.forward = 0.01, .backward = 0.02, .update = 0.001};
    for (int zero = 0; zero < 4; ++zero) {
        const auto rows_at = [&](double rate) {
            return scaling::table(s, {.zero = zero},
                                  {.within = {rate, 1e-5}, .between = {rate / 4, 2e-5}, .per_node = 8}, times, 3000);
        };
        const auto rows = rows_at(1e9), faster = rows_at(1e10);
        CHECK(rows.size() == 13);
        CHECK(rows[11].ranks == 2048);
        CHECK(rows[12].ranks == 3000);
        for (std::size_t i = 0; i < rows.size(); ++i) {
            CHECK(faster[i].step_seconds <= rows[i].step_seconds);
            CHECK(rows[i].hidden_seconds <= rows[i].wire_seconds);
            CHECK(rows[i].memory.total() >= s.plan.at_peak(memory_kind::activation));
        }
    }
}

}  // namespace ranks_scaling_model_tests

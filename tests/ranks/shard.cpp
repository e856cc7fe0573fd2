// SPDX-License-Identifier: MIT
/// \file
/// Dividing a store among ranks: its layout and memory to the byte, whole-number gradients, rounding at random, overflow on
/// some ranks, reads outside of a unit, and what is refused.
#include <array>
#include <atomic>
#include <cmath>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/optimizer_step/eight_bit/cpu.hpp>
#include <halftone/optim/adamw.hpp>
#include <halftone/optim/adamw_8bit.hpp>
#include <halftone/optim/clip.hpp>
#include <halftone/optim/muon.hpp>
#include <halftone/optim/sgd.hpp>
#include <halftone/ranks/data_parallel.hpp>
#include <halftone/ranks/shard.hpp>
#include <halftone/ranks/threads.hpp>
#include <halftone/scale/grad_scaler.hpp>
#include <halftone/tensor/host_tensor.hpp>

#include "ranks/whole_numbers.hpp"

namespace ranks_shard_tests {

namespace ht = halftone;
using ht::memory_kind;

using whole_numbers::adamw, whole_numbers::eight_bit, whole_numbers::loss_of, whole_numbers::model, whole_numbers::numbers,
    whole_numbers::values_of, whole_numbers::whole;

template <class P, class Make, class Gradient = decltype(&whole)>
void check_whole_numbers(const Make& make, float clip, const Gradient& gradient = &whole) {
    for (const int ranks : {2, 3, 4}) whole_numbers::check<P, rank_loop::on_cpu>(ranks, make, clip, gradient);
}

TEST_CASE("shard: whole-number gradients give exactly one rank's parameters, with clipping") {
    check_whole_numbers<ht::full_fp32>(adamw, 0);
    check_whole_numbers<ht::amp_bf16>(adamw, 3);
    check_whole_numbers<ht::with_split_master<ht::amp_bf16>>(adamw, 3);
    // Of another magnitude every 100 elements: a block of 8-bit moments that is cut has other largest ones.
    check_whole_numbers<ht::amp_bf16>(eight_bit, 0, [](int rank, int window, std::size_t entry, std::size_t i) {
        return std::ldexp(whole(rank, window, entry, i), static_cast<int>(i / 100 % 5));
    });
}

TEST_CASE("shard: numbers of stochastic rounding belong to elements, not to places") {
    using P = ht::with_state<ht::with_param_rounding<ht::pure_bf16, ht::rounding::stochastic>, ht::bfloat16>;
    check_whole_numbers<P>(adamw, 3);
}

TEST_CASE("shard: gradients travel in the type of each layer's policy") {
    using P = ht::recipe<ht::full_fp32, ht::rule<"fc1", ht::with_reduce<ht::amp_bf16, ht::bfloat16>>,
                         ht::rule<"head", ht::with_reduce<ht::full_fp32, ht::float16>>>;
    ht::run_ranks(2, [](ht::communicator& comm) {
        ht::cpu device{{.threads = 1}};
        model<P> m{device, 700};
        ht::shard sharded{device, m, comm, ht::zero1{}};
        ht::accumulator acc{sharded, ht::unscaled};
        small::tape tape;
        tape.gradients = [](std::size_t, std::size_t) { return 1 + 0x1p-9f + 0x1p-14f; };
        tape.backward(loss_of(comm), acc, m.parameters());
        const auto grads = acc.take();
        const auto check = [&](const auto& p, float want) {
            const ht::element_range mine = m.parameters().updated_here(m.parameters().entries()[p.entry()]);
            if (mine.count == 0) return;
            CHECK(static_cast<float>(grads.of(p).data()[mine.first]) == want);
        };
        check(m.fc1.weight, 2);
        check(m.fc2.weight, 2 + 0x1p-8f + 0x1p-13f);
        check(m.head.weight, 2 + 0x1p-8f);
    });
}

TEST_CASE("shard: averages of parameters are divided as moments are") {
    const auto train = [](auto& device, auto& m, auto& acc, ht::communicator* comm) {
        ht::adamw optimizer{device, m, {.lr = 0.01, .ema_decay = 0.5}};
        small::tape tape;
        for (int window = 0; window < 3; ++window) {
            tape.gradients = [&](std::size_t entry, std::size_t i) {
                return comm != nullptr ? whole(comm->rank(), window, entry, i)
                                       : whole(0, window, entry, i) + whole(1, window, entry, i);
            };
            if (comm != nullptr) {
                tape.backward(loss_of(*comm), acc, m.parameters());
            } else {
                tape.backward(small::loss{}, acc, m.parameters());
            }
            auto grads = acc.take();
            optimizer.step(grads);
        }
        const auto averaged = optimizer.average_parameters();
        numbers all;
        const auto copies = m.norm.weight.values();  // the rest stays, as its copies do
        const auto more = m.fc2.weight.values();
        for (ht::extent i = 0; i < copies.size(); ++i) all.push_back(copies.data()[i]);
        for (ht::extent i = 0; i < more.size(); ++i) all.push_back(static_cast<float>(more.data()[i]));
        return all;
    };
    ht::cpu device{{.threads = 1}};
    model<ht::amp_bf16> alone{device, 700};
    ht::accumulator acc{alone, ht::unscaled};
    const numbers want = train(device, alone, acc, nullptr);
    for (int stage = 1; stage <= 3; ++stage) {
        ht::run_ranks(2, [&](ht::communicator& comm) {
            ht::cpu own{{.threads = 1}};
            model<ht::amp_bf16> m{own, 700};
            ht::shard sharded{own, m, comm, ht::zero(stage)};
            ht::accumulator of_rank{m, ht::unscaled};
            CHECK(train(own, m, of_rank, &comm) == want);
        });
    }
}

/// The bytes that runs have in slabs of a kind.
std::size_t bytes_of(const auto& sharded, memory_kind kind) {
    std::size_t bytes = 0;
    for (const ht::store::group& g : sharded.parameters().groups()) {
        std::size_t masters = 0, copies = 0, gradients = 0, moments = 0;
        for (const ht::store_run& r : sharded.runs()) {
            if (&sharded.parameters().groups()[r.group] != &g) continue;
            const auto here = [&r](const ht::run_place& p) { return !p.is_there() ? 0 : p.is_whole ? r.count : r.piece; };
            masters += here(r.master), copies += here(r.copy), gradients += here(r.gradient), moments += here(r.moment);
        }
        bytes += kind == memory_kind::master     ? ht::round_up(masters * g.param_bytes, ht::block_alignment)
                 : kind == memory_kind::copy     ? ht::round_up(copies * g.copy_bytes, ht::block_alignment)
                 : kind == memory_kind::gradient ? ht::round_up(gradients * g.accumulate_bytes, ht::block_alignment)
                                                 : 2 * ht::round_up(moments * g.state_bytes, ht::block_alignment);
    }
    return bytes;
}

TEST_CASE("shard: a quarter of everything on each of four ranks, to the byte") {
    using P = ht::amp_bf16;
    // fc1 is 4096 elements, norm 5, fc2 4099, head 3: in blocks of 256, for four ranks.
    ht::run_ranks(4, [&](ht::communicator& comm) {
        ht::cpu device{{.threads = 1}};
        model<P> m{device, 4096};
        ht::shard sharded{device, m, comm, ht::zero3{}};
        const ht::memory_usage& usage = device.memory().usage();
        const std::size_t sums = usage.live(memory_kind::gradient);
        ht::accumulator acc{sharded, ht::unscaled};
        ht::adamw optimizer{device, sharded};
        const std::size_t linear = 4096 + 4352 + 256, padded = 9216, norm = 1024;
        CHECK(sharded.padding() == padded - (4096 + 4099 + 3) + norm - 5);
        CHECK(linear <= padded);
        CHECK(usage.live(memory_kind::moment) == 2 * (padded + norm) / 4 * sizeof(float));
        CHECK(usage.live(memory_kind::master) == padded / 4 * sizeof(float) + norm * sizeof(float));  // read by kernels
        CHECK(usage.live(memory_kind::copy) == padded * sizeof(ht::bfloat16));  // the rest stays
        for (const memory_kind k : {memory_kind::master, memory_kind::copy, memory_kind::moment})
            CHECK(usage.live(k) == bytes_of(sharded, k));
        const std::size_t record = usage.live(memory_kind::gradient) - sums - bytes_of(sharded, memory_kind::gradient);
        CHECK(bytes_of(sharded, memory_kind::gradient) == (padded + norm) / 4 * sizeof(float));
        CHECK(record <= ht::block_alignment);
        // A window's gradients are whole until it ends.
        small::tape tape;
        tape.gradients = [](std::size_t, std::size_t) { return 1.0f; };
        const std::size_t before = usage.live(memory_kind::gradient);
        tape.backward(loss_of(comm), acc, m.parameters());
        CHECK(usage.live(memory_kind::gradient) == before + (padded + norm) * sizeof(float));
        const auto grads = acc.take();
        CHECK(usage.live(memory_kind::gradient) == before);
        CHECK_THROWS_AS(grads.of(m.fc1.weight), ht::state_error);
        CHECK_THROWS_AS(m.fc1.weight.master(), ht::state_error);
        CHECK_NOTHROW(m.norm.weight.master());
    });
}

/// Windows of four ranks under a strategy (`stage`, -1: ht::data_parallel). In turn none of them has a gradient that is not finite, and
/// each of them one in each of the places: parameter and element. `found` counts the places in each rank's pieces.
void check_overflows(int stage, std::span<const std::pair<std::size_t, std::size_t>> places, std::array<std::atomic<int>, 4>& found) {
    ht::run_ranks(4, [&](ht::communicator& comm) {
        ht::cpu device{{.threads = 1}};
        model<ht::amp_fp16> m{device, 700};
        std::optional<ht::shard<ht::cpu, model<ht::amp_fp16>, ht::zero>> sharded;
        if (stage >= 0) sharded.emplace(device, m, comm, ht::zero(stage));
        ht::accumulator acc{m};
        std::optional<ht::data_parallel<ht::cpu, decltype(acc)>> plain;
        if (stage < 0) plain.emplace(device, comm, acc);
        ht::adamw optimizer{device, m};
        ht::grad_scaler scaler{device, {.init_scale = 256, .growth_factor = 16, .growth_interval = 1}};
        const auto parameters = [&] { return sharded ? values_of<ht::amp_fp16>(*sharded, m) : whole_numbers::masters_of(device, m); };
        small::tape tape;
        for (const auto& [bad_entry, bad_element] : places) {
            const auto& entry = m.parameters().entries()[bad_entry];
            const ht::element_range mine = m.parameters().updated_here(entry);
            found[static_cast<std::size_t>(comm.rank())] += bad_element - mine.first < mine.count;
            for (int bad = -1; bad < 4; ++bad) {
                CAPTURE(stage);
                CAPTURE(entry.path);
                CAPTURE(bad);
                const float value = bad % 2 == 0 ? std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN();
                tape.gradients = [&](std::size_t e, std::size_t i) {
                    return comm.rank() == bad && e == bad_entry && i == bad_element ? value : 1.0f;
                };
                const numbers before = parameters();
                const float scale = scaler.get_scale();
                tape.backward(scaler.scale(loss_of(comm)), acc, m.parameters());
                auto grads = scaler.unscale(acc.take());
                const float norm = ht::clip_grad_norm(grads, std::numeric_limits<float>::infinity()).value();
                CHECK(std::isfinite(norm) == (bad < 0));
                CHECK(std::isnan(norm) == (bad >= 0 && std::isnan(value)));
                CHECK(optimizer.step(grads).skipped() == (bad >= 0));
                scaler.update();
                CHECK(scaler.get_scale() == (bad >= 0 ? scale / 2 : scale * 16));
                CHECK((parameters() == before) == (bad >= 0));
            }
        }
    });
}

TEST_CASE("shard: an overflow on any rank is one on all, whichever piece it is in, under every strategy") {
    // A place in each rank's piece of what fc1, fc2 and head are together, and one in the only piece of norm that has elements.
    constexpr std::pair<std::size_t, std::size_t> places[] = {{0, 5}, {0, 650}, {1, 4}, {2, 650}, {3, 2}};
    for (int stage = -1; stage <= 3; ++stage) {
        std::array<std::atomic<int>, 4> found{};
        check_overflows(stage, places, found);
        for (const auto& of_rank : found) CHECK(of_rank > 0);
    }
}

TEST_CASE("shard: what is refused") {
    ht::run_ranks(2, [&](ht::communicator& comm) {
        ht::cpu device{{.threads = 1}};
        model<ht::amp_bf16> m{device, 700};
        CHECK_THROWS_WITH_AS((ht::shard{device, m, comm, ht::zero3{"fc1"}}), doctest::Contains("no layer of a list"),
                             ht::argument_error);
        CHECK_THROWS_WITH_AS((ht::shard{device, m, comm, ht::zero3{"x.*"}}), doctest::Contains("names no layer"),
                             ht::argument_error);
        ht::shard sharded{device, m, comm, ht::zero1{}};
        CHECK_THROWS_WITH_AS((ht::shard{device, m, comm, ht::zero1{}}), doctest::Contains("sharded before"), ht::state_error);
        CHECK_THROWS_WITH_AS(m.parameters().freeze("fc1"), doctest::Contains("before ht::shard"), ht::state_error);
        CHECK_THROWS_WITH_AS((ht::muon{device, m, {.hidden = {"*"}}}), doctest::Contains("whole matrices"), ht::state_error);
        ht::accumulator acc{m, ht::unscaled};
        small::tape tape;
        tape.gradients = [](std::size_t, std::size_t) { return 1.0f; };
        CHECK_THROWS_WITH_AS(tape.backward(small::loss{}, acc, m.parameters()),
                             "shard: its gradients are added over 2 ranks, and this loss is that of 1; make it a part of the loss of all "
                             "ranks: loss / sharded, or loss * sharded.share_of(tape, micro, batch) where targets are counted",
                             ht::state_error);
        tape.backward(loss_of(comm), acc, m.parameters());
        CHECK_THROWS_WITH_AS(tape.backward(loss_of(comm), acc, m.parameters()),
                             doctest::Contains("shard: micro-batch 2 of a window of 1"), ht::state_error);
    });
}

TEST_CASE("exact_sum: the nearest double, in any order") {
    ht::detail::exact_sum up, down, parts[3];
    std::vector<double> terms;
    for (int i = 0; i < 1000; ++i) terms.push_back(std::ldexp(1 + i / 1000.0, (i * 37) % 400 - 200));
    terms.push_back(std::numeric_limits<double>::denorm_min());
    for (std::size_t i = 0; i < terms.size(); ++i) {
        up.add(terms[i]);
        down.add(terms[terms.size() - 1 - i]);
        parts[i % 3].add(terms[i]);
    }
    parts[0].add(parts[1]), parts[0].add(parts[2]);
    CHECK(up.value() == down.value());
    CHECK(up.value() == parts[0].value());
    ht::detail::exact_sum ties;
    ties.add(1), ties.add(0x1p-53);
    CHECK(ties.value() == 1);  // to even
    ties.add(0x1p-1074);
    CHECK(ties.value() == 1 + 0x1p-52);
    ht::detail::exact_sum small;
    small.add(0x1p-1074), small.add(0x1p-1074);
    CHECK(small.value() == 0x1p-1073);
    CHECK(ht::detail::exact_sum{}.value() == 0);
}

}  // namespace ranks_shard_tests

// SPDX-License-Identifier: MIT
/// \file
/// Two ranks that train under ZeRO 2 with checkpoints, for tests/programs/killed.sh, which lets them be killed within a forward pass,
/// at a collective and while a checkpoint is written, and go on. The environment variable HALFTONE_KILLED says what to do:
///
///     FOLDER LOG                     trains to the end, from the newest checkpoint if there is one. LOG gets a line for each step, with
///                                    the bits of the ranks' losses. Prints "from 6", and how much there was of each phase
///     FOLDER LOG forward 20          is killed when operation 20 begins on any rank,
///     FOLDER LOG collective 7        when collective 7 begins,
///     FOLDER LOG checkpoint 2 300    300 microseconds after the second save has begun
#include <atomic>
#include <bit>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/amp.hpp>
#include <halftone/ranks/checkpoint.hpp>
#include <halftone/ranks/listened.hpp>
#include <halftone/ranks/reduce.hpp>
#include <halftone/ranks/shard.hpp>
#include <halftone/ranks/threads.hpp>

namespace ranks_killed_tests {

namespace ht = halftone;

constexpr ht::extent width = 48, rows = 3;
constexpr int steps = 12, steps_between_saves = 3;

struct killed_model : ht::nn::model {
    using policy = ht::amp_bf16;
    ht::nn::linear<ht::at<policy, "up">> up;
    ht::nn::linear<ht::at<policy, "down">> down;

    explicit killed_model(ht::cpu& device) : model{device}, up{parameters(), width, 80}, down{parameters(), 80, 5} { commit(*this, 3); }
    /// The data must live until the backward pass has read them, too.
    auto loss(auto& tape, const std::vector<ht::bfloat16>& data) const {
        static const std::vector<std::int32_t> targets{0, 3, 1};
        const auto x = tape.to_device(ht::const_view<ht::bfloat16, 2>(data.data(), {rows, width}));
        const auto y = down(tape, ht::dropout(tape, up(tape, x), {.p = 0.2f}));
        return ht::cross_entropy(tape, y, ht::const_view<std::int32_t, 1>(targets.data(), {rows}));  // in fp32, so that its bits tell
    }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.up, self.down); }
};

std::vector<ht::bfloat16> data_of(int step, int rank) {
    std::vector<ht::bfloat16> data;
    for (int i = 0; i < rows * width; ++i) data.push_back(ht::bfloat16(static_cast<float>((7 * step + 3 * rank + i) % 19 - 9) / 8));
    return data;
}

/// What the environment variable says, and how much of each phase there was.
struct fate {
    std::string folder, log, phase;
    int number = 0, microseconds = 0;
    std::atomic<int> operations = 0, collectives = 0, saves = 0;

    void operation() { meet("forward", ++operations); }
    void collective() { meet("collective", ++collectives); }
    void save() { meet("checkpoint", ++saves); }

  private:
    void meet(const char* what, int count) {
        if (phase != what || count != number) return;
        if (microseconds == 0) die();
        killer_ = std::jthread([us = microseconds] { std::this_thread::sleep_for(std::chrono::microseconds(us)), die(); });
    }
    [[noreturn]] static void die() {
        std::raise(SIGKILL);
        std::abort();
    }

    std::jthread killer_;  // the end of the run waits for it
};

struct fate_listener final : ht::range_listener {
    fate* of = nullptr;
    void begin(const char*, ht::pass p) override {
        if (p == ht::pass::forward) of->operation();
    }
    void end() override {}
    void begin_scope(const char*, ht::track t) override {
        if (t == ht::track::collectives) of->collective();
    }
};

void train(ht::communicator& inner, fate& f) {
    fate_listener listener;
    listener.of = &f;
    ht::listened_communicator comm{inner, &listener};
    ht::cpu device{{.threads = 1}};
    killed_model model{device};
    ht::shard sharded{device, model, comm, ht::zero2{}};
    ht::accumulator acc{sharded, ht::unscaled};
    ht::adamw optimizer{device, sharded, {.lr = 1e-2}};
    ht::tape tape{device};
    tape.listen(&listener);
    const auto from = ht::load_newest_checkpoint(comm, f.folder, {}, model, optimizer, tape);
    std::ofstream log(f.log, std::ios::app);
    if (comm.rank() == 0) std::cout << "from " << (from ? from->step : 0) << '\n';
    for (int step = static_cast<int>(from ? from->step : 0) + 1; step <= steps; ++step) {
        const auto data = data_of(step, comm.rank());
        const auto loss = model.loss(tape, data);
        const float mine = loss.item();
        tape.backward(loss / sharded, acc);
        auto grads = acc.take();
        optimizer.step(grads);
        float all[2];
        comm.all_gather("losses", &mine, all, sizeof mine);
        if (comm.rank() == 0) {
            log << step << std::hex;
            for (const float each : all) log << ' ' << std::bit_cast<std::uint32_t>(each);
            log << std::dec << std::endl;
        }
        if (step % steps_between_saves != 0) continue;
        if (comm.rank() == 0) f.save();
        ht::save_checkpoint(comm, f.folder, {.step = step, .save_total_limit = 2}, model, optimizer, tape);
    }
}

TEST_CASE("killed: what HALFTONE_KILLED says" * doctest::skip()) {
    const char* const said = std::getenv("HALFTONE_KILLED");
    if (said == nullptr) return;
    fate f;
    std::istringstream(said) >> f.folder >> f.log >> f.phase >> f.number >> f.microseconds;
    ht::run_ranks(2, [&](ht::communicator& comm) { train(comm, f); });
    std::cout << "forward " << f.operations << "\ncollective " << f.collectives << "\ncheckpoint " << f.saves << std::endl;
}

}  // namespace ranks_killed_tests

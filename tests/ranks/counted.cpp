// SPDX-License-Identifier: MIT
/// \file
/// What a communicator counts: calls, bytes, and the time in which its collectives are under way and are waited for.
#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/ranks/counted.hpp>
#include <halftone/ranks/threads.hpp>

namespace ranks_counted_tests {

namespace ht = halftone;
using namespace std::chrono_literals;

TEST_CASE("counted_communicator: calls and bytes by kind and name, those of sub-groups too") {
    ht::run_ranks(3, [](ht::communicator& world) {
        ht::counted_communicator comm{world};
        std::vector<float> mine(30, 1.0f), sent(30, 2.0f), all(90);
        comm.exchange("gradients", sent.data(), all.data(), 40);
        comm.exchange("gradients", sent.data(), all.data(), 40);
        comm.all_gather("losses", mine.data(), all.data(), 12);
        comm.broadcast("model", all.data(), 100, 1);
        comm.split(world.rank() == 2 ? 1 : 0, 0)->all_gather("losses", mine.data(), all.data(), 12);
        const auto& rows = comm.traffic();
        REQUIRE(rows.size() == 3);
        CHECK((rows[0].kind == "exchange" && rows[0].what == "gradients" && rows[0].calls == 2 && rows[0].bytes == 160));
        CHECK((rows[1].kind == "all_gather" && rows[1].calls == 2 && rows[1].bytes == (world.rank() == 2 ? 24u : 36u)));
        CHECK((rows[2].kind == "broadcast" && rows[2].bytes == (world.rank() == 1 ? 0u : 100u)));
        CHECK(comm.bytes() == rows[0].bytes + rows[1].bytes + rows[2].bytes);
        comm.clear();
        CHECK((comm.traffic().empty() && comm.seconds_under_way() == 0 && comm.hidden_share() == 0));
    });
}

TEST_CASE("counted_communicator: what goes on while the program computes is hidden, and a wait is not") {
    // A collective takes 30 ms. All that is asserted holds on a busy machine, too.
    const ht::thread_options slow{.latency = 30ms};
    ht::run_ranks(2, [](ht::communicator& world) {
        ht::counted_communicator comm{world};
        std::vector<char> all(8);
        double least_hidden = 1;  // of several calls: a thread may sleep between the beginning and the wait
        for (int i = 0; i < 5; ++i) {
            comm.clear();
            comm.all_gather("at once", all.data() + 4 * world.rank(), all.data(), 4);
            CHECK(comm.seconds_under_way() >= 0.030);
            CHECK(comm.traffic()[0].seconds_waited == comm.seconds_waited());
            least_hidden = std::min(least_hidden, comm.hidden_share());
        }
        CHECK(least_hidden < 0.05);
        comm.clear();
        // Two that are under way at the same time, for as long as the program sleeps, are counted once.
        const auto from = std::chrono::steady_clock::now();
        auto first = comm.begin_all_gather("first", all.data() + 4 * world.rank(), all.data(), 4);
        std::vector<char> others(8);
        auto second = comm.begin_all_gather("second", others.data() + 4 * world.rank(), others.data(), 4);
        std::this_thread::sleep_for(200ms);
        first.wait(), second.wait();
        const double whole = std::chrono::duration<double>(std::chrono::steady_clock::now() - from).count();
        CHECK(comm.seconds_under_way() <= whole);
        CHECK(comm.seconds_under_way() >= 0.2);
        CHECK(comm.seconds_waited() <= whole - 0.2);
        CHECK(comm.hidden_share() >= 1 - (whole - 0.2) / 0.2);
        CHECK(comm.seconds_waited() == doctest::Approx(comm.traffic()[0].seconds_waited + comm.traffic()[1].seconds_waited));
    }, slow);
}

}  // namespace ranks_counted_tests

// SPDX-License-Identifier: MIT
/// \file
/// Ranks as threads: every call moves what it says, whenever the ranks arrive and however the bytes are delivered; a wait that is
/// missing reads wrong bytes; and ranks that call something else, have ended or do not come are named.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/ranks/threads.hpp>

namespace ranks_threads_tests {

namespace ht = halftone;

using std::chrono::milliseconds;
using clock_type = std::chrono::steady_clock;

constexpr ht::delivery every_delivery[] = {ht::delivery::prompt, ht::delivery::late, ht::delivery::halves,
                                           ht::delivery::shuffled};

/// Arrives late, each time another rank.
void dawdle(int rank, int round) {
    if ((rank * 7 + round * 3) % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(300));
}
int sent(int from, int to, int i, int round) { return from * 1'000'000 + to * 10'000 + round * 100 + i; }
/// doctest's checks are not for several threads at a time.
class findings {
  public:
    void expect(bool holds, const std::string& what) {
        if (holds) return;
        const std::lock_guard lock(mutex_);
        ++count_;
        first_ = first_.empty() ? what : first_;
    }
    int count() const { return count_; }
    const std::string& first() const { return first_; }

  private:
    std::mutex mutex_;
    int count_ = 0;
    std::string first_;
};
double seconds_since(clock_type::time_point begin) {
    return std::chrono::duration<double>(clock_type::now() - begin).count();
}
/// The message of what run_ranks throws; empty if it throws nothing.
template <class Function>
std::string message_of(int n, const Function& f, const ht::thread_options& options = {}) {
    try {
        ht::run_ranks(n, f, options);
    } catch (const std::exception& e) {
        return e.what();
    }
    return {};
}

constexpr int count = 5;

void exchange_round(ht::communicator& comm, int round, findings& found) {
    const int n = comm.size(), me = comm.rank();
    std::vector<int> send(static_cast<std::size_t>(n * count)), received(send.size());
    for (int to = 0; to < n; ++to)
        for (int i = 0; i < count; ++i) send[static_cast<std::size_t>(to * count + i)] = sent(me, to, i, round);
    ht::pending later = comm.begin_exchange("pieces", send.data(), received.data(), count * sizeof(int));
    later.wait();
    found.expect(later.is_done(), "what has been waited for is done");
    std::fill(send.begin(), send.end(), -5);  // may be written now
    for (int from = 0; from < n; ++from)
        for (int i = 0; i < count; ++i)
            found.expect(received[static_cast<std::size_t>(from * count + i)] == sent(from, me, i, round), "exchange");
}
void gather_round(ht::communicator& comm, int round, findings& found) {
    const int n = comm.size(), me = comm.rank();
    std::vector<int> all(static_cast<std::size_t>(n * count), -1), mine(count);
    int* own = round % 2 == 0 ? mine.data() : all.data() + me * count;  // in place every second time
    for (int i = 0; i < count; ++i) own[i] = sent(me, 0, i, round);
    comm.all_gather("gathered", own, all.data(), count * sizeof(int));
    std::fill(mine.begin(), mine.end(), -5);
    for (int from = 0; from < n; ++from)
        for (int i = 0; i < count; ++i)
            found.expect(all[static_cast<std::size_t>(from * count + i)] == sent(from, 0, i, round), "all_gather");
}
void broadcast_round(ht::communicator& comm, int round, findings& found) {
    const int root = round % comm.size();
    std::vector<int> data(count);
    for (int i = 0; i < count; ++i) data[static_cast<std::size_t>(i)] = sent(comm.rank(), 0, i, round);
    comm.broadcast("model", data.data(), count * sizeof(int), root);
    for (int i = 0; i < count; ++i)
        found.expect(data[static_cast<std::size_t>(i)] == sent(root, 0, i, round), "broadcast");
}

TEST_CASE(
    "run_ranks: exchange, all_gather and broadcast move what they say, with 1 to 5 ranks that arrive in any order") {
    for (const ht::delivery delivery : every_delivery) {
        CAPTURE(static_cast<int>(delivery));
        for (int n = 1; n <= 5; ++n) {
            CAPTURE(n);
            findings found;
            ht::run_ranks(n,
                          [&](ht::communicator& comm) {
                              found.expect(comm.size() == n && std::string(comm.engine()) == "threads", "size");
                              for (int round = 0; round < 8; ++round) {
                                  dawdle(comm.rank(), round);
                                  exchange_round(comm, round, found);
                                  gather_round(comm, round, found);
                                  broadcast_round(comm, round, found);
                                  comm.barrier("end");
                                  comm.all_gather("nothing", nullptr, nullptr, 0);
                              }
                          },
                          {.delivery = delivery, .seed = static_cast<std::uint64_t>(n)});
            CHECK_MESSAGE(found.count() == 0, found.first());
        }
    }
}

TEST_CASE("run_ranks: what has begun goes on beside the program, and is waited for in any order") {
    for (const ht::delivery delivery : every_delivery) {
        CAPTURE(static_cast<int>(delivery));
        findings found;
        ht::run_ranks(3,
                      [&](ht::communicator& comm) {
                          constexpr int buckets = 6;
                          std::vector<std::vector<int>> all(buckets, std::vector<int>(3));
                          int mine[buckets];
                          std::vector<ht::pending> begun;
                          for (int b = 0; b < buckets; ++b) {
                              mine[b] = comm.rank() * 100 + b;
                              dawdle(comm.rank(), b);
                              begun.push_back(comm.begin_all_gather(
                                  "bucket", &mine[b], all[static_cast<std::size_t>(b)].data(), sizeof(int)));
                          }
                          for (int k = 0; k < buckets; ++k) {
                              const int b = (k * 5 + comm.rank() * 2) % buckets;  // another order on each rank
                              begun[static_cast<std::size_t>(b)].wait();
                              for (int r = 0; r < 3; ++r)
                                  found.expect(
                                      all[static_cast<std::size_t>(b)][static_cast<std::size_t>(r)] == r * 100 + b,
                                      "bucket");
                          }
                          // Polling alone completes it, too.
                          int four[3];
                          ht::pending polled = comm.begin_all_gather("polled", &mine[4], four, sizeof(int));
                          while (!polled.is_done()) std::this_thread::yield();
                          for (int r = 0; r < 3; ++r) found.expect(four[r] == r * 100 + 4, "polled");
                          polled = ht::pending();
                          found.expect(polled.is_done(), "nothing is done");
                      },
                      {.delivery = delivery, .seed = 5});
        CHECK_MESSAGE(found.count() == 0, found.first());
    }
}

TEST_CASE("run_ranks: without its wait a rank reads bytes of 0xff, or half of them, and sends what it writes") {
    // The first and the last byte that rank 0 sees of rank 1's piece before it waits, with all ranks arrived.
    const auto seen = [](ht::delivery delivery, std::uint64_t seed) {
        std::pair<int, int> early;
        std::vector<int> damaged(2, -1);
        ht::run_ranks(2,
                      [&](ht::communicator& comm) {
                          std::vector<std::uint8_t> send(16, 7), all(32, 3);
                          ht::pending later = comm.begin_all_gather("bytes", send.data(), all.data(), 16);
                          comm.barrier("all have begun");
                          if (comm.rank() == 0) early = {all[16], all[31]};
                          if (comm.rank() == 1) send[15] = 99;  // before its wait
                          comm.barrier("rank 1 has written");
                          later.wait();
                          if (comm.rank() == 0) damaged = {all[16], all[31]};
                      },
                      {.delivery = delivery, .seed = seed});
        return std::make_pair(early, damaged);
    };
    const auto late = seen(ht::delivery::late, 0);
    CHECK(late.first == std::make_pair(255, 255));
    CHECK(late.second[0] == 7);
    CHECK(late.second[1] != 7);
    const auto halves = seen(ht::delivery::halves, 0);
    CHECK(halves.first == std::make_pair(7, 255));
    CHECK(halves.second[1] != 7);
    // Also if the receiver has long been waiting when the sender writes.
    int received = 0;
    std::atomic<bool> has_left_barrier{false};  // a rank's bytes are taken within any wait of its own
    ht::run_ranks(2,
                  [&](ht::communicator& comm) {
                      int mine = 1, all[2] = {};
                      ht::pending later = comm.begin_all_gather("values", &mine, all, sizeof(int));
                      comm.barrier("all have begun");
                      if (comm.rank() == 0) {
                          while (!has_left_barrier) std::this_thread::yield();
                      } else {
                          has_left_barrier = true;
                          std::this_thread::sleep_for(milliseconds(20));
                          mine = 2;
                      }
                      later.wait();
                      if (comm.rank() == 0) received = all[1];
                  },
                  {.delivery = ht::delivery::late});
    CHECK(received == 2);
    int early = 0;
    for (std::uint64_t seed = 0; seed < 12; ++seed) {
        const auto [first, last] = seen(ht::delivery::shuffled, seed).first;
        CHECK(first == last);
        CHECK((first == 7 || first == 255));
        early += first == 7 ? 1 : 0;
    }
    CHECK(early > 0);
    CHECK(early < 12);
}

TEST_CASE("run_ranks: ranks that call something else are named, with what each calls") {
    const auto message = [](const auto& one, const auto& other) {
        std::vector<std::string> all(3);
        const std::string first = message_of(3, [&](ht::communicator& comm) {
            int data[6] = {};
            try {
                comm.barrier("begin");
                comm.rank() == 1 ? other(comm, data) : one(comm, data);
                comm.barrier("end");
            } catch (const ht::communication_error& e) {
                all[static_cast<std::size_t>(comm.rank())] = e.what();
                throw;
            }
        });
        for (const std::string& each : all) CHECK_MESSAGE(each.find("rank") != std::string::npos, each);
        return first;
    };
    const auto gather = [](ht::communicator& comm, int* data) { comm.all_gather("losses", data, data + 3, 4); };
    const std::string losses = "all_gather \"losses\" of 4 bytes";
    const auto names = [&](const std::string& text, const std::string& theirs) {
        CHECK_MESSAGE(text.find(losses) != std::string::npos, text);
        CHECK_MESSAGE(text.find(theirs) != std::string::npos, text);
        CHECK_MESSAGE(text.find("rank 1") != std::string::npos, text);
    };
    names(message(gather, [](ht::communicator& comm, int* data) { comm.all_gather("losses", data, data + 2, 8); }),
          "all_gather \"losses\" of 8 bytes");
    names(message(gather, [](ht::communicator& comm, int* data) { comm.all_gather("norms", data, data + 3, 4); }),
          "all_gather \"norms\" of 4 bytes");
    names(message(gather, [](ht::communicator& comm, int* data) { comm.broadcast("losses", data, 4, 1); }),
          "broadcast \"losses\" of 4 bytes from rank 1");
    names(message(gather, [](ht::communicator&, int*) {}), "barrier \"end\"");  // it skips one
    CHECK(message([](ht::communicator& comm, int* data) { comm.broadcast("w", data, 4, 0); },
                  [](ht::communicator& comm, int* data) { comm.broadcast("w", data, 4, 2); })
              .find("from rank 2") != std::string::npos);
    // The sentence, whole, with two ranks.
    const std::string two = message_of(2, [](ht::communicator& comm) {
        int data[2] = {};
        if (comm.rank() == 1) std::this_thread::sleep_for(milliseconds(30));
        comm.rank() == 0 ? comm.barrier("a") : comm.all_gather("b", data, data, 4);
    });
    CHECK(two ==
          "communicator: rank 0 calls barrier \"a\", and rank 1 calls all_gather \"b\" of 4 bytes; all ranks call the "
          "same "
          "functions in the same order, with the same number of bytes");
}

TEST_CASE("run_ranks: a rank that has ended is named by those that wait for it, and its exception is the run's") {
    for (int guilty = 0; guilty < 3; ++guilty) {
        std::vector<std::string> all(3);
        const auto begin = clock_type::now();
        const std::string first = message_of(3, [&](ht::communicator& comm) {
            comm.barrier("begin");
            if (comm.rank() == guilty) throw std::runtime_error("no disk");
            try {
                int data[3] = {};
                comm.all_gather("losses", data + comm.rank(), data, 4);
            } catch (const ht::communication_error& e) {
                all[static_cast<std::size_t>(comm.rank())] = e.what();
                throw;
            }
        });
        CHECK(seconds_since(begin) < 30);
        CHECK(first == "no disk");
        for (int rank = 0; rank < 3; ++rank) {
            if (rank == guilty) continue;
            CHECK(all[static_cast<std::size_t>(rank)] ==
                  "communicator: rank " + std::to_string(guilty) +
                      " has ended before all_gather \"losses\" of 4 bytes: no disk");
        }
    }
    CHECK(message_of(2, [](ht::communicator& comm) {
              if (comm.rank() == 0) comm.barrier("end");
          }) == "communicator: rank 1 has ended before barrier \"end\": its function has returned");
    CHECK_THROWS_AS(ht::run_ranks(2,
                                  [](ht::communicator& comm) {
                                      if (comm.rank() == 1)
                                          throw 3;
                                      else
                                          comm.barrier("end");
                                  }),
                    int);
}

TEST_CASE("run_ranks: a rank that does not arrive within the deadline is named, and nobody hangs") {
    std::vector<std::string> all(4);
    const auto begin = clock_type::now();
    const std::string first =
        message_of(4,
                   [&](ht::communicator& comm) {
                       comm.barrier("begin");
                       try {
                           if (comm.rank() == 2) {
                               std::this_thread::sleep_for(milliseconds(400));  // as if it were stopped
                               comm.barrier("step");
                           } else {
                               comm.barrier("step");
                           }
                       } catch (const ht::communication_error& e) {
                           all[static_cast<std::size_t>(comm.rank())] = e.what();
                           throw;
                       }
                   },
                   {.deadline = milliseconds(100)});
    CHECK(seconds_since(begin) > 0.09);
    const std::string expected =
        "communicator: rank 2 has not called barrier \"step\" within 100 ms, for which the others wait";
    CHECK(first == expected);
    for (const std::string& each : all) CHECK(each == expected);  // rank 2, too, when it goes on
    // A transfer that takes longer than the deadline is no rank that does not arrive.
    CHECK(message_of(2,
                     [](ht::communicator& comm) {
                         std::vector<char> all(2000);
                         comm.all_gather("slow", all.data() + 1000 * comm.rank(), all.data(), 1000);
                     },
                     {.deadline = milliseconds(10), .bytes_per_second = 20'000})
              .empty());
}

TEST_CASE("run_ranks: bandwidth and latency are those asked for, and what goes on meanwhile costs nothing more") {
    // 3 ranks, 1 MB a piece at 40 MB/s: 2 MB leave each rank in 50 ms; two of them, one after the other, with 10 ms each before.
    const ht::thread_options slow{.bytes_per_second = 40e6, .latency = milliseconds(10)};
    double alone = 0, beside = 0, of_the_second = 0;
    std::mutex mutex;
    double shortest_begin = 1;  // of the ranks, some of which may have had no processor, as a part of both exchanges
    ht::run_ranks(
        3,
        [&](ht::communicator& comm) {
            constexpr std::size_t bytes = 1'000'000;
            std::vector<char> send(3 * bytes), first(3 * bytes), second(3 * bytes);
            comm.barrier("begin");
            auto begin = clock_type::now();
            comm.exchange("one", send.data(), first.data(), bytes);
            if (comm.rank() == 0) alone = seconds_since(begin);
            comm.barrier("again");
            begin = clock_type::now();
            ht::pending a = comm.begin_exchange("a", send.data(), first.data(), bytes);
            ht::pending b = comm.begin_exchange("b", send.data(), second.data(), bytes);
            const double until_begun = seconds_since(begin);
            a.wait();
            b.wait();
            const double until_both = seconds_since(begin);
            comm.barrier("third");
            begin = clock_type::now();
            ht::pending c = comm.begin_exchange("c", send.data(), first.data(), bytes);
            std::this_thread::sleep_for(milliseconds(40));  // the program's own work
            c.wait();
            if (comm.rank() == 0) of_the_second = until_both, beside = seconds_since(begin);
            const std::lock_guard lock(mutex);
            shortest_begin = std::min(shortest_begin, until_begun / until_both);
        },
        slow);
    CHECK(alone >= 0.06);
    CHECK(of_the_second >= 0.12);
    CHECK(beside >= 0.06);
    CHECK(shortest_begin < 0.5);
    MESSAGE("60, 120 and 60 ms are expected: ", alone * 1e3, ", ", of_the_second * 1e3, ", ", beside * 1e3);
}

TEST_CASE("run_ranks: a part of the ranks has a communicator of its own, with numbers of its own") {
    for (const ht::delivery delivery : every_delivery) {
        findings found;
        ht::run_ranks(4,
                      [&](ht::communicator& comm) {
                          const int me = comm.rank();
                          // Odd and even ranks, in falling order.
                          const auto half = comm.split(me % 2, -me);
                          found.expect(half->size() == 2 && half->rank() == (me < 2 ? 1 : 0), "numbers");
                          int all[2] = {};
                          half->all_gather("half", &me, all, sizeof(int));
                          found.expect(all[0] == me % 2 + 2 && all[1] == me % 2, "half");
                          // Both at once, begun in another order on different ranks: each has its own.
                          int everyone[4] = {};
                          ht::pending one, other;
                          if (me % 2 == 0) one = half->begin_all_gather("half", &me, all, sizeof(int));
                          other = comm.begin_all_gather("all", &me, everyone, sizeof(int));
                          if (me % 2 != 0) one = half->begin_all_gather("half", &me, all, sizeof(int));
                          other.wait();
                          one.wait();
                          found.expect(everyone[3] == 3 && all[0] == me % 2 + 2, "both");
                          const auto alone = half->split(half->rank(), 0);
                          found.expect(alone->size() == 1 && alone->rank() == 0, "alone");
                          alone->barrier("alone");
                          const auto again = comm.split(0, 0);
                          found.expect(again->size() == 4 && again->rank() == me, "again");
                      },
                      {.delivery = delivery});
        CHECK_MESSAGE(found.count() == 0, found.first());
    }
    // Messages have the numbers of the run.
    CHECK(message_of(4,
                     [](ht::communicator& comm) {
                         const auto half = comm.split(comm.rank() / 2, 0);
                         if (comm.rank() == 3) std::this_thread::sleep_for(milliseconds(200));
                         if (comm.rank() == 2) half->barrier("half");
                     },
                     {.deadline = milliseconds(50)}) ==
          "communicator: rank 3 has not called barrier \"half\" within 50 ms, for which the others wait");
}

TEST_CASE("run_ranks: what is not waited for is waited for at its end; options out of range are refused") {
    std::vector<int> received(2);
    ht::run_ranks(2, [&](ht::communicator& comm) {
        const int mine = comm.rank() + 1;
        int all[2];
        { const ht::pending dropped = comm.begin_all_gather("dropped", &mine, all, sizeof(int)); }
        if (comm.rank() == 0) received = {all[0], all[1]};
    });
    CHECK(received == std::vector<int>{1, 2});
    CHECK_THROWS_WITH_AS(ht::run_ranks(0, [](ht::communicator&) {}), "run_ranks: 0 ranks; expected 1 to 4096",
                         ht::argument_error);
    CHECK_THROWS_WITH_AS(ht::run_ranks(1, [](ht::communicator&) {}, {.deadline = milliseconds(0)}),
                         "communicator: a deadline of 0 ms; expected 1 ms to 1 year", ht::argument_error);
    CHECK_THROWS_WITH_AS(ht::run_ranks(2, [](ht::communicator& comm) { comm.broadcast("w", nullptr, 0, 2); }),
                         "communicator: broadcast from rank 2 among 2 ranks", ht::argument_error);
    CHECK_THROWS_WITH_AS(ht::run_ranks(2, [](ht::communicator& comm) { comm.split(-1, 0); }),
                         "communicator: split: the color is -1; expected 0 or more", ht::argument_error);
}

}  // namespace ranks_threads_tests

// SPDX-License-Identifier: MIT
/// \file
/// A program of several processes for tests/programs/mpi.sh: what collectives over MPI move, and how a run ends in which a rank is
/// killed, is stopped, throws, does not come or calls something else.
///
///     mpirun -n 4 mpi_ranks moves
///     mpirun -n 4 mpi_ranks sessions                 one to the end of the program, and one in it that is over
///     mpirun -n 4 mpi_ranks exchange kill 2          rank 2 is killed before its third call of that kind
///     mpirun -n 4 mpi_ranks all_gather stop 1 [travelling]      stopped, before the call or while its bytes travel
///     mpirun -n 4 mpi_ranks barrier throw | return | exit | quick_exit | catch | fork | hang | skip | nap 3
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include <halftone/ranks/mpi.hpp>
#include <halftone/ranks/reduce.hpp>
#include <halftone/ranks/threads.hpp>

namespace ht = halftone;

namespace {

void expect(bool holds, const char* what) {
    if (!holds) throw std::runtime_error(std::string("wrong: ") + what);
}
int sent(int from, int to, int i) { return from * 10'000 + to * 1'000 + i; }

/// Each kind of call, whose pieces are moved in chunks of 100 bytes where they have more.
void check_moves(ht::communicator& comm, int count) {
    const int n = comm.size(), me = comm.rank();
    const auto length = static_cast<std::size_t>(count), all = length * static_cast<std::size_t>(n);
    std::vector<int> send(all), received(all), gathered(all, -1), in_place(all, -1), data(length);
    for (int to = 0; to < n; ++to)
        for (int i = 0; i < count; ++i) send[static_cast<std::size_t>(to * count + i)] = sent(me, to, i);
    for (int i = 0; i < count; ++i) in_place[static_cast<std::size_t>(me * count + i)] = sent(me, 9, i);
    for (int i = 0; i < count; ++i) data[static_cast<std::size_t>(i)] = sent(me, 8, i);
    // All at once, and waited for in another order.
    ht::pending a = comm.begin_exchange("exchange", send.data(), received.data(), length * sizeof(int));
    ht::pending b = comm.begin_all_gather("gather", send.data(), gathered.data(), length * sizeof(int));
    ht::pending c =
        comm.begin_all_gather("in place", in_place.data() + me * count, in_place.data(), length * sizeof(int));
    ht::pending d = comm.begin_broadcast("model", data.data(), length * sizeof(int), n - 1);
    d.wait(), b.wait(), c.wait(), a.wait();
    for (int from = 0; from < n; ++from) {
        for (int i = 0; i < count; ++i) {
            const auto at = static_cast<std::size_t>(from * count + i);
            expect(received[at] == sent(from, me, i), "exchange");
            expect(gathered[at] == sent(from, 0, i), "all_gather");
            expect(in_place[at] == sent(from, 9, i), "all_gather in place");
        }
    }
    for (int i = 0; i < count; ++i) expect(data[static_cast<std::size_t>(i)] == sent(n - 1, 8, i), "broadcast");
    comm.barrier("moved");
}

/// A rank's sums, which no engine may change a bit of.
std::vector<float> sums(ht::communicator& comm) {
    ht::cpu device{{.threads = 1}};
    std::vector<float> values(1'001), both;
    for (const bool is_narrow : {true, false}) {
        for (std::size_t i = 0; i < values.size(); ++i)
            values[i] = 1.0f / static_cast<float>(i + 3 + 7 * static_cast<std::size_t>(comm.rank())) - 0.01f;
        is_narrow ? ht::all_reduce<ht::bfloat16>(device, comm, "sums", std::span(values))
                  : ht::all_reduce<float>(device, comm, "sums", std::span(values));
        both.insert(both.end(), values.begin(), values.end());
    }
    both.push_back(ht::all_reduce_sum(comm, "one", 0.1f * static_cast<float>(comm.rank() + 1)));
    return both;
}

void moves(ht::mpi_session& session) {
    ht::mpi_communicator comm{session};
    expect(comm.size() == session.size() && comm.rank() == session.rank() && std::string(comm.engine()) == "mpi",
           "numbers");
    for (const int count : {0, 1, 24, 25, 26, 333}) {
        for (const std::size_t chunk : {std::size_t{100}, std::size_t{1} << 20}) {
            comm.set_largest_chunk(chunk);
            check_moves(comm, count);
        }
    }
    const auto half = comm.split(comm.rank() % 2, -comm.rank());
    check_moves(*half, 7);
    const auto pair = half->split(0, half->rank());
    // Two communicators, begun in another order on different ranks.
    int mine = comm.rank(), all[64], some[64];
    ht::pending one, other;
    if (mine % 2 == 0) one = pair->begin_all_gather("pair", &mine, some, sizeof(int));
    other = comm.begin_all_gather("all", &mine, all, sizeof(int));
    if (mine % 2 != 0) one = pair->begin_all_gather("pair", &mine, some, sizeof(int));
    other.wait(), one.wait();
    expect(all[comm.size() - 1] == comm.size() - 1 && some[pair->rank()] == mine, "two communicators");

    const std::vector<float> here = sums(comm);
    std::vector<float> of_threads;
    ht::run_ranks(comm.size(), [&](ht::communicator& threads) {
        const std::vector<float> theirs = sums(threads);
        if (threads.rank() == comm.rank()) of_threads = theirs;
    });
    expect(here.size() == of_threads.size() &&
               std::memcmp(here.data(), of_threads.data(), here.size() * sizeof(float)) == 0,
           "the bits of sums over MPI are those of threads");
    comm.barrier("end");
    if (comm.rank() == 0) std::puts("moves: all right");
}

void sessions(int argc, char** argv) {
    static ht::mpi_session to_the_end{argc, argv};
    ht::mpi_session inner{argc, argv};
    expect(inner.rank() == to_the_end.rank(), "the rank in two sessions");
}

void call(ht::communicator& comm, const std::string& kind, std::vector<char>& send, std::vector<char>& receive) {
    const std::size_t bytes = receive.size() / static_cast<std::size_t>(comm.size());
    if (kind == "exchange") comm.exchange("step", send.data(), receive.data(), bytes);
    if (kind == "all_gather") comm.all_gather("step", send.data(), receive.data(), bytes);
    if (kind == "broadcast") comm.broadcast("step", send.data(), bytes, 0);
    if (kind == "barrier") comm.barrier("step");
    if (kind == "split") comm.split(0, 0);
}
/// Calls of a kind, in the third of which something happens to one rank.
void suffer(ht::communicator& comm, const std::string& kind, const std::string& fate, int victim,
            bool while_travelling) {
    const std::size_t bytes = while_travelling ? std::size_t{8} << 20 : 1000;
    std::vector<char> send(bytes * static_cast<std::size_t>(comm.size())), receive(send.size());
    for (int round = 0; round < 5; ++round) {
        if (round == 2 && comm.rank() == victim) {
            if (while_travelling) {
                // The engine's thread is on its way when this one stops the process.
                ht::pending begun = comm.begin_exchange("step", send.data(), receive.data(), bytes);
                std::this_thread::sleep_for(std::chrono::milliseconds(4));
                std::raise(SIGSTOP);
            }
            if (fate == "kill") std::raise(SIGKILL);
            if (fate == "stop") std::raise(SIGSTOP);
            if (fate == "throw") throw std::runtime_error("no disk");
            if (fate == "catch") throw 0;
            if (fate == "exit") std::exit(0);
            if (fate == "quick_exit") std::quick_exit(0);
            if (fate == "fork") {  // a child that is no rank ends, and the run goes on
                const pid_t child = fork();
                if (child == 0) std::exit(0);
                waitpid(child, nullptr, 0);
            }
            if (fate == "return") return;
            if (fate == "hang") std::this_thread::sleep_for(std::chrono::seconds(60));
            if (fate == "skip") continue;
            if (fate == "nap") {
                std::fputs("napping\n", stderr);
                std::this_thread::sleep_for(std::chrono::milliseconds(1'000));
            }
        }
        call(comm, kind, send, receive);
    }
    comm.barrier("end");
}

}  // namespace

int main(int argc, char** argv) {
    try {
        const std::string what = argc > 1 ? argv[1] : "", fate = argc > 2 ? argv[2] : "";
        const int victim = argc > 3 ? std::atoi(argv[3]) : 0;
        if (what == "sessions") {
            sessions(argc, argv);
            return 0;
        }
        ht::mpi_session session{argc, argv, {.deadline = std::chrono::milliseconds(what == "moves" ? 20'000 : 2'000)}};
        if (what == "moves") {
            moves(session);
        } else {
            ht::mpi_communicator comm{session};
            suffer(comm, what, fate, victim, argc > 4);
        }
    } catch (int code) {
        return code;  // as if all were well
    } catch (const std::exception& e) {
        std::fprintf(stderr, "mpi_ranks: %s\n", e.what());
        return 1;
    }
}

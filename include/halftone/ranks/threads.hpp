// SPDX-License-Identifier: MIT
/// \file
/// Ranks as threads of one process: for tests, for lessons, and for finding out how a run would do over a slower wire.
///
///     ht::run_ranks(4, [&](ht::communicator& comm) {
///         ht::cpu device{{.threads = 1}};                      // each rank has a device of its own
///         train(device, comm);
///     });
///     ht::run_ranks(4, train, {.bytes_per_second = 1e9, .latency = std::chrono::microseconds(20)});
///     ht::run_ranks(4, train, {.delivery = ht::delivery::late, .seed = 7});    // finds a wait that is missing
///
/// The last rank that begins a collective copies the bytes of all; the others go on meanwhile. With a bandwidth, what is
/// copied counts as complete only when the wire would have brought it: the collectives of a communicator go over its
/// wire one after another.
///
/// Faulty deliveries (ht::delivery) give a program that keeps the rules the same results. One that reads before it waits
/// reads bytes of 0xff, which are NaN in every floating-point format, and one that writes before it waits sends what it
/// wrote.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include <halftone/ranks/call.hpp>
#include <halftone/ranks/communicator.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// When the bytes of a collective move, within what its rules allow.
enum class delivery {
    prompt,  ///< all at once, as soon as the last rank has begun
    late,  ///< read when the sender waits, and written when the receiver waits; until then the receiver's memory is 0xff
    halves,    ///< the first half of each piece at once, the second one late
    shuffled,  ///< each piece at once or late, by the seed
};

/// How ranks as threads communicate.
struct thread_options {
    /// The longest that a rank waits for the others; then all end with a communication_error.
    std::chrono::milliseconds deadline{60'000};
    /// What a rank sends, and at the same time receives, in a second; 0: as fast as memory is copied.
    double bytes_per_second = 0;
    /// What each collective takes beside that.
    std::chrono::nanoseconds latency{0};
    halftone::delivery delivery = halftone::delivery::prompt;
    /// Chooses among the shuffled deliveries.
    std::uint64_t seed = 0;
};

namespace detail {

/// A collective of ranks as threads. Guarded by the world's mutex.
struct thread_operation {
    using clock = std::chrono::steady_clock;

    /// What a rank gave, and how far it is.
    struct part {
        bool has_begun = false, is_taken = false, is_delivered = false;
        const std::byte* send = nullptr;
        std::byte* receive = nullptr;
        std::vector<std::byte> sent;  ///< of late deliveries: the bytes as they were when the sender waited
    };

    explicit thread_operation(std::size_t ranks, const collective_call& c, std::uint64_t n)
        : call(c), number(n), parts(ranks) {}

    /// The bytes that a rank sends, all pieces together.
    std::size_t sent_bytes(std::size_t rank) const {
        switch (call.kind) {
            case call_kind::exchange:
                return call.bytes * parts.size();
            case call_kind::broadcast:
                return static_cast<int>(rank) == call.root ? call.bytes : 0;
            case call_kind::barrier:
                return 0;
            default:
                return call.bytes;
        }
    }
    /// The bytes that a rank has on the wire, in one direction.
    double wire_bytes() const {
        const auto bytes = static_cast<double>(call.bytes);
        if (call.kind == call_kind::barrier || parts.size() == 1) return 0;
        return call.kind == call_kind::broadcast ? bytes : bytes * static_cast<double>(parts.size() - 1);
    }
    /// Whether `to` receives something from `from`.
    bool has_piece(std::size_t from, std::size_t to) const {
        if (call.kind == call_kind::barrier || call.bytes == 0) return false;
        return call.kind != call_kind::broadcast || (static_cast<int>(from) == call.root && from != to);
    }
    /// Where the piece from `from` lies in the memory of `to`.
    std::byte* place(std::size_t from, std::size_t to) const {
        return parts[to].receive + (call.kind == call_kind::broadcast ? 0 : from * call.bytes);
    }
    /// Copies the first `bytes` bytes of the piece, out of what `from` gave or out of the copy of it.
    void copy(std::size_t from, std::size_t to, std::size_t bytes) {
        if (!has_piece(from, to)) return;
        const std::byte* const sent = parts[from].is_taken ? parts[from].sent.data() : parts[from].send;
        const std::byte* const piece = sent + (call.kind == call_kind::exchange ? to * call.bytes : 0);
        if (piece != place(from, to)) std::memcpy(place(from, to), piece, bytes);
    }
    /// Copies all pieces for one rank.
    void copy_to(std::size_t to) {
        for (std::size_t from = 0; from < parts.size(); ++from) copy(from, to, call.bytes);
    }
    /// Keeps what a rank sends as it is now.
    void take(std::size_t rank) {
        part& p = parts[rank];
        if (p.is_taken) return;
        if (const std::size_t bytes = sent_bytes(rank)) p.sent.assign(p.send, p.send + bytes);
        p.is_taken = true;
    }
    /// What a rank receives is not there yet: bytes of 0xff, but for its own piece of what is gathered.
    void poison(std::size_t to) const {
        for (std::size_t from = 0; from < parts.size(); ++from) {
            if (has_piece(from, to) && parts[to].send != place(from, to))
                std::memset(place(from, to), 0xff, call.bytes);
        }
    }

    collective_call call;
    std::uint64_t number;
    std::vector<part> parts;
    std::size_t begun = 0;
    bool is_copied = false;       ///< of prompt deliveries
    clock::time_point arrival{};  ///< of the bytes, by bandwidth and latency
};

struct thread_group;

/// All ranks of one run_ranks.
struct thread_world {
    struct rank_state {
        bool has_ended = false;
        int waits = 0;  ///< whether it is inside of a wait
    };

    thread_world(int ranks, const thread_options& o) : options(o), of(static_cast<std::size_t>(ranks)) {}

    /// Notes that a rank has ended, by an exception if `why` is not empty.
    void end(int rank, const std::string& why, std::exception_ptr thrown) {
        const std::lock_guard lock(mutex);
        of[static_cast<std::size_t>(rank)].has_ended = true;
        if (thrown != nullptr && first_thrown == nullptr) {
            first_thrown = std::move(thrown);
            first_rank = rank;
            first_reason = why;
        }
        changed.notify_all();
    }

    const thread_options options;
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<rank_state> of;
    /// The first exception in time; what ranks throw thereafter follows from it.
    std::exception_ptr first_thrown;
    int first_rank = -1;
    std::string first_reason;
    /// Groups that some of their ranks have yet to learn of, by parent, number of the call and color.
    std::map<std::tuple<const thread_group*, std::uint64_t, int>, std::pair<std::shared_ptr<thread_group>, std::size_t>>
        splits;
};

/// The ranks of a communicator. Guarded by the world's mutex.
struct thread_group {
    using clock = thread_operation::clock;

    thread_group(thread_world& w, std::vector<int> ranks) : world(w), members(std::move(ranks)), next(members.size()) {}

    /// A rank begins its next collective. Throws communication_error if another rank calls something else there.
    std::shared_ptr<thread_operation> begin(std::size_t rank, const collective_call& call, const void* send,
                                            void* receive) {
        std::unique_lock lock(world.mutex);
        if (!failure.empty()) throw communication_error(failure);
        const std::uint64_t number = next[rank]++;
        if (number - first == operations.size())
            operations.push_back(std::make_shared<thread_operation>(members.size(), call, number));
        const std::shared_ptr<thread_operation> op = operations[number - first];
        if (!(op->call == call)) {
            const std::vector<int> others = ranks_where(members, [&](std::size_t i) { return op->parts[i].has_begun; });
            refuse(describe_mismatch(others, op->call, members[rank], call));
        }
        thread_operation::part& mine = op->parts[rank];
        mine.send = static_cast<const std::byte*>(send);
        mine.receive = static_cast<std::byte*>(receive);
        mine.has_begun = true;
        if (world.options.delivery != delivery::prompt) op->poison(rank);
        if (++op->begun == members.size()) complete(*op, lock);
        return op;
    }

    /// Returns when the rank may use its memory again. Throws communication_error.
    void wait(std::size_t rank, thread_operation& op) {
        std::unique_lock lock(world.mutex);
        thread_world::rank_state& state = world.of[static_cast<std::size_t>(members[rank])];
        ++state.waits;
        world.changed.notify_all();
        struct leaving {
            thread_world::rank_state& of;
            ~leaving() { --of.waits; }
        } at_the_end{state};
        const clock::time_point deadline = clock::now() + world.options.deadline;
        while (!is_complete(rank, op, clock::now() >= deadline)) {
            // What all have begun is completed even if ranks end meanwhile, since others are using this rank's memory.
            if (op.begun == members.size()) {
                const clock::time_point now = clock::now();
                now < op.arrival || now >= deadline ? world.changed.wait_until(lock, std::max(op.arrival, now + tick))
                                                    : world.changed.wait_until(lock, deadline);
                continue;
            }
            if (!failure.empty()) throw communication_error(failure);
            expect_all_alive(op);
            if (clock::now() >= deadline) refuse(late_ranks(op));
            world.changed.wait_until(lock, deadline);
        }
    }
    bool is_done(std::size_t rank, thread_operation& op) {
        const std::lock_guard lock(world.mutex);
        return (!failure.empty() && op.begun != members.size()) || is_complete(rank, op, false);
    }

    /// The group of the ranks with this color: the first one of them makes it.
    static std::shared_ptr<thread_group> split(const thread_group& parent, std::uint64_t number, int color,
                                               std::vector<int> ranks) {
        const std::lock_guard lock(parent.world.mutex);
        const auto key = std::make_tuple(&parent, number, color);
        auto& [group, learned] = parent.world.splits[key];
        if (group == nullptr) group = std::make_shared<thread_group>(parent.world, std::move(ranks));
        auto result = group;
        if (++learned == result->members.size()) parent.world.splits.erase(key);
        return result;
    }

    thread_world& world;
    const std::vector<int> members;  ///< by their number in the world
    std::vector<std::uint64_t> next;
    std::deque<std::shared_ptr<thread_operation>> operations;
    std::uint64_t first = 0;  ///< the number of operations.front()
    clock::time_point wire_is_free{};
    std::string failure;

  private:
    static constexpr std::chrono::milliseconds tick{1};

    /// All ranks have begun: the wire is taken, and what is not late is copied.
    void complete(thread_operation& op, std::unique_lock<std::mutex>& lock) {
        const thread_options& options = world.options;
        while (!operations.empty() && operations.front()->begun == members.size()) operations.pop_front(), ++first;
        const double seconds = options.bytes_per_second > 0 ? op.wire_bytes() / options.bytes_per_second : 0;
        op.arrival = std::max(wire_is_free, clock::now()) + options.latency +
                     std::chrono::duration_cast<clock::duration>(std::chrono::duration<double>(seconds));
        wire_is_free = op.arrival;
        if (options.delivery == delivery::prompt) {
            lock.unlock();
            for (std::size_t to = 0; to < members.size(); ++to) op.copy_to(to);
            lock.lock();
            op.is_copied = true;
        } else {
            copy_early(op);
        }
        world.changed.notify_all();
    }
    /// The part of a faulty delivery that is not late.
    void copy_early(thread_operation& op) const {
        if (world.options.delivery == delivery::late) return;
        for (std::size_t to = 0; to < members.size(); ++to) {
            for (std::size_t from = 0; from < members.size(); ++from) {
                std::uint64_t mixed = world.options.seed ^ (op.number << 32 | to << 16 | from);
                mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9u;
                mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111ebu;
                const bool is_half = world.options.delivery == delivery::halves;
                op.copy(from, to, is_half ? op.call.bytes / 2 : mixed >> 63 != 0 ? op.call.bytes : 0);
            }
        }
    }
    /// Whether the rank may use its memory; delivers what is late, and no longer waits for senders after the deadline.
    bool is_complete(std::size_t rank, thread_operation& op, bool is_overdue) {
        if (op.begun != members.size() || clock::now() < op.arrival) return false;
        if (world.options.delivery == delivery::prompt) return op.is_copied;
        op.take(rank);
        for (std::size_t from = 0; from < members.size(); ++from) {
            if (op.parts[from].is_taken || !op.has_piece(from, rank)) continue;
            // It is inside of a wait, of whatever: so it does not write its memory at this moment.
            if (!is_overdue && world.of[static_cast<std::size_t>(members[from])].waits == 0) return false;
            op.take(from);
        }
        if (!std::exchange(op.parts[rank].is_delivered, true)) op.copy_to(rank);
        return true;
    }
    void expect_all_alive(const thread_operation& op) {
        for (std::size_t i = 0; i < members.size(); ++i) {
            if (op.parts[i].has_begun || !world.of[static_cast<std::size_t>(members[i])].has_ended) continue;
            if (world.first_thrown != nullptr) refuse(describe_ended(world.first_rank, op.call, world.first_reason));
            refuse(describe_ended(members[i], op.call, "its function has returned"));
        }
    }
    std::string late_ranks(const thread_operation& op) const {
        const std::vector<int> late = ranks_where(members, [&](std::size_t i) { return !op.parts[i].has_begun; });
        return describe_missing(late, op.call, world.options.deadline.count());
    }
    [[noreturn]] void refuse(const std::string& why) {
        failure = why;
        world.changed.notify_all();
        throw communication_error(why);
    }
};

class thread_collective final : public collective {
  public:
    thread_collective(std::shared_ptr<thread_group> group, std::shared_ptr<thread_operation> op, std::size_t rank)
        : group_(std::move(group)), op_(std::move(op)), rank_(rank) {}
    bool is_done() override { return group_->is_done(rank_, *op_); }
    void wait() override { group_->wait(rank_, *op_); }

  private:
    std::shared_ptr<thread_group> group_;
    std::shared_ptr<thread_operation> op_;
    std::size_t rank_;
};

class thread_communicator final : public communicator {
  public:
    thread_communicator(std::shared_ptr<thread_group> group, std::size_t rank)
        : communicator(static_cast<int>(rank), static_cast<int>(group->members.size()),
                       {.deadline = group->world.options.deadline}),
          group_(std::move(group)) {}

    const char* engine() const override { return "threads"; }
    pending begin_exchange(const char* what, const void* send, void* receive, std::size_t bytes) override {
        return begin({call_kind::exchange, what, bytes}, send, receive);
    }
    pending begin_all_gather(const char* what, const void* mine, void* all, std::size_t bytes) override {
        return begin({call_kind::all_gather, what, bytes}, mine, all);
    }
    pending begin_broadcast(const char* what, void* data, std::size_t bytes, int root) override {
        expect_root(root, size());
        return begin({call_kind::broadcast, what, bytes, root}, rank() == root ? data : nullptr, data);
    }
    void barrier(const char* what) override { begin({call_kind::barrier, what, 0}, nullptr, nullptr).wait(); }
    std::unique_ptr<communicator> split(int color, int key) override {
        expect_color(color);
        const std::uint64_t number = group_->next[own()];
        const split_choice mine{color, key};
        std::vector<split_choice> all(group_->members.size());
        begin({call_kind::split, "split", sizeof mine}, &mine, all.data()).wait();
        const std::vector<int> chosen = ranks_of_color(all, color);
        std::vector<int> members;
        for (const int rank : chosen) members.push_back(group_->members[static_cast<std::size_t>(rank)]);
        const auto at = std::find(chosen.begin(), chosen.end(), rank()) - chosen.begin();
        return std::make_unique<thread_communicator>(thread_group::split(*group_, number, color, std::move(members)),
                                                     static_cast<std::size_t>(at));
    }

  private:
    std::size_t own() const { return static_cast<std::size_t>(rank()); }
    pending begin(const collective_call& call, const void* send, void* receive) {
        return pending(std::make_unique<thread_collective>(group_, group_->begin(own(), call, send, receive), own()));
    }

    std::shared_ptr<thread_group> group_;
};

}  // namespace detail

/// Calls f(comm) on n threads, each with its communicator of n ranks, and returns when all have ended. If ranks threw,
/// rethrows what was thrown first; the other ranks end with a communication_error that names that rank when they wait
/// for it. Throws argument_error for fewer than 1 or more than 4096 ranks,
/// and for a deadline that is not 1 ms to 1 year.
template <class Function>
void run_ranks(int n, const Function& f, const thread_options& options = {}) {
    if (n < 1 || n > 4096) fail<argument_error>("run_ranks: ", n, " ranks; expected 1 to 4096");
    detail::expect_deadline(options.deadline);
    detail::thread_world world(n, options);
    const auto group = std::make_shared<detail::thread_group>(world, detail::first_numbers(static_cast<std::size_t>(n)));
    const auto run = [&](int rank) {
        std::string why;
        std::exception_ptr thrown;
        try {
            detail::thread_communicator comm(group, static_cast<std::size_t>(rank));
            f(static_cast<communicator&>(comm));
        } catch (const std::exception& e) {
            thrown = std::current_exception();
            why = e.what();
        } catch (...) {
            thrown = std::current_exception();
            why = "an exception";
        }
        world.end(rank, why, thrown);
    };
    std::vector<std::thread> threads;
    for (int rank = 0; rank < n; ++rank) {
        try {
            threads.emplace_back(run, rank);
        } catch (const std::exception& e) {
            world.end(rank, e.what(), std::current_exception());
        }
    }
    for (std::thread& t : threads) t.join();
    if (world.first_thrown != nullptr) std::rethrow_exception(world.first_thrown);
}

}  // namespace HALFTONE_ABI
}  // namespace halftone

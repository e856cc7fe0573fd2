// SPDX-License-Identifier: MIT
/// \file
/// Ranks as processes, over MPI: link with halftone::mpi, and begin the program by `mpirun -n 4`.
///
///     int main(int argc, char** argv) {
///         ht::mpi_session session{argc, argv, {.deadline = std::chrono::seconds(30)}};
///         ht::mpi_communicator comm{session};
///         ht::cpu device{{.threads = 1}};
///         train(device, comm);
///     }
///
/// Each communicator has a thread of its own, which makes MPI's non-blocking calls in the order in which they were begun and
/// polls them, for MPI moves bytes only while somebody calls it. So bytes travel while the program computes, and
/// communicators do not wait for each other. This takes MPI_THREAD_MULTIPLE, the level that also lets the program call MPI
/// itself.
///
/// A run that cannot go on ends: one rank prints a line that names the rank that is missing, or the ranks that call
/// different things, and MPI_Abort ends all with exit code 1. Before any bytes move, each rank sends the others what it
/// calls (64 bytes); who has not within the deadline is missing. Ranks also tell each other that they live, eight times in a
/// deadline: a process that is stopped while bytes travel is named for its silence. A rank that throws leaves MPI as it is;
/// mpirun ends the others when a rank is killed. A process that ends by exit() or quick_exit() within its session, or behind an
/// exception that left it, says so in a line and ends all with code 1, whatever its own was: not every mpirun tells, and
/// MPICH's may end with code 0, as it does for a process that ends by _exit(0), which no program can catch.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#if !__has_include(<mpi.h>)
#error "halftone: ranks/mpi.hpp: <mpi.h> is not found; link with halftone::mpi (CMake), or compile with mpicxx"
#endif
#if !defined(OMPI_SKIP_MPICXX)
#define OMPI_SKIP_MPICXX 1  // C++ bindings that MPI no longer has
#endif
#if !defined(MPICH_SKIP_MPICXX)
#define MPICH_SKIP_MPICXX 1  // the same of MPICH and Intel MPI
#endif
#include <mpi.h>

#include <halftone/exec/cpu/processors.hpp>
#include <halftone/ranks/call.hpp>
#include <halftone/ranks/communicator.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

using mpi_clock = std::chrono::steady_clock;

/// Calls a function if it is not destroyed within the deadline: for what MPI has no non-blocking form of.
class mpi_timer {
  public:
    template <class Function>
    mpi_timer(std::chrono::milliseconds deadline, Function on_expiry)
        : thread_([this, deadline, on_expiry] {
              std::unique_lock lock(mutex_);
              // In parts: the time for which the process is stopped counts as one of them.
              for (int part = 0; part < 8; ++part) {
                  if (over_.wait_for(lock, deadline / 8 + std::chrono::milliseconds(1), [this] { return is_over_; }))
                      return;
              }
              on_expiry();
          }) {}
    mpi_timer(const mpi_timer&) = delete;
    mpi_timer& operator=(const mpi_timer&) = delete;
    ~mpi_timer() {
        {
            const std::lock_guard lock(mutex_);
            is_over_ = true;
        }
        over_.notify_all();
        thread_.join();
    }

  private:
    std::mutex mutex_;
    std::condition_variable over_;
    bool is_over_ = false;
    std::thread thread_;
};

/// Prints the line and ends all ranks with code 1. Launchers drop what they have not read when MPI_Abort comes: with Open
/// MPI on a busy machine a quarter of such lines was lost without the pause.
[[noreturn]] inline void abort_ranks(const std::string& line) {
    std::fputs((line + '\n').c_str(), stderr);
    std::fflush(stderr);
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    MPI_Abort(MPI_COMM_WORLD, 1);
    std::_Exit(1);
}

/// This process among all of the run: who lives, and how the run ends if it cannot go on.
class mpi_process {
  public:
    explicit mpi_process(const communicator_options& o) : options(o) {
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        MPI_Comm_size(MPI_COMM_WORLD, &size);
        within("MPI_Comm_dup", [&] { MPI_Comm_dup(MPI_COMM_WORLD, &signs_of_life_); });
        heard_ = std::vector<std::atomic<mpi_clock::rep>>(static_cast<std::size_t>(size));
        for (auto& each : heard_) each = mpi_clock::now().time_since_epoch().count();
        if (size > 1) thread_ = std::thread([this] { tell_and_listen(); });
    }
    mpi_process(const mpi_process&) = delete;
    mpi_process& operator=(const mpi_process&) = delete;
    ~mpi_process() {
        {
            const std::lock_guard lock(mutex_);
            is_over_ = true;
        }
        over_.notify_all();
        if (thread_.joinable()) thread_.join();
    }

    /// Runs f, an MPI call that waits for others, and ends the run if that takes longer than the deadline.
    template <class Function>
    void within(const char* call, const Function& f) {
        const mpi_timer timer(options.deadline, [this, call] {
            end_run(sentence("communicator: ", call, " has not returned within ", options.deadline.count(), " ms; ",
                             silence()));
        });
        f();
    }
    /// The ranks that have not been heard of for half a deadline.
    std::vector<int> silent() const {
        std::vector<int> ranks;
        const auto now = mpi_clock::now().time_since_epoch().count();
        const auto longest = std::chrono::duration_cast<mpi_clock::duration>(options.deadline).count() / 2;
        for (std::size_t i = 0; i < heard_.size(); ++i) {
            if (static_cast<int>(i) != rank && now - heard_[i] > longest) ranks.push_back(static_cast<int>(i));
        }
        return ranks;
    }
    /// "rank 2 does not answer".
    std::string silence() const {
        const std::vector<int> ranks = silent();
        if (ranks.empty()) return "all ranks answer";
        return describe_ranks(ranks) + (ranks.size() == 1 ? " does not answer" : " do not answer");
    }
    /// Prints the line and ends all ranks. The lowest rank that lives comes first, and tells the others; MPI_Abort takes a second to
    /// end them. They come only if it does not, one after the other, and a deadline later if they were told.
    [[noreturn]] void end_run(const std::string& line) {
        const std::lock_guard lock(ending_);
        const std::vector<int> gone = silent();
        const auto before = rank - std::count_if(gone.begin(), gone.end(), [this](int i) { return i < rank; });
        if (before != 0) std::this_thread::sleep_for(std::chrono::milliseconds(1500 + 700 * std::min<long>(before, 10)));
        if (another_ends_) std::this_thread::sleep_for(options.deadline);
        {  // Not for long: the thread may hold the lock in an MPI call that hangs, and then tells at its next tick.
            std::unique_lock told(mutex_, std::defer_lock);
            for (int i = 0; i < 100 && !told.try_lock(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
            ends_ = true;
        }
        over_.notify_all();
        abort_ranks(line);
    }

    const communicator_options options;
    int rank = 0, size = 1;

  private:
    /// One byte to and from every rank, eight times in a deadline, at least once a second: 1, or 2 from one that ends the run.
    void tell_and_listen() {
        const auto n = static_cast<std::size_t>(size);
        std::vector<MPI_Request> told(n, MPI_REQUEST_NULL), listening(n, MPI_REQUEST_NULL);
        std::vector<char> bytes(n);
        const char lives = 1, ends = 2;
        const auto listen = [&](std::size_t i) {
            MPI_Irecv(&bytes[i], 1, MPI_BYTE, static_cast<int>(i), 0, signs_of_life_, &listening[i]);
        };
        const auto each = [&](const auto& f) {
            for (std::size_t i = 0; i < n; ++i) {
                if (static_cast<int>(i) != rank) f(i);
            }
        };
        const auto is_complete = [](MPI_Request& request) {
            int done = 0;
            return MPI_Test(&request, &done, MPI_STATUS_IGNORE), done != 0;
        };
        each(listen);
        std::unique_lock lock(mutex_);
        const auto tick = std::clamp(options.deadline / 8, std::chrono::milliseconds(1), std::chrono::milliseconds(1000));
        while (!is_over_) {
            each([&](std::size_t i) {
                if (is_complete(told[i]))
                    MPI_Isend(ends_ ? &ends : &lives, 1, MPI_BYTE, static_cast<int>(i), 0, signs_of_life_, &told[i]);
                while (is_complete(listening[i])) {
                    heard_[i] = mpi_clock::now().time_since_epoch().count();
                    if (bytes[i] == ends) another_ends_ = true;
                    listen(i);
                }
            });
            over_.wait_for(lock, tick);
        }
        each([&](std::size_t i) {
            MPI_Cancel(&listening[i]);
            MPI_Request_free(&listening[i]);
            if (told[i] != MPI_REQUEST_NULL) MPI_Request_free(&told[i]);
        });
    }

    MPI_Comm signs_of_life_ = MPI_COMM_NULL;
    std::vector<std::atomic<mpi_clock::rep>> heard_;
    std::atomic<bool> ends_{false}, another_ends_{false};
    std::mutex mutex_, ending_;
    std::condition_variable over_;
    bool is_over_ = false;
    std::thread thread_;
};

/// What exit() is to know of a session: a process that ends within it says so, for nobody else may tell.
struct mpi_exit_watch {
    int rank = 0, process = process_id();  ///< a child of fork() is another process, and no rank
    std::atomic<bool> is_over{false}, was_left{false};

    /// Watches a session that begins here. Handlers of exit(), and those of quick_exit(), run in the reverse order of
    /// registration, so each belongs to the last session left; that of a global one runs behind its destructor.
    static std::shared_ptr<mpi_exit_watch> begin(int rank) {
        const auto watch = std::make_shared<mpi_exit_watch>();
        watch->rank = rank;
        if (std::atexit(&at_exit) == 0 && std::at_quick_exit(&at_exit) == 0) watches().push_back(watch);
        return watch;
    }

  private:
    static std::vector<std::shared_ptr<mpi_exit_watch>>& watches() {
        static auto& all = *new std::vector<std::shared_ptr<mpi_exit_watch>>;  // exit() does not destroy it
        return all;
    }
    /// Ends all ranks. Handlers that were there before come no more, nor does what flushes files.
    static void at_exit() {
        if (watches().empty()) return;
        const auto watch = watches().back();
        watches().pop_back();
        int has_ended = 0;
        if (watch->is_over || watch->process != process_id() || (MPI_Finalized(&has_ended), has_ended != 0)) return;
        std::fflush(stdout);
        abort_ranks(
            sentence("mpi_session: rank ", watch->rank, " ends the program ",
                     watch->was_left ? "behind an exception that left the session" : "by exit() within the session",
                     "; all ranks end"));
    }
};

/// A collective that has been begun, in the queue of its communicator.
struct mpi_task {
    collective_call call;
    const std::byte* send = nullptr;
    std::byte* receive = nullptr;
    int color = 0, key = 0;         ///< of a split
    MPI_Comm made = MPI_COMM_NULL;  ///< by a split
    bool is_done = false;           ///< guarded by the engine's mutex
};

/// The ranks of a communicator, and the thread that makes their MPI calls.
class mpi_engine {
  public:
    /// Takes the communicator.
    mpi_engine(std::shared_ptr<mpi_process> process, MPI_Comm comm) : process_(std::move(process)), comm_(comm) {
        MPI_Comm_rank(comm_, &rank);
        MPI_Comm_size(comm_, &size);
        members_.resize(static_cast<std::size_t>(size));
        const std::vector<int> own = first_numbers(members_.size());
        MPI_Group all = MPI_GROUP_NULL, here = MPI_GROUP_NULL;
        MPI_Comm_group(MPI_COMM_WORLD, &all);
        MPI_Comm_group(comm_, &here);
        MPI_Group_translate_ranks(here, size, own.data(), all, members_.data());
        MPI_Group_free(&all);
        MPI_Group_free(&here);
        requests_.assign(2 * members_.size(), MPI_REQUEST_NULL);
        theirs_.resize(members_.size());
        thread_ = std::thread([this] { work(); });
    }
    mpi_engine(const mpi_engine&) = delete;
    mpi_engine& operator=(const mpi_engine&) = delete;
    ~mpi_engine() {
        {
            const std::lock_guard lock(mutex_);
            is_over_ = true;
        }
        changed_.notify_all();
        thread_.join();
        // While an exception ends this rank the others do not come to free theirs.
        if (std::uncaught_exceptions() == exceptions_) MPI_Comm_free(&comm_);
    }

    std::shared_ptr<mpi_task> begin(const collective_call& call, const void* send, void* receive, int color = 0,
                                    int key = 0) {
        auto task = std::make_shared<mpi_task>();
        task->call = call;
        task->send = static_cast<const std::byte*>(send);
        task->receive = static_cast<std::byte*>(receive);
        task->color = color;
        task->key = key;
        {
            const std::lock_guard lock(mutex_);
            queue_.push_back(task);
        }
        changed_.notify_all();
        return task;
    }
    void wait(const mpi_task& task) {
        std::unique_lock lock(mutex_);
        if (task.is_done) return;
        waiting_since_ = mpi_clock::now().time_since_epoch().count();
        changed_.wait(lock, [&] { return task.is_done; });
        waiting_since_ = 0;
    }
    bool is_done(const mpi_task& task) {
        const std::lock_guard lock(mutex_);
        return task.is_done;
    }
    const std::shared_ptr<mpi_process>& process() const { return process_; }

    int rank = 0, size = 1;
    /// The most bytes of a piece in one MPI call, whose counts are int; the deadline holds for each call.
    std::size_t largest_chunk = std::size_t{64} << 20;

  private:
    void work() {
        std::unique_lock lock(mutex_);
        for (;;) {
            changed_.wait(lock, [this] { return is_over_ || !queue_.empty(); });
            if (queue_.empty()) return;
            const std::shared_ptr<mpi_task> task = queue_.front();
            queue_.pop_front();
            lock.unlock();
            run(*task);
            lock.lock();
            task->is_done = true;
            changed_.notify_all();
        }
    }
    void run(mpi_task& task) {
        const bool says_calls = process_->options.checks_calls;
        if (says_calls) compare_calls(task.call);
        const auto bytes = static_cast<std::size_t>(task.call.bytes);
        switch (task.call.kind) {
            case call_kind::barrier:
                if (!says_calls) complete(task.call, [&](MPI_Request* r) { MPI_Ibarrier(comm_, r); });
                return;
            case call_kind::split:
                process_->within("MPI_Comm_split", [&] { MPI_Comm_split(comm_, task.color, task.key, &task.made); });
                return;
            default:
                break;
        }
        for (std::size_t first = 0; first < bytes; first += largest_chunk)
            move(task, first, std::min(largest_chunk, bytes - first));
    }
    /// The bytes [first, first + count) of each piece.
    void move(const mpi_task& task, std::size_t first, std::size_t count) {
        const auto n = static_cast<int>(count);
        const auto bytes = static_cast<std::size_t>(task.call.bytes);
        MPI_Datatype part = MPI_BYTE, piece = MPI_BYTE;
        int pieces = n;
        if (count != bytes) {  // pieces at their distance
            pieces = 1;
            MPI_Type_contiguous(n, MPI_BYTE, &part);
            MPI_Type_create_resized(part, 0, static_cast<MPI_Aint>(bytes), &piece);
            MPI_Type_commit(&piece);
        }
        const std::byte* const send = task.send + first;
        std::byte* const receive = task.receive + first;
        complete(task.call, [&](MPI_Request* r) {
            switch (task.call.kind) {
                case call_kind::exchange:
                    MPI_Ialltoall(send, pieces, piece, receive, pieces, piece, comm_, r);
                    break;
                case call_kind::all_gather:
                    if (task.send == task.receive + static_cast<std::size_t>(rank) * bytes) {
                        MPI_Iallgather(MPI_IN_PLACE, 0, MPI_BYTE, receive, pieces, piece, comm_, r);
                    } else {
                        MPI_Iallgather(send, n, MPI_BYTE, receive, pieces, piece, comm_, r);
                    }
                    break;
                default:
                    MPI_Ibcast(receive, n, MPI_BYTE, task.call.root, comm_, r);
            }
        });
        if (count != bytes) {
            MPI_Type_free(&piece);
            MPI_Type_free(&part);
        }
    }
    /// Sends every rank what this one calls, and ends the run if one of them calls something else.
    void compare_calls(const collective_call& mine) {
        const auto n = members_.size();
        MPI_Request *const sends = requests_.data(), *const receives = sends + n;
        constexpr int bytes = sizeof(collective_call);
        for (std::size_t i = 0; i < n; ++i) {
            if (static_cast<int>(i) == rank) continue;
            MPI_Irecv(&theirs_[i], bytes, MPI_BYTE, static_cast<int>(i), 0, comm_, &receives[i]);
            MPI_Isend(&mine, bytes, MPI_BYTE, static_cast<int>(i), 0, comm_, &sends[i]);
        }
        theirs_[static_cast<std::size_t>(rank)] = mine;
        const auto all = static_cast<int>(2 * n);
        poll([&] { return is_complete(all, sends); }, [&] { return missing(mine, receives); });
        const std::string difference = describe_difference(theirs_, members_);
        if (!difference.empty()) process_->end_run(difference);
    }
    /// The line for ranks that have not called.
    std::string missing(const collective_call& call, MPI_Request* receives) const {
        if (!process_->silent().empty()) return unanswered(call);
        const std::vector<int> ranks = ranks_where(members_, [&](std::size_t i) {
            int has_come = 0;
            MPI_Request_get_status(receives[i], &has_come, MPI_STATUS_IGNORE);
            return has_come == 0;
        });
        return ranks.empty() ? unanswered(call) : describe_missing(ranks, call, process_->options.deadline.count());
    }
    std::string unanswered(const collective_call& call) const {
        return sentence("communicator: ", describe(call), " has not ended within ", process_->options.deadline.count(),
                        " ms; ", process_->silence());
    }
    template <class Start>
    void complete(const collective_call& call, const Start& start) {
        MPI_Request request = MPI_REQUEST_NULL;
        start(&request);
        poll([&] { return is_complete(1, &request); }, [&] { return unanswered(call); });
    }
    static bool is_complete(int count, MPI_Request* requests) {
        int done = 0;
        MPI_Testall(count, requests, &done, MPI_STATUSES_IGNORE);
        return done != 0;
    }
    /// Polls, less and less often, up to the deadline since the program began to wait for it. A process that has been
    /// stopped itself, as a suspended job is, gives the others the deadline once more.
    template <class Test, class Line>
    void poll(const Test& test, const Line& line) {
        const auto now = [] { return mpi_clock::now().time_since_epoch().count(); };
        const auto longest = std::chrono::duration_cast<mpi_clock::duration>(process_->options.deadline).count();
        auto begin = now(), last = begin;
        for (int polls = 0; !test(); ++polls) {
            if (polls < 100) {
                std::this_thread::yield();
                continue;
            }
            const auto since = waiting_since_.load(), here = now();
            if (here - last > longest / 4) begin = here;
            last = here;
            if (since != 0 && here - std::max(since, begin) > longest) process_->end_run(line());
            std::this_thread::sleep_for(std::chrono::microseconds(polls < 1000 ? 20 : 200));
        }
    }

    std::shared_ptr<mpi_process> process_;
    MPI_Comm comm_;
    std::vector<int> members_;  ///< by their number in the run
    std::vector<MPI_Request> requests_;
    std::vector<collective_call> theirs_;
    const int exceptions_ = std::uncaught_exceptions();
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<std::shared_ptr<mpi_task>> queue_;
    std::atomic<mpi_clock::rep> waiting_since_{0};  ///< 0: the program does not wait
    bool is_over_ = false;
    std::thread thread_;
};

class mpi_collective final : public collective {
  public:
    mpi_collective(std::shared_ptr<mpi_engine> engine, std::shared_ptr<mpi_task> task)
        : engine_(std::move(engine)), task_(std::move(task)) {}
    bool is_done() override { return engine_->is_done(*task_); }
    void wait() override { engine_->wait(*task_); }

  private:
    std::shared_ptr<mpi_engine> engine_;
    std::shared_ptr<mpi_task> task_;
};

}  // namespace detail

/// MPI from here to the end of the scope: begins it if the program has not, and then also ends it. Must outlive its
/// communicators. While an exception ends the scope, MPI is not ended: the program is to end with an exit code other than
/// zero, and all ranks end with it. A session is a variable of main, of a function or of the whole program, not an object on
/// the heap that something of the whole program owns: exit() comes before what destroys that.
class mpi_session {
  public:
    /// Throws argument_error for a deadline that is not 1 ms to 1 year, and state_error for an MPI that several threads may
    /// not call at once.
    mpi_session(int& argc, char**& argv, const communicator_options& options = {}) {
        detail::expect_deadline(options.deadline);
        int has_begun = 0, level = MPI_THREAD_SINGLE;
        MPI_Initialized(&has_begun);
        if (has_begun == 0) {
            const detail::mpi_timer timer(longest(options), [] { end("MPI_Init_thread has not returned"); });
            MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
            is_own_ = true;
        } else {
            MPI_Query_thread(&level);
        }
        if (level != MPI_THREAD_MULTIPLE) {
            fail<state_error>("mpi_session: MPI has the thread level ", level, "; expected MPI_THREAD_MULTIPLE, ",
                              MPI_THREAD_MULTIPLE, " (MPI_Init_thread)");
        }
        process_ = std::make_shared<detail::mpi_process>(options);
        exit_ = detail::mpi_exit_watch::begin(process_->rank);
        MPI_Comm comm = MPI_COMM_NULL;
        process_->within("MPI_Comm_dup", [&] { MPI_Comm_dup(MPI_COMM_WORLD, &comm); });
        last_ = std::make_unique<detail::mpi_engine>(process_, comm);
    }
    mpi_session(const mpi_session&) = delete;
    mpi_session& operator=(const mpi_session&) = delete;
    ~mpi_session() {
        const bool is_failing = std::uncaught_exceptions() != exceptions_;
        if (last_ != nullptr && !is_failing)
            last_->wait(*last_->begin({detail::call_kind::barrier, "end of the session", 0}, nullptr, nullptr));
        last_.reset();
        const auto deadline = longest(process_ == nullptr ? communicator_options{} : process_->options);
        process_.reset();
        (is_failing ? exit_->was_left : exit_->is_over) = true;
        if (!is_own_ || is_failing) return;
        const detail::mpi_timer timer(deadline, [] { end("MPI_Finalize has not returned"); });
        MPI_Finalize();
    }

    /// This process's number, from 0.
    int rank() const { return process_->rank; }
    /// The number of processes.
    int size() const { return process_->size; }

  private:
    friend class mpi_communicator;

    /// What MPI itself takes to begin and to end on a busy machine is no rank's fault.
    static std::chrono::milliseconds longest(const communicator_options& options) {
        return std::max(options.deadline, std::chrono::milliseconds(60'000));
    }
    [[noreturn]] static void end(const char* line) {
        std::fprintf(stderr, "mpi_session: %s within the deadline, at least a minute\n", line);
        std::_Exit(1);
    }

    bool is_own_ = false;
    const int exceptions_ = std::uncaught_exceptions();
    std::shared_ptr<detail::mpi_process> process_;
    std::shared_ptr<detail::mpi_exit_watch> exit_;
    std::unique_ptr<detail::mpi_engine> last_;
};

/// The processes of a run, or some of them. Buffers are in host memory. A run that cannot go on ends all its processes,
/// with one line and exit code 1, instead of throwing.
class mpi_communicator final : public communicator {
  public:
    /// All ranks of the session; all call it.
    explicit mpi_communicator(mpi_session& session) : mpi_communicator(session, MPI_COMM_WORLD) {}
    /// The ranks of an MPI communicator of the program's own, of which it makes a duplicate; all of these call it.
    mpi_communicator(mpi_session& session, MPI_Comm ranks) : mpi_communicator(duplicate(session, ranks)) {}

    const char* engine() const override { return "mpi"; }
    pending begin_exchange(const char* what, const void* send, void* receive, std::size_t bytes) override {
        return begin({detail::call_kind::exchange, what, bytes}, send, receive);
    }
    pending begin_all_gather(const char* what, const void* mine, void* all, std::size_t bytes) override {
        return begin({detail::call_kind::all_gather, what, bytes}, mine, all);
    }
    pending begin_broadcast(const char* what, void* data, std::size_t bytes, int root) override {
        detail::expect_root(root, size());
        return begin({detail::call_kind::broadcast, what, bytes, root}, data, data);
    }
    void barrier(const char* what) override { begin({detail::call_kind::barrier, what, 0}, nullptr, nullptr).wait(); }
    std::unique_ptr<communicator> split(int color, int key) override {
        detail::expect_color(color);
        const auto task = engine_->begin({detail::call_kind::split, "split", 0}, nullptr, nullptr, color, key);
        engine_->wait(*task);
        return std::unique_ptr<communicator>(
            new mpi_communicator(std::make_shared<detail::mpi_engine>(engine_->process(), task->made)));
    }
    /// The most bytes of a piece in one call of MPI, 64 MiB by default: the deadline holds for each.
    void set_largest_chunk(std::size_t bytes) { engine_->largest_chunk = bytes; }

  private:
    explicit mpi_communicator(std::shared_ptr<detail::mpi_engine> engine)
        : communicator(engine->rank, engine->size, engine->process()->options), engine_(std::move(engine)) {}

    static std::shared_ptr<detail::mpi_engine> duplicate(mpi_session& session, MPI_Comm ranks) {
        MPI_Comm comm = MPI_COMM_NULL;
        session.process_->within("MPI_Comm_dup", [&] { MPI_Comm_dup(ranks, &comm); });
        return std::make_shared<detail::mpi_engine>(session.process_, comm);
    }
    pending begin(const detail::collective_call& call, const void* send, void* receive) {
        return pending(std::make_unique<detail::mpi_collective>(engine_, engine_->begin(call, send, receive)));
    }

    std::shared_ptr<detail::mpi_engine> engine_;
};

}  // namespace HALFTONE_ABI
}  // namespace halftone

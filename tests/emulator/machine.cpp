// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>
#include <cstring>
#include <exception>
#include <string>
#include <vector>

#include <boost/context/fiber.hpp>
#include <boost/context/protected_fixedsize_stack.hpp>
#include <emulator/machine.hpp>

#include <halftone/error.hpp>
#include <halftone/exec/simt/architecture.hpp>

#if defined(__has_feature)
#if __has_feature(address_sanitizer) && !defined(__SANITIZE_ADDRESS__)
#define __SANITIZE_ADDRESS__
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace halftone::emulator {

namespace {

constexpr const char* names[] = {"load",    "store", "async_copy16", "async_wait",   "ldmatrix_x4", "ldmatrix_x4_trans",
                                 "shuffle", "mma",   "barrier",      "warp_barrier", "any"};
enum class effect { read, write, issue };  // issue: the start of an asynchronous write

using site_id = std::uint16_t;
struct site {
    operation what;
    location at;
    int ordinal;  // among the sites of the same operation
};
/// Eight bytes, since a byte of shared memory has four of them.
struct access {
    std::uint64_t interval : 22;       // the block's barriers passed, plus one; 0 is never
    std::uint64_t warp_interval : 18;  // the warp's own barriers passed
    std::uint64_t thread : 10;
    std::uint64_t at : 13;
    std::uint64_t in_flight : 1;  // the start of an asynchronous write, which has not been waited for
};
constexpr word most_barriers = (1u << 18) - 2;
/// Enough of a byte's past to judge the next touch of it: its last writer, and readers since that any writer would
/// clash with, of two warps at least where there were two.
struct byte_history {
    access write, reads[3];
};

/// The past of a block's shared memory. Bytes that were always touched together have one: of each chunk of 16 those at
/// the multiples of its grain stand for all.
class shared_history {
  public:
    void clear(std::size_t bytes) {
        chunks_.assign((bytes + 15) / 16, {});
        parts_.clear(), unused_.clear();
    }
    /// f(number of the first byte, past) for each group with a past of its own of the n bytes from `offset` on, a
    /// multiple of n.
    template <class Function>
    void each(word offset, std::size_t n, const Function& f) {
        if (n > 16 || (n & (n - 1)) != 0) {
            const word step = n % 16 == 0 ? 16 : 1;
            for (word i = 0; i < n; i += step) each(offset + i, step, f);
            return;
        }
        chunk& c = chunks_[offset / 16];
        if (n < c.grain) refine(c, static_cast<std::uint8_t>(n));
        if (c.grain == 16) return f(offset, c.whole);
        byte_history* const parts = parts_[c.parts].of;
        for (word i = offset; i < offset + n; i += c.grain) f(i, parts[i % 16]);
    }
    /// The chunk has one past from now on.
    void unite(word offset, const access& write) {
        chunk& c = chunks_[offset / 16];
        if (c.grain < 16) unused_.push_back(c.parts);
        c.grain = 16, c.whole = {write, {}};
    }

  private:
    struct chunk {
        byte_history whole{};
        std::uint32_t parts = 0;
        std::uint8_t grain = 16;
    };
    struct all_parts {
        byte_history of[16];
    };

    void refine(chunk& c, std::uint8_t finer) {
        if (c.grain == 16) {
            if (unused_.empty()) {
                unused_.push_back(static_cast<std::uint32_t>(parts_.size()));
                parts_.emplace_back();
            }
            c.parts = unused_.back();
            unused_.pop_back();
            parts_[c.parts].of[0] = c.whole;
        }
        byte_history* const parts = parts_[c.parts].of;
        for (int i = 0; i < 16; i += c.grain) {
            for (int j = i + finer; j < i + c.grain; j += finer) parts[j] = parts[i];
        }
        c.grain = finer;
    }

    std::vector<chunk> chunks_;
    std::vector<all_parts> parts_;
    std::vector<std::uint32_t> unused_;
};
struct async_copy {
    word target;
    const void* source;
    std::size_t valid;
    word group;
    site_id at;
    long earliest;
    bool landed;
};

struct stack_range {
    const void* bottom = nullptr;
    std::size_t bytes = 0;
};

#if defined(__SANITIZE_ADDRESS__)
/// fake: where the present stack's own record is kept, nullptr where it ends.
void begin_switch(void** fake, const stack_range& to) { __sanitizer_start_switch_fiber(fake, to.bottom, to.bytes); }
void end_switch(void* fake, stack_range* from) {
    __sanitizer_finish_switch_fiber(fake, from == nullptr ? nullptr : &from->bottom,
                                    from == nullptr ? nullptr : &from->bytes);
}
/// What frames that an exception left have marked must not meet the memory's next owner.
void forget_frames(const boost::context::stack_context& s) {
    __asan_unpoison_memory_region(static_cast<char*>(s.sp) - s.size, s.size);
}
#else
void begin_switch(void**, const stack_range&) {}
void end_switch(void*, stack_range*) {}
void forget_frames(const boost::context::stack_context&) {}
#endif

/// A stack that is given back to the pool: made once, used by many launches.
struct stack_pool {
    static constexpr std::size_t bytes = 128 * 1024;
    boost::context::protected_fixedsize_stack source{bytes};
    std::vector<boost::context::stack_context> unused;

    stack_pool() = default;
    stack_pool(const stack_pool&) = delete;
    ~stack_pool() {
        for (auto& s : unused) source.deallocate(s);
    }
    boost::context::stack_context take() {
        if (unused.empty()) return source.allocate();
        const auto s = unused.back();
        unused.pop_back();
        return s;
    }
};
struct pooled_stack {
    stack_pool* pool;
    boost::context::stack_context allocate() { return pool->take(); }
    void deallocate(boost::context::stack_context& s) {
        forget_frames(s);
        pool->unused.push_back(s);
    }
};

}  // namespace

struct block_state;
struct thread_state {
    enum { ready, waiting, returned } now = ready;
    boost::context::fiber fiber;
    block_state* block = nullptr;
    int index = 0;
    std::size_t rank = 0;  // of its warp, among all resident ones
    site_id at = 0;        // where it waits
    word groups = 0;       // committed so far
    std::vector<async_copy> copies;
    stack_range stack{};
};
struct warp_state {
    int arrived = 0;
    site_id at = 0;
    word interval = 0;
    void* operands[32] = {};
};
struct block_state {
    grid_shape index{};
    word interval = 1;
    int arrived = 0, first = 0, finished = 0;  // threads at the barrier, the first of them, threads that returned
    std::vector<std::byte> shared;
    shared_history history;
    std::vector<std::uint8_t> copying;  // whether a thread has copies that it has not waited for
    std::vector<std::unique_ptr<thread_state>> threads;
    std::vector<warp_state> warps;
};

struct machine_state {
    const options& option;
    const launch_shape& shape;
    stack_pool& stacks;
    const kernel_call& kernel;

    std::uint64_t random_state = option.seed;
    std::vector<site> sites{};
    std::vector<block_state> resident{};
    struct ready_thread {
        thread_state* thread;
        std::size_t rank;
    };
    std::vector<ready_thread> ready{};
    long in_flight = 0;  // copies that have not landed
    boost::context::fiber scheduler{};
    std::exception_ptr error{};
    bool over = false;  // no thread has another block to run
    statistics count{};
    stack_range scheduler_stack{};

    std::size_t random(std::uint64_t bound) {  // splitmix64
        std::uint64_t z = random_state += 0x9e3779b97f4a7c15u;
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
        z = (z ^ z >> 27) * 0x94d049bb133111ebu;
        return static_cast<std::size_t>(((z ^ z >> 31) >> 32) * bound >> 32);
    }

    // ---- sentences

    template <class... Parts>
    [[noreturn]] void fail(const block_state& b, const Parts&... parts) const {
        throw failure(detail::sentence("block (", b.index.x, ", ", b.index.y, ", ", b.index.z, "): ", parts...));
    }
    std::string name(site_id id) const {
        const std::string file = sites[id].at.file;
        return detail::sentence(names[static_cast<int>(sites[id].what)], " at ", file.substr(file.rfind('/') + 1), ":",
                                sites[id].at.line);
    }
    std::string name(access a) const { return detail::sentence("thread ", a.thread, " (", name(a.at), ")"); }
    std::string who(const thread_state& t, site_id id) const {
        return detail::sentence("thread ", t.index, " (", name(id), ")");
    }

    site_id intern(operation what, location at) {
        int ordinal = 0;
        for (std::size_t i = 0; i < sites.size(); ++i) {
            const site& s = sites[i];
            if (s.what != what) continue;
            if (s.at.line == at.line && (s.at.file == at.file || std::strcmp(s.at.file, at.file) == 0))
                return static_cast<site_id>(i);
            ++ordinal;
        }
        sites.push_back({what, at, ordinal});
        return static_cast<site_id>(sites.size() - 1);
    }
    void expect_own(const thread_state& t, const void* global, operation what, location at) {
        if (option.may_touch && !option.may_touch(global))
            fail(*t.block, who(t, intern(what, at)), " touches global memory that is not the device's");
    }
    bool harmed(damage kind, site_id id) {
        int& known = count.sites[static_cast<int>(kind)];
        known = std::max(known, sites[id].ordinal + 1);
        return option.harm == kind && sites[id].ordinal == option.harmed_site;
    }

    // ---- the race bookkeeping. Barriers are the only order between threads: two accesses are unordered where the
    // block has passed as many of its barriers at both, and the warp, if it is the same, as many of its own. What this
    // finds does not depend on the schedule, only on the path that each thread takes.

    static bool unordered(const access& a, const access& b) {
        if (a.interval != b.interval || a.thread == b.thread) return false;
        return a.thread / 32 != b.thread / 32 || a.warp_interval == b.warp_interval;
    }
    access by(const thread_state& t, site_id at) const {
        return {t.block->interval, t.block->warps[static_cast<std::size_t>(t.index / 32)].interval,
                static_cast<word>(t.index), at, 0};
    }
    void touch(block_state& b, access mine, word offset, std::size_t bytes, effect e) {
        if (offset + bytes > b.shared.size() || offset % bytes != 0) {
            fail(b, name(mine), " touches ", bytes, " shared bytes at ", offset, ": misaligned, or beyond the block's ",
                 b.shared.size());
        }
        if (option.check == checking::values_only) return;
        mine.in_flight = e == effect::issue;
        b.history.each(offset, bytes, [&](word i, byte_history& h) {
            const auto clash = [&](const auto&... how) {
                fail(b, name(mine), e == effect::read ? " reads" : " writes", " shared byte ", i, how...);
            };
            if (h.write.in_flight) clash(" while the copy of ", name(h.write), " is in flight: not yet waited for");
            if (e == effect::read && h.write.interval == 0) clash(", which nobody has written");
            if (unordered(h.write, mine)) clash(", written by ", name(h.write), ", with no barrier between");
            if (e == effect::read) return note_read(h, mine);
            for (const access& r : h.reads) {
                if (r.interval != 0 && unordered(r, mine)) clash(", read by ", name(r), ", with no barrier between");
            }
            h.write = mine;
            for (access& r : h.reads) r = {};
        });
        if (bytes == 16 && e != effect::read) b.history.unite(offset, mine);
    }
    /// Of one warp two readers suffice: any writer differs from one of them; and of two warps one each.
    static void note_read(byte_history& h, const access& mine) {
        access* place = nullptr;
        int of_my_warp = 0;
        for (access& r : h.reads) {
            const bool same_warp = r.thread / 32 == mine.thread / 32;
            const bool outdated = r.interval != mine.interval ||
                                  (same_warp && (r.warp_interval != mine.warp_interval || r.thread == mine.thread));
            if (outdated) {
                place = &r;
            } else {
                of_my_warp += same_warp ? 1 : 0;
            }
        }
        if (place != nullptr && of_my_warp < 2) *place = mine;
    }

    // ---- asynchronous copies. Issue draws a delay whose logarithm is uniform: some land at once, many only at their
    // wait.

    void issue(thread_state& t, word target, const void* source, std::size_t valid, site_id at) {
        const auto delay = static_cast<long>(random(std::uint64_t{1} << random(18)));
        t.copies.push_back({target, source, valid, t.groups, at, count.switches + delay, false});
        t.block->copying[static_cast<std::size_t>(t.index)] = true;
        ++in_flight;
    }
    void land(block_state& b, async_copy& c) {
        --in_flight;
        std::memset(&b.shared[c.target], 0, 16);
        if (c.valid != 0) std::memcpy(&b.shared[c.target], c.source, c.valid);
        c.landed = true;
    }
    void land_something() {  // after every switch, if the copy that the seed picks is due
        if (in_flight == 0) return;
        block_state& b = resident[random(resident.size())];
        const std::size_t picked = random(b.threads.size());
        if (!b.copying[picked]) return;
        auto& copies = b.threads[picked]->copies;
        async_copy& c = copies[random(copies.size())];
        if (!c.landed && c.earliest <= count.switches) land(b, c);
    }
    void wait(thread_state& t, word allowed) {
        std::erase_if(t.copies, [&](async_copy& c) {
            if (c.group + allowed >= t.groups) return false;
            if (!c.landed) land(*t.block, c);
            if (option.check == checking::values_only) return true;
            // From now on an ordinary write of this thread.
            t.block->history.each(c.target, 16, [&](word, byte_history& h) { h.write = by(t, c.at); });
            return true;
        });
        t.block->copying[static_cast<std::size_t>(t.index)] = !t.copies.empty();
    }

    // ---- fibers

    void make_ready(thread_state& t) {
        t.now = thread_state::ready;
        ready.push_back({&t, t.rank});
    }
    void pause() {
        ++count.switches;
        leave_to_scheduler();
    }
    // Each switch of stacks is told to the address sanitizer (the calls are empty without it), also where a parked
    // fiber is unwound by the exception that its end throws into it.
    void leave_to_scheduler() {
        const arrival here(*this, scheduler_stack);
        scheduler = std::move(scheduler).resume();
    }
    void resume(thread_state& t) {
        const departure there(t.stack);
        t.fiber = std::move(t.fiber).resume();
    }
    void end(thread_state& t) {
        const departure there(t.stack);
        t.fiber = {};
    }
    /// A fiber's way to the scheduler and back, from where it may come back by an exception.
    struct arrival {
        machine_state& machine;
        void* fake = nullptr;
        arrival(machine_state& m, const stack_range& to) : machine(m) { begin_switch(&fake, to); }
        arrival(const arrival&) = delete;
        ~arrival() { end_switch(fake, &machine.scheduler_stack); }
    };
    /// The scheduler's way to a fiber and back.
    struct departure {
        void* fake = nullptr;
        explicit departure(const stack_range& to) { begin_switch(&fake, to); }
        departure(const departure&) = delete;
        ~departure() { end_switch(fake, nullptr); }
    };
    /// The whole life of a fiber.
    struct life {
        machine_state& machine;
        explicit life(machine_state& m) : machine(m) { end_switch(nullptr, &m.scheduler_stack); }
        life(const life&) = delete;
        ~life() { begin_switch(nullptr, machine.scheduler_stack); }
    };

    void park(thread_state& t, site_id at) {
        t.now = thread_state::waiting;
        t.at = at;
        pause();
    }
    void maybe_preempt(thread_state& t) {
        if (random(16) != 0) return;
        make_ready(t);
        pause();
    }

    void barrier(thread_state& t, site_id id) {
        block_state& b = *t.block;
        if (harmed(damage::barrier_removed, id)) return;
        if (b.arrived == 0) {
            b.first = t.index;
        } else if (const site_id other = b.threads[static_cast<std::size_t>(b.first)]->at; other != id) {
            fail(b, "threads ", b.first, " and ", t.index, " part: ", name(other), " and ", name(id));
        }
        if (++b.arrived < shape.threads) return park(t, id);
        b.arrived = 0;
        if (++b.interval > most_barriers) fail(b, "more than ", most_barriers, " barriers");
        for (auto& u : b.threads) {
            if (u.get() != &t) make_ready(*u);
        }
        maybe_preempt(t);
    }
    /// A warp-wide word: every lane leaves its operands and parks; the last one to come does the work of all.
    template <class Operands, class Work>
    void together(thread_state& t, site_id id, Operands& mine, const Work& work) {
        const int warp = t.index / 32;
        warp_state& w = t.block->warps[static_cast<std::size_t>(warp)];
        if (w.arrived == 0) w.at = id;
        if (w.at != id)
            fail(*t.block, "warp ", warp, " parts: thread ", t.index, " is in ", name(id), ", others in ", name(w.at));
        w.operands[t.index % 32] = &mine;
        if (++w.arrived < 32) return park(t, id);
        w.arrived = 0;
        work([&](int lane) -> Operands& { return *static_cast<Operands*>(w.operands[lane]); });
        for (int i = 32 * warp; i < 32 * warp + 32; ++i) {
            if (i != t.index) make_ready(*t.block->threads[static_cast<std::size_t>(i)]);
        }
        maybe_preempt(t);
    }

    // ---- the grid

    void start(block_state& b, long number) {
        const grid_shape& g = shape.grid;
        b.index = {static_cast<int>(number % g.x), static_cast<int>(number / g.x % g.y),
                   static_cast<int>(number / g.x / g.y)};
        b.interval = 1;
        b.arrived = b.finished = 0;
        b.copying.assign(b.threads.size(), false);
        for (warp_state& w : b.warps) w.interval = 0;
        b.shared.assign(shape.shared_bytes, std::byte{0xff});  // a NaN in every floating-point format
        b.history.clear(option.check == checking::races_too ? shape.shared_bytes : 0);
        for (auto& t : b.threads) {
            t->groups = 0;
            make_ready(*t);
        }
    }
    [[noreturn]] void stuck() const {
        for (const block_state& b : resident) {
            for (const auto& t : b.threads) {
                for (const auto& u : b.threads) {
                    if (t->now != thread_state::waiting || (u->now != thread_state::returned && u->at == t->at))
                        continue;
                    fail(b, "thread ", t->index, " waits for ever in ", name(t->at), ": thread ", u->index,
                         u->now == thread_state::returned ? std::string(" has returned") : " waits in " + name(u->at));
                }
            }
        }
        throw failure("the grid is stuck");
    }
    /// The fiber outlives a block: it takes up the same thread of the next one. A guard page turns an overflow of its
    /// stack into a fault. Only std::exception is caught: Boost unwinds a parked fiber by an exception of its own.
    boost::context::fiber make_fiber(thread_state& t) {
        const boost::context::stack_context stack = stacks.take();
        t.stack = {static_cast<const char*>(stack.sp) - stack.size, stack.size};
        return {std::allocator_arg, boost::context::preallocated(stack.sp, stack.size, stack), pooled_stack{&stacks},
                [this, &t](boost::context::fiber&& from) {
                    const life mine(*this);
                    scheduler = std::move(from);
                    leave_to_scheduler();  // one that never began would be unwound without a word to the address sanitizer
                    while (!error && !over) {
                        try {
                            kernel.call(kernel.kernel, thread_access(*this, t));
                            if (!t.copies.empty())
                                fail(*t.block, "thread ", t.index,
                                     " returns with a copy in flight: ", name(t.copies[0].at));
                        } catch (const std::exception&) {
                            error = std::current_exception();
                        }
                        t.now = thread_state::returned;
                        ++t.block->finished;
                        leave_to_scheduler();
                    }
                    return std::move(scheduler);
                }};
    }
    statistics run() {
        const std::size_t warps = static_cast<std::size_t>(shape.threads / 32);
        const grid_shape& g = shape.grid;
        std::vector<long> order(static_cast<std::size_t>(g.x) * static_cast<std::size_t>(g.y) *
                                static_cast<std::size_t>(g.z));
        for (std::size_t i = 0; i < order.size(); ++i) {  // blocks start in any order
            const std::size_t j = random(i + 1);
            order[i] = order[j];
            order[j] = static_cast<long>(i);
        }
        if (order.empty()) return count;
        std::size_t next = 0;
        resident.resize(std::min(order.size(), static_cast<std::size_t>(option.resident_blocks)));
        for (block_state& b : resident) {
            b.warps.resize(warps);
            for (int i = 0; i < shape.threads; ++i) {
                thread_state& t = *b.threads.emplace_back(std::make_unique<thread_state>());
                t.block = &b;
                t.index = i;
                t.rank = static_cast<std::size_t>(&b - resident.data()) * warps + static_cast<std::size_t>(i / 32);
                t.fiber = make_fiber(t);
                resume(t);
            }
            start(b, order[next++]);
        }
        // The best of `draws` candidates runs: with one draw all warps keep abreast, with many one runs far ahead. Both
        // are needed: values alone show a slot overwritten too early only when a warp is ahead AND its copies land
        // early.
        const std::size_t draws = std::size_t{1} << 2 * random(3);
        std::vector<std::size_t> rank(resident.size() * warps);
        while (!ready.empty() && !error) {
            if (random(256) == 0) rank[random(rank.size())] = random(1u << 20);
            std::size_t best = random(ready.size());
            for (std::size_t d = 1; d < draws; ++d) {
                if (const std::size_t other = random(ready.size()); rank[ready[other].rank] > rank[ready[best].rank])
                    best = other;
            }
            thread_state& t = *ready[best].thread;
            ready[best] = ready.back();
            ready.pop_back();
            resume(t);
            land_something();
            if (t.now != thread_state::returned || t.block->finished < shape.threads) continue;
            ++count.blocks;
            if (next < order.size()) start(*t.block, order[next++]);
        }
        if (!error && count.blocks < static_cast<long>(order.size())) {
            try {
                stuck();
            } catch (const failure&) {
                error = std::current_exception();
            }
        }
        over = true;
        for (block_state& b : resident) {  // unwinds what is parked before anything is thrown from here
            for (auto& t : b.threads) error ? end(*t) : resume(*t);
        }
        resident.clear();
        if (error) std::rethrow_exception(error);
        return count;
    }
};

// ---- the words

int thread_access::index() const { return thread_->index; }
grid_shape thread_access::block() const { return thread_->block->index; }

void* thread_access::global(const void* data, extent count, std::size_t size, std::size_t alignment, extent i, int n,
                            operation what, location at) const {
    machine_->maybe_preempt(*thread_);
    if (n > 0 && (i < 0 || i + n > count || reinterpret_cast<std::uintptr_t>(data) % alignment != 0)) {
        machine_->fail(*thread_->block, machine_->who(*thread_, machine_->intern(what, at)), " touches ", n,
                       " from element ", i, " on of a global span of ", count, ", or it is misaligned");
    }
    std::byte* const place = static_cast<std::byte*>(const_cast<void*>(data)) + i * static_cast<extent>(size);
    if (n > 0) machine_->expect_own(*thread_, place, what, at);
    return place;
}

void* thread_access::shared(word offset, word count, std::size_t size, extent i, operation what, location at) const {
    machine_->maybe_preempt(*thread_);
    const site_id id = machine_->intern(what, at);
    block_state& b = *thread_->block;
    if (i < 0 || i >= static_cast<extent>(count)) {
        machine_->fail(b, machine_->who(*thread_, id), " touches element ", i, " of a shared span of ", count);
    }
    const word place = offset + static_cast<word>(i) * static_cast<word>(size);
    machine_->touch(b, machine_->by(*thread_, id), place, size, what == operation::load ? effect::read : effect::write);
    return &b.shared[place];
}

void thread_access::barrier(location at) const {
    machine_->barrier(*thread_, machine_->intern(operation::barrier, at));
}

void thread_access::warp_barrier(location at) const {
    const site_id id = machine_->intern(operation::warp_barrier, at);
    char nothing = 0;
    machine_->together(*thread_, id, nothing, [this](const auto&) {
        word& interval = thread_->block->warps[static_cast<std::size_t>(thread_->index / 32)].interval;
        if (++interval > most_barriers)
            machine_->fail(*thread_->block, "more than ", most_barriers, " barriers of a warp");
    });
}

void thread_access::shuffle(const void* value, void* result, std::size_t bytes, int mask, int lane, location at) const {
    const site_id id = machine_->intern(operation::shuffle, at);
    if (machine_->harmed(damage::shuffle_misdirected, id)) mask < 0 ? lane = (lane + 1) % 32 : mask /= 2;
    struct operands {
        const void* value;
        void* result;
        int mask, lane;
    } mine{value, result, mask, lane};
    machine_->together(*thread_, id, mine, [&](const auto& of) {
        for (int i = 0; i < 32; ++i) {
            const operands& o = of(i);
            if (o.mask != mask || mask < -1 || mask > 31 || o.lane < 0 || o.lane > 31) {
                machine_->fail(*thread_->block, machine_->who(*thread_, id), ": masks ", mask, " and ", o.mask,
                               " differ, or one leaves the warp");
            }
            std::memcpy(o.result, of(mask < 0 ? o.lane : i ^ mask).value, bytes);
        }
    });
}

bool thread_access::any(bool value, location at) const {
    struct operands {
        bool value, result;
    } mine{value, false};
    machine_->together(*thread_, machine_->intern(operation::any, at), mine, [&](const auto& of) {
        bool all = false;
        for (int i = 0; i < 32; ++i) all = all || of(i).value;
        for (int i = 0; i < 32; ++i) of(i).result = all;
    });
    return mine.result;
}

void thread_access::copy16(word to, word to_count, const void* from, extent from_count, std::size_t size, int valid,
                           location at) const {
    machine_->maybe_preempt(*thread_);
    const site_id id = machine_->intern(operation::async_copy16, at);
    block_state& b = *thread_->block;
    const auto past = reinterpret_cast<std::uintptr_t>(from) % 16;
    if (valid < 0 || valid > 16 / static_cast<int>(size) || past != 0 || to_count < 1) {
        machine_->fail(b, machine_->who(*thread_, id), " copies ", valid, " elements from an address ", past,
                       " past a multiple of 16");
    }
    if (valid > 0 && valid > from_count) {
        machine_->fail(b, machine_->who(*thread_, id), " copies ", valid, " elements of a global span of ", from_count);
    }
    if (valid > 0) machine_->expect_own(*thread_, from, operation::async_copy16, at);
    machine_->touch(b, machine_->by(*thread_, id), to, 16, effect::issue);
    machine_->issue(*thread_, to, from, static_cast<std::size_t>(valid) * size, id);
}
void thread_access::commit() const { ++thread_->groups; }
void thread_access::wait(int allowed, location at) const {
    const bool weakened = machine_->harmed(damage::wait_weakened, machine_->intern(operation::async_wait, at));
    machine_->wait(*thread_, static_cast<word>(allowed) + (weakened ? 1 : 0));
}

vec<word, 4> thread_access::ldmatrix(word row, operation what, location at) const {
    struct operands {
        word row;
        vec<word, 4> result;
    } mine{row, {}};
    const site_id id = machine_->intern(what, at);
    machine_->together(*thread_, id, mine, [&](const auto& of) {
        for (int m = 0; m < 4; ++m) {
            std::uint16_t matrix[8][8];
            int rows_in_bank_group[8] = {},
                most = 0;  // one pass over the 32 banks when the rows lie in eight bank groups
            for (int r = 0; r < 8; ++r) {
                const word from = of(8 * m + r).row;
                access reader = machine_->by(*thread_, id);
                reader.thread = static_cast<word>(thread_->index / 32 * 32 + 8 * m + r);
                machine_->touch(*thread_->block, reader, from, 16, effect::read);
                std::memcpy(matrix[r], &thread_->block->shared[from], 16);
                most = std::max(most, ++rows_in_bank_group[from / 16 % 8]);
            }
            machine_->count.bank_conflicts += most - 1;
            const auto pair = [](word low, word high) { return low | high << 16; };
            for (int l = 0; l < 32; ++l) {
                const int g = l / 4, t = 2 * (l % 4);
                of(l).result[m] = what == operation::ldmatrix_x4_trans ? pair(matrix[t][g], matrix[t + 1][g])
                                                                       : pair(matrix[g][t], matrix[g][t + 1]);
            }
        }
    });
    return mine.result;
}

namespace {

/// How sums of a `truncating` matrix unit come about: see `accumulation`.
struct sum_format {
    int products, kept, of_sum;
};
sum_format format_of(const matrix_unit& unit, int architecture) {
    const int whole = unit.depth, half = unit.depth / 2;
    if (architecture >= 90) return {whole, 25, 23};
    return unit.in_word == 4 ? sum_format{half, 13, 13} : sum_format{half, 24, 23};
}

/// Toward zero, to a float with so many fraction bits.
float truncated(double x, int fraction_bits) {
    const auto near = static_cast<float>(x);
    auto bits = detail::bit_cast<word>(near);
    if (std::fabs(static_cast<double>(near)) > std::fabs(x)) --bits;
    return detail::bit_cast<float>(bits & ~((word{1} << (23 - fraction_bits)) - 1));
}

/// A matrix's element, and the exponent that its unit gives it.
struct multiplied {
    float value = 0;
    int exponent = 0;
};
int exponent_of(float x, int least) {
    return std::max(static_cast<int>(detail::bit_cast<word>(x) >> 23 & 0xff) - 127, least);
}

/// sum + ab over n of k.
float add_truncated(float sum, const multiplied* a, const multiplied* b, int n, const sum_format& f) {
    constexpr int none = -10000;
    int most = sum == 0 ? none : exponent_of(sum, -126);
    double products[32], plain = static_cast<double>(sum);
    for (int k = 0; k < n; ++k) {
        const multiplied& x = a[k];
        const multiplied& y = b[k];
        products[k] = static_cast<double>(x.value) * static_cast<double>(y.value);
        plain += products[k];
        if (products[k] != 0) most = std::max(most, x.exponent + y.exponent);
    }
    if (!std::isfinite(plain)) return static_cast<float>(plain);
    if (most == none) return 0;
    const double unit = std::ldexp(1.0, f.kept - most);
    auto all = static_cast<std::int64_t>(static_cast<double>(sum) * unit);
    for (int k = 0; k < n; ++k) all += static_cast<std::int64_t>(products[k] * unit);
    return truncated(static_cast<double>(all) / unit, f.of_sum);
}

}  // namespace

// Lane layouts: PTX ISA, "Matrix Fragments for mma.m16n8k16", "mma.m16n8k8" and "mma.m16n8k32". With g = lane / 4 and
// t = lane % 4, a word holds `in_word` neighbours of A's row g or of B's column g. Products are exact in float.
void thread_access::mma(vec<float, 4>& d, const word* a, const word* b, const matrix_unit& unit, location at) const {
    struct operands {
        vec<float, 4>* d;
        const word *a, *b;
    } mine{&d, a, b};
    const site_id id = machine_->intern(operation::mma, at);
    const int architecture = machine_->option.architecture;
    if (unit.in_word == 4 && !simt::architecture_of(architecture).has_eight_bit_units()) {
        machine_->fail(*thread_->block, machine_->who(*thread_, id), ": an sm_", architecture,
                       " has no matrix units of eight bits");
    }
    const bool truncates = machine_->option.mma == accumulation::truncating;
    const sum_format format = format_of(unit, architecture);
    machine_->together(*thread_, id, mine, [&](const auto& of) {
        constexpr int most = 32;
        float full_a[16][most], full_b[most][8];
        if (unit.in_word == 4) ++machine_->count.eight_bit_mmas;
        const int in_word = unit.in_word, half = unit.depth / 2;
        for (int l = 0; l < 32; ++l) {
            const int g = l / 4, t = in_word * (l % 4);
            float e[4] = {};
            for (int r = 0; r < 4; ++r) {
                unit.a.unpack(of(l).a[r], e);
                for (int i = 0; i < in_word; ++i) full_a[g + 8 * (r % 2)][t + i + half * (r / 2)] = e[i];
            }
            for (int r = 0; r < 2; ++r) {
                unit.b.unpack(of(l).b[r], e);
                for (int i = 0; i < in_word; ++i) full_b[t + i + half * r][g] = e[i];
            }
        }
        const auto sum_at = [&](int row, int n) -> float& { return (*of(row % 8 * 4 + n / 2).d)[row / 8 * 2 + n % 2]; };
        if (!truncates) {
            using vector = float __attribute__((vector_size(16)));
            for (int row = 0; row < 16; ++row) {
                vector sum[2], right[2];
                for (int n = 0; n < 8; ++n) sum[n / 4][n % 4] = sum_at(row, n);
                for (int k = 0; k < unit.depth; ++k) {
                    const float x = full_a[row][k];
                    const vector left{x, x, x, x};
                    std::memcpy(right, full_b[k], sizeof right);
                    sum[0] += left * right[0], sum[1] += left * right[1];
                }
                for (int n = 0; n < 8; ++n) sum_at(row, n) = sum[n / 4][n % 4];
            }
            return;
        }
        multiplied x[16][most], y[8][most];
        for (int k = 0; k < unit.depth; ++k) {
            for (int row = 0; row < 16; ++row)
                x[row][k] = {full_a[row][k], exponent_of(full_a[row][k], unit.a.least_exponent)};
            for (int n = 0; n < 8; ++n) y[n][k] = {full_b[k][n], exponent_of(full_b[k][n], unit.b.least_exponent)};
        }
        for (int row = 0; row < 16; ++row) {
            for (int n = 0; n < 8; ++n) {
                float& sum = sum_at(row, n);
                for (int k = 0; k < unit.depth; k += format.products)
                    sum = add_truncated(sum, &x[row][k], &y[n][k], format.products, format);
            }
        }
    });
}

// ---- the machine

struct machine::stacks {
    stack_pool pool;
};
machine::machine() : stacks_(std::make_unique<stacks>()) {}
machine::~machine() = default;

statistics machine::run(const kernel_call& kernel, const options& option) {
    machine_state state{option, kernel.shape, stacks_->pool, kernel};
    return state.run();
}

}  // namespace halftone::emulator

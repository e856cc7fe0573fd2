// SPDX-License-Identifier: MIT
/// \file
/// The internal state of the emulated GPU: the access history of shared memory, fibers, blocks and the grid. Only the sources of
/// the emulator include it.
#pragma once

#include <algorithm>
#include <cstring>
#include <exception>
#include <string>
#include <vector>

#include <boost/context/fiber.hpp>
#include <emulator/asynchronous.hpp>
#include <emulator/machine.hpp>
#include <emulator/shared_history.hpp>
#include <emulator/stacks.hpp>

#include <halftone/error.hpp>

namespace halftone::emulator {

inline constexpr const char* names[] = {"load",
                                        "store",
                                        "async_copy16",
                                        "async_wait",
                                        "ldmatrix_x4",
                                        "ldmatrix_x4_trans",
                                        "shuffle",
                                        "mma",
                                        "barrier",
                                        "warp_barrier",
                                        "any",
                                        "mbarrier_init",
                                        "mbarrier_init_fence",
                                        "mbarrier_arrive",
                                        "mbarrier_expect",
                                        "mbarrier_wait",
                                        "bulk_copy",
                                        "wgmma",
                                        "wgmma_fence",
                                        "wgmma_commit",
                                        "wgmma_wait",
                                        "fewer_registers",
                                        "more_registers",
                                        "stmatrix_x4",
                                        "bulk_store",
                                        "bulk_wait_read",
                                        "proxy_fence"};
/// The effect of an operation on memory.
constexpr damage harm_to(operation what) {
    switch (what) {
        case operation::barrier:
        case operation::mbarrier_wait:
            return damage::barrier_removed;
        case operation::async_wait:
        case operation::wgmma_wait:
        case operation::bulk_wait_read:
            return damage::wait_weakened;
        case operation::shuffle:
            return damage::shuffle_misdirected;
        default:
            return damage::none;
    }
}
enum class effect { read, write, issue };  // issue: the start of an asynchronous write

struct site {
    operation what;
    location at;
    int ordinal;  // among the sites where the same damage is possible
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

struct block_state;
struct thread_state {
    enum { ready, waiting, returned } now = ready;
    boost::context::fiber fiber;
    block_state* block = nullptr;
    int index = 0;
    std::size_t rank = 0;  // of its warp, among all resident warps
    site_id at = 0;        // where it waits
    word groups = 0;       // committed so far
    std::vector<async_copy> copies;
    vector_clock clock{};                     // order known from mbarriers, in addition to that of barriers
    const mbarrier_state* awaited = nullptr;  // the mbarrier that it waits for
    word store_groups = 0;                    // of bulk stores, closed so far
    std::vector<store_under_way> stores{};
    std::vector<word> unfenced{};  // chunks that it has written and that are not yet visible to bulk stores
    stack_range stack{};
};
struct warp_state {
    int arrived = 0;
    site_id at = 0;
    word interval = 0;
    word last_barrier = 0;  // the interval that it began
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
    asynchronous_state asynchronous;
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
    long in_flight = 0;       // copies that are not complete
    long bulk_in_flight = 0;  // bulk copies with rows that are not copied yet
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

    // ---- error messages

    template <class... Parts>
    [[noreturn]] void fail(const block_state& b, const Parts&... parts) const {
        throw failure(detail::sentence("block (", b.index.x, ", ", b.index.y, ", ", b.index.z, "): ", parts...));
    }
    std::string name(site_id id) const {
        const std::string file = sites[id].at.file;
        return detail::sentence(names[static_cast<int>(sites[id].what)], " at ", file.substr(file.rfind('/') + 1), ":",
                                sites[id].at.line);
    }
    std::string name(access a) const {
        if (a.thread >= first_copier) return detail::sentence("a copy (", name(a.at), ")");
        return detail::sentence("thread ", a.thread, " (", name(a.at), ")");
    }
    std::string who(const thread_state& t, site_id id) const {
        return detail::sentence("thread ", t.index, " (", name(id), ")");
    }

    site_id intern(operation what, location at) {
        for (std::size_t i = 0; i < sites.size(); ++i) {
            const site& s = sites[i];
            if (s.what != what) continue;
            if (s.at.line == at.line && (s.at.file == at.file || std::strcmp(s.at.file, at.file) == 0))
                return static_cast<site_id>(i);
        }
        const auto alike = [what](const site& s) { return harm_to(s.what) == harm_to(what); };
        sites.push_back({what, at, static_cast<int>(std::count_if(sites.begin(), sites.end(), alike))});
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

    // ---- race detection. Barriers order threads: two accesses are unordered if the block has passed the same number of barriers
    // at both and, for threads of the same warp, the warp has passed the same number of its barriers; unless an mbarrier orders
    // them. Accesses that are not by threads are ordered only by mbarriers. The result does not depend on the schedule, only on
    // the path that each thread takes.

    static bool unordered(const block_state& b, const access& past, const access& now) {
        if (past.thread >= first_unit) return !knows(b, now, past);
        if (past.interval != now.interval || past.thread == now.thread) return false;
        const std::size_t warp = now.thread / 32;
        if (past.thread / 32 == warp && past.warp_interval < b.warps[warp].last_barrier) return false;
        return !knows(b, now, past);
    }
    static bool knows(const block_state& b, const access& now, const access& past) {
        return b.threads[now.thread]->clock.knows(past.thread, past.warp_interval);
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
        if (!b.asynchronous.mbarriers.empty()) {
            touch_asynchronous(b, mine, offset, bytes, e);
            if (e == effect::write && mine.thread < first_unit) touch_bulk_stores(b, mine, offset, bytes);
        }
        b.history.each(offset, bytes, [&](word i, byte_history& h) {
            const auto clash = [&](const auto&... how) {
                fail(b, name(mine), e == effect::read ? " reads" : " writes", " shared byte ", i, how...);
            };
            if (h.write.in_flight) clash(" while the copy of ", name(h.write), " is in flight: not yet waited for");
            if (e == effect::read && h.write.interval == 0) clash(", which no thread has written");
            if (unordered(b, h.write, mine)) {
                if (h.write.thread < first_unit) clash(", written by ", name(h.write), ", with no barrier between");
                clash(", which ", name(h.write), " writes: its mbarrier has not been waited for");
            }
            if (e == effect::read) return note_read(b, h, mine);
            for (const access& r : h.reads) {
                if (r.interval != 0 && unordered(b, r, mine)) clash(", read by ", name(r), ", with no barrier between");
            }
            h.write = mine;
            for (access& r : h.reads) r = {};
        });
        if (bytes == 16 && e != effect::read) b.history.unite(offset, mine);
    }
    /// Two readers suffice: if they are of one warp, any writer differs from one of them; otherwise one of each of two warps.
    static void note_read(const block_state& b, byte_history& h, const access& mine) {
        access* place = nullptr;
        int of_my_warp = 0;
        for (access& r : h.reads) {
            const bool same_warp = r.thread / 32 == mine.thread / 32;
            if (!unordered(b, r, mine)) {
                place = &r;
            } else {
                of_my_warp += same_warp ? 1 : 0;
            }
        }
        if (place != nullptr && of_my_warp < 2) *place = mine;
    }

    // ---- asynchronous copies. Each copy gets a random delay whose logarithm is uniform: some complete at once, many only at
    // their wait.

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
            // From now on it counts as an ordinary write of this thread.
            t.block->history.each(c.target, 16, [&](word, byte_history& h) { h.write = by(t, c.at); });
            return true;
        });
        t.block->copying[static_cast<std::size_t>(t.index)] = !t.copies.empty();
    }

    // ---- asynchronous operations: asynchronous.cpp and warpgroup.cpp

    [[noreturn]] void refuse(const thread_state& t, site_id id, const std::string& why) const {
        fail(*t.block, who(t, id), why);
    }
    /// The mbarrier at this address, in a state in which the thread, or a copy that it issues, may use it.
    mbarrier_state& find_mbarrier(thread_state& t, simt::shared_span<simt::mbarrier> m, site_id id, bool by_copy) const;
    void touch_asynchronous(const block_state& b, const access& mine, word offset, std::size_t bytes, effect e) const;
    void touch_bulk_stores(block_state& b, const access& mine, word offset, std::size_t bytes) const;
    void finish_bulk_store(thread_state& t, const store_under_way& s, site_id waiting);
    void arrive(thread_state& t, mbarrier_state& m, site_id id);
    void end_phase_if_due(block_state& b, mbarrier_state& m);
    void release(thread_state& t, vector_clock& to);
    void share_clocks(block_state& b, std::size_t first, std::size_t n) const;
    void read_operand(block_state& b, int first_thread, const tile_operand& o, int outer, site_id id);
    void multiply(const block_state& b, int warp, const warpgroup_product& p) const;
    void expect_untouched(const block_state& b, int warp, const accumulator& sums, site_id id) const;
    /// Copies some rows of a bulk copy that the seed picks, if it is due; or of any bulk copy.
    void land_rows(bool of_any);
    void land_rows(block_state& b, std::size_t number);
    bool something_can_land() {
        if (bulk_in_flight == 0) return false;
        land_rows(true);
        return true;
    }
    void expect_nothing_under_way(const thread_state& t) const;
    /// Like `together`, for the 128 threads of a warpgroup.
    template <class Operands, class Work>
    void of_warpgroup(thread_state& t, site_id id, Operands& mine, const Work& work);

    // ---- fibers

    void make_ready(thread_state& t) {
        t.now = thread_state::ready;
        ready.push_back({&t, t.rank});
    }
    void pause() {
        ++count.switches;
        leave_to_scheduler();
    }
    // Each switch of stacks is reported to the address sanitizer (the calls are empty without it), also when a parked fiber is
    // unwound by the exception that ends it.
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
    /// Switches from a fiber to the scheduler and back; it may return by an exception.
    struct arrival {
        machine_state& machine;
        void* fake = nullptr;
        arrival(machine_state& m, const stack_range& to) : machine(m) { begin_switch(&fake, to); }
        arrival(const arrival&) = delete;
        ~arrival() { end_switch(fake, &machine.scheduler_stack); }
    };
    /// Switches from the scheduler to a fiber and back.
    struct departure {
        void* fake = nullptr;
        explicit departure(const stack_range& to) { begin_switch(&fake, to); }
        departure(const departure&) = delete;
        ~departure() { end_switch(fake, nullptr); }
    };
    /// The function of a fiber.
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
        share_clocks(b, 0, b.threads.size());
        for (auto& u : b.threads) {
            if (u.get() != &t) make_ready(*u);
        }
        maybe_preempt(t);
    }
    /// A warp-wide operation: every lane stores its operands and parks; the last lane to arrive does the work of all.
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

    /// The registers of a thread at the beginning, as a compiler would assign them to a kernel that moves them later.
    int launch_registers() const { return std::min(65536 / shape.threads / 8 * 8, 168); }
    void start(block_state& b, long number) {
        const grid_shape& g = shape.grid;
        b.index = {static_cast<int>(number % g.x), static_cast<int>(number / g.x % g.y),
                   static_cast<int>(number / g.x / g.y)};
        b.interval = 1;
        b.arrived = b.finished = 0;
        b.copying.assign(b.threads.size(), false);
        for (warp_state& w : b.warps) w.interval = w.last_barrier = 0;
        b.asynchronous.begin(shape.threads, launch_registers());
        b.shared.assign(shape.shared_bytes, std::byte{0xff});  // a NaN in every floating-point format
        b.history.clear(option.check == checking::races_too ? shape.shared_bytes : 0);
        for (auto& t : b.threads) {
            t->groups = t->store_groups = 0;
            t->stores.clear(), t->unfenced.clear();
            t->clock.clear();
            make_ready(*t);
        }
    }
    [[noreturn]] void stuck() const {
        for (const block_state& b : resident) {
            for (const auto& t : b.threads) {
                if (const mbarrier_state* m = t->now == thread_state::waiting ? t->awaited : nullptr; m != nullptr) {
                    fail(b, "thread ", t->index, " waits for ever in ", name(t->at), ": phase ", m->phase,
                         " of the mbarrier at ", m->at, " lacks ", m->pending, " arrivals and ", m->bytes, " bytes");
                }
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
    /// The fiber outlives a block: it then runs the same thread of the next block. A guard page turns an overflow of its
    /// stack into a fault. Only std::exception is caught: Boost unwinds a parked fiber by an exception of its own.
    boost::context::fiber make_fiber(thread_state& t) {
        const boost::context::stack_context stack = stacks.take();
        t.stack = {static_cast<const char*>(stack.sp) - stack.size, stack.size};
        return {
            std::allocator_arg, boost::context::preallocated(stack.sp, stack.size, stack), pooled_stack{&stacks},
            [this, &t](boost::context::fiber&& from) {
                const life mine(*this);
                scheduler = std::move(from);
                leave_to_scheduler();  // a fiber that never began would be unwound without a report to the address sanitizer
                while (!error && !over) {
                    try {
                        kernel.call(kernel.kernel, thread_access(*this, t));
                        if (!t.copies.empty())
                            fail(*t.block, "thread ", t.index,
                                 " returns with a copy in flight: ", name(t.copies[0].at));
                        expect_nothing_under_way(t);
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
        // The best of `draws` candidates runs: with one draw all warps advance together, with many one runs far ahead. Both are
        // needed: values show a slot that is overwritten too early only if a warp is ahead AND its copies complete early.
        const std::size_t draws = std::size_t{1} << 2 * random(3);
        std::vector<std::size_t> rank(resident.size() * warps);
        while (!error && (!ready.empty() || something_can_land())) {
            if (ready.empty()) continue;
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
            if (bulk_in_flight != 0) land_rows(false);
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
        for (block_state& b : resident) {  // unwinds parked fibers before an exception is thrown here
            for (auto& t : b.threads) error ? end(*t) : resume(*t);
        }
        resident.clear();
        if (error) std::rethrow_exception(error);
        return count;
    }
};

}  // namespace halftone::emulator

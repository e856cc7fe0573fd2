// SPDX-License-Identifier: MIT
// mbarriers, the order that they establish, and bulk copies.
#include <emulator/asynchronous.hpp>
#include <emulator/machine_state.hpp>

namespace halftone::emulator {

namespace {

constexpr long most_bytes = (1 << 20) - 1;  // the largest number of missing or excess bytes in a phase
constexpr int line_bytes = 128;             // of a box of a bulk copy

}  // namespace

// ---- order

/// Releases the accesses of the thread, and those of its warp before a barrier of the warp, to a later acquire.
void machine_state::release(thread_state& t, vector_clock& to) {
    warp_state& w = t.block->warps[static_cast<std::size_t>(t.index / 32)];
    if (w.interval >= most_barriers) fail(*t.block, "more than ", most_barriers, " barriers of a warp");
    ++w.interval;
    if (option.check == checking::values_only) return;
    to.join(t.clock);
    for (int lane = 0; lane < 32; ++lane) to.learn(static_cast<std::size_t>(t.index / 32 * 32 + lane), w.last_barrier);
    to.learn(static_cast<std::size_t>(t.index), w.interval);
}

/// A barrier of n threads.
void machine_state::share_clocks(block_state& b, std::size_t first, std::size_t n) const {
    if (b.asynchronous.mbarriers.empty() || option.check == checking::values_only) return;
    const vector_clock& one = b.threads[first]->clock;
    if (std::all_of(b.threads.begin() + static_cast<std::ptrdiff_t>(first),
                    b.threads.begin() + static_cast<std::ptrdiff_t>(first + n),
                    [&](const auto& t) { return t->clock == one; }))
        return;
    vector_clock all;
    for (std::size_t i = first; i < first + n; ++i) all.join(b.threads[i]->clock);
    for (std::size_t i = first; i < first + n; ++i) b.threads[i]->clock = all;
}

/// Memory that ordinary accesses must not touch: mbarriers, and operands of products.
void machine_state::touch_asynchronous(const block_state& b, const access& mine, word offset, std::size_t bytes,
                                       effect e) const {
    const auto clash = [&](const auto&... how) {
        fail(b, name(mine), e == effect::read ? " reads" : " writes", " shared bytes at ", offset, how...);
    };
    for (const mbarrier_state& m : b.asynchronous.mbarriers) {
        if (offset < m.at + sizeof(simt::mbarrier) && offset + bytes > m.at) clash(", where there is an mbarrier");
    }
    const std::vector<operand_read>& reads = b.asynchronous.reads;
    if (e == effect::read || reads.empty()) return;
    const vector_clock& clock = b.threads[mine.thread]->clock;
    const std::size_t warps = b.warps.size();
    for (std::size_t chunk = offset / 16; chunk <= (offset + bytes - 1) / 16; ++chunk) {
        for (std::size_t w = 0; w < warps; ++w) {
            const operand_read& r = reads[chunk * warps + w];
            if (r.group == 0 || clock.knows(unit_of(static_cast<int>(w)), r.group - 1)) continue;
            if (b.asynchronous.products[w].done < r.group)
                clash(" while warp ", w, " (", name(r.at), ") reads them: not yet waited for");
            clash(", read by warp ", w, " (", name(r.at), "), with no barrier between");
        }
    }
}

// ---- mbarriers

mbarrier_state& machine_state::find_mbarrier(thread_state& t, simt::shared_span<simt::mbarrier> span, site_id id,
                                             bool by_copy) const {
    if (span.count < 1) refuse(t, id, " names an mbarrier of an empty span");
    for (mbarrier_state& m : t.block->asynchronous.mbarriers) {
        if (m.at != span.offset) continue;
        const bool is_mine = m.initialiser == t.index;
        if (is_mine && !by_copy) return m;
        if (m.fenced != 0 && (is_mine || t.block->interval >= m.fenced + 1)) return m;
        refuse(t, id,
               detail::sentence(" uses an mbarrier that thread ", m.initialiser, " (", name(m.init),
                                ") initialised, with no fence and barrier between"));
    }
    refuse(t, id, detail::sentence(" uses an mbarrier at ", span.offset, ", which no thread has initialised"));
}

void machine_state::end_phase_if_due(block_state& b, mbarrier_state& m) {
    const auto wrong = [&](const char* how) {
        fail(b, "phase ", m.phase, " of the mbarrier at ", m.at, " (", name(m.init), ") ", how);
    };
    if (m.bytes > most_bytes || m.bytes < -most_bytes) wrong("counts more bytes than it can");
    if (m.pending == 0 && m.bytes < 0) wrong("gets more bytes than it expects");
    if (m.pending != 0 || m.bytes != 0) return;
    if (m.copies != 0) wrong("ends before a copy is complete: it gets more bytes than it expects");
    if (++m.phase > most_barriers) wrong("is too late: more phases than the machine counts");
    m.pending = m.count;
    if (option.check == checking::races_too) {
        m.over.join(m.arriving);
        m.over.learn(first_copier + m.number, m.phase);
    }
    for (thread_state* t : m.waiting) make_ready(*t);
    m.waiting.clear();
}

void machine_state::arrive(thread_state& t, mbarrier_state& m, site_id id) {
    if (m.pending == 0) {
        refuse(t, id,
               detail::sentence(" arrives at an mbarrier at ", m.at, " of which all ", m.count, " arrivals were made"));
    }
    release(t, m.arriving);
    --m.pending;
    end_phase_if_due(*t.block, m);
}

void thread_access::mbarrier_init(simt::shared_span<simt::mbarrier> span, int arrivals, location at) const {
    machine_->maybe_preempt(*thread_);
    const site_id id = machine_->intern(operation::mbarrier_init, at);
    block_state& b = *thread_->block;
    auto& all = b.asynchronous.mbarriers;
    if (span.count < 1 || arrivals < 1 || arrivals > most_bytes || all.size() == most_mbarriers) {
        machine_->refuse(*thread_, id,
                         detail::sentence(" is for ", arrivals, " arrivals, of an empty span or too many"));
    }
    machine_->touch(b, machine_->by(*thread_, id), span.offset, sizeof(simt::mbarrier), effect::write);
    all.reserve(most_mbarriers);
    all.push_back({span.offset, static_cast<word>(all.size()), arrivals, thread_->index, id});
}
void thread_access::mbarrier_init_fence(location at) const {
    machine_->maybe_preempt(*thread_);
    machine_->intern(operation::mbarrier_init_fence, at);
    for (mbarrier_state& m : thread_->block->asynchronous.mbarriers) {
        if (m.initialiser == thread_->index && m.fenced == 0) m.fenced = thread_->block->interval;
    }
}
void thread_access::mbarrier_arrive(simt::shared_span<simt::mbarrier> span, location at) const {
    machine_->maybe_preempt(*thread_);
    const site_id id = machine_->intern(operation::mbarrier_arrive, at);
    machine_->arrive(*thread_, machine_->find_mbarrier(*thread_, span, id, false), id);
}
void thread_access::mbarrier_expect(simt::shared_span<simt::mbarrier> span, word bytes, location at) const {
    machine_->maybe_preempt(*thread_);
    const site_id id = machine_->intern(operation::mbarrier_expect, at);
    mbarrier_state& m = machine_->find_mbarrier(*thread_, span, id, false);
    if (bytes > most_bytes) machine_->refuse(*thread_, id, detail::sentence(" expects ", bytes, " bytes"));
    m.bytes += bytes;
    machine_->arrive(*thread_, m, id);
}
void thread_access::mbarrier_wait(simt::shared_span<simt::mbarrier> span, word parity, location at) const {
    machine_->maybe_preempt(*thread_);
    const site_id id = machine_->intern(operation::mbarrier_wait, at);
    mbarrier_state& m = machine_->find_mbarrier(*thread_, span, id, false);
    if (parity > 1) machine_->refuse(*thread_, id, detail::sentence(" waits for a parity of ", parity));
    if (machine_->harmed(damage::barrier_removed, id)) return;
    while (m.phase % 2 == parity) {
        m.waiting.push_back(thread_);
        thread_->awaited = &m;
        machine_->park(*thread_, id);
    }
    thread_->awaited = nullptr;
    m.waited = m.phase;
    if (machine_->option.check == checking::races_too) thread_->clock.join(m.over);
}

// ---- bulk copies

void thread_access::bulk_copy(word to, const tile_map& map, const box_coordinates& from, int axes,
                              simt::shared_span<simt::mbarrier> done, location at) const {
    machine_->maybe_preempt(*thread_);
    const site_id id = machine_->intern(operation::bulk_copy, at);
    block_state& b = *thread_->block;
    const auto refuse = [&](const auto&... why) { machine_->refuse(*thread_, id, detail::sentence(why...)); };
    if (machine_->option.architecture < 90) refuse(": an sm_", machine_->option.architecture, " has no bulk copies");
    mbarrier_state& m = machine_->find_mbarrier(*thread_, done, id, true);
    if (!map.can_be() || map.element_bytes != 2) {
        refuse(" copies from ", map.outer, " lines of ", map.inner, ", ", map.leading, " apart, in boxes of ",
               map.box_outer, ": empty, too large or misaligned");
    }
    if (axes != map.axes) refuse(" copies by ", axes, " axes from a map of ", map.axes);
    const std::size_t bytes = static_cast<std::size_t>(line_bytes * map.box_outer);
    if (from.x * map.element_bytes % 16 != 0) refuse(" copies from column ", from.x, ", which is no multiple of 16 bytes");
    if (to % 1024 != 0) refuse(" copies to ", to, ", which is no multiple of 1024");
    if (to + bytes > b.shared.size())
        refuse(" copies ", bytes, " bytes to ", to, ", beyond the block's ", b.shared.size());
    if (machine_->option.may_touch) {
        const extent first = std::max<extent>(from.x, 0), last = std::min<extent>(extent{from.x} + 64, map.inner) - 1;
        for (int r = 0; r < map.box_outer && first <= last; ++r) {
            if (map.line(from, r) < 0) continue;
            const auto* line = static_cast<const std::uint16_t*>(map.data) + map.line(from, r);
            machine_->expect_own(*thread_, line + first, operation::bulk_copy, at);
            machine_->expect_own(*thread_, line + last, operation::bulk_copy, at);
        }
    }
    const access issue = machine_->by(*thread_, id);
    access write = issue;
    write.warp_interval = m.phase & ((1u << 18) - 1);
    write.thread = (first_copier + m.number) & 2047;
    for (word i = to; i < to + bytes; i += 16) {
        if (machine_->option.check == checking::races_too) {
            machine_->touch_asynchronous(b, issue, i, 16, effect::write);
            b.history.each(i, 16, [&](word, const byte_history& h) {
                if (h.write.interval == 0 || h.write.thread >= first_unit ||
                    machine_state::unordered(b, h.write, issue))
                    return;
                refuse(" writes over what ", machine_->name(h.write), " wrote: no fence orders copies after stores");
            });
        }
        machine_->touch(b, issue, i, 16, effect::write);
        if (machine_->option.check == checking::races_too) b.history.unite(i, write);
        if (!b.asynchronous.unfenced.empty()) b.asynchronous.unfenced[i / 16] = 0;  // a copy's writes need no proxy_fence
    }
    m.copied = m.phase + 1;
    m.copy = id;

    std::vector<std::uint16_t> rows(static_cast<std::size_t>(map.box_outer));
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const std::size_t j = machine_->random(i + 1);
        rows[i] = rows[j];
        rows[j] = static_cast<std::uint16_t>(i);
    }
    const auto delay = static_cast<long>(machine_->random(std::uint64_t{1} << machine_->random(18)));
    b.asynchronous.copies.push_back({map, to, from, &m, machine_->count.switches + delay, std::move(rows)});
    ++m.copies;
    ++machine_->bulk_in_flight;
}

void machine_state::land_rows(bool of_any) {
    try {
        if (of_any) {
            for (block_state& b : resident) {
                if (auto& copies = b.asynchronous.copies; !copies.empty()) return land_rows(b, random(copies.size()));
            }
        }
        block_state& b = resident[random(resident.size())];
        auto& copies = b.asynchronous.copies;
        if (copies.empty()) return;
        const std::size_t picked = random(copies.size());
        if (copies[picked].earliest <= count.switches) land_rows(b, picked);
    } catch (const failure&) {
        error = std::current_exception();
    }
}
void machine_state::land_rows(block_state& b, std::size_t number) {
    bulk_copy& c = b.asynchronous.copies[number];
    const std::size_t landing = 1 + random(c.rows.size());
    for (std::size_t i = 0; i < landing; ++i) {
        const int row = c.rows.back();
        c.rows.pop_back();
        std::uint16_t elements[64] = {};
        if (const extent line = c.map.line(c.from, row); line >= 0) {
            const int x = c.from.x;
            const extent first = std::max<extent>(x, 0), end = std::min<extent>(extent{x} + 64, c.map.inner);
            const auto* from = static_cast<const std::uint16_t*>(c.map.data) + line;
            if (first < end)
                std::memcpy(elements + (first - x), from + first, static_cast<std::size_t>(2 * (end - first)));
        }
        for (int chunk = 0; chunk < 8; ++chunk) {
            const word place =
                simt::swizzled(c.to + static_cast<word>(line_bytes * row + 16 * chunk), simt::swizzle::b128);
            std::memcpy(&b.shared[place], elements + 8 * chunk, 16);
        }
    }
    mbarrier_state& m = *c.done;
    m.bytes -= line_bytes * static_cast<long>(landing);
    if (c.rows.empty()) {
        --m.copies;
        --bulk_in_flight;
        b.asynchronous.copies.erase(b.asynchronous.copies.begin() + static_cast<std::ptrdiff_t>(number));
    }
    end_phase_if_due(b, m);
}

void machine_state::expect_nothing_under_way(const thread_state& t) const {
    const block_state& b = *t.block;
    const auto& products = b.asynchronous.products[static_cast<std::size_t>(t.index / 32)].under_way;
    if (!products.empty()) fail(b, "thread ", t.index, " returns with a product under way: ", name(products.back().at));
    if (!t.stores.empty()) fail(b, "thread ", t.index, " returns with a bulk store to be read: ", name(t.stores[0].at));
    if (b.finished + 1 < shape.threads) return;
    for (const mbarrier_state& m : b.asynchronous.mbarriers) {
        if (m.waited < m.copied) fail(b, "ends with a copy that no thread has waited for: ", name(m.copy));
    }
}

}  // namespace halftone::emulator

// SPDX-License-Identifier: MIT
// Bulk copies from shared memory, and the writes that fill it.
#include <emulator/asynchronous.hpp>
#include <emulator/machine_state.hpp>

namespace halftone::emulator {

namespace {

constexpr word line_bytes = 128;

}  // namespace

/// For an ordinary write: no copy in flight may read the memory, and a fence must follow.
void machine_state::touch_bulk_stores(block_state& b, const access& mine, word offset, std::size_t bytes) const {
    thread_state& t = *b.threads[mine.thread];
    const int warp = t.index / 32;
    for (int i = 32 * warp; i < 32 * warp + 32; ++i) {  // only those of the warp; access by another is a race anyway
        for (const store_under_way& s : b.threads[static_cast<std::size_t>(i)]->stores) {
            const word end = s.from + line_bytes * static_cast<word>(s.map.box_outer);
            if (offset >= end || offset + bytes <= s.from) continue;
            fail(b, name(mine), " writes shared bytes at ", offset, " while ", name(s.at), " of thread ", i,
                 " reads them: not yet waited for");
        }
    }
    auto& unfenced = b.asynchronous.unfenced;
    if (unfenced.empty()) unfenced.resize((b.shared.size() + 15) / 16);
    for (std::size_t chunk = offset / 16; chunk <= (offset + bytes - 1) / 16; ++chunk) {
        if (unfenced[chunk] == t.index + 1) continue;
        unfenced[chunk] = static_cast<std::uint16_t>(t.index + 1);
        t.unfenced.push_back(static_cast<word>(chunk));
    }
}

void thread_access::proxy_fence(location at) const {
    machine_->maybe_preempt(*thread_);
    machine_->intern(operation::proxy_fence, at);
    auto& unfenced = thread_->block->asynchronous.unfenced;
    for (const word chunk : thread_->unfenced) {
        if (unfenced[chunk] == thread_->index + 1) unfenced[chunk] = 0;
    }
    thread_->unfenced.clear();
}

void thread_access::stmatrix(word row, const vec<word, 4>& values, location at) const {
    struct operands {
        word row;
        const vec<word, 4>* values;
    } mine{row, &values};
    const site_id id = machine_->intern(operation::stmatrix_x4, at);
    machine_->together(*thread_, id, mine, [&](const auto& of) {
        for (int m = 0; m < 4; ++m) {
            int rows_in_bank_group[8] = {}, most = 0;
            for (int r = 0; r < 8; ++r) {
                const word to = of(8 * m + r).row;
                access writer = machine_->by(*thread_, id);
                writer.thread = static_cast<word>(thread_->index / 32 * 32 + 8 * m + r) & 2047;
                machine_->touch(*thread_->block, writer, to, 16, effect::write);
                for (int pair = 0; pair < 4; ++pair) {
                    const word both = (*of(4 * r + pair).values)[m];
                    std::memcpy(&thread_->block->shared[to + 4 * static_cast<word>(pair)], &both, 4);
                }
                most = std::max(most, ++rows_in_bank_group[to / 16 % 8]);
            }
            machine_->count.bank_conflicts += most - 1;
        }
    });
}

void thread_access::bulk_store(const tile_map& map, const box_coordinates& to, int axes, word from, location at) const {
    machine_->maybe_preempt(*thread_);
    const site_id id = machine_->intern(operation::bulk_store, at);
    block_state& b = *thread_->block;
    const auto refuse = [&](const auto&... why) { machine_->refuse(*thread_, id, detail::sentence(why...)); };
    if (machine_->option.architecture < 90) refuse(": an sm_", machine_->option.architecture, " has no bulk copies");
    if (!map.can_be()) refuse(" copies to a matrix that no map can be of");
    if (axes != map.axes) refuse(" copies by ", axes, " axes to a map of ", map.axes);
    const word end = from + line_bytes * static_cast<word>(map.box_outer);
    if (to.x * map.element_bytes % 16 != 0) refuse(" copies to column ", to.x, ", which is no multiple of 16 bytes");
    if (from % 1024 != 0) refuse(" copies from ", from, ", which is no multiple of 1024");
    if (end > b.shared.size()) refuse(" copies up to ", end, ", beyond the block's ", b.shared.size());
    for (word i = from; i < end; i += 16) {
        machine_->touch(b, machine_->by(*thread_, id), i, 16, effect::read);
        if (machine_->option.check == checking::values_only || b.asynchronous.unfenced.empty()) continue;
        if (const int writer = b.asynchronous.unfenced[i / 16]; writer != 0)
            refuse(" copies shared bytes at ", i, " that thread ", writer - 1, " wrote, with no proxy_fence of its own since");
    }
    thread_->stores.push_back({map, to, from, thread_->store_groups, id});
}
void thread_access::bulk_commit() const { ++thread_->store_groups; }

void thread_access::bulk_wait_read(int allowed, location at) const {
    machine_->maybe_preempt(*thread_);
    const site_id id = machine_->intern(operation::bulk_wait_read, at);
    const word left = static_cast<word>(allowed) + (machine_->harmed(damage::wait_weakened, id) ? 1 : 0);
    std::erase_if(thread_->stores, [&](const store_under_way& s) {
        if (s.group + left >= thread_->store_groups) return false;
        machine_->finish_bulk_store(*thread_, s, id);
        return true;
    });
}

void machine_state::finish_bulk_store(thread_state& t, const store_under_way& s, site_id waiting) {
    block_state& b = *t.block;
    const int across = s.map.box_inner();
    const auto bytes = static_cast<std::size_t>(s.map.element_bytes);
    for (int line = 0; line < s.map.box_outer; ++line) {
        const extent first = s.map.line(s.to, line);
        for (int i = 0; i < across; ++i) {
            const extent column = extent{s.to.x} + i;
            // As the hardware does: whole chunks of 16 bytes, also where a line ends within one.
            const extent of_chunk = column - i % (16 / s.map.element_bytes);
            if (first < 0 || column < 0 || of_chunk >= s.map.inner) continue;
            auto* const to =
                static_cast<std::byte*>(const_cast<void*>(s.map.data)) + (first + column) * static_cast<extent>(bytes);
            expect_own(t, to, operation::bulk_store, sites[s.at].at);
            const word from = s.from + line_bytes * static_cast<word>(line) + static_cast<word>(i) * static_cast<word>(bytes);
            std::memcpy(to, &b.shared[simt::swizzled(from, simt::swizzle::b128)], bytes);
        }
    }
    // The memory is read now at the latest.
    const word end = s.from + line_bytes * static_cast<word>(s.map.box_outer);
    for (word i = s.from; i < end; i += 16) touch(b, by(t, waiting), i, 16, effect::read);
}

}  // namespace halftone::emulator

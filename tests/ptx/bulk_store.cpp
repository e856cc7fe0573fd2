// SPDX-License-Identifier: MIT
/// \file
/// Section 9.7.9.27 of the PTX ISA's manual: bulk copies of tensors from shared memory, which run when their thread
/// waits for them, and the fence that is required between ordinary writes and such copies.
#include <algorithm>

#include "ptx/by_type.hpp"
#include "ptx/decode.hpp"

namespace halftone::ptx {

int asynchronous::unfenced_writer(std::uint64_t at, std::uint64_t bytes) const {
    for (std::uint64_t word = at / 4; word < (at + bytes) / 4 && word < writers.size(); ++word) {
        const writer& w = writers[word];
        if (w.fences != 0 && threads[static_cast<std::size_t>(w.thread)].fences == w.fences) return w.thread;
    }
    return -1;
}

namespace {

constexpr std::uint64_t chunk = 16;

asynchronous::thread_state& own(warp& w, int lane) {
    return w.block().pending.threads[static_cast<std::size_t>(w.first_thread() + lane)];
}

/// The reads of the copy count as reads of its thread, so that races with other threads are detected.
void read(warp& w, const instruction& i, const asynchronous::bulk_store& s, int lane) {
    for (std::uint64_t at = s.from; at < s.from + s.map.box_bytes(); at += chunk)
        w.memory(i, space::shared, at, chunk, lane, access::reads);
}
void bring_back(warp& w, const asynchronous::bulk_store& s, int lane) {
    const std::byte* const shared = w.block().shared.data();
    const std::uint64_t bytes = s.map.element_bytes;
    for (std::uint64_t row = 0; row < s.map.box_outer; ++row) {
        for (std::uint64_t column = 0; column < s.map.box_inner(); ++column) {
            const tensor_coordinates to = in_box(s.coordinates, column, row);
            // As on the hardware, whole chunks of 16 bytes, also if a row ends within a chunk.
            tensor_coordinates of_chunk = to;
            of_chunk[0] -= static_cast<std::int64_t>(column % (chunk / bytes));
            if (!s.map.has(of_chunk)) continue;
            std::memcpy(w.memory(*s.by, space::global, s.map.address_of(to), bytes, lane, access::writes),
                        shared + swizzled(s.from + tensor_map::row_bytes * row + bytes * column), bytes);
        }
    }
}

/// from: the map, the position in its tensor, and the address in shared memory.
template <std::size_t Axes>
constexpr handler bulk_store = [](warp& w, const instruction& i, lane_mask m) {
    auto& pending = w.block().pending;
    each_lane(m, [&](int l) {
        asynchronous::bulk_store s;
        s.by = &i;
        s.map = map_at(w, i, w.values(i.from[0])[l] + static_cast<std::uint64_t>(i.offset), l);
        if (s.map.axes != Axes) w.fail(i, "a tensor map of another number of axes");
        s.coordinates = coordinates_at(w, i, 1, Axes, l);
        if (!s.map.may_begin_at(s.coordinates[0])) w.fail(i, "a box that begins at no multiple of 16 bytes");
        s.from = shared_address(w, i, 1 + Axes, l);
        s.thread = w.first_thread() + l;
        s.group = own(w, l).store_groups;
        if (s.from % 1024 != 0) w.fail(i, "misaligned: 128-byte swizzle wants a multiple of 1024");
        if (s.from + s.map.box_bytes() > w.block().shared.size()) w.fail(i, "beyond the block's shared memory");
        read(w, i, s, l);
        if (const int writer = pending.unfenced_writer(s.from, s.map.box_bytes()); writer >= 0)
            w.fail(i, "what thread " + std::to_string(writer) + " wrote, with no fence.proxy.async of its own since");
        pending.stores.push_back(s);
    });
};
constexpr handler commit = [](warp& w, const instruction&, lane_mask m) {
    each_lane(m, [&](int l) { ++own(w, l).store_groups; });
};
constexpr handler wait = [](warp& w, const instruction& i, lane_mask m) {
    auto& pending = w.block().pending;
    each_lane(m, [&](int l) {
        const int mine = w.first_thread() + l;
        const std::uint64_t left = w.get<std::uint32_t>(i.from[0], l), groups = own(w, l).store_groups;
        std::erase_if(pending.stores, [&](const asynchronous::bulk_store& s) {
            if (s.thread != mine || s.group + left >= groups) return false;
            read(w, i, s, l);  // the latest time at which the hardware may read the memory
            bring_back(w, s, l);
            return true;
        });
    });
};
constexpr handler fence = [](warp& w, const instruction&, lane_mask m) {
    each_lane(m, [&](int l) { ++own(w, l).fences; });
};

}  // namespace

handler decode_bulk_store(instruction& i, const mnemonic& name) {
    const auto& words = name.words;
    if (name.operation() == "fence" && name.has("proxy") && name.has("async"))
        return words.size() == 3 || name.has("shared::cta") ? fence : nullptr;
    if (name.operation() != "cp" || !name.has("bulk")) return nullptr;
    i.at = space::shared;
    if (name.has("commit_group")) return commit;
    if (name.has("wait_group")) return wait;
    const bool is_known = name.has("tensor") && name.has("bulk_group") && words.size() == 8 && words[5] == "global" &&
                          words[6] == "shared::cta";
    if (is_known && name.has("2d") && i.from.size() == 4) return bulk_store<2>;
    return is_known && name.has("4d") && i.from.size() == 6 ? bulk_store<4> : nullptr;
}

}  // namespace halftone::ptx

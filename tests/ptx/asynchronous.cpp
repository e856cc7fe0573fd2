// SPDX-License-Identifier: MIT
/// \file
/// Sections 9.7.9.27 and 9.7.13.15 of the PTX ISA's manual: bulk copies of tensors into shared memory, and mbarriers.
#include <algorithm>
#include <iterator>

#include "ptx/by_type.hpp"
#include "ptx/decode.hpp"

namespace halftone::ptx {

const char* asynchronous::objection(std::uint64_t at, std::uint64_t bytes, bool writes, const knowledge& known) const {
    for (auto next = landings.lower_bound(at + bytes); next != landings.begin();) {
        --next;  // they do not overlap
        if (next->first + next->second.bytes <= at) break;
        const auto found = known.find(next->second.done);
        if (found == known.end() || found->second < next->second.phases)
            return "it touches what a bulk copy writes, and has not waited for that";
    }
    return writes ? reader_of(at, bytes) : nullptr;
}

const char* asynchronous::reader_of(std::uint64_t at, std::uint64_t bytes) const {
    const auto meets = [&](std::uint64_t from, std::uint64_t size) { return at < from + size && from < at + bytes; };
    for (const bulk_store& s : stores)
        if (meets(s.from, s.map.box_bytes())) return "it writes what a bulk store under way reads";
    for (const operand& o : operands)
        if (meets(o.at, o.bytes)) return "it writes what a wgmma under way reads";
    return nullptr;
}

void asynchronous::advance(std::uint64_t at, mbarrier& m) {
    ++changes;
    if (m.missing != 0 || m.bytes != 0) return;
    m.missing = m.arrivals;
    ++m.phases;
    m.given[at] = m.phases;
}

std::uint64_t shared_address(warp& w, const instruction& i, std::size_t operand, int lane) {
    std::uint64_t at = w.values(i.from[operand])[lane];
    if (operand == 0) at += static_cast<std::uint64_t>(i.offset);
    if (i.at == space::generic) at = w.from_generic(space::shared, at, lane);
    return at & 0xffffffffu;
}

tensor_map map_at(warp& w, const instruction& i, std::uint64_t at, int lane) {
    // The kernel's parameters have the layout of a GPU's, except for their start address.
    const auto parameters = reinterpret_cast<std::uint64_t>(w.block().how.parameters.data());
    const bool is_parameter = at >= parameters && at < parameters + 8 * w.block().how.parameters.size();
    if ((is_parameter ? at - parameters : at) % 64 != 0) w.fail(i, "a tensor map that is misaligned");
    tensor_map map;
    auto* const to = reinterpret_cast<std::byte*>(&map);
    for (std::uint64_t n = 0; n < sizeof map; n += 8)
        std::memcpy(to + n, w.memory(i, space::generic, at + n, 8, lane, access::reads), 8);
    if (map.stamp != tensor_map::written) w.fail(i, "no tensor map that cuTensorMapEncodeTiled has made");
    return map;
}

tensor_coordinates coordinates_at(warp& w, const instruction& i, std::size_t operand, std::size_t axes, int lane) {
    tensor_coordinates p{};
    for (std::size_t n = 0; n < axes; ++n) p[n] = w.get<std::int32_t>(i.from[operand + n], lane);
    return p;
}

namespace {

constexpr std::uint64_t stamp = 0x7265697272616272;
constexpr std::int64_t most = (1 << 20) - 1;  // arrivals, and bytes

/// The initialisation counts as a write to memory, so that a barrier is needed before the mbarrier is used.
mbarrier& mbarrier_at(warp& w, const instruction& i, std::uint64_t at, int lane) {
    const std::byte* const there = w.memory(i, space::shared, at, 8, lane, access::reads);
    auto& all = w.block().pending.mbarriers;
    const auto found = all.find(at);
    if (found == all.end() || std::memcmp(there, &stamp, 8) != 0) w.fail(i, "there is no mbarrier at this address");
    return found->second;
}

constexpr handler make = [](warp& w, const instruction& i, lane_mask m) {
    each_lane(m, [&](int l) {
        const std::uint64_t at = shared_address(w, i, 0, l);
        const std::int64_t arrivals = w.get<std::uint32_t>(i.from[1], l);
        if (arrivals < 1 || arrivals > most) w.fail(i, "an mbarrier of so many arrivals");
        std::memcpy(w.memory(i, space::shared, at, 8, l, access::writes), &stamp, 8);
        mbarrier& made = w.block().pending.mbarriers[at] = {};
        made.arrivals = made.missing = static_cast<std::uint32_t>(arrivals);
        made.made_by = w.first_thread() + l;
    });
};
constexpr handler unmake = [](warp& w, const instruction& i, lane_mask m) {
    each_lane(m, [&](int l) {
        const std::uint64_t at = shared_address(w, i, 0, l);
        mbarrier_at(w, i, at, l);
        w.block().pending.mbarriers.erase(at);
        std::memset(w.memory(i, space::shared, at, 8, l, access::writes), 0xff, 8);
    });
};
/// Makes the mbarriers initialised by each lane visible to copies.
constexpr handler fence_made = [](warp& w, const instruction&, lane_mask m) {
    each_lane(m, [&](int l) {
        for (auto& [at, made] : w.block().pending.mbarriers)
            if (made.made_by == w.first_thread() + l) made.is_fenced = true;
    });
};

void arrive(warp& w, const instruction& i, int lane, std::uint32_t arrivals, std::uint32_t bytes) {
    const std::uint64_t at = shared_address(w, i, 0, lane);
    mbarrier& b = mbarrier_at(w, i, at, lane);
    if (arrivals < 1 || arrivals > b.missing) w.fail(i, "more arrivals than a phase of the mbarrier has");
    b.bytes += bytes;
    if (b.bytes > most) w.fail(i, "more bytes than an mbarrier counts");
    b.missing -= arrivals;
    learn(b.given, w.known());
    w.block().pending.advance(at, b);
}
constexpr handler arrive_only = [](warp& w, const instruction& i, lane_mask m) {
    each_lane(m, [&](int l) { arrive(w, i, l, i.from.size() > 1 ? w.get<std::uint32_t>(i.from[1], l) : 1, 0); });
};
constexpr handler arrive_and_expect = [](warp& w, const instruction& i, lane_mask m) {
    each_lane(m, [&](int l) { arrive(w, i, l, 1, w.get<std::uint32_t>(i.from[1], l)); });
};

void to_device(warp& w, const asynchronous::bulk_copy& c) {
    std::byte* const shared = w.block().shared.data();
    const std::uint64_t bytes = c.map.element_bytes;
    for (std::uint64_t row = 0; row < c.map.box_outer; ++row) {
        for (std::uint64_t column = 0; column < c.map.box_inner(); ++column) {
            const tensor_coordinates from = in_box(c.coordinates, column, row);
            std::byte* const to = shared + swizzled(c.to + tensor_map::row_bytes * row + bytes * column);
            std::memset(to, 0, bytes);
            if (c.map.has(from))
                std::memcpy(to, w.memory(*c.by, space::global, c.map.address_of(from), bytes, 0, access::reads), bytes);
        }
    }
}
/// Completes only as many copies as end the phase.
void bring_until_over(warp& w, std::uint64_t at, mbarrier& b) {
    auto& pending = w.block().pending;
    for (const std::uint64_t phase = b.phases; b.phases == phase;) {
        const auto c = std::find_if(pending.copies.begin(), pending.copies.end(),
                                    [&](const asynchronous::bulk_copy& each) { return each.done == at; });
        if (c == pending.copies.end()) return;
        to_device(w, *c);
        b.bytes -= static_cast<std::int64_t>(c->map.box_bytes());
        if (b.bytes < -most) w.fail(*c->by, "more bytes than an mbarrier counts");
        pending.copies.erase(c);
        pending.advance(at, b);
    }
}
/// Tests whether a phase is complete; otherwise the lane has to test again.
constexpr handler try_wait = [](warp& w, const instruction& i, lane_mask m) {
    each_lane(m, [&](int l) {
        const std::uint64_t at = shared_address(w, i, 0, l);
        mbarrier& b = mbarrier_at(w, i, at, l);
        const std::uint32_t parity = w.get<std::uint32_t>(i.from[1], l);
        if (parity > 1) w.fail(i, "a parity that is neither 0 nor 1");
        if (b.phases % 2 == parity) bring_until_over(w, at, b);
        const bool is_over = b.phases % 2 != parity;
        w.values(i.to[0])[l] = is_over ? 1 : 0;
        if (is_over) {
            ++w.block().pending.changes;
            learn(w.known(), b.given);
        }
    });
};

template <std::size_t Axes>
constexpr handler bulk_copy = [](warp& w, const instruction& i, lane_mask m) {
    auto& pending = w.block().pending;
    each_lane(m, [&](int l) {
        asynchronous::bulk_copy c;
        c.by = &i;
        c.to = shared_address(w, i, 0, l);
        c.map = map_at(w, i, w.values(i.from[1])[l], l);
        if (c.map.axes != Axes) w.fail(i, "a tensor map of another number of axes");
        c.coordinates = coordinates_at(w, i, 2, Axes, l);
        c.done = shared_address(w, i, 2 + Axes, l);
        const mbarrier& b = mbarrier_at(w, i, c.done, l);
        if (!c.map.may_begin_at(c.coordinates[0])) w.fail(i, "a box that begins at no multiple of 16 bytes");
        if (!b.is_fenced) w.fail(i, "an mbarrier that no fence.mbarrier_init has shown to copies");
        const std::uint64_t bytes = c.map.box_bytes();
        if (c.to % 1024 != 0) w.fail(i, "misaligned: 128-byte swizzle wants a multiple of 1024");
        if (c.to + bytes > w.block().shared.size()) w.fail(i, "beyond the block's shared memory");
        if (const char* const why = pending.reader_of(c.to, bytes)) w.fail(i, why);
        for (const auto& other : pending.copies)
            if (c.to < other.to + other.map.box_bytes() && other.to < c.to + bytes)
                w.fail(i, "it writes where another bulk copy under way does");
        auto next = pending.landings.lower_bound(c.to + bytes);
        while (next != pending.landings.begin() && std::prev(next)->first + std::prev(next)->second.bytes > c.to)
            next = pending.landings.erase(std::prev(next));
        pending.landings[c.to] = {bytes, c.done, b.phases + 1};
        std::memset(w.block().shared.data() + c.to, 0xff, bytes);
        pending.note_write(c.to, bytes, asynchronous::writer{});
        pending.copies.push_back(c);
    });
};

}  // namespace

handler decode_asynchronous(instruction& i, const mnemonic& name) {
    const std::string_view operation = name.operation();
    const bool is_shared = name.has("shared") || name.has("shared::cta") || name.has("shared::cluster");
    if (operation == "mbarrier") {
        i.at = is_shared ? space::shared : space::generic;
        const std::string_view form = name.form();
        if (form == "init") return make;
        if (form == "inval") return unmake;
        // The result of an arrival is not needed for a wait by parity.
        const bool is_plain = !name.has("noComplete") && !name.has("drop");
        if (form == "arrive" && i.to.front() < 0 && is_plain)
            return name.has("expect_tx") ? arrive_and_expect : arrive_only;
        if ((form == "try_wait" || form == "test_wait") && name.has("parity")) {
            i.kind = flow::wait;
            return try_wait;
        }
        return nullptr;
    }
    if (operation == "fence" && name.has("mbarrier_init")) return fence_made;
    if (operation == "cp" && name.has("tensor")) {
        i.at = space::shared;
        const bool is_known = name.has("mbarrier::complete_tx::bytes") && is_shared && name.words.size() == 8;
        if (is_known && name.has("2d") && i.from.size() == 5) return bulk_copy<2>;
        return is_known && name.has("4d") && i.from.size() == 7 ? bulk_copy<4> : nullptr;
    }
    if (operation == "mapa") {  // each block is a cluster of one block
        return [](warp& w, const instruction& a, lane_mask m) {
            each_lane(m, [&](int l) {
                if (w.get<std::uint32_t>(a.from[1], l) != 0) w.fail(a, "a block that the cluster does not have");
                w.values(a.to[0])[l] = w.values(a.from[0])[l];
            });
        };
    }
    return nullptr;
}

}  // namespace halftone::ptx

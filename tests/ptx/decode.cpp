// SPDX-License-Identifier: MIT
#include "ptx/by_type.hpp"
#include "ptx/decode.hpp"

namespace halftone::ptx {

namespace {

handler decode_move(instruction& i, const mnemonic& name) {
    i.option = name.bytes();
    if (i.to.size() == i.from.size()) {
        return [](warp& w, const instruction& a, lane_mask m) {
            each_lane(m, [&](int l) { w.values(a.to[0])[l] = w.values(a.from[0])[l]; });
        };
    }
    return [](warp& w, const instruction& a, lane_mask m) {  // joins or splits parts; option: the bytes of a part
        const std::size_t pieces = a.to.size() > a.from.size() ? a.to.size() : a.from.size();
        const std::size_t bits = 8 * static_cast<std::size_t>(a.option) / pieces;
        const std::uint64_t ones = (std::uint64_t{1} << bits) - 1;
        each_lane(m, [&](int l) {
            if (a.to.size() == 1) {
                std::uint64_t whole = 0;
                for (std::size_t p = 0; p < pieces; ++p) whole |= (w.values(a.from[p])[l] & ones) << (p * bits);
                w.values(a.to[0])[l] = whole;
            } else {
                const std::uint64_t whole = w.values(a.from[0])[l];
                for (std::size_t p = 0; p < pieces; ++p) w.values(a.to[p])[l] = whole >> (p * bits) & ones;
            }
        });
    };
}

handler find(instruction& i, const mnemonic& name) {
    const std::string_view operation = name.operation();
    if (operation == "mov") return decode_move(i, name);
    if (const handler found = decode_asynchronous(i, name)) return found;
    if (const handler found = decode_bulk_store(i, name)) return found;
    for (const std::string_view orders_memory : {"membar", "fence", "prefetch", "nanosleep", "griddepcontrol"}) {
        if (operation == orders_memory) return [](warp&, const instruction&, lane_mask) {};
    }
    if (operation == "trap") return [](warp& w, const instruction& a, lane_mask) { w.fail(a, "a trap"); };
    for (const auto decode_kind :
         {decode_warp_wide, decode_warpgroup, decode_memory, decode_convert, decode_arithmetic}) {
        if (const handler found = decode_kind(i, name)) return found;
    }
    return nullptr;
}

}  // namespace

void decode(instruction& i, const std::vector<std::string_view>& words) {
    i.run = find(i, {words});
    // Instructions that a kernel never reaches may be unknown.
    if (i.run == nullptr) i.run = [](warp& w, const instruction& a, lane_mask) { w.fail(a, "unknown instruction"); };
}

}  // namespace halftone::ptx

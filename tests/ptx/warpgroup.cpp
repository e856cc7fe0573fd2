// SPDX-License-Identifier: MIT
/// \file
/// Section 9.7.15 of the PTX ISA's manual: products of warpgroups, whose operands are tiles in shared memory.
///
/// Each of the four warps computes its 16 rows when it reaches the instruction: no warp needs another's operands, and nothing may
/// write the operands until all four have waited. At the end block.cpp checks that all four warps reached the instruction.
#include <algorithm>

#include <halftone/number.hpp>

#include "ptx/by_type.hpp"
#include "ptx/decode.hpp"

namespace halftone::ptx {

namespace {

constexpr int depth = 16;

/// A tile in 128-byte swizzle, given by a descriptor: K-major, with rows of 64 of the depth, or MN-major, with panels of 64 columns
/// by 64 of the depth. Other layouts are not supported here.
class operand {
  public:
    operand(const warp& w, const instruction& i, std::uint64_t bits, bool is_outer, int outer)
        : start_((bits & 0x3fff) << 4), is_outer_(is_outer), outer_(static_cast<std::uint64_t>(outer)) {
        const std::uint64_t leading = bits >> 16 & 0x3fff, stride = bits >> 32 & 0x3fff;
        const std::string of = is_outer ? ", MN-major" : ", K-major";
        if (bits >> 62 != 1) w.fail(i, "a descriptor of another swizzle than 128 bytes" + of);
        if ((bits >> 49 & 7) != 0) w.fail(i, "a descriptor with a base offset" + of);
        if ((bits & ~std::uint64_t{0xc00e3fff3fff3fff}) != 0)
            w.fail(i, "a descriptor with bits that mean nothing" + of);
        if (stride != 64) w.fail(i, "a descriptor whose rows by eight are not 1024 bytes apart" + of);
        if (leading != (is_outer ? 512 : 1)) w.fail(i, "a descriptor of an unknown leading offset" + of);
        if (start_ % 1024 != 0 && (is_outer || start_ % 1024 > 96 || start_ % 32 != 0))
            w.fail(i, "a tile that does not begin at a multiple of 1024 bytes" + of);
    }

    /// The offset in shared memory of an element, by its index along the outer axis and along the depth.
    std::uint64_t offset_of(std::uint64_t o, std::uint64_t k) const {
        const std::uint64_t at =
            is_outer_ ? start_ + 8192 * (o / 64) + 128 * k + 2 * (o % 64) : start_ + 128 * o + 2 * k;
        return at ^ (at >> 3 & 0x70);
    }
    /// Calls f(begin, bytes) for each piece of memory that it reads.
    template <class F>
    void each_piece(const F& f) const {
        if (!is_outer_) return f(start_ / 128 * 128, 128 * outer_);
        for (std::uint64_t panel = 0; panel < outer_ / 64; ++panel)
            f(start_ + 8192 * panel, std::uint64_t{128} * depth);
    }

  private:
    std::uint64_t start_;
    bool is_outer_;
    std::uint64_t outer_;
};

/// to: sums; from: a descriptor of a or its four registers, a descriptor of b, whether to add to the sums, and the signs
/// and layouts of the operands; the registers have none.
template <class T, int Columns, bool InRegisters>
constexpr handler multiply = [](warp& w, const instruction& i, lane_mask m) {
    constexpr std::size_t after_a = InRegisters ? 4 : 1, layouts = after_a + 4;
    if (m != ~lane_mask{0}) w.fail(i, "lanes that take no part");
    const auto same = [&](std::size_t n) {
        const std::uint64_t* const values = w.values(i.from[n]);
        if (!std::all_of(values, values + lanes, [&](std::uint64_t v) { return v == values[0]; }))
            w.fail(i, "operands that lanes do not agree about");
        return values[0];
    };
    const bool keeps = same(after_a + 1) != 0;
    if (same(after_a + 2) != 1 || same(after_a + 3) != 1) w.fail(i, "an operand whose sign is to change");
    if (same(layouts) > 1 || (!InRegisters && same(layouts + 1) > 1)) w.fail(i, "a layout that is neither 0 nor 1");
    auto& sums = w.sums();
    if (sums.is_fence_due) w.fail(i, "no wgmma.fence before");
    std::vector<operand> operands;
    if constexpr (!InRegisters) operands.emplace_back(w, i, same(0), same(layouts) == 1, 64);
    operands.emplace_back(w, i, same(after_a), same(InRegisters ? layouts : layouts + 1) == 1, Columns);
    auto& block = w.block();
    for (const operand& o : operands) {
        o.each_piece([&](std::uint64_t at, std::uint64_t bytes) {
            if (at + bytes > block.shared.size()) w.fail(i, "beyond the block's shared memory");
            if (const char* const why = block.pending.objection(at, bytes, false, w.known())) w.fail(i, why);
            block.pending.operands.push_back({w.first_thread() / lanes, sums.groups, at, bytes});
        });
    }

    const auto read = [&](const operand& o, std::uint64_t outer, std::uint64_t k) {
        decltype(T{}.bits()) bits;
        std::memcpy(&bits, block.shared.data() + o.offset_of(outer, k), sizeof bits);
        return static_cast<double>(static_cast<float>(T::from_bits(bits)));
    };
    const auto first_row = static_cast<std::uint64_t>(w.first_thread() / lanes % 4 * 16);
    static thread_local double left[16][depth], right[depth][Columns];
    for (std::uint64_t k = 0; k < depth; ++k) {
        if constexpr (!InRegisters)
            for (std::uint64_t row = 0; row < 16; ++row) left[row][k] = read(operands.front(), first_row + row, k);
        for (std::uint64_t column = 0; column < Columns; ++column) right[k][column] = read(operands.back(), column, k);
    }
    if constexpr (InRegisters) {  // as mma.m16n8k16 has its a
        for (int l = 0; l < lanes; ++l) {
            for (std::size_t n = 0; n < 8; ++n) {
                if (sums.find(w.values(i.from[n / 2])[l]) != nullptr) w.fail(i, "an operand that is a sum under way");
                const auto bits = static_cast<decltype(T{}.bits())>(w.get<std::uint32_t>(i.from[n / 2], l) >> n % 2 * 16);
                left[static_cast<std::size_t>(l / 4) + n / 2 % 2 * 8][static_cast<std::size_t>(l % 4) * 2 + n % 2 + n / 4 * 8] =
                    static_cast<double>(static_cast<float>(T::from_bits(bits)));
            }
        }
    }
    // In double, and rounded once.
    static thread_local double result[16][Columns];
    const auto each_sum = [&](const auto& f) {
        for (std::size_t n = 0; n < Columns / 2; ++n)
            for (int l = 0; l < lanes; ++l)
                f(n, l,
                  result[static_cast<std::size_t>(l / 4) + n % 4 / 2 * 8]
                        [n / 4 * 8 + static_cast<std::size_t>(l % 4) * 2 + n % 2]);
    };
    each_sum([&](std::size_t n, int l, double& sum) {
        const std::uint64_t bits = w.values(i.to[n])[l];
        const auto* const under_way = sums.find(bits);
        sum = !keeps ? 0 : under_way != nullptr ? under_way->values[static_cast<std::size_t>(l)] : low<float>(bits);
    });
    for (std::size_t row = 0; row < 16; ++row)
        for (std::size_t k = 0; k < depth; ++k)
            for (std::size_t column = 0; column < Columns; ++column)
                result[row][column] += left[row][k] * right[k][column];
    const std::uint64_t number = sums.first + sums.under_way.size();
    sums.under_way.resize(sums.under_way.size() + Columns / 2, {sums.groups, {}});
    each_sum([&](std::size_t n, int l, double sum) {
        sums.under_way[static_cast<std::size_t>(number - sums.first) + n].values[static_cast<std::size_t>(l)] =
            static_cast<float>(sum);
        w.values(i.to[n])[l] = warpgroup_sums::token(number + n);
    });
    if (sums.under_way.size() > 0xffff) w.fail(i, "more sums under way than this machine tells apart");
    ++sums.done;
};

constexpr handler fence = [](warp& w, const instruction&, lane_mask) { w.sums().is_fence_due = false; };
constexpr handler commit = [](warp& w, const instruction&, lane_mask) { ++w.sums().groups; };
constexpr handler wait = [](warp& w, const instruction& i, lane_mask) {
    w.end_products(static_cast<std::uint64_t>(w.values(i.from[0])[0]));
};
constexpr handler set_registers = [](warp& w, const instruction& i, lane_mask) {
    const std::uint64_t count = w.values(i.from[0])[0];
    if (count < 24 || count > 256 || count % 8 != 0) w.fail(i, "registers that are no multiple of 8 from 24 to 256");
};

template <class T, bool InRegisters>
handler by_columns(const mnemonic& name) {
    if (name.has("m64n64k16")) return multiply<T, 64, InRegisters>;
    if (name.has("m64n128k16")) return multiply<T, 128, InRegisters>;
    if constexpr (!InRegisters) {
        if (name.has("m64n192k16")) return multiply<T, 192, false>;
        if (name.has("m64n256k16")) return multiply<T, 256, false>;
    }
    return nullptr;
}
std::size_t columns_of(const mnemonic& name) {
    return name.has("m64n64k16") ? 64 : name.has("m64n128k16") ? 128 : name.has("m64n192k16") ? 192 : 256;
}

}  // namespace

void warp::end_products(std::uint64_t groups_left) {
    const std::uint64_t over = sums_.groups > groups_left ? sums_.groups - groups_left : 0;  // groups before this one
    std::size_t count = 0;
    while (count < sums_.under_way.size() && sums_.under_way[count].group < over) ++count;
    if (count != 0) {
        for (std::size_t r = 0; r < frame_.registers.size(); ++r) {
            const auto* const sum = sums_.find(frame_.registers[r]);
            if (sum != nullptr && sum->group < over) frame_.registers[r] = bits_from(sum->values[r % lanes]);
        }
        sums_.under_way.erase(sums_.under_way.begin(), sums_.under_way.begin() + static_cast<std::ptrdiff_t>(count));
        sums_.first += count;
    }
    // A warp that has waited for all of them may now access their operands.
    if (sums_.under_way.empty()) sums_.is_fence_due = true;
    const int mine = first_thread_ / lanes;
    std::erase_if(block_.pending.operands,
                  [&](const asynchronous::operand& o) { return o.warp == mine && o.group < over; });
}

handler decode_warpgroup(instruction& i, const mnemonic& name) {
    if (name.operation() == "setmaxnreg") {
        i.kind = flow::warp_wide;
        return set_registers;
    }
    if (name.operation() != "wgmma") return nullptr;
    i.kind = flow::warp_wide;
    const std::string_view form = name.form();
    if (form == "fence") return fence;
    if (form == "commit_group") return commit;
    if (form == "wait_group") return wait;
    // wgmma.mma_async.sync.aligned.SHAPE.f32.T.T
    const std::vector<std::string_view>& words = name.words;
    if (form != "mma_async" || words.size() != 8 || words[5] != "f32" || words[6] != words[7]) return nullptr;
    const bool in_registers = i.from.size() == 9;
    if ((i.from.size() != 7 && !in_registers) || i.to.size() != columns_of(name) / 2) return nullptr;
    if (words[6] == "bf16") return in_registers ? by_columns<bfloat16, true>(name) : by_columns<bfloat16, false>(name);
    if (words[6] == "f16") return in_registers ? by_columns<float16, true>(name) : by_columns<float16, false>(name);
    return nullptr;
}

}  // namespace halftone::ptx

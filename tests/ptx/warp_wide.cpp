// SPDX-License-Identifier: MIT
/// \file
/// Sections 9.7.9, 9.7.13 and 9.7.14 of the PTX ISA's manual: warp-wide instructions.
#include <bit>

#include <halftone/number.hpp>

#include "ptx/by_type.hpp"
#include "ptx/decode.hpp"

namespace halftone::ptx {

namespace {

/// option: 'u'p, 'd'own, 'b'utterfly or 'i'ndex.
constexpr handler shuffle = [](warp& w, const instruction& i, lane_mask m) {
    std::uint64_t values[lanes];
    for (int l = 0; l < lanes; ++l) values[l] = w.values(i.from[0])[l];
    each_lane(m, [&](int l) {
        const int b = w.get<int>(i.from[1], l) & 31, c = w.get<int>(i.from[2], l);
        const int clamp = c & 31, segment = c >> 8 & 31;
        const int least = l & segment, most = least | (clamp & ~segment);
        int from = l;
        bool is_inside = false;
        switch (i.option) {
            case 'u':
                from = l - b, is_inside = from >= (least | (clamp & ~segment));
                break;
            case 'd':
                from = l + b, is_inside = from <= most;
                break;
            case 'b':
                from = l ^ b, is_inside = from <= most;
                break;
            default:
                from = least | (b & ~segment), is_inside = from <= most;
                break;
        }
        if (!is_inside) from = l;
        if ((m >> from & 1u) == 0)
            w.fail(i,
                   "lane " + std::to_string(l) + " reads from lane " + std::to_string(from) + ", which takes no part");
        w.values(i.to[0])[l] = values[from];
        if (i.to.size() > 1) w.values(i.to[1])[l] = is_inside ? 1 : 0;
    });
};

constexpr handler ballot = [](warp& w, const instruction& i, lane_mask m) {
    std::uint32_t all = 0;
    each_lane(m, [&](int l) { all |= (w.values(i.from[0])[l] != 0 ? 1u : 0u) << l; });
    each_lane(m, [&](int l) { w.set<std::uint32_t>(i.to[0], l, all); });
};
/// option: 'n' for any, 'l' for all.
constexpr handler vote = [](warp& w, const instruction& i, lane_mask m) {
    bool any = false, all = true;
    each_lane(m, [&](int l) {
        const bool mine = w.values(i.from[0])[l] != 0;
        any = any || mine;
        all = all && mine;
    });
    each_lane(m, [&](int l) { w.values(i.to[0])[l] = (i.option == 'n' ? any : all) ? 1 : 0; });
};
/// The lowest participating lane.
constexpr handler elect = [](warp& w, const instruction& i, lane_mask m) {
    const int leader = std::countr_zero(m);
    each_lane(m, [&](int l) {
        w.set<std::uint32_t>(i.to[0], l, static_cast<std::uint32_t>(leader));
        w.values(i.to[1])[l] = l == leader ? 1 : 0;
    });
};
constexpr handler match_any = [](warp& w, const instruction& i, lane_mask m) {
    std::uint32_t same[lanes] = {};
    each_lane(m, [&](int l) {
        each_lane(m, [&](int other) {
            if (w.values(i.from[0])[l] == w.values(i.from[0])[other]) same[l] |= 1u << other;
        });
    });
    each_lane(m, [&](int l) { w.set<std::uint32_t>(i.to[0], l, same[l]); });
};

/// Lane l holds elements 2 (l % 4) and the next of row l / 4, of each of the matrices; transposed: of column l / 4.
constexpr handler load_matrices = [](warp& w, const instruction& i, lane_mask m) {
    if (m != ~lane_mask{0}) w.fail(i, "lanes that take no part");
    const bool is_transposed = i.option != 0;
    for (std::size_t n = 0; n < i.to.size(); ++n) {
        std::uint16_t matrix[8][8];
        for (int row = 0; row < 8; ++row) {
            const int from = static_cast<int>(8 * n) + row;
            std::memcpy(matrix[row],
                        w.memory(i, space::shared, w.values(i.from[0])[from] + static_cast<std::uint64_t>(i.offset), 16,
                                 from, access::reads),
                        16);
        }
        for (int l = 0; l < lanes; ++l) {
            const int a = l / 4, b = 2 * (l % 4);
            const std::uint32_t low = is_transposed ? matrix[b][a] : matrix[a][b],
                                high = is_transposed ? matrix[b + 1][a] : matrix[a][b + 1];
            w.set<std::uint32_t>(i.to[n], l, low | high << 16);
        }
    }
};

/// Stores matrices in the same layout.
constexpr handler store_matrices = [](warp& w, const instruction& i, lane_mask m) {
    if (m != ~lane_mask{0}) w.fail(i, "lanes that take no part");
    for (std::size_t n = 0; n + 1 < i.from.size(); ++n) {
        for (int row = 0; row < 8; ++row) {
            const int to = static_cast<int>(8 * n) + row;
            std::uint32_t pairs[4];
            for (int p = 0; p < 4; ++p) pairs[p] = w.get<std::uint32_t>(i.from[n + 1], 4 * row + p);
            const std::uint64_t at = w.values(i.from[0])[to] + static_cast<std::uint64_t>(i.offset);
            std::memcpy(w.memory(i, space::shared, at, 16, to, access::writes), pairs, 16);
        }
    }
};

/// Sums of a product of 16 x K with K x 8, in double, rounded once. A register has K / 8 numbers, consecutive along k: for a of
/// rows l / 4 and l / 4 + 8, then the same for the second half of k; for b of the halves of k. of_a(bits, part) and of_b return
/// a number.
template <int K, class OfA, class OfB>
void multiply(warp& w, const instruction& i, lane_mask m, const OfA& of_a, const OfB& of_b) {
    if (m != ~lane_mask{0}) w.fail(i, "lanes that take no part");
    constexpr int parts = K / 8;
    double a[16][K], b[K][8];
    for (int l = 0; l < lanes; ++l) {
        for (int r = 0; r < 6; ++r) {
            const auto bits = w.get<std::uint32_t>(i.from[static_cast<std::size_t>(r)], l);
            for (int p = 0; p < parts; ++p) {
                const int k = parts * (l % 4) + p;
                if (r < 4) {
                    a[l / 4 + 8 * (r % 2)][k + K / 2 * (r / 2)] = of_a(bits, p);
                } else {
                    b[k + K / 2 * (r - 4)][l / 4] = of_b(bits, p);
                }
            }
        }
    }
    const std::size_t c = i.from.size() - 4;
    float sums[lanes][4];
    for (int l = 0; l < lanes; ++l) {
        for (int n = 0; n < 4; ++n) {
            const int row = l / 4 + 8 * (n / 2), column = 2 * (l % 4) + n % 2;
            double sum = w.get<float>(i.from[c + static_cast<std::size_t>(n)], l);
            for (int k = 0; k < K; ++k) sum += a[row][k] * b[k][column];
            sums[l][n] = static_cast<float>(sum);
        }
    }
    for (int l = 0; l < lanes; ++l)
        for (int n = 0; n < 4; ++n) w.set<float>(i.to[static_cast<std::size_t>(n)], l, sums[l][n]);
}
template <class T>
constexpr auto number_of = [](std::uint32_t bits, int part) {
    using storage = decltype(T{}.bits());
    return static_cast<float>(T::from_bits(static_cast<storage>(bits >> (8 * static_cast<int>(sizeof(T)) * part))));
};
template <int K, class A, class B>
constexpr handler multiply_numbers =
    [](warp& w, const instruction& i, lane_mask m) { multiply<K>(w, i, m, number_of<A>, number_of<B>); };
constexpr handler multiply_floats = [](warp& w, const instruction& i, lane_mask m) {
    // As tfloat32: the unit does not read the rest.
    const auto number = [](std::uint32_t bits, int) { return std::bit_cast<float>(bits & ~0x1fffu); };
    multiply<8>(w, i, m, number, number);
};
handler multiply_bytes(const mnemonic& name) {
    const auto by = [&]<class A, class B>(std::string_view a, std::string_view b, tag<A>, tag<B>) -> handler {
        // mma.sync.aligned.m16n8k32.row.col.f32.A.B.f32
        const auto at = name.words.size();
        return name.words[at - 3] == a && name.words[at - 2] == b ? multiply_numbers<32, A, B> : nullptr;
    };
    constexpr tag<float8_e4m3> four{};
    constexpr tag<float8_e5m2> five{};
    if (const handler h = by("e4m3", "e4m3", four, four)) return h;
    if (const handler h = by("e4m3", "e5m2", four, five)) return h;
    if (const handler h = by("e5m2", "e4m3", five, four)) return h;
    return by("e5m2", "e5m2", five, five);
}

}  // namespace

handler decode_warp_wide(instruction& i, const mnemonic& name) {
    const std::string_view operation = name.operation();
    const auto together = [&](handler h) {
        i.kind = flow::warp_wide;
        if (h != nullptr && operation != "mma" && !operation.ends_with("matrix")) i.members = i.from.back();
        return h;
    };
    constexpr handler nothing = [](warp&, const instruction&, lane_mask) {};
    if (operation == "bar" || operation == "barrier") {
        if (name.has("warp")) return together([](warp& w, const instruction&, lane_mask) { w.order_memory(); });
        i.kind = flow::block_barrier;
        i.option = name.has("or") ? 'o' : 'a';
        return nothing;
    }
    if (operation == "shfl") {
        i.option = name.has("up") ? 'u' : name.has("down") ? 'd' : name.has("bfly") ? 'b' : 'i';
        return together(shuffle);
    }
    if (operation == "vote") {
        if (name.has("ballot")) return together(ballot);
        i.option = name.has("any") ? 'n' : 'l';
        return together(name.has("any") || name.has("all") ? vote : nullptr);
    }
    if (operation == "match") return together(name.has("any") ? match_any : nullptr);
    if (operation == "elect") return together(elect);
    if (operation == "activemask")
        return [](warp& w, const instruction& a, lane_mask m) {
            each_lane(m, [&](int l) { w.set<std::uint32_t>(a.to[0], l, m); });
        };
    if (operation == "ldmatrix") {
        i.option = name.has("trans") ? 1 : 0;
        return together(load_matrices);
    }
    if (operation == "stmatrix") {
        const bool is_known = name.has("m8n8") && name.has("shared") && name.type() == "b16" && !name.has("trans");
        return together(is_known ? store_matrices : nullptr);
    }
    if (operation == "mma") {
        if (name.has("m16n8k16") && name.has("bf16")) return together(multiply_numbers<16, bfloat16, bfloat16>);
        if (name.has("m16n8k16") && name.has("f16")) return together(multiply_numbers<16, float16, float16>);
        if (name.has("m16n8k8") && name.has("tf32")) return together(multiply_floats);
        if (name.has("m16n8k32")) return together(multiply_bytes(name));
    }
    return nullptr;
}

}  // namespace halftone::ptx

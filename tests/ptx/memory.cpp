// SPDX-License-Identifier: MIT
/// \file
/// Sections 9.7.9 and 9.7.13 of the PTX ISA's manual: loads, stores, asynchronous copies, addresses, atomics.
#include "ptx/by_type.hpp"
#include "ptx/decode.hpp"

namespace halftone::ptx {

namespace {

/// Integers are sign-extended in a wider register.
template <class T>
constexpr handler load = [](warp& w, const instruction& i, lane_mask m) {
    const std::uint64_t* const address = w.values(i.from[0]);
    each_lane(m, [&](int l) {
        const std::byte* const at = w.memory(i, i.at, address[l] + static_cast<std::uint64_t>(i.offset),
                                             sizeof(T) * i.to.size(), l, access::reads);
        for (std::size_t n = 0; n < i.to.size(); ++n) {
            T value;
            std::memcpy(&value, at + n * sizeof(T), sizeof(T));
            if constexpr (std::is_integral_v<T> && std::is_signed_v<T>) {
                w.values(i.to[n])[l] = static_cast<std::uint64_t>(static_cast<std::int64_t>(value));
            } else {
                w.values(i.to[n])[l] = bits_from(value);
            }
        }
    });
};
template <class T>
constexpr handler store = [](warp& w, const instruction& i, lane_mask m) {
    const std::uint64_t* const address = w.values(i.from[0]);
    const std::size_t count = i.from.size() - 1;
    each_lane(m, [&](int l) {
        std::byte* const at =
            w.memory(i, i.at, address[l] + static_cast<std::uint64_t>(i.offset), sizeof(T) * count, l, access::writes);
        for (std::size_t n = 0; n < count; ++n) std::memcpy(at + n * sizeof(T), w.values(i.from[n + 1]) + l, sizeof(T));
    });
};
template <class T, class F>
constexpr handler atomic = [](warp& w, const instruction& i, lane_mask m) {
    each_lane(m, [&](int l) {
        std::byte* const at = w.memory(i, i.at, w.values(i.from[0])[l] + static_cast<std::uint64_t>(i.offset),
                                       sizeof(T), l, access::is_atomic);
        T was;
        std::memcpy(&was, at, sizeof was);
        const T now = F{}(was, w.get<T>(i.from[1], l), i.from.size() > 2 ? w.get<T>(i.from[2], l) : T{});
        std::memcpy(at, &now, sizeof now);
        if (!i.to.empty()) w.set<T>(i.to[0], l, was);
    });
};
/// The new value in memory, from the old value and the operands.
struct adds {
    template <class T>
    T operator()(T a, T b, T) const {
        if constexpr (std::is_integral_v<T>) {
            return static_cast<T>(static_cast<std::make_unsigned_t<T>>(a) + static_cast<std::make_unsigned_t<T>>(b));
        } else {
            return a + b;
        }
    }
};
#define HALFTONE_ATOMIC(name, result)      \
    struct name {                          \
        template <class T>                 \
        T operator()(T a, T b, T) const {  \
            return static_cast<T>(result); \
        }                                  \
    }
HALFTONE_ATOMIC(takes_less, b < a ? b : a);
HALFTONE_ATOMIC(takes_more, a < b ? b : a);
HALFTONE_ATOMIC(joins_by_and, a& b);
HALFTONE_ATOMIC(joins_by_or, a | b);
#undef HALFTONE_ATOMIC
struct exchange {
    template <class T>
    T operator()(T, T b, T) const {
        return b;
    }
};
struct compare_and_swap {
    template <class T>
    T operator()(T a, T expected, T b) const {
        return a == expected ? b : a;
    }
};

space space_named(const mnemonic& name) {
    if (name.has("global") || name.has("const")) return space::global;
    if (name.has("shared") || name.has("shared::cta")) return space::shared;
    if (name.has("local")) return space::local;
    return name.has("param") ? space::param : space::generic;
}

handler copy_kind(instruction& i, const mnemonic& name) {
    if (name.has("bulk")) return nullptr;
    if (name.has("commit_group"))
        return [](warp& w, const instruction&, lane_mask m) { each_lane(m, [&](int l) { w.close_copies(l); }); };
    if (name.has("wait_group"))
        return [](warp& w, const instruction& a, lane_mask m) {
            each_lane(m, [&](int l) { w.wait_for_copies(a, l, w.get<std::uint32_t>(a.from[0], l)); });
        };
    if (name.has("wait_all"))
        return [](warp& w, const instruction& a, lane_mask m) {
            each_lane(m, [&](int l) { w.close_copies(l), w.wait_for_copies(a, l, 0); });
        };
    i.at = space::shared;
    return [](warp& w, const instruction& a, lane_mask m) {
        each_lane(m, [&](int l) {
            const unsigned bytes = w.get<std::uint32_t>(a.from[2], l);
            const unsigned valid = a.from.size() > 3 ? w.get<std::uint32_t>(a.from[3], l) : bytes;
            if (valid > bytes) w.fail(a, "more bytes than it copies");
            const std::uint64_t from = w.values(a.from[1])[l];
            if (from % bytes != 0) w.fail(a, "misaligned");
            w.memory(a, space::shared, w.values(a.from[0])[l], bytes, l, access::writes);
            w.copy_later(l, {w.values(a.from[0])[l], from, bytes, valid});
        });
    };
}

}  // namespace

handler decode_memory(instruction& i, const mnemonic& name) {
    const std::string_view operation = name.operation(), type = name.type();
    if (operation == "ld" || operation == "st" || operation == "ldu") {
        i.at = space_named(name);
        return by_type(type, [&](auto t) -> handler {
            using T = typename decltype(t)::type;
            return operation == "st" ? store<T> : load<T>;
        });
    }
    if (operation == "cp") return copy_kind(i, name);
    if (operation == "cvta") {
        i.at = space_named(name);
        if (name.has("to"))
            return [](warp& w, const instruction& a, lane_mask m) {
                each_lane(m, [&](int l) { w.values(a.to[0])[l] = w.from_generic(a.at, w.values(a.from[0])[l], l); });
            };
        return [](warp& w, const instruction& a, lane_mask m) {
            each_lane(m, [&](int l) { w.values(a.to[0])[l] = w.generic(a.at, w.values(a.from[0])[l], l); });
        };
    }
    if (operation == "atom" || operation == "red") {
        i.at = space_named(name);
        return by_type(type, [&](auto t) -> handler {
            using T = typename decltype(t)::type;
            if (name.has("exch")) return atomic<T, exchange>;
            if (name.has("cas")) return atomic<T, compare_and_swap>;
            if constexpr (std::is_floating_point_v<T>) {
                if (name.has("add")) return atomic<T, adds>;
            } else {
                if (name.has("add")) return atomic<T, adds>;
                if (name.has("min")) return atomic<T, takes_less>;
                if (name.has("max")) return atomic<T, takes_more>;
                if (name.has("and")) return atomic<T, joins_by_and>;
                if (name.has("or")) return atomic<T, joins_by_or>;
            }
            return nullptr;
        });
    }
    return nullptr;
}

}  // namespace halftone::ptx

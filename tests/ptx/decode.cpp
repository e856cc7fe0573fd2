// SPDX-License-Identifier: MIT
/// \file
/// What each instruction does; the PTX ISA's manual, version 9.0, section 9.7, is the source.
#include <bit>
#include <cmath>
#include <limits>
#include <type_traits>

#include <halftone/number.hpp>

#include "ptx/machine.hpp"
#include "ptx/warp_wide.hpp"

namespace halftone::ptx {

namespace {

template <class F>
void each_lane(lane_mask m, const F& f) {
    for (; m != 0; m &= m - 1) f(std::countr_zero(m));
}

template <class T>
struct tag {
    using type = T;
};
/// f(tag<T>) for the type of that name.
template <class F>
handler by_type(std::string_view t, const F& f) {
    if (t == "s32") return f(tag<std::int32_t>{});
    if (t == "u32" || t == "b32") return f(tag<std::uint32_t>{});
    if (t == "s64") return f(tag<std::int64_t>{});
    if (t == "u64" || t == "b64") return f(tag<std::uint64_t>{});
    if (t == "s16") return f(tag<std::int16_t>{});
    if (t == "u16" || t == "b16") return f(tag<std::uint16_t>{});
    if (t == "s8") return f(tag<std::int8_t>{});
    if (t == "u8" || t == "b8") return f(tag<std::uint8_t>{});
    if (t == "f32") return f(tag<float>{});
    if (t == "f64") return f(tag<double>{});
    return nullptr;
}
template <class F>
handler by_whole(std::string_view t, const F& f) {
    return by_type(t, [&](auto kind) -> handler {
        if constexpr (std::is_integral_v<typename decltype(kind)::type>) return f(kind);
        return nullptr;
    });
}
template <class F>
handler by_real(std::string_view t, const F& f) {
    return by_type(t, [&](auto kind) -> handler {
        if constexpr (std::is_floating_point_v<typename decltype(kind)::type>) return f(kind);
        return nullptr;
    });
}

/// Handlers that do F lane by lane: to[0] = F(from[0], ...), each of type T.
template <class T, class F, class R = T>
constexpr handler unary = [](warp& w, const instruction& i, lane_mask m) {
    each_lane(m, [&](int l) { w.set<R>(i.to[0], l, F{}(w.get<T>(i.from[0], l))); });
};
template <class T, class F, class R = T, class B = T>
constexpr handler binary = [](warp& w, const instruction& i, lane_mask m) {
    each_lane(m, [&](int l) { w.set<R>(i.to[0], l, F{}(w.get<T>(i.from[0], l), w.get<B>(i.from[1], l))); });
};
template <class T, class F, class R = T, class C = T>
constexpr handler ternary = [](warp& w, const instruction& i, lane_mask m) {
    each_lane(m, [&](int l) {
        w.set<R>(i.to[0], l, F{}(w.get<T>(i.from[0], l), w.get<T>(i.from[1], l), w.get<C>(i.from[2], l)));
    });
};

__extension__ using signed_128 = __int128;
__extension__ using unsigned_128 = unsigned __int128;
template <class T>
using wide = std::conditional_t<(sizeof(T) < 4), std::conditional_t<std::is_signed_v<T>, std::int32_t, std::uint32_t>,
                                std::conditional_t<(sizeof(T) < 8), std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>,
                                                   std::conditional_t<std::is_signed_v<T>, signed_128, unsigned_128>>>;
template <class T>
using bits_of = std::make_unsigned_t<std::conditional_t<std::is_integral_v<T>, T, std::conditional_t<sizeof(T) == 4, int, long>>>;

// ---- whole numbers; sums and products wrap

#define HALFTONE_FUNCTION(name, parameters, ...)                    \
    template <class T>                                              \
    struct name {                                                   \
        auto operator() parameters const { return __VA_ARGS__; }    \
    }
HALFTONE_FUNCTION(add_f, (T a, T b), static_cast<T>(bits_of<T>(a) + bits_of<T>(b)));
HALFTONE_FUNCTION(sub_f, (T a, T b), static_cast<T>(bits_of<T>(a) - bits_of<T>(b)));
HALFTONE_FUNCTION(mul_f, (T a, T b), static_cast<T>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b)));
HALFTONE_FUNCTION(mul_hi_f, (T a, T b), static_cast<T>((static_cast<wide<T>>(a) * static_cast<wide<T>>(b)) >> (8 * sizeof(T))));
HALFTONE_FUNCTION(mul_wide_f, (T a, T b), static_cast<wide<T>>(static_cast<wide<T>>(a) * static_cast<wide<T>>(b)));
HALFTONE_FUNCTION(mad_f, (T a, T b, T c), static_cast<T>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b) + static_cast<std::uint64_t>(c)));
HALFTONE_FUNCTION(mad_hi_f, (T a, T b, T c), static_cast<T>(mul_hi_f<T>{}(a, b) + c));
HALFTONE_FUNCTION(mad_wide_f, (T a, T b, wide<T> c), static_cast<wide<T>>(static_cast<wide<T>>(a) * static_cast<wide<T>>(b) + c));
HALFTONE_FUNCTION(div_f, (T a, T b), b == 0 ? static_cast<T>(-1) : std::is_signed_v<T> && b == static_cast<T>(-1) ? static_cast<T>(bits_of<T>(0) - bits_of<T>(a)) : static_cast<T>(a / b));
HALFTONE_FUNCTION(rem_f, (T a, T b), b == 0 || (std::is_signed_v<T> && b == static_cast<T>(-1)) ? static_cast<T>(0) : static_cast<T>(a % b));
HALFTONE_FUNCTION(min_f, (T a, T b), b < a ? b : a);
HALFTONE_FUNCTION(max_f, (T a, T b), a < b ? b : a);
HALFTONE_FUNCTION(neg_f, (T a), static_cast<T>(bits_of<T>(0) - bits_of<T>(a)));
HALFTONE_FUNCTION(abs_f, (T a), a < 0 ? static_cast<T>(bits_of<T>(0) - bits_of<T>(a)) : a);
HALFTONE_FUNCTION(and_f, (T a, T b), static_cast<T>(a & b));
HALFTONE_FUNCTION(or_f, (T a, T b), static_cast<T>(a | b));
HALFTONE_FUNCTION(xor_f, (T a, T b), static_cast<T>(a ^ b));
HALFTONE_FUNCTION(not_f, (T a), static_cast<T>(~a));
HALFTONE_FUNCTION(shl_f, (T a, std::uint32_t n), n >= 8 * sizeof(T) ? T{0} : static_cast<T>(bits_of<T>(a) << n));
HALFTONE_FUNCTION(shr_f, (T a, std::uint32_t n), n >= 8 * sizeof(T) ? static_cast<T>(a < 0 ? -1 : 0) : static_cast<T>(a >> n));
HALFTONE_FUNCTION(popc_f, (T a), static_cast<std::uint32_t>(std::popcount(bits_of<T>(a))));
HALFTONE_FUNCTION(clz_f, (T a), static_cast<std::uint32_t>(std::countl_zero(bits_of<T>(a))));
#undef HALFTONE_FUNCTION

struct brev_f {
    std::uint32_t operator()(std::uint32_t a) const {
        std::uint32_t r = 0;
        for (int b = 0; b < 32; ++b) r |= (a >> b & 1u) << (31 - b);
        return r;
    }
};
struct bmsk_f {  // bmsk.clamp
    std::uint32_t operator()(std::uint32_t at, std::uint32_t width) const {
        if (at >= 32) return 0;
        const std::uint64_t ones = width >= 32 ? 0xffffffffu : (std::uint64_t{1} << width) - 1;
        return static_cast<std::uint32_t>(ones << at);
    }
};
template <class T>
struct bfe_f {
    T operator()(T a, std::uint32_t at, std::uint32_t width) const {
        at &= 0xff;
        width &= 0xff;
        constexpr std::uint32_t most = 8 * sizeof(T);
        if (width == 0) return 0;
        const auto bits = static_cast<std::make_unsigned_t<T>>(a);
        const std::uint32_t top = std::min(at + width - 1, most - 1);
        const bool is_negative = std::is_signed_v<T> && (bits >> top & 1u) != 0;
        std::make_unsigned_t<T> r = 0;
        for (std::uint32_t b = 0; b < most; ++b) {
            const bool bit = b < width && at + b < most ? (bits >> (at + b) & 1u) != 0 : is_negative;
            r |= static_cast<std::make_unsigned_t<T>>(bit) << b;
        }
        return static_cast<T>(r);
    }
};
struct prmt_f {
    std::uint32_t operator()(std::uint32_t a, std::uint32_t b, std::uint32_t selector) const {
        const std::uint64_t both = a | static_cast<std::uint64_t>(b) << 32;
        std::uint32_t r = 0;
        for (int n = 0; n < 4; ++n) {
            const std::uint32_t s = selector >> (4 * n) & 0xfu;
            std::uint32_t byte = static_cast<std::uint32_t>(both >> (8 * (s & 7u))) & 0xffu;
            if ((s & 8u) != 0) byte = (byte & 0x80u) != 0 ? 0xffu : 0;
            r |= byte << (8 * n);
        }
        return r;
    }
};

// ---- real numbers

template <class T>
T quiet(T x) {  // what the hardware answers where a result is no number
    if (x == x) return x;
    return sizeof(T) == 4 ? static_cast<T>(std::bit_cast<float>(0x7fffffffu)) : static_cast<T>(std::numeric_limits<double>::quiet_NaN());
}
template <class T>
T flushed(T x) {
    return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(T{0}, x) : x;
}
#define HALFTONE_FUNCTION(name, parameters, ...)                          \
    template <class T>                                                    \
    struct name {                                                         \
        T operator() parameters const { return quiet<T>(__VA_ARGS__); }   \
    }
HALFTONE_FUNCTION(fadd, (T a, T b), a + b);
HALFTONE_FUNCTION(fsub, (T a, T b), a - b);
HALFTONE_FUNCTION(fmul, (T a, T b), a * b);
HALFTONE_FUNCTION(fdiv, (T a, T b), a / b);
HALFTONE_FUNCTION(ffma, (T a, T b, T c), std::fma(a, b, c));
HALFTONE_FUNCTION(fsqrt, (T a), std::sqrt(a));
HALFTONE_FUNCTION(frcp, (T a), T{1} / a);
HALFTONE_FUNCTION(frsqrt, (T a), static_cast<T>(1.0 / std::sqrt(static_cast<double>(a))));
HALFTONE_FUNCTION(fmin_of, (T a, T b), a != a ? b : b != b ? a : a == b ? (std::signbit(a) ? a : b) : a < b ? a : b);
HALFTONE_FUNCTION(fmax_of, (T a, T b), a != a ? b : b != b ? a : a == b ? (std::signbit(a) ? b : a) : a < b ? b : a);
HALFTONE_FUNCTION(fex2, (T a), flushed(static_cast<T>(std::exp2(static_cast<double>(flushed(a))))));
HALFTONE_FUNCTION(flg2, (T a), static_cast<T>(std::log2(static_cast<double>(flushed(a)))));
HALFTONE_FUNCTION(fsin, (T a), static_cast<T>(std::sin(static_cast<double>(a))));
HALFTONE_FUNCTION(fcos, (T a), static_cast<T>(std::cos(static_cast<double>(a))));
HALFTONE_FUNCTION(ftanh, (T a), static_cast<T>(std::tanh(static_cast<double>(a))));
#undef HALFTONE_FUNCTION
template <class T>
struct fneg {
    T operator()(T a) const { return -a; }
};
template <class T>
struct fabs_of {
    T operator()(T a) const { return std::fabs(a); }
};
template <class T>
struct fcopysign {  // of the first, on the second
    T operator()(T a, T b) const { return std::copysign(b, a); }
};
/// The sum of an exact product, rounded down: doubles hold the product, and their own rounding is seen by what it left.
struct ffma_down {
    float operator()(float a, float b, float c) const {
        const double product = static_cast<double>(a) * b, sum = product + c;
        const double was = sum - product, left = (product - (sum - was)) + (c - was);
        float r = static_cast<float>(sum);
        if (std::isfinite(r) && (static_cast<double>(r) > sum || (static_cast<double>(r) == sum && left < 0)))
            r = std::nextafter(r, -std::numeric_limits<float>::infinity());
        return quiet(r);
    }
};

template <class T>
handler real_binary(std::string_view op) {
    if (op == "add") return binary<T, fadd<T>>;
    if (op == "sub") return binary<T, fsub<T>>;
    if (op == "mul") return binary<T, fmul<T>>;
    if (op == "div") return binary<T, fdiv<T>>;
    if (op == "min") return binary<T, fmin_of<T>>;
    if (op == "max") return binary<T, fmax_of<T>>;
    if (op == "fma" || op == "mad") return ternary<T, ffma<T>>;
    if (op == "neg") return unary<T, fneg<T>>;
    if (op == "abs") return unary<T, fabs_of<T>>;
    if (op == "sqrt") return unary<T, fsqrt<T>>;
    if (op == "rcp") return unary<T, frcp<T>>;
    if (op == "rsqrt") return unary<T, frsqrt<T>>;
    if (op == "ex2") return unary<T, fex2<T>>;
    if (op == "lg2") return unary<T, flg2<T>>;
    if (op == "sin") return unary<T, fsin<T>>;
    if (op == "cos") return unary<T, fcos<T>>;
    if (op == "tanh") return unary<T, ftanh<T>>;
    if (op == "copysign") return binary<T, fcopysign<T>>;
    return nullptr;
}
template <class T>
handler whole_arithmetic(std::string_view op, std::string_view form) {
    using narrow = std::conditional_t<(sizeof(T) > 1), T, int>;
    if (op == "add") return binary<T, add_f<T>>;
    if (op == "sub") return binary<T, sub_f<T>>;
    if (op == "mul" && form == "lo") return binary<T, mul_f<T>>;
    if (op == "mul" && form == "hi") return binary<T, mul_hi_f<T>>;
    if (op == "mad" && form == "lo") return ternary<T, mad_f<T>>;
    if (op == "mad" && form == "hi") return ternary<T, mad_hi_f<T>>;
    if constexpr (sizeof(T) < 8) {
        if (op == "mul" && form == "wide") return binary<T, mul_wide_f<T>, wide<T>>;
        if (op == "mad" && form == "wide") return ternary<T, mad_wide_f<T>, wide<T>, wide<T>>;
    }
    if (op == "div") return binary<T, div_f<T>>;
    if (op == "rem") return binary<T, rem_f<T>>;
    if (op == "min") return binary<T, min_f<T>>;
    if (op == "max") return binary<T, max_f<T>>;
    if (op == "neg") return unary<T, neg_f<T>>;
    if (op == "abs") return unary<T, abs_f<T>>;
    if (op == "and") return binary<T, and_f<T>>;
    if (op == "or") return binary<T, or_f<T>>;
    if (op == "xor") return binary<T, xor_f<T>>;
    if (op == "not") return unary<T, not_f<T>>;
    if (op == "shl") return binary<T, shl_f<T>, T, std::uint32_t>;
    if (op == "shr") return binary<T, shr_f<T>, T, std::uint32_t>;
    if (op == "popc") return unary<T, popc_f<T>, std::uint32_t>;
    if (op == "clz") return unary<T, clz_f<T>, std::uint32_t>;
    if constexpr (sizeof(narrow) >= 4) {
        if (op == "bfe") return [](warp& w, const instruction& i, lane_mask m) {
            each_lane(m, [&](int l) {
                w.set<narrow>(i.to[0], l, bfe_f<narrow>{}(w.get<narrow>(i.from[0], l), w.get<std::uint32_t>(i.from[1], l), w.get<std::uint32_t>(i.from[2], l)));
            });
        };
    }
    return nullptr;
}

// ---- comparisons

enum comparison { eq, ne, lt, le, gt, ge, or_unordered = 16, is_nan = 32, is_number = 33 };
template <class T>
bool compares(int how, T a, T b) {
    if constexpr (std::is_floating_point_v<T>) {
        const bool is_unordered = a != a || b != b;
        if (how == is_nan || how == is_number) return is_unordered == (how == is_nan);
        if (is_unordered) return (how & or_unordered) != 0;
    }
    switch (how & 7) {
        case eq: return a == b;
        case ne: return a != b;
        case lt: return a < b;
        case le: return a <= b;
        case gt: return a > b;
        default: return a >= b;
    }
}
int comparison_named(std::string_view s) {
    static const std::map<std::string_view, int> all{
        {"eq", eq}, {"ne", ne}, {"lt", lt}, {"le", le}, {"gt", gt}, {"ge", ge}, {"lo", lt}, {"ls", le}, {"hi", gt}, {"hs", ge},
        {"equ", or_unordered | eq}, {"neu", or_unordered | ne}, {"ltu", or_unordered | lt}, {"leu", or_unordered | le},
        {"gtu", or_unordered | gt}, {"geu", or_unordered | ge}, {"nan", is_nan}, {"num", is_number}};
    const auto found = all.find(s);
    return found == all.end() ? -1 : found->second;
}
/// option: the comparison, and above it what it is joined by.
enum joined { alone = 0, by_and = 256, by_or = 512, by_xor = 768 };
template <class T>
constexpr handler set_predicate = [](warp& w, const instruction& i, lane_mask m) {
    const int how = i.option & 255, join = i.option & 768;
    each_lane(m, [&](int l) {
        bool r = compares(how, w.get<T>(i.from[0], l), w.get<T>(i.from[1], l));
        bool other = !r;
        if (join != alone) {
            const bool c = w.values(i.from[2])[l] != 0;
            const auto joined_to = [&](bool x) { return join == by_and ? x && c : join == by_or ? x || c : x != c; };
            r = joined_to(r);
            other = joined_to(other);
        }
        w.values(i.to[0])[l] = r ? 1 : 0;
        if (i.to.size() > 1) w.values(i.to[1])[l] = other ? 1 : 0;
    });
};

// ---- conversions

template <class To, class From>
To converted(From x, bool saturates, int rounding) {
    if constexpr (std::is_floating_point_v<From>) {
        if (rounding == 'z') x = std::trunc(x);
        if (rounding == 'n') x = std::nearbyint(x);
        if (rounding == 'm') x = std::floor(x);
        if (rounding == 'p') x = std::ceil(x);
        if constexpr (std::is_integral_v<To>) {
            if (x != x) return sizeof(To) == 8 ? static_cast<To>(std::uint64_t{1} << 63) : To{0};
            constexpr double least = static_cast<double>(std::numeric_limits<To>::min());
            if (static_cast<double>(x) <= least) return std::numeric_limits<To>::min();
            if (static_cast<double>(x) >= static_cast<double>(std::numeric_limits<To>::max())) return std::numeric_limits<To>::max();
            return static_cast<To>(x);
        } else {
            if (saturates) x = x > From{0} ? std::min(x, From{1}) : From{0};
            return quiet(static_cast<To>(x));
        }
    } else {
        return static_cast<To>(x);
    }
}
template <class To, class From>
constexpr handler convert = [](warp& w, const instruction& i, lane_mask m) {
    each_lane(m, [&](int l) {
        const To r = converted<To>(w.get<From>(i.from[0], l), (i.option & 256) != 0, i.option & 255);
        if constexpr (std::is_integral_v<To> && std::is_signed_v<To> && sizeof(To) < 4) {
            w.set<std::int32_t>(i.to[0], l, r);  // narrow ones fill their register by their sign
        } else {
            w.set<To>(i.to[0], l, r);
        }
    });
};
template <class To, class From>
constexpr handler convert_number = [](warp& w, const instruction& i, lane_mask m) {
    each_lane(m, [&](int l) {
        if constexpr (std::is_same_v<To, float>) {
            w.set<float>(i.to[0], l, static_cast<float>(From::from_bits(w.get<std::uint16_t>(i.from[0], l))));
        } else {
            const From x = w.get<From>(i.from[0], l);
            w.set<std::uint16_t>(i.to[0], l, x == x ? To(x).bits() : std::uint16_t{0x7fff});
        }
    });
};
/// Two floats into one word, the first on top.
template <class To>
constexpr handler convert_pair = [](warp& w, const instruction& i, lane_mask m) {
    each_lane(m, [&](int l) {
        const auto bits = [&](int n) {
            const float x = w.get<float>(i.from[static_cast<std::size_t>(n)], l);
            return x == x ? To(x).bits() : std::uint16_t{0x7fff};
        };
        w.set<std::uint32_t>(i.to[0], l, static_cast<std::uint32_t>(bits(0)) << 16 | bits(1));
    });
};
constexpr handler convert_tf32 = [](warp& w, const instruction& i, lane_mask m) {
    each_lane(m, [&](int l) {
        const std::uint32_t bits = w.get<std::uint32_t>(i.from[0], l);
        w.set<std::uint32_t>(i.to[0], l, (bits & 0x7f800000u) == 0x7f800000u ? bits & ~0x1fffu : (bits + 0x1000u) & ~0x1fffu);
    });
};

// ---- memory; option: bytes of one element

constexpr handler load = [](warp& w, const instruction& i, lane_mask m) {
    const std::uint64_t each = static_cast<unsigned>(i.option & 255), all = each * i.to.size();
    const bool is_signed = (i.option & 256) != 0;
    each_lane(m, [&](int l) {
        const std::byte* const at = w.memory(i, i.at, w.values(i.from[0])[l] + static_cast<std::uint64_t>(i.offset), all, l);
        for (std::size_t n = 0; n < i.to.size(); ++n) {
            std::uint64_t bits = 0;
            std::memcpy(&bits, at + n * each, each);
            if (is_signed && (bits >> (8 * each - 1) & 1u) != 0) bits |= ~std::uint64_t{0} << (8 * each - 1);
            w.values(i.to[n])[l] = bits;
        }
    });
};
constexpr handler store = [](warp& w, const instruction& i, lane_mask m) {
    const std::uint64_t each = static_cast<unsigned>(i.option & 255), count = i.from.size() - 1;
    each_lane(m, [&](int l) {
        std::byte* const at = w.memory(i, i.at, w.values(i.from[0])[l] + static_cast<std::uint64_t>(i.offset), each * count, l);
        for (std::size_t n = 0; n < count; ++n) std::memcpy(at + n * each, w.values(i.from[n + 1]) + l, each);
    });
};
template <class T, class F>
constexpr handler atomic = [](warp& w, const instruction& i, lane_mask m) {
    each_lane(m, [&](int l) {
        std::byte* const at = w.memory(i, i.at, w.values(i.from[0])[l] + static_cast<std::uint64_t>(i.offset), sizeof(T), l);
        T was;
        std::memcpy(&was, at, sizeof was);
        const T now = F{}(was, w.get<T>(i.from[1], l), i.from.size() > 2 ? w.get<T>(i.from[2], l) : T{});
        std::memcpy(at, &now, sizeof now);
        if (!i.to.empty()) w.set<T>(i.to[0], l, was);
    });
};
template <class F>
struct ignoring_third {
    template <class T>
    T operator()(T a, T b, T) const {
        return static_cast<T>(F{}(a, b));
    }
};
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

space space_named(const std::vector<std::string_view>& parts) {
    for (const auto p : parts) {
        if (p == "global" || p == "const") return space::global;
        if (p == "shared") return space::shared;
        if (p == "local") return space::local;
        if (p == "param") return space::param;
    }
    return space::generic;
}
std::int32_t bytes_of(std::string_view type) { return type.front() == 'p' ? 1 : std::stoi(std::string(type.substr(1))) / 8; }

handler decode_convert(instruction& i, const std::vector<std::string_view>& parts) {
    const std::string_view to = parts[parts.size() - 2], from = parts.back();
    for (const auto p : parts) {
        if (p == "sat") i.option |= 256;
        if (p == "rzi" || p == "rni" || p == "rmi" || p == "rpi") i.option |= p[1];
    }
    if (to == "tf32") return convert_tf32;
    if (to == "bf16x2") return convert_pair<bfloat16>;
    if (to == "f16x2") return convert_pair<float16>;
    if (to == "bf16" && from == "f32") return convert_number<bfloat16, float>;
    if (to == "f16" && from == "f32") return convert_number<float16, float>;
    if (to == "f32" && from == "bf16") return convert_number<float, bfloat16>;
    if (to == "f32" && from == "f16") return convert_number<float, float16>;
    return by_type(from, [&](auto f) {
        return by_type(to, [&](auto t) -> handler { return convert<typename decltype(t)::type, typename decltype(f)::type>; });
    });
}

handler decode_move(const instruction& i, std::string_view type) {
    if (i.to.size() == i.from.size()) {
        return [](warp& w, const instruction& a, lane_mask m) {
            each_lane(m, [&](int l) { w.values(a.to[0])[l] = w.values(a.from[0])[l]; });
        };
    }
    (void)type;
    return [](warp& w, const instruction& a, lane_mask m) {  // pieces into one, or one into pieces; option: bytes of it
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

handler decode_copy(instruction& i, const std::vector<std::string_view>& parts) {
    if (parts.size() > 2 && parts[2] == "commit_group")
        return [](warp& w, const instruction&, lane_mask m) { each_lane(m, [&](int l) { w.close_copies(l); }); };
    if (parts.size() > 2 && parts[2] == "wait_group")
        return [](warp& w, const instruction& a, lane_mask m) {
            each_lane(m, [&](int l) { w.wait_for_copies(a, l, w.get<std::uint32_t>(a.from[0], l)); });
        };
    if (parts.size() > 2 && parts[2] == "wait_all")
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
            w.copy_later(l, {w.values(a.from[0])[l], from, bytes, valid});
        });
    };
}

handler find(instruction& i, const std::vector<std::string_view>& parts) {
    const std::string_view op = parts[0], type = parts.back(), form = parts.size() > 1 ? parts[1] : "";
    const auto has = [&](std::string_view word) {
        for (const auto p : parts)
            if (p == word) return true;
        return false;
    };
    if (handler wide_one = decode_warp_wide(i, parts)) return wide_one;
    if (op == "mov") {
        i.option = bytes_of(type);
        return decode_move(i, type);
    }
    if (op == "ld" || op == "st" || op == "ldu") {
        i.at = space_named(parts);
        i.option = bytes_of(type) | (type.front() == 's' ? 256 : 0);
        return op == "st" ? store : load;
    }
    if (op == "cp") return decode_copy(i, parts);
    if (op == "membar" || op == "fence" || op == "prefetch" || op == "nanosleep" || op == "griddepcontrol")
        return [](warp&, const instruction&, lane_mask) {};
    if (op == "trap") return [](warp& w, const instruction& a, lane_mask) { w.fail(a, "a trap"); };
    if (op == "cvta") {
        i.at = space_named(parts);
        if (has("to"))
            return [](warp& w, const instruction& a, lane_mask m) {
                each_lane(m, [&](int l) { w.values(a.to[0])[l] = w.from_generic(a.at, w.values(a.from[0])[l], l); });
            };
        return [](warp& w, const instruction& a, lane_mask m) {
            each_lane(m, [&](int l) { w.values(a.to[0])[l] = w.generic(a.at, w.values(a.from[0])[l], l); });
        };
    }
    if (op == "cvt") return decode_convert(i, parts);
    if (op == "setp") {
        const int how = comparison_named(form);
        i.option = how | (parts.size() > 3 && has("and") ? by_and : has("or") ? by_or : has("xor") ? by_xor : alone);
        return how < 0 ? nullptr : by_type(type, [](auto t) -> handler { return set_predicate<typename decltype(t)::type>; });
    }
    if (op == "selp")
        return [](warp& w, const instruction& a, lane_mask m) {
            each_lane(m, [&](int l) { w.values(a.to[0])[l] = w.values(a.from[w.values(a.from[2])[l] != 0 ? 0 : 1])[l]; });
        };
    if (type == "pred") {
        if (op == "and") return binary<std::uint64_t, and_f<std::uint64_t>>;
        if (op == "or") return binary<std::uint64_t, or_f<std::uint64_t>>;
        if (op == "xor") return binary<std::uint64_t, xor_f<std::uint64_t>>;
        if (op == "not")
            return [](warp& w, const instruction& a, lane_mask m) {
                each_lane(m, [&](int l) { w.values(a.to[0])[l] = w.values(a.from[0])[l] != 0 ? 0 : 1; });
            };
    }
    if (op == "atom" || op == "red") {
        i.at = space_named(parts);
        return by_type(type, [&](auto t) -> handler {
            using T = typename decltype(t)::type;
            if (has("exch")) return atomic<T, exchange>;
            if (has("cas")) return atomic<T, compare_and_swap>;
            if constexpr (std::is_floating_point_v<T>) {
                if (has("add")) return atomic<T, ignoring_third<fadd<T>>>;
            } else {
                if (has("add")) return atomic<T, ignoring_third<add_f<T>>>;
                if (has("min")) return atomic<T, ignoring_third<min_f<T>>>;
                if (has("max")) return atomic<T, ignoring_third<max_f<T>>>;
                if (has("and")) return atomic<T, ignoring_third<and_f<T>>>;
                if (has("or")) return atomic<T, ignoring_third<or_f<T>>>;
            }
            return nullptr;
        });
    }
    if (op == "prmt") return ternary<std::uint32_t, prmt_f>;
    if (op == "brev" && type == "b32") return unary<std::uint32_t, brev_f>;
    if (op == "bmsk") return binary<std::uint32_t, bmsk_f>;
    if (op == "shf") {  // option: left or right
        i.option = (form == "l" ? 1 : 0) | (has("wrap") ? 2 : 0);
        return [](warp& w, const instruction& a, lane_mask m) {
            each_lane(m, [&](int l) {
                const std::uint64_t both = w.get<std::uint32_t>(a.from[0], l) | static_cast<std::uint64_t>(w.get<std::uint32_t>(a.from[1], l)) << 32;
                std::uint32_t n = w.get<std::uint32_t>(a.from[2], l);
                n = (a.option & 2) != 0 ? n & 31u : std::min(n, 32u);
                w.set<std::uint32_t>(a.to[0], l, static_cast<std::uint32_t>((a.option & 1) != 0 ? both << n >> 32 : both >> n));
            });
        };
    }
    if (op == "lop3") {
        return [](warp& w, const instruction& a, lane_mask m) {
            each_lane(m, [&](int l) {
                const std::uint32_t table = w.get<std::uint32_t>(a.from[3], l);
                std::uint32_t r = 0;
                for (int b = 0; b < 32; ++b) {
                    const auto bit = [&](int n) { return w.get<std::uint32_t>(a.from[static_cast<std::size_t>(n)], l) >> b & 1u; };
                    r |= (table >> (bit(0) << 2 | bit(1) << 1 | bit(2)) & 1u) << b;
                }
                w.set<std::uint32_t>(a.to[0], l, r);
            });
        };
    }
    if (op == "fma" && form == "rm" && type == "f32") return ternary<float, ffma_down>;
    if ((has("rz") || has("rp") || has("rm")) && (type == "f32" || type == "f64")) return nullptr;
    if (const handler real = by_real(type, [&](auto t) { return real_binary<typename decltype(t)::type>(op); })) return real;
    return by_whole(type, [&](auto t) { return whole_arithmetic<typename decltype(t)::type>(op, form); });
}

}  // namespace

void decode(instruction& i, std::string_view, const std::vector<std::string_view>& parts) {
    i.run = find(i, parts);
    // What a kernel never comes to may be of any kind.
    if (i.run == nullptr) i.run = [](warp& w, const instruction& a, lane_mask) { w.fail(a, "unknown instruction"); };
}

}  // namespace halftone::ptx

// SPDX-License-Identifier: MIT
/// \file
/// Sums, products, bits and functions of whole and real numbers, and comparisons: the PTX ISA's manual, version 9.0,
/// sections 9.7.1 to 9.7.8.
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <type_traits>

#include "ptx/by_type.hpp"
#include "ptx/decode.hpp"

namespace halftone::ptx {

namespace {

__extension__ using signed_128 = __int128;
__extension__ using unsigned_128 = unsigned __int128;
template <class T>
using wide = std::conditional_t<
    (sizeof(T) < 4), std::conditional_t<std::is_signed_v<T>, std::int32_t, std::uint32_t>,
    std::conditional_t<(sizeof(T) < 8), std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>,
                       std::conditional_t<std::is_signed_v<T>, signed_128, unsigned_128>>>;
template <class T>
using bits_of =
    std::make_unsigned_t<std::conditional_t<std::is_integral_v<T>, T, std::conditional_t<sizeof(T) == 4, int, long>>>;

// ---- whole numbers; sums and products wrap

#define HALFTONE_FUNCTION(name, parameters, ...)                 \
    template <class T>                                           \
    struct name {                                                \
        auto operator() parameters const { return __VA_ARGS__; } \
    }
HALFTONE_FUNCTION(add_f, (T a, T b), static_cast<T>(bits_of<T>(a) + bits_of<T>(b)));
HALFTONE_FUNCTION(sub_f, (T a, T b), static_cast<T>(bits_of<T>(a) - bits_of<T>(b)));
HALFTONE_FUNCTION(mul_f, (T a, T b), static_cast<T>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b)));
HALFTONE_FUNCTION(mul_hi_f, (T a, T b),
                  static_cast<T>((static_cast<wide<T>>(a) * static_cast<wide<T>>(b)) >> (8 * sizeof(T))));
HALFTONE_FUNCTION(mul_wide_f, (T a, T b), static_cast<wide<T>>(static_cast<wide<T>>(a) * static_cast<wide<T>>(b)));
HALFTONE_FUNCTION(mad_f, (T a, T b, T c),
                  static_cast<T>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b) +
                                 static_cast<std::uint64_t>(c)));
HALFTONE_FUNCTION(mad_hi_f, (T a, T b, T c), static_cast<T>(mul_hi_f<T>{}(a, b) + c));
HALFTONE_FUNCTION(mad_wide_f, (T a, T b, wide<T> c),
                  static_cast<wide<T>>(static_cast<wide<T>>(a) * static_cast<wide<T>>(b) + c));
HALFTONE_FUNCTION(div_f, (T a, T b),
                  b == 0                                           ? static_cast<T>(-1)
                  : std::is_signed_v<T> && b == static_cast<T>(-1) ? static_cast<T>(bits_of<T>(0) - bits_of<T>(a))
                                                                   : static_cast<T>(a / b));
HALFTONE_FUNCTION(rem_f, (T a, T b),
                  b == 0 || (std::is_signed_v<T> && b == static_cast<T>(-1)) ? static_cast<T>(0)
                                                                             : static_cast<T>(a % b));
HALFTONE_FUNCTION(min_f, (T a, T b), b < a ? b : a);
HALFTONE_FUNCTION(max_f, (T a, T b), a < b ? b : a);
HALFTONE_FUNCTION(neg_f, (T a), static_cast<T>(bits_of<T>(0) - bits_of<T>(a)));
HALFTONE_FUNCTION(abs_f, (T a), a < 0 ? static_cast<T>(bits_of<T>(0) - bits_of<T>(a)) : a);
HALFTONE_FUNCTION(and_f, (T a, T b), static_cast<T>(a& b));
HALFTONE_FUNCTION(or_f, (T a, T b), static_cast<T>(a | b));
HALFTONE_FUNCTION(xor_f, (T a, T b), static_cast<T>(a ^ b));
HALFTONE_FUNCTION(not_f, (T a), static_cast<T>(~a));
HALFTONE_FUNCTION(shl_f, (T a, std::uint32_t n), n >= 8 * sizeof(T) ? T{0} : static_cast<T>(bits_of<T>(a) << n));
HALFTONE_FUNCTION(shr_f, (T a, std::uint32_t n),
                  n >= 8 * sizeof(T) ? static_cast<T>(a < 0 ? -1 : 0) : static_cast<T>(a >> n));
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
/// d = b with the lowest `width` bits of a from bit `at` on.
template <class T>
handler insert_bits() {
    return [](warp& w, const instruction& i, lane_mask m) {
        each_lane(m, [&](int l) {
            const std::uint32_t at = w.get<std::uint32_t>(i.from[2], l) & 0xffu,
                                width = w.get<std::uint32_t>(i.from[3], l) & 0xffu;
            constexpr std::uint32_t most = 8 * sizeof(T);
            const T ones = width >= most ? ~T{0} : static_cast<T>((T{1} << width) - 1);
            const T mask = at >= most ? T{0} : static_cast<T>(ones << at);
            const T a = w.get<T>(i.from[0], l), b = w.get<T>(i.from[1], l);
            w.set<T>(i.to[0], l, (at >= most ? b : (b & ~mask) | (static_cast<T>(a << at) & mask)));
        });
    };
}
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
T flushed(T x) {
    return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(T{0}, x) : x;
}
#define HALFTONE_FUNCTION(name, parameters, ...)                        \
    template <class T>                                                  \
    struct name {                                                       \
        T operator() parameters const { return quiet<T>(__VA_ARGS__); } \
    }
HALFTONE_FUNCTION(fadd, (T a, T b), a + b);
HALFTONE_FUNCTION(fsub, (T a, T b), a - b);
HALFTONE_FUNCTION(fmul, (T a, T b), a* b);
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
/// The sum with an exact product, rounded down: doubles represent the product exactly, and the error of their sum shows its
/// rounding.
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
        case eq:
            return a == b;
        case ne:
            return a != b;
        case lt:
            return a < b;
        case le:
            return a <= b;
        case gt:
            return a > b;
        default:
            return a >= b;
    }
}
int comparison_named(std::string_view s) {
    static const std::map<std::string_view, int> all{{"eq", eq},
                                                     {"ne", ne},
                                                     {"lt", lt},
                                                     {"le", le},
                                                     {"gt", gt},
                                                     {"ge", ge},
                                                     {"lo", lt},
                                                     {"ls", le},
                                                     {"hi", gt},
                                                     {"hs", ge},
                                                     {"equ", or_unordered | eq},
                                                     {"neu", or_unordered | ne},
                                                     {"ltu", or_unordered | lt},
                                                     {"leu", or_unordered | le},
                                                     {"gtu", or_unordered | gt},
                                                     {"geu", or_unordered | ge},
                                                     {"nan", is_nan},
                                                     {"num", is_number}};
    const auto found = all.find(s);
    return found == all.end() ? -1 : found->second;
}
/// option: the comparison and, in the upper bits, the operation that joins it with a predicate.
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

// ---- by their names

template <class T>
handler real_arithmetic(std::string_view op) {
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
        if (op == "bfe")
            return [](warp& w, const instruction& i, lane_mask m) {
                each_lane(m, [&](int l) {
                    w.set<narrow>(i.to[0], l,
                                  bfe_f<narrow>{}(w.get<narrow>(i.from[0], l), w.get<std::uint32_t>(i.from[1], l),
                                                  w.get<std::uint32_t>(i.from[2], l)));
                });
            };
    }
    return nullptr;
}

}  // namespace

handler decode_arithmetic(instruction& i, const mnemonic& name) {
    const std::string_view operation = name.operation(), type = name.type(), form = name.form();
    if (operation == "setp") {
        const int how = comparison_named(form);
        i.option = how | (name.has("and") ? by_and : name.has("or") ? by_or : name.has("xor") ? by_xor : alone);
        return how < 0 ? nullptr
                       : by_type(type, [](auto t) -> handler { return set_predicate<typename decltype(t)::type>; });
    }
    if (operation == "selp")
        return [](warp& w, const instruction& a, lane_mask m) {
            each_lane(m,
                      [&](int l) { w.values(a.to[0])[l] = w.values(a.from[w.values(a.from[2])[l] != 0 ? 0 : 1])[l]; });
        };
    if (type == "pred") {
        if (operation == "and") return binary<std::uint64_t, and_f<std::uint64_t>>;
        if (operation == "or") return binary<std::uint64_t, or_f<std::uint64_t>>;
        if (operation == "xor") return binary<std::uint64_t, xor_f<std::uint64_t>>;
        if (operation == "not")
            return [](warp& w, const instruction& a, lane_mask m) {
                each_lane(m, [&](int l) { w.values(a.to[0])[l] = w.values(a.from[0])[l] != 0 ? 0 : 1; });
            };
    }
    if (operation == "prmt") return ternary<std::uint32_t, prmt_f>;
    if (operation == "bfi") return type == "b64" ? insert_bits<std::uint64_t>() : insert_bits<std::uint32_t>();
    if (operation == "brev" && type == "b32") return unary<std::uint32_t, brev_f>;
    if (operation == "bmsk") return binary<std::uint32_t, bmsk_f>;
    if (operation == "shf") {  // option: left or right
        i.option = (form == "l" ? 1 : 0) | (name.has("wrap") ? 2 : 0);
        return [](warp& w, const instruction& a, lane_mask m) {
            each_lane(m, [&](int l) {
                const std::uint64_t both = w.get<std::uint32_t>(a.from[0], l) |
                                           static_cast<std::uint64_t>(w.get<std::uint32_t>(a.from[1], l)) << 32;
                std::uint32_t n = w.get<std::uint32_t>(a.from[2], l);
                n = (a.option & 2) != 0 ? n & 31u : std::min(n, 32u);
                w.set<std::uint32_t>(a.to[0], l,
                                     static_cast<std::uint32_t>((a.option & 1) != 0 ? both << n >> 32 : both >> n));
            });
        };
    }
    if (operation == "lop3") {
        return [](warp& w, const instruction& a, lane_mask m) {
            each_lane(m, [&](int l) {
                const std::uint32_t table = w.get<std::uint32_t>(a.from[3], l);
                std::uint32_t r = 0;
                for (int b = 0; b < 32; ++b) {
                    const auto bit = [&](int n) {
                        return w.get<std::uint32_t>(a.from[static_cast<std::size_t>(n)], l) >> b & 1u;
                    };
                    r |= (table >> (bit(0) << 2 | bit(1) << 1 | bit(2)) & 1u) << b;
                }
                w.set<std::uint32_t>(a.to[0], l, r);
            });
        };
    }
    if (operation == "fma" && form == "rm" && type == "f32") return ternary<float, ffma_down>;
    if ((name.has("rz") || name.has("rp") || name.has("rm")) && (type == "f32" || type == "f64")) return nullptr;
    if (const handler real =
            by_real(type, [&](auto t) { return real_arithmetic<typename decltype(t)::type>(operation); }))
        return real;
    return by_whole(type, [&](auto t) { return whole_arithmetic<typename decltype(t)::type>(operation, form); });
}

}  // namespace halftone::ptx

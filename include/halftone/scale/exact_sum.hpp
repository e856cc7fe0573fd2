// SPDX-License-Identifier: MIT
/// \file
/// A sum of non-negative doubles that is exact until it is read: its bits do not depend on the order of the terms, nor on
/// how they are divided among ranks. For the norm of gradients, which all strategies (ranks/zero.hpp) compute alike.
///
///     detail::exact_sum sum;
///     sum.add(0.1), sum.add(1e300);
///     sum.value()                        // rounded once, to nearest even
///
/// It is a fixed-point number with a place for every bit that a double can have (Kulisch's long accumulator), as 32-bit
/// digits in 64-bit words, so that carries can wait.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include <halftone/kernel/common/update/records.hpp>
#include <halftone/memory/resource.hpp>
#include <halftone/number/classify.hpp>
#include <halftone/number/integer.hpp>
#include <halftone/tensor/shape.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// Trivially copyable, so that ranks can exchange it.
class exact_sum {
  public:
    /// Adds a term, finite and not negative. At most 2^31 of them, counting those of added sums, between two carries.
    void add(double x) {
        const auto bits = bit_cast<std::uint64_t>(x);
        const auto exponent = static_cast<unsigned>(bits >> 52 & 0x7ff);
        const std::uint64_t fraction = (bits & 0xfffffffffffffu) | (exponent == 0 ? 0 : std::uint64_t{1} << 52);
        const unsigned place = exponent == 0 ? 0 : exponent - 1, digit = place / 32, shift = place % 32;
        const std::uint64_t low = (fraction & 0xffffffffu) << shift, high = (fraction >> 32) << shift;
        digits_[digit] += low & 0xffffffffu;
        digits_[digit + 1] += (low >> 32) + (high & 0xffffffffu);
        digits_[digit + 2] += high >> 32;
    }
    /// Adds a sum.
    void add(const exact_sum& other) {
        for (std::size_t i = 0; i < count; ++i) digits_[i] += other.digits_[i];
        carry();
    }
    /// Carries from digit to digit; to be called before the sum is sent, and after many terms.
    void carry() {
        for (std::size_t i = 0; i + 1 < count; ++i) {
            digits_[i + 1] += digits_[i] >> 32;
            digits_[i] &= 0xffffffffu;
        }
    }
    /// The nearest double, to even; the largest finite one at most.
    double value() const {
        exact_sum s = *this;
        s.carry();
        std::size_t top = count - 1;
        while (top > 0 && s.digits_[top] == 0) --top;
        if (top < 2) return std::ldexp(static_cast<double>(s.digits_[1] << 32 | s.digits_[0]), -1074);
        const auto& d = s.digits_;
        // The 64 leading bits, the last of them set if anything follows: more than a double has, so it rounds as the sum.
        const int unused = std::countl_zero(d[top]) - 32;
        std::uint64_t leading = (d[top] << 32 | d[top - 1]) << unused;
        const std::uint64_t next = d[top - 2] << unused;
        leading |= next >> 32;
        bool follows = (next & 0xffffffffu) != 0;
        for (std::size_t i = 0; i < top - 2; ++i) follows = follows || d[i] != 0;
        const double x = std::ldexp(static_cast<double>(leading | (follows ? 1 : 0)),
                                    static_cast<int>(32 * (top - 1)) - unused - 1074);
        constexpr double largest = 1.79769313486231570815e308;
        return x < largest ? x : largest;
    }

  private:
    static constexpr std::size_t count = 68;  // bits from 2^-1074 to 2^1024, and room for carries
    std::array<std::uint64_t, count> digits_{};
};

/// What a rank found in its gradients.
struct found_squares {
    exact_sum squares{};
    std::int32_t found = 0;
};

/// The sum of the squares of at most 256 gradients, read with these factors, in double, in an order that depends on the
/// count alone; 0, and the worst value in `found`, if one is not finite.
template <class T>
double squares_of_block(const T* g, std::size_t count, const kernel::gradient_factors& factors, std::int32_t& found) {
    double partial[8] = {};
    for (std::size_t i = 0; i < count; ++i) {
        if (!is_finite(g[i])) {
            const std::int32_t here = is_nan(g[i]) ? kernel::found_nan : kernel::found_infinity;
            found = found > here ? found : here;
            continue;
        }
        const double v = kernel::read_gradient_in_double(static_cast<float>(g[i]), factors);
        partial[i % 8] += v * v;
    }
    if (found != kernel::found_nothing) return 0;
    return ((partial[0] + partial[1]) + (partial[2] + partial[3])) + ((partial[4] + partial[5]) + (partial[6] + partial[7]));
}

/// Adds the squares of a parameter's gradients, or of some whole blocks of them, in the device's memory.
template <class T, class Device>
void add_squares(Device& device, memory_resource& memory, const T* from, std::size_t count,
                 const kernel::gradient_factors& factors, found_squares& all) {
    constexpr std::size_t block = 256;
    std::vector<T> host;
    if (dynamic_cast<const host_memory*>(&memory) == nullptr) {
        host.resize(count);
        memory.read(host.data(), from, count * sizeof(T));
        from = host.data();
    }
    const std::size_t blocks = ceil_div(count, block);
    std::vector<double> squares(blocks);
    std::vector<std::int32_t> found(blocks);
    const auto take = [&](extent i) {
        const auto b = static_cast<std::size_t>(i);
        squares[b] = squares_of_block(from + b * block, std::min(block, count - b * block), factors, found[b]);
    };
    if constexpr (requires { device.parallel_for(extent{1}, take); }) {
        device.parallel_for(static_cast<extent>(blocks), take);
    } else {
        for (std::size_t b = 0; b < blocks; ++b) take(static_cast<extent>(b));
    }
    for (std::size_t b = 0; b < blocks; ++b) {
        all.squares.add(squares[b]);
        all.found = std::max(all.found, found[b]);
    }
    all.squares.carry();
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone

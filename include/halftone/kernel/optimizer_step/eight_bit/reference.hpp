// SPDX-License-Identifier: MIT
/// \file
/// The definition of blockwise 8-bit optimizer state, in double.
///
///     const std::vector<double> map = reference::dynamic_map(true);                 // the values of codes 0 to 255
///     reference::adamw_8bit(w, g, {m8, m_max}, {v8, v_max}, {.beta2 = 0.99}, lr, decay, t);
///     reference::lion_8bit(w, g, {m8, m_max}, {.beta2 = 0.98}, lr, decay);
///     reference::sgd_8bit(w, g, {m8, m_max}, {.momentum = 0.9}, lr, decay, t);
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include <halftone/kernel/optimizer_step/reference.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace reference {

/// The values of codes 0 to 255, sorted, by the algorithm of bitsandbytes' create_dynamic_map in double; they are floats.
inline std::vector<double> dynamic_map(bool has_sign) {
    std::vector<double> map{0, 1};
    for (int i = 0; i < 7; ++i) {
        const int parts = has_sign ? 1 << i : 2 << i;
        for (int j = 0; j < parts; ++j) {
            const double middle = 0.1 + 0.9 * (j + 0.5) / parts;
            const double value = static_cast<double>(static_cast<float>(std::pow(10.0, i - 6) * middle));
            map.push_back(value);
            if (has_sign) map.push_back(-value);
        }
    }
    std::sort(map.begin(), map.end());
    return map;
}

/// The code of the value nearest to x; of two that are equally near, that of the smaller magnitude. A negative x gets
/// the code of a negative value, even if 0 is nearer.
inline std::uint8_t nearest_code(const std::vector<double>& map, double x) {
    std::size_t best = 0;
    for (std::size_t code = 1; code < map.size(); ++code) {
        const double distance = std::fabs(map[code] - x), least = std::fabs(map[best] - x);
        if (distance < least || (distance == least && std::fabs(map[code]) < std::fabs(map[best]))) best = code;
    }
    if (x < 0 && map[best] == 0 && best > 0) --best;
    return static_cast<std::uint8_t>(best);
}

/// The code of a second moment: that of the smallest positive value where 0 is nearer, unless the second and the first moment are 0.
inline std::uint8_t second_moment_code(const std::vector<double>& map, double x, bool is_zero) {
    return std::max(nearest_code(map, x), static_cast<std::uint8_t>(is_zero ? 0 : 1));
}

/// Moments in 8 bits: a code for each, and an absmax (largest magnitude) for every 256 of them.
struct eight_bit_moment {
    view<std::uint8_t, 1> codes;
    view<float, 1> absmax;

    /// The values of the moments.
    std::vector<double> read(const std::vector<double>& map) const {
        std::vector<double> m;
        for (extent i = 0; i < codes.size(); ++i) m.push_back(map[codes(i)] * static_cast<double>(absmax(i / 256)));
        return m;
    }
    /// Stores values: the largest magnitude of each block, and the nearest code of each value; beside `first`, the first moments, the
    /// codes of second moments.
    void write(const std::vector<double>& map, const std::vector<double>& m, const std::vector<double>* first = nullptr) const {
        for (extent block = 0; block < absmax.size(); ++block) {
            const extent begin = block * 256, end = std::min(begin + 256, codes.size());
            double most = 0;
            for (extent i = begin; i < end; ++i) most = std::max(most, std::fabs(m[static_cast<std::size_t>(i)]));
            absmax(block) = static_cast<float>(most);
            for (extent i = begin; i < end; ++i) {
                const auto j = static_cast<std::size_t>(i);
                const double x = most == 0 ? 0 : m[j] / most;
                codes(i) = first == nullptr ? nearest_code(map, x) : second_moment_code(map, x, m[j] == 0 && (*first)[j] == 0);
            }
        }
    }
};

}  // namespace reference

namespace detail {

inline view<double, 1> flat_view(std::vector<double>& x) { return {x.data(), {static_cast<extent>(x.size())}}; }

}  // namespace detail

namespace reference {

/// A step of AdamW (reference::adamw), before which moments are read from 8 bits, and after which they are written to 8
/// bits.
template <class W, class G>
void adamw_8bit(const view<W, 1>& weights, const view<G, 1>& gradients, const eight_bit_moment& first,
                const eight_bit_moment& second, const kernel::adamw_rule& r, double lr, double weight_decay, double t,
                const kernel::gradient_factors& factors = {}) {
    const std::vector<double> with_sign = dynamic_map(true), without_sign = dynamic_map(false);
    std::vector<double> m = first.read(with_sign), v = second.read(without_sign);
    adamw(weights, gradients, detail::flat_view(m), detail::flat_view(v), r, lr, weight_decay, t, factors);
    first.write(with_sign, m);
    second.write(without_sign, v, &m);
}

/// A step of Lion (reference::lion) with its momentum in 8 bits.
template <class W, class G>
void lion_8bit(const view<W, 1>& weights, const view<G, 1>& gradients, const eight_bit_moment& momentum,
               const kernel::lion_rule& r, double lr, double weight_decay, const kernel::gradient_factors& factors = {}) {
    const std::vector<double> map = dynamic_map(true);
    std::vector<double> m = momentum.read(map);
    lion(weights, gradients, detail::flat_view(m), r, lr, weight_decay, factors);
    momentum.write(map, m);
}

/// A step of stochastic gradient descent (reference::sgd) with its momentum, which is not 0, in 8 bits.
template <class W, class G>
void sgd_8bit(const view<W, 1>& weights, const view<G, 1>& gradients, const eight_bit_moment& momentum,
              const kernel::sgd_rule& r, double lr, double weight_decay, double t,
              const kernel::gradient_factors& factors = {}) {
    const std::vector<double> map = dynamic_map(true);
    std::vector<double> m = momentum.read(map);
    sgd(weights, gradients, detail::flat_view(m), r, lr, weight_decay, t, factors);
    momentum.write(map, m);
}

}  // namespace reference
}  // namespace HALFTONE_ABI
}  // namespace halftone

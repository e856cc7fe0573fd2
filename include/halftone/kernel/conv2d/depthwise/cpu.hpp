// SPDX-License-Identifier: MIT
/// \file
/// Depthwise convolutions on the CPU; depthwise.hpp has the contract. A task computes one channel of an image, row by
/// row, or one channel of the weight's gradient; it widens rows to floats in its scratch memory.
#pragma once

#include <algorithm>

#include <halftone/kernel/axis_reduction/cpu.hpp>
#include <halftone/kernel/common/rows/scaled_rows.hpp>
#include <halftone/kernel/conv2d/depthwise/depthwise.hpp>
#include <halftone/policy/promotion.hpp>
#include <halftone/policy/types.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {
namespace depthwise_cpu {

/// Images without their element type: channels of rows.
struct planes {
    axis_cpu::source elements;
    shape<4> strides;

    const float* row(extent image, extent channel, extent row, extent width, float* buffer) const {
        return elements.floats(image * strides[0] + channel * strides[1] + row * strides[2], strides[3], width, buffer);
    }
};
template <class T>
planes planes_of(const cpu& device, const view<const T, 4>& v) {
    return {axis_cpu::source_of(device, v.data()), v.strides()};
}

/// The data that all tasks of a call share.
struct job {
    const detail::conv2d_problem& p;
    float_rows rows;
    planes from;            // x, or dy
    planes with;            // dy, for the weight's gradient
    const float* weight;    // (outputs, taps)
    axis_cpu::sink result;  // contiguous
    write_mode mode = write_mode::overwrite;

    extent multiplier() const { return p.group_outputs(); }
    const window_axis& down() const { return p.window.down; }
    const window_axis& across() const { return p.window.across; }
    /// The floats that a task needs: one row of the image, and one row of the result.
    std::size_t scratch_bytes() const {
        return static_cast<std::size_t>(2 * (across().size + across().positions)) * sizeof(float);
    }

    /// Computes channel `output` of one image of the result.
    void make_row(extent image, extent output, float bias, float* scratch) const {
        float* const sums = scratch + across().size;
        const float* const taps = weight + output * p.window.taps();
        for (extent i = 0; i < down().positions; ++i) {
            std::fill_n(sums, across().positions, bias);
            for (extent k = 0; k < down().taps; ++k) {
                const extent seen = down().seen(i, k);
                if (seen < 0 || seen >= down().size) continue;
                const float* const x = from.row(image, output / multiplier(), seen, across().size, scratch);
                for (extent l = 0; l < across().taps; ++l) {
                    const extent first = across().first_inside(l), count = across().end_inside(l) - first;
                    if (count > 0)
                        rows.add_scaled(count, taps[k * across().taps + l], x + across().seen(first, l), across().stride,
                                        sums + first, 1);
                }
            }
            result.put(sums, across().positions,
                       ((image * p.outputs + output) * down().positions + i) * across().positions);
        }
    }
    /// Computes one channel of one image of the input's gradient.
    void make_input(extent image, extent channel, float* scratch) const {
        float* const sums = scratch + across().positions;
        for (extent row = 0; row < down().size; ++row) {
            std::fill_n(sums, across().size, 0.0f);
            for (extent o = channel * multiplier(); o < (channel + 1) * multiplier(); ++o) {
                for (extent k = 0; k < down().taps; ++k) {
                    const extent position_row = down().position_of(row, k);
                    if (position_row < 0) continue;
                    const float* const g = from.row(image, o, position_row, across().positions, scratch);
                    for (extent l = 0; l < across().taps; ++l) {
                        const extent first = across().first_inside(l), count = across().end_inside(l) - first;
                        if (count > 0)
                            rows.add_scaled(count, weight[o * p.window.taps() + k * across().taps + l], g + first, 1,
                                            sums + across().seen(first, l), across().stride);
                    }
                }
            }
            result.put(sums, across().size, ((image * p.channels + channel) * down().size + row) * across().size, 1, mode);
        }
    }
    /// Computes the weight's gradient for one tap.
    void make_tap(extent output, extent k, extent l, float* scratch) const {
        const extent first = across().first_inside(l), count = across().end_inside(l) - first;
        double total = 0;
        for (extent image = 0; image < p.images && count > 0; ++image) {
            for (extent i = 0; i < down().positions; ++i) {
                const extent seen = down().seen(i, k);
                if (seen < 0 || seen >= down().size) continue;
                const float* const x = from.row(image, output / multiplier(), seen, across().size, scratch);
                const float* const g = with.row(image, output, i, across().positions, scratch + across().size);
                total += static_cast<double>(
                    rows.multiply(count, x + across().seen(first, l), across().stride, g + first));
            }
        }
        const auto sum = static_cast<float>(total);
        result.put(&sum, 1, (output * down().taps + k) * across().taps + l, 1, mode);
    }
};

/// Copies all elements to `to`, as floats.
template <class T>
void widen_all(cpu& device, const T* from, extent count, float* to) {
    const auto source = axis_cpu::source_of(device, from);
    device.run([&] { source.widen(from, 1, count, to); });
}

}  // namespace depthwise_cpu

template <>
struct depthwise<cpu> {
    /// Whether a product in Compute reads these types without rounding, and floats hold them exactly.
    template <class Compute, class... T>
    static constexpr bool takes = ((contains<Compute, T> && contains<float, T>) && ...) && !in_double<Compute, T...>;

    template <class X, class W, class B, class Y>
    static void forward(cpu& device, const detail::conv2d_problem& p, const view<const X, 4>& x,
                        const view<const W, 4>& weight, const B* bias, const view<Y, 4>& y) {
        const workspace::lease floats(device.scratch(), static_cast<std::size_t>(weight.size() + p.outputs) * sizeof(float));
        float *const taps = floats.as<float>(), *const biases = taps + weight.size();
        depthwise_cpu::widen_all(device, weight.data(), weight.size(), taps);
        if (bias == nullptr) {
            device.fill(biases, p.outputs, 0.0f);
        } else {
            depthwise_cpu::widen_all(device, bias, p.outputs, biases);
        }
        const depthwise_cpu::job j{p, float_rows::of(device), depthwise_cpu::planes_of(device, x), {}, taps,
                                   axis_cpu::sink_of(device, y.data())};
        device.parallel_for(p.images * p.outputs, j.scratch_bytes(), [&](extent task, std::byte* scratch) {
            j.make_row(task / p.outputs, task % p.outputs, biases[task % p.outputs], reinterpret_cast<float*>(scratch));
        });
    }
    template <class W, class G, class X>
    static void input_gradient(cpu& device, const detail::conv2d_problem& p, const view<const W, 4>& weight,
                               const view<const G, 4>& dy, const view<X, 4>& dx, write_mode mode) {
        const workspace::lease floats(device.scratch(), static_cast<std::size_t>(weight.size()) * sizeof(float));
        depthwise_cpu::widen_all(device, weight.data(), weight.size(), floats.as<float>());
        const depthwise_cpu::job j{p,  float_rows::of(device), depthwise_cpu::planes_of(device, dy),
                                   {}, floats.as<float>(),     axis_cpu::sink_of(device, dx.data()),
                                   mode};
        device.parallel_for(p.images * p.channels, j.scratch_bytes(), [&](extent task, std::byte* scratch) {
            j.make_input(task / p.channels, task % p.channels, reinterpret_cast<float*>(scratch));
        });
    }
    template <class X, class G, class W>
    static void weight_gradient(cpu& device, const detail::conv2d_problem& p, const view<const X, 4>& x,
                                const view<const G, 4>& dy, const view<W, 4>& dweight, write_mode mode) {
        const depthwise_cpu::job j{p,
                                   float_rows::of(device),
                                   depthwise_cpu::planes_of(device, x),
                                   depthwise_cpu::planes_of(device, dy),
                                   nullptr,
                                   axis_cpu::sink_of(device, dweight.data()),
                                   mode};
        device.parallel_for(p.outputs * p.window.taps(), j.scratch_bytes(), [&](extent task, std::byte* scratch) {
            const extent tap = task % p.window.taps();
            j.make_tap(task / p.window.taps(), tap / p.window.across.taps, tap % p.window.across.taps,
                       reinterpret_cast<float*>(scratch));
        });
    }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone

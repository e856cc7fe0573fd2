// SPDX-License-Identifier: MIT
/// \file
/// Reductions along axes on the CPU, their gradients, indices and cumulative sums; axis_reduction.hpp has their arguments,
/// their contract and an example, cpu/forward.hpp the forward pass.
#pragma once

#include <algorithm>
#include <cmath>

#include <halftone/exec/cpu/cpu.hpp>
#include <halftone/kernel/axis_reduction/axis_reduction.hpp>
#include <halftone/kernel/axis_reduction/cpu/forward.hpp>
#include <halftone/kernel/axis_reduction/fp64.hpp>
#include <halftone/kernel/common/fp64/cpu.hpp>
#include <halftone/number/integer.hpp>

#if defined(HALFTONE_COMPILED) && !defined(__clang__)
#pragma interface  // halftone::compiled contains the following functions that are not templates
#endif

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

namespace axis_cpu {

/// A function that computes the gradients of a block of elements of a task's outputs.
using sharing = void (*)(const float* x, extent count, const float* p, const float* q, bool is_row, float* to);
template <axis_operation Operation>
sharing sharing_of(const cpu& device) {
    return device.select(&portable::share_block<Operation>, &avx2::share_block<Operation>,
                         &avx512::share_block<Operation>);
}
sharing sharing_of(const cpu& device, axis_operation operation);

/// dx = (or +=) with(x, kept, slopes); x is not read if reads_x is false.
void give(cpu& device, const source& x, bool reads_x, const axis_layout& l, sharing with, const float* kept,
          const float* slopes, const sink& dx, write_mode mode);

/// The gradients of outputs as floats, times a factor, and divided by the number of elements that share each of them.
void scale_slopes(cpu& device, const source& dy, extent outputs, float factor, const float* shared_by, float* slopes);

/// The coefficients of a standard deviation's gradients (deviation_slope): `slopes` has the outputs' gradients, which
/// are replaced by them.
void scale_by_deviations(cpu& device, extent outputs, const deviation_range& range, const float* deviations,
                         float factor, float* slopes);

/// The coefficients p and q of a product's gradients (product_shares): `slopes` has the outputs' gradients, which are
/// replaced by q; `p` is written. `others`, (outputs), receives the products of the elements that are not zero.
void share_products(cpu& device, const source& x, const axis_layout& l, float* others, float* p, float* slopes);

/// The index of the first float that is `value`; `count` if there is none.
extent find(const float* x, extent count, float value);

/// The index of the first of each output's elements that is its value in `values`.
void find_each(cpu& device, const source& x, const axis_layout& l, const float* values, std::int32_t* y);

/// Cumulative sums along an axis, in double: for rows of `inner` columns, or for one row after another.
void accumulate(cpu& device, const source& x, const shape<3>& s, const sink& y, bool is_reversed, write_mode mode);

#if !defined(HALFTONE_COMPILED) || defined(HALFTONE_COMPILED_FUNCTIONS) || defined(__clang__)

inline sharing sharing_of(const cpu& device, axis_operation operation) {
    using enum axis_operation;
    return operation == var         ? sharing_of<var>(device)
           : operation == std_dev   ? sharing_of<std_dev>(device)
           : operation == logsumexp ? sharing_of<logsumexp>(device)
           : operation == sum       ? sharing_of<sum>(device)
           : operation == prod      ? sharing_of<prod>(device)
                                    : sharing_of<amax>(device);
}

inline void give(cpu& device, const source& x, bool reads_x, const axis_layout& l, sharing with, const float* kept,
                 const float* slopes, const sink& dx, write_mode mode) {
    const plan cut = plan::of(l);
    device.parallel_for(cut.tasks * cut.pieces, sizeof(worker), [&](extent index, std::byte* scratch) {
        worker& w = *reinterpret_cast<worker*>(scratch);
        const extent task = index / cut.pieces, first = cut.first(l, task), count = cut.count(l, task);
        const extent begin = index % cut.pieces * cut.piece_size,
                     end = std::min(begin + cut.piece_size, l.reduced_size);
        const auto some = [&](extent output, extent offset, extent stride, extent size) {
            const float* const floats = reads_x ? x.floats(offset, stride, size, w.buffer) : w.buffer;
            with(floats, size, kept + output, slopes + output, cut.is_columns, w.buffer);
            dx.put(w.buffer, size, offset, stride, mode);
        };
        for (extent o = 0; o < (cut.is_columns ? 1 : count); ++o) {
            const extent from = l.output_offset(first + o);
            for (extent i = begin; i < end;) {
                const run_at run(l, i, end);
                const extent size = cut.is_columns ? 1 : std::min(run.count, axis_block);
                cut.is_columns ? some(first, from + run.offset, 1, count)
                               : some(first + o, from + run.offset, run.stride, size);
                i += size;
            }
        }
    });
}

inline void scale_slopes(cpu& device, const source& dy, extent outputs, float factor, const float* shared_by,
                         float* slopes) {
    device.parallel_for(detail::ceil_div(outputs, columns), [&](extent piece) {
        const extent begin = piece * columns, count = std::min(columns, outputs - begin);
        dy.widen(dy.data + begin * dy.bytes, 1, count, slopes + begin);
        for (extent o = begin; o < begin + count; ++o)
            slopes[o] = slopes[o] * factor / (shared_by == nullptr ? 1.0f : shared_by[o]);
    });
}

inline void scale_by_deviations(cpu& device, extent outputs, const deviation_range& range, const float* deviations,
                                float factor, float* slopes) {
    device.parallel_for(detail::ceil_div(outputs, columns), [&](extent piece) {
        for (extent o = piece * columns; o < std::min(outputs, (piece + 1) * columns); ++o)
            slopes[o] = deviation_slope::of(range, deviations[o], slopes[o], factor).q;
    });
}

inline void share_products(cpu& device, const source& x, const axis_layout& l, float* others, float* p, float* slopes) {
    const workspace::lease memory(device.scratch(), static_cast<std::size_t>(l.outputs) * sizeof(float));
    auto* const zeros = memory.as<float>();
    reduce(device, x, l, method::of(device, pass_of<axis_term::equal>(device)), nullptr, nullptr, zeros);
    device.fill(p, l.outputs, 1.0f);
    reduce(device, x, l, method::of(device, axis_operation::prod, l.reduced_size, 1), p, nullptr, others);
    device.parallel_for(detail::ceil_div(l.outputs, columns), [&](extent piece) {
        for (extent o = piece * columns; o < std::min(l.outputs, (piece + 1) * columns); ++o) {
            const auto shares = product_shares<float>::of(others[o], zeros[o], slopes[o]);
            p[o] = shares.p, slopes[o] = shares.q;
        }
    });
}

inline extent find(const float* x, extent count, float value) {
    const bool is_number = !is_nan(value);
    extent i = 0;
    while (i < count && !(is_number ? x[i] == value : is_nan(x[i]))) ++i;
    return i;
}

inline void find_each(cpu& device, const source& x, const axis_layout& l, const float* values, std::int32_t* y) {
    const plan cut = plan::of(l);
    device.parallel_for(cut.tasks, sizeof(worker), [&](extent task, std::byte* scratch) {
        worker& w = *reinterpret_cast<worker*>(scratch);
        const extent first = cut.first(l, task), count = cut.count(l, task);
        const auto step = [&](extent i, extent output, extent width) {
            const run_at run(l, i, l.reduced_size);
            const extent size = cut.is_columns ? 1 : std::min(run.count, axis_block);
            const extent offset = l.output_offset(output) + run.offset;
            const float* const floats =
                cut.is_columns ? x.floats(offset, 1, width, w.buffer) : x.floats(offset, run.stride, size, w.buffer);
            return std::pair(floats, size);
        };
        if (cut.is_columns) {
            std::fill_n(y + first, count, -1);
            extent left = count;
            for (extent i = 0; i < l.reduced_size && left > 0; ++i) {
                const float* const row = step(i, first, count).first;
                for (extent j = 0; j < count; ++j) {
                    if (y[first + j] >= 0 || find(row + j, 1, values[first + j]) == 1) continue;
                    y[first + j] = static_cast<std::int32_t>(i);
                    --left;
                }
            }
            return;
        }
        for (extent o = first; o < first + count; ++o) {
            for (extent i = 0; i < l.reduced_size;) {
                const auto [floats, size] = step(i, o, 1);
                const extent at = find(floats, size, values[o]);
                y[o] = static_cast<std::int32_t>(i + at);
                if (at < size) break;
                i += size;
            }
        }
    });
}

inline void accumulate(cpu& device, const source& x, const shape<3>& s, const sink& y, bool is_reversed,
                       write_mode mode) {
    const extent count = s[1], inner = s[2], tiles = detail::ceil_div(inner, columns);
    device.parallel_for(s[0] * tiles, sizeof(worker), [&](extent task, std::byte* scratch) {
        worker& w = *reinterpret_cast<worker*>(scratch);
        const extent column = task % tiles * columns, width = std::min(columns, inner - column);
        const extent first = task / tiles * count * inner + column;
        std::fill_n(w.total, width, 0.0);
        const extent at_once = inner == 1 ? axis_block : 1;
        for (extent done = 0; done < count; done += at_once) {
            const extent some = std::min(at_once, count - done);
            const extent offset = first + (is_reversed ? count - done - some : done) * inner;
            const extent size = inner == 1 ? some : width;
            const float* const floats = x.floats(offset, 1, size, w.buffer);
            for (extent k = 0; k < size; ++k) {
                const extent i = inner == 1 && is_reversed ? size - 1 - k : k;
                double& total = w.total[inner == 1 ? 0 : i];
                total += static_cast<double>(floats[i]);
                w.buffer[i] = static_cast<float>(total);
            }
            y.put(w.buffer, size, offset, 1, mode);
        }
    });
}

#endif

/// Variances and standard deviations; of the latter those in float are kept.
template <class X, class Y>
void reduce_deviations(cpu& device, const reduction<X, Y>& a) {
    const extent outputs = a.layout.outputs;
    const bool are_kept = a.kept != nullptr && a.operation == axis_operation::std_dev;
    const workspace::lease memory(device.scratch(), are_kept ? 0 : static_cast<std::size_t>(outputs) * sizeof(float));
    float* const results = are_kept ? a.kept + outputs : memory.as<float>();
    const sink to = sink_of(device, results);
    reduce(device, source_of(device, a.x), a.layout, method::of(device, a.operation, a.layout.reduced_size, a.factor),
           nullptr, &to, a.kept);
    fp64::for_each(device, outputs, 1, fp64::deviation_output<X, Y>(a, results));
}

}  // namespace axis_cpu

template <>
struct axis_reduction<cpu> {
    template <class X, class Y>
    static void run(cpu& device, const reduction<X, Y>& a) {
        if constexpr (in_double<X, Y>) {
            fp64::reduce(device, a);
        } else {
            using namespace axis_cpu;
            if (a.operation == axis_operation::var || a.operation == axis_operation::std_dev)
                return reduce_deviations(device, a);
            const sink y = sink_of(device, a.y);
            reduce(device, source_of(device, a.x), a.layout,
                   method::of(device, a.operation, a.layout.reduced_size, a.factor), nullptr, &y, a.kept, a.mode);
        }
    }

    template <class X, class Y>
    static void backward(cpu& device, const reduction_gradient<X, Y>& a) {
        if constexpr (in_double<X, Y>) {
            fp64::reduce_gradient(device, a);
        } else {
            using namespace axis_cpu;
            using enum axis_operation;
            const axis_layout& l = a.layout;
            const source x = source_of(device, a.x);
            const auto bytes = static_cast<std::size_t>(l.outputs) * sizeof(float);
            const workspace::lease memory(device.scratch(), bytes);
            auto* const slopes = memory.as<float>();
            if (a.operation == amax || a.operation == amin) {
                const workspace::lease counted(device.scratch(), bytes);
                reduce(device, x, l, method::of(device, pass_of<axis_term::equal>(device)), a.kept, nullptr,
                       counted.as<float>());
                scale_slopes(device, source_of(device, a.dy), l.outputs, 1, counted.as<float>(), slopes);
            } else {
                const double factor = a.operation == var ? 2 * a.factor : a.operation == sum ? a.factor : 1;
                scale_slopes(device, source_of(device, a.dy), l.outputs, static_cast<float>(factor), nullptr, slopes);
            }
            const workspace::lease products(device.scratch(), a.operation == prod ? bytes : 0),
                others(device.scratch(), a.operation == prod ? bytes : 0);
            if (a.operation == std_dev)
                scale_by_deviations(device, l.outputs, deviation_range::of(std_dev, l.reduced_size, a.factor),
                                    a.kept + l.outputs, static_cast<float>(a.factor), slopes);
            if (a.operation == prod) share_products(device, x, l, others.as<float>(), products.as<float>(), slopes);
            give(device, x, a.operation != sum, l, sharing_of(device, a.operation),
                 a.operation == sum    ? slopes
                 : a.operation == prod ? products.as<float>()
                                       : a.kept,
                 slopes, sink_of(device, a.dx), a.mode);
            if (a.operation == prod)
                fp64::gradient_of_some(device, a, fp64::products_beyond_float{{others.as<float>(), l.outputs}});
            if (a.operation == std_dev) fp64::gradient_of_some(device, a, fp64::slopes_beyond_float<Y>(a));
        }
    }

    template <class X>
    static void index(cpu& device, const reduction_index<X>& a) {
        if constexpr (in_double<X>) {
            fp64::index(device, a);
        } else {
            using namespace axis_cpu;
            const workspace::lease values(device.scratch(), static_cast<std::size_t>(a.layout.outputs) * sizeof(float));
            const source x = source_of(device, a.x);
            reduce(device, x, a.layout, method::of(device, a.operation, a.layout.reduced_size, 1), nullptr, nullptr,
                   values.as<float>());
            find_each(device, x, a.layout, values.as<float>(), a.y);
        }
    }

    template <class X, class Y>
    static void accumulate(cpu& device, const running_sum<X, Y>& a) {
        if constexpr (in_double<X, Y>) {
            fp64::accumulate(device, a);
        } else {
            axis_cpu::accumulate(device, axis_cpu::source_of(device, a.x), a.extents, axis_cpu::sink_of(device, a.y),
                                 a.is_reversed, a.mode);
        }
    }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone

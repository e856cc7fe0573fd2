// SPDX-License-Identifier: MIT
/// \file
/// The bodies of the functions in cpu.hpp that are no templates.
#pragma once

#include <halftone/kernel/axis_reduction/cpu.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {
namespace axis_cpu {

HALFTONE_OUT_OF_LINE sharing sharing_of(const cpu& device, axis_operation operation) {
    using enum axis_operation;
    return operation == var         ? sharing_of<var>(device)
           : operation == std_dev   ? sharing_of<std_dev>(device)
           : operation == logsumexp ? sharing_of<logsumexp>(device)
           : operation == sum       ? sharing_of<sum>(device)
           : operation == prod      ? sharing_of<prod>(device)
                                    : sharing_of<amax>(device);
}

HALFTONE_OUT_OF_LINE void give(cpu& device, const source& x, bool reads_x, const axis_layout& l, sharing with, const float* kept,
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

HALFTONE_OUT_OF_LINE void scale_slopes(cpu& device, const source& dy, extent outputs, float factor, const float* shared_by,
                         float* slopes) {
    device.parallel_for(detail::ceil_div(outputs, columns), [&](extent piece) {
        const extent begin = piece * columns, count = std::min(columns, outputs - begin);
        dy.widen(dy.data + begin * dy.bytes, 1, count, slopes + begin);
        for (extent o = begin; o < begin + count; ++o)
            slopes[o] = slopes[o] * factor / (shared_by == nullptr ? 1.0f : shared_by[o]);
    });
}

HALFTONE_OUT_OF_LINE void scale_by_deviations(cpu& device, extent outputs, const deviation_range& range, const float* deviations,
                                float factor, float* slopes) {
    device.parallel_for(detail::ceil_div(outputs, columns), [&](extent piece) {
        for (extent o = piece * columns; o < std::min(outputs, (piece + 1) * columns); ++o)
            slopes[o] = deviation_slope::of(range, deviations[o], slopes[o], factor).q;
    });
}

HALFTONE_OUT_OF_LINE void share_products(cpu& device, const source& x, const axis_layout& l, float* others, float* p, float* slopes) {
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

HALFTONE_OUT_OF_LINE extent find(const float* x, extent count, float value) {
    const bool is_number = !is_nan(value);
    extent i = 0;
    while (i < count && !(is_number ? x[i] == value : is_nan(x[i]))) ++i;
    return i;
}

HALFTONE_OUT_OF_LINE void find_each(cpu& device, const source& x, const axis_layout& l, const float* values, std::int32_t* y) {
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

HALFTONE_OUT_OF_LINE void accumulate(cpu& device, const source& x, const shape<3>& s, const sink& y, bool is_reversed,
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

}  // namespace axis_cpu
}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone

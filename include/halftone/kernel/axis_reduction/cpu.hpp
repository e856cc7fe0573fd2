// SPDX-License-Identifier: MIT
/// \file
/// Reductions along axes on the CPU; axis_reduction.hpp has their arguments, their contract and an example.
///
/// A task computes some outputs: up to `columns` outputs with adjacent elements, which are read row by row in vectors
/// over the outputs; or some outputs one after another, whose elements are read in blocks. If few outputs have many
/// elements each, the elements are divided into pieces, whose results are combined in their order.
#pragma once

#include <algorithm>
#include <cmath>

#include <halftone/exec/cpu/cpu.hpp>
#include <halftone/kernel/axis_reduction/axis_reduction.hpp>
#include <halftone/kernel/axis_reduction/fp64.hpp>
#include <halftone/kernel/common/fp64/cpu.hpp>
#include <halftone/kernel/common/rows/rows.hpp>

#define HALFTONE_BODY <halftone/kernel/axis_reduction/cpu.simd.hpp>
#include <halftone/exec/cpu/each_set.hpp>

#if defined(HALFTONE_COMPILED) && !defined(__clang__)
#pragma interface  // halftone::compiled contains the following functions that are not templates
#endif

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

namespace axis_cpu {

/// The largest number of outputs of a task; the rows whose terms are added in float before the result is added in
/// double; and the floats that are widened at a time.
inline constexpr extent columns = 1024, rows_in_float = 64, widened = 4 * columns;

/// Elements whose type is erased.
struct source {
    const std::byte* data;
    extent bytes;  ///< bytes per element
    void (*widen)(const void* from, extent stride, extent count, float* to);
    bool is_float;

    /// Some elements as floats: in place if they are contiguous floats, otherwise widened into `buffer`.
    const float* floats(extent offset, extent stride, extent count, float* buffer) const;
};
template <class X>
source source_of(const cpu& device, const X* x) {
    return {reinterpret_cast<const std::byte*>(x), static_cast<extent>(sizeof(X)),
            device.select(&portable::widen_elements<X>, &avx2::widen_elements<X>, &avx512::widen_elements<X>),
            std::is_same_v<X, float>};
}
/// The destination of results, with its element type erased.
struct sink {
    std::byte* data;
    extent bytes;
    void (*narrow)(const float* from, extent count, void* to, extent stride, write_mode mode);

    void put(const float* from, extent count, extent offset, extent stride = 1,
             write_mode mode = write_mode::overwrite) const {
        narrow(from, count, data + offset * bytes, stride, mode);
    }
};
template <class Y>
sink sink_of(const cpu& device, Y* y) {
    return {reinterpret_cast<std::byte*>(y), static_cast<extent>(sizeof(Y)),
            device.select(&portable::narrow_elements<Y>, &avx2::narrow_elements<Y>, &avx512::narrow_elements<Y>)};
}

/// One pass over the elements.
struct pass {
    float nothing;
    float (*block)(const float* x, extent count, float parameter);
    void (*rows)(extent rows, extent width, const float* x, extent stride, const float* p, float* all);
    double (*combine)(double a, double b);
};
template <axis_term Term>
pass pass_of(const cpu& device) {
    return {nothing_of(Term),
            device.select(&portable::reduce_block<Term>, &avx2::reduce_block<Term>, &avx512::reduce_block<Term>),
            device.select(&portable::reduce_rows<Term>, &avx2::reduce_rows<Term>, &avx512::reduce_rows<Term>),
            &combine<Term, double>};
}

/// Scratch memory of a worker.
struct worker {
    double total[columns];
    float parameters[columns], all[columns], slopes[columns], buffer[widened];
};

/// The division of outputs among tasks, and of their elements into pieces.
struct plan {
    extent tasks, tiles, each, pieces, piece_size;
    bool is_columns;

    static plan of(const axis_layout& l);
    extent first(const axis_layout& l, extent task) const {
        return is_columns ? task / tiles * l.inner() + task % tiles * each : task * each;
    }
    extent count(const axis_layout& l, extent task) const {
        return std::min(each, (is_columns ? l.inner() : l.outputs) - task % tiles * each);
    }
};

/// The elements of an output from `index` on that have a constant stride, and end at or before `end`.
struct run_at {
    extent offset, stride, count;
    run_at(const axis_layout& l, extent index, extent end);
};

/// Reduces the elements [begin, end) of one output.
double reduce_output(const source& x, const axis_layout& l, const pass& with, extent output, extent begin,
                     extent end, float parameter, float* buffer);

/// Reduces the elements [begin, end) of each of `width` adjacent outputs, into w.total, with their parameters in
/// w.parameters.
void reduce_columns(const source& x, const axis_layout& l, const pass& with, extent output, extent width,
                    extent begin, extent end, worker& w);

/// The function of an output's total after a pass, which gives the parameter of the next pass, or the result.
using step = double (*)(double total, double parameter, double factor);
inline double step_scaled(double total, double, double factor) { return total * factor; }
inline double step_as_it_is(double total, double, double) { return total; }
inline double step_shift(double total, double, double) { return finite_shift(total); }
inline double step_logarithm(double total, double parameter, double) { return std::log(total) + parameter; }

/// The passes of a reduction.
struct passes {
    int count;
    pass with[2];
    step after[2];
    double factor[2];
    bool keeps_parameter;  ///< whether the gradient needs the parameter, instead of the result

    static passes of(const cpu& device, axis_operation operation, extent size, double factor);
};

/// One pass over some elements of a task's outputs, into w.total.
inline void run_pass(const source& x, const axis_layout& l, const pass& with, const plan& cut, extent first,
                     extent count, extent begin, extent end, worker& w) {
    if (cut.is_columns) return reduce_columns(x, l, with, first, count, begin, end, w);
    for (extent o = 0; o < count; ++o)
        w.total[o] = reduce_output(x, l, with, first + o, begin, end, w.parameters[o], w.buffer);
}

/// A whole reduction. `parameters`: those of the first pass, one per output, or nullptr if it has none. Results are
/// written to `y`, the values for the gradient to `kept`; either may be missing.
void reduce(cpu& device, const source& x, const axis_layout& l, const passes& all, const float* parameters,
            const sink* y, float* kept, write_mode mode = write_mode::overwrite);

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
void scale_slopes(cpu& device, const source& dy, extent outputs, float factor, const float* shared_by,
                  float* slopes);

/// The coefficients p and q of a product's gradients (product_shares): `slopes` has the outputs' gradients, which are
/// replaced by q; `p` is written.
void share_products(cpu& device, const source& x, const axis_layout& l, float* p, float* slopes);

/// The index of the first float that is `value`; `count` if there is none.
extent find(const float* x, extent count, float value);

/// The index of the first of each output's elements that is its value in `values`.
void find_each(cpu& device, const source& x, const axis_layout& l, const float* values, std::int32_t* y);

/// Cumulative sums along an axis, in double: for rows of `inner` columns, or for one row after another.
void accumulate(cpu& device, const source& x, const shape<3>& s, const sink& y, bool is_reversed,
                write_mode mode);

#if !defined(HALFTONE_COMPILED) || defined(HALFTONE_COMPILED_FUNCTIONS) || defined(__clang__)

inline const float* source::floats(extent offset, extent stride, extent count, float* buffer) const {
    const std::byte* const from = data + offset * bytes;
    if (is_float && stride == 1) return reinterpret_cast<const float*>(from);
    widen(from, stride, count, buffer);
    return buffer;
}

inline plan plan::of(const axis_layout& l) {
    plan p{};
    p.is_columns = l.is_columns();
    const extent group = p.is_columns ? l.inner() : l.outputs;
    const extent fitting = 16384 / std::max<extent>(l.reduced_size, 1);
    p.each = p.is_columns ? columns : std::clamp<extent>(fitting, 1, columns);
    p.tiles = (group + p.each - 1) / p.each;
    p.tasks = group == 0 ? 0 : l.outputs / group * p.tiles;
    const extent in_task = std::min(group, p.each) * l.reduced_size,
                 granule = p.is_columns ? rows_in_float : axis_block;
    p.pieces = p.tasks == 0 || p.tasks >= 32 ? 1 : std::clamp<extent>(in_task / 32768, 1, 64);
    p.piece_size = ((l.reduced_size + p.pieces - 1) / p.pieces + granule - 1) / granule * granule;
    p.pieces = l.reduced_size == 0 ? 1 : (l.reduced_size + p.piece_size - 1) / p.piece_size;
    return p;
}

inline run_at::run_at(const axis_layout& l, extent index, extent end) {
    const axis_run run = l.last_reduced();
    offset = l.reduced_offset(index);
    stride = run.stride;
    count = std::min(run.count - index % run.count, end - index);
}

inline double reduce_output(const source& x, const axis_layout& l, const pass& with, extent output, extent begin,
                            extent end, float parameter, float* buffer) {
    const extent first = l.output_offset(output);
    double total = static_cast<double>(with.nothing);
    extent held = 0;  // number of floats in the buffer
    for (extent i = begin; i < end;) {
        const run_at run(l, i, end);
        const extent count = std::min(run.count, axis_block - held);
        i += count;
        if (held == 0 && (count == axis_block || i == end)) {
            const float* const floats = x.floats(first + run.offset, run.stride, count, buffer);
            total = with.combine(total, static_cast<double>(with.block(floats, count, parameter)));
            continue;
        }
        x.widen(x.data + (first + run.offset) * x.bytes, run.stride, count, buffer + held);
        held += count;
        if (held == axis_block || i == end) {
            total = with.combine(total, static_cast<double>(with.block(buffer, held, parameter)));
            held = 0;
        }
    }
    return total;
}

inline void reduce_columns(const source& x, const axis_layout& l, const pass& with, extent output, extent width,
                           extent begin, extent end, worker& w) {
    const extent first = l.output_offset(output);
    std::fill_n(w.total, width, static_cast<double>(with.nothing));
    std::fill_n(w.all, width, with.nothing);
    extent in_float = 0;
    for (extent i = begin; i < end;) {
        const run_at run(l, i, end);
        extent rows = std::min(run.count, rows_in_float - in_float), stride = run.stride;
        const float* floats = reinterpret_cast<const float*>(x.data) + (first + run.offset);
        if (!x.is_float) {
            rows = std::min(rows, widened / width);
            const std::byte* const from = x.data + (first + run.offset) * x.bytes;
            const bool together = stride == width;  // contiguous rows are widened together
            for (extent r = 0; r < (together ? 1 : rows); ++r)
                x.widen(from + r * stride * x.bytes, 1, together ? rows * width : width, w.buffer + r * width);
            floats = w.buffer;
            stride = width;
        }
        with.rows(rows, width, floats, stride, w.parameters, w.all);
        i += rows;
        in_float += rows;
        if (in_float == rows_in_float || i == end) {
            for (extent j = 0; j < width; ++j) w.total[j] = with.combine(w.total[j], static_cast<double>(w.all[j]));
            std::fill_n(w.all, width, with.nothing);
            in_float = 0;
        }
    }
}

inline passes passes::of(const cpu& device, axis_operation operation, extent size, double factor) {
    using enum axis_operation;
    const double share = 1.0 / static_cast<double>(size);
    const pass total = pass_of<axis_term::value>(device);
    switch (operation) {
        case var:
            return {2, {total, pass_of<axis_term::square>(device)}, {step_scaled, step_scaled}, {share, factor}, true};
        case logsumexp:
            return {2,
                    {pass_of<axis_term::maximum>(device), pass_of<axis_term::exponential>(device)},
                    {step_shift, step_logarithm},
                    {1, 1},
                    false};
        case amax:
            return {1, {pass_of<axis_term::maximum>(device), total}, {step_as_it_is, nullptr}, {1, 1}, false};
        case amin:
            return {1, {pass_of<axis_term::minimum>(device), total}, {step_as_it_is, nullptr}, {1, 1}, false};
        case prod:
            return {1, {pass_of<axis_term::product>(device), total}, {step_as_it_is, nullptr}, {1, 1}, false};
        default:
            return {1, {total, total}, {step_scaled, nullptr}, {factor, 1}, false};
    }
}

inline void reduce(cpu& device, const source& x, const axis_layout& l, const passes& all, const float* parameters,
                   const sink* y, float* kept, write_mode mode) {
    const plan cut = plan::of(l);
    const auto whole = static_cast<std::size_t>(l.outputs);
    const bool is_cut = cut.pieces > 1;
    const workspace::lease partial(device.scratch(),
                                   is_cut ? static_cast<std::size_t>(cut.pieces) * whole * sizeof(double) : 0);
    const workspace::lease between(device.scratch(), is_cut ? whole * sizeof(float) : 0);
    auto* const partials = partial.as<double>();
    auto* const stored = between.as<float>();
    // After pass number k: converts w.total to the next parameters or to results.
    const auto finish = [&](int k, extent first, extent count, worker& w) {
        if (kept != nullptr && all.keeps_parameter && k == all.count - 1)
            std::copy_n(w.parameters, count, kept + first);
        for (extent o = 0; o < count; ++o)
            w.parameters[o] =
                static_cast<float>(all.after[k](w.total[o], static_cast<double>(w.parameters[o]), all.factor[k]));
        if (k < all.count - 1) return;
        if (kept != nullptr && !all.keeps_parameter) std::copy_n(w.parameters, count, kept + first);
        if (y != nullptr) y->put(w.parameters, count, first, 1, mode);
    };
    const auto load = [&](const float* from, extent first, extent count, worker& w) {
        if (from == nullptr) {
            std::fill_n(w.parameters, count, 0.0f);
        } else {
            std::copy_n(from + first, count, w.parameters);
        }
    };
    if (!is_cut) {
        device.parallel_for(cut.tasks, sizeof(worker), [&](extent task, std::byte* scratch) {
            worker& w = *reinterpret_cast<worker*>(scratch);
            const extent first = cut.first(l, task), count = cut.count(l, task);
            load(parameters, first, count, w);
            for (int k = 0; k < all.count; ++k) {
                run_pass(x, l, all.with[k], cut, first, count, 0, l.reduced_size, w);
                finish(k, first, count, w);
            }
        });
        return;
    }
    for (int k = 0; k < all.count; ++k) {
        const float* const read = k == 0 ? parameters : stored;
        device.parallel_for(cut.tasks * cut.pieces, sizeof(worker), [&](extent index, std::byte* scratch) {
            worker& w = *reinterpret_cast<worker*>(scratch);
            const extent task = index / cut.pieces, piece = index % cut.pieces, begin = piece * cut.piece_size;
            const extent first = cut.first(l, task), count = cut.count(l, task);
            load(read, first, count, w);
            run_pass(x, l, all.with[k], cut, first, count, begin, std::min(begin + cut.piece_size, l.reduced_size), w);
            std::copy_n(w.total, count, partials + piece * l.outputs + first);
        });
        device.parallel_for(cut.tasks, sizeof(worker), [&](extent task, std::byte* scratch) {
            worker& w = *reinterpret_cast<worker*>(scratch);
            const extent first = cut.first(l, task), count = cut.count(l, task);
            load(read, first, count, w);
            std::copy_n(partials + first, count, w.total);
            for (extent piece = 1; piece < cut.pieces; ++piece) {
                for (extent o = 0; o < count; ++o)
                    w.total[o] = all.with[k].combine(w.total[o], partials[piece * l.outputs + first + o]);
            }
            finish(k, first, count, w);
            if (k < all.count - 1) std::copy_n(w.parameters, count, stored + first);
        });
    }
}

inline sharing sharing_of(const cpu& device, axis_operation operation) {
    using enum axis_operation;
    return operation == var         ? sharing_of<var>(device)
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
    device.parallel_for((outputs + columns - 1) / columns, [&](extent piece) {
        const extent begin = piece * columns, count = std::min(columns, outputs - begin);
        dy.widen(dy.data + begin * dy.bytes, 1, count, slopes + begin);
        for (extent o = begin; o < begin + count; ++o)
            slopes[o] = slopes[o] * factor / (shared_by == nullptr ? 1.0f : shared_by[o]);
    });
}

inline void share_products(cpu& device, const source& x, const axis_layout& l, float* p, float* slopes) {
    const workspace::lease memory(device.scratch(), static_cast<std::size_t>(l.outputs) * sizeof(float));
    auto* const zeros = memory.as<float>();
    passes count = passes::of(device, axis_operation::sum, l.reduced_size, 1);
    count.with[0] = pass_of<axis_term::equal>(device);
    reduce(device, x, l, count, nullptr, nullptr, zeros);
    device.fill(p, l.outputs, 1.0f);
    reduce(device, x, l, passes::of(device, axis_operation::prod, l.reduced_size, 1), p, nullptr, p);
    device.parallel_for((l.outputs + columns - 1) / columns, [&](extent piece) {
        for (extent o = piece * columns; o < std::min(l.outputs, (piece + 1) * columns); ++o) {
            const auto shares = product_shares<float>::of(p[o], zeros[o], slopes[o]);
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
    const extent count = s[1], inner = s[2], tiles = (inner + columns - 1) / columns;
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

}  // namespace axis_cpu

template <>
struct axis_reduction<cpu> {
    template <class X, class Y>
    static void run(cpu& device, const reduction<X, Y>& a) {
        if constexpr (in_double<X, Y>) {
            fp64::reduce(device, a);
        } else {
            using namespace axis_cpu;
            const sink y = sink_of(device, a.y);
            reduce(device, source_of(device, a.x), a.layout,
                   passes::of(device, a.operation, a.layout.reduced_size, a.factor), nullptr, &y, a.kept, a.mode);
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
                passes count = passes::of(device, sum, l.reduced_size, 1);
                count.with[0] = pass_of<axis_term::equal>(device);
                reduce(device, x, l, count, a.kept, nullptr, counted.as<float>());
                scale_slopes(device, source_of(device, a.dy), l.outputs, 1, counted.as<float>(), slopes);
            } else {
                const double factor = a.operation == var                                   ? 2 * a.factor
                                      : a.operation == logsumexp || a.operation == prod ? 1
                                                                                           : a.factor;
                scale_slopes(device, source_of(device, a.dy), l.outputs, static_cast<float>(factor), nullptr, slopes);
            }
            const workspace::lease products(device.scratch(), a.operation == prod ? bytes : 0);
            if (a.operation == prod) share_products(device, x, l, products.as<float>(), slopes);
            give(device, x, a.operation != sum, l, sharing_of(device, a.operation),
                 a.operation == sum    ? slopes
                 : a.operation == prod ? products.as<float>()
                                       : a.kept,
                 slopes, sink_of(device, a.dx), a.mode);
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
            reduce(device, x, a.layout, passes::of(device, a.operation, a.layout.reduced_size, 1), nullptr, nullptr,
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

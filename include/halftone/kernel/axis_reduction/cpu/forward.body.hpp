// SPDX-License-Identifier: MIT
/// \file
/// The bodies of the functions in forward.hpp that are no templates.
#pragma once

#include <halftone/kernel/axis_reduction/cpu/forward.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {
namespace axis_cpu {

HALFTONE_OUT_OF_LINE const float* source::floats(extent offset, extent stride, extent count, float* buffer) const {
    const std::byte* const from = data + offset * bytes;
    if (is_float && stride == 1) return reinterpret_cast<const float*>(from);
    widen(from, stride, count, buffer);
    return buffer;
}

HALFTONE_OUT_OF_LINE plan plan::of(const axis_layout& l) {
    plan p{};
    p.is_columns = l.is_columns();
    const extent group = p.is_columns ? l.inner() : l.outputs;
    const extent fitting = 16384 / std::max<extent>(l.reduced_size, 1);
    p.each = p.is_columns ? columns : std::clamp<extent>(fitting, 1, columns);
    p.tiles = detail::ceil_div(group, p.each);
    p.tasks = group == 0 ? 0 : l.outputs / group * p.tiles;
    const extent in_task = std::min(group, p.each) * l.reduced_size,
                 granule = p.is_columns ? rows_in_float : axis_block;
    p.pieces =
        p.tasks == 0 || p.tasks >= 32 ? 1 : std::clamp<extent>(in_task / 32768, 1, std::min<extent>(64, 128 / p.tasks));
    p.piece_size = round_up(detail::ceil_div(l.reduced_size, p.pieces), granule);
    p.pieces = l.reduced_size == 0 ? 1 : detail::ceil_div(l.reduced_size, p.piece_size);
    return p;
}

HALFTONE_OUT_OF_LINE run_at::run_at(const axis_layout& l, extent index, extent end) {
    const axis_run run = l.last_reduced();
    offset = l.reduced_offset(index);
    stride = run.stride;
    count = std::min(run.count - index % run.count, end - index);
}

HALFTONE_OUT_OF_LINE void state::add_squares(const method& how, extent before, const float* x, extent count) {
    const auto n = static_cast<double>(count), old = static_cast<double>(before);
    float off = 0;
    // The sum of finite floats may be beyond float's range, but their mean is not.
    const auto mean_in_double = [&] {
        double sum = 0;
        for (extent i = 0; i < count; ++i) sum += static_cast<double>(x[i]);
        return static_cast<float>(sum / n);
    };
    const auto mean_of_block = [&] {
        const auto mean = static_cast<float>(static_cast<double>(how.first.block(x, count, 0, &off)) / n);
        return is_finite(mean) ? mean : mean_in_double();
    };
    auto p = before == 0 ? mean_of_block() : static_cast<float>(center / old);
    float squares = how.second.block(x, count, p, &off);
    if (before != 0 && !(off * off * (4 / static_cast<float>(count)) <= squares)) {
        p = mean_of_block();
        squares = how.second.block(x, count, p, &off);
    }
    // Differences of finite floats may be infinite: then the squares are, too.
    if (const float mean = is_inf(off) ? mean_in_double() : off; is_inf(off) && is_finite(mean)) p = mean, off = 0;
    // The squares about the block's mean, and then those about the mean of all: Chan, Golub, LeVeque, "Updating formulae
    // and a pairwise algorithm for computing sample variances".
    const double rest = is_nan(off) ? 0 : static_cast<double>(off), sum = static_cast<double>(p) * n + rest;
    const double apart = before == 0 ? 0 : sum / n - center / old;
    total += static_cast<double>(squares) - rest * rest / n + apart * apart * (old * n / (old + n));
    center += sum;
}

HALFTONE_OUT_OF_LINE void state::add_exponentials(const method& how, const float* x, extent count) {
    float largest = 0;
    if (std::abs(center) < HUGE_VAL) {
        const double sum = static_cast<double>(how.second.block(x, count, static_cast<float>(center), &largest));
        if (static_cast<double>(largest) <= center + 2) {
            total += sum;
            return;
        }
    }
    const double found =
        combine<axis_term::maximum>(center, static_cast<double>(how.first.block(x, count, 0, &largest)));
    if (total != 0) total *= std::exp(finite_shift(center) - finite_shift(found));
    center = found;
    // An infinite or missing largest element is the result.
    if (std::abs(center) < HUGE_VAL)
        total += static_cast<double>(how.second.block(x, count, static_cast<float>(center), &largest));
}

HALFTONE_OUT_OF_LINE void state::add(const method& how, extent before, const float* x, extent count, float parameter) {
    if (how.of_kind == method::kind::variance) return add_squares(how, before, x, count);
    if (how.of_kind == method::kind::logsumexp) return add_exponentials(how, x, count);
    float none;
    total = how.first.combine(total, static_cast<double>(how.first.block(x, count, parameter, &none)));
}

/// Prefetches as many elements of an output as have just been found, `count` before i, further on: a processor's own
/// prefetching ends where a run or a page does. Those behind the last one are likely the next output's.
HALFTONE_INLINE void prefetch_later(const source& x, const axis_layout& l, extent first, extent i, extent count,
                                    extent end) {
    extent offset = i - count + bytes_ahead / x.bytes;
    if (l.reduced_count > 1) {
        if (offset >= end) return;
        const run_at later(l, offset, end);
        offset = later.offset, count = std::min(count, later.count);
    }
    halftone::detail::prefetch(x.data + (first + offset) * x.bytes, static_cast<std::size_t>(count * x.bytes));
}

HALFTONE_OUT_OF_LINE state reduce_output(const source& x, const axis_layout& l, const method& how, extent output, extent begin,
                           extent end, float parameter, float* buffer) {
    const extent first = l.output_offset(output);
    state all{how.nothing(), how.no_center()};
    // One pass over floats is so fast that the processor's own prefetching goes far enough ahead.
    const bool prefetches = !x.is_float || how.of_kind != method::kind::terms;
    extent held = 0, reduced = 0;  // number of floats in the buffer, and of those that have left it
    for (extent i = begin; i < end;) {
        const run_at run(l, i, end);
        const extent count = std::min(run.count, axis_block - held);
        i += count;
        if (prefetches && count >= 64 && run.stride == 1) prefetch_later(x, l, first, i, count, end);
        if (held == 0 && (count == axis_block || i == end)) {
            all.add(how, reduced, x.floats(first + run.offset, run.stride, count, buffer), count, parameter);
            reduced += count;
            continue;
        }
        x.widen(x.data + (first + run.offset) * x.bytes, run.stride, count, buffer + held);
        held += count;
        if (held == axis_block || i == end) {
            all.add(how, reduced, buffer, held, parameter);
            reduced += held;
            held = 0;
        }
    }
    return all;
}

/// Some rows of adjacent outputs, of which the first has its first element at the offset `first`, and is output `column`
/// of its task.
struct rows_of_columns {
    const source& x;
    const axis_layout& l;
    extent first, column, width, begin, end;

    rows_of_columns narrowed(extent from, extent to) const {
        return {x, l, first + from, column + from, std::min(to, width - from), begin, end};
    }
    /// Calls with.rows for them.
    void visit(const pass& with, bool prefetches, worker& w) const;
    /// The mean of the rows of a column, whose sum in float is not finite.
    float mean_in_double(extent of, worker& w) const;
    /// Columns of finite floats whose differences from the mean are infinite: their squares are, too.
    void replace_infinite(worker& w) const;
    /// Two passes: for the mean, or the largest element, and with that. If they are not all rows, exponentials are of
    /// differences from 2 more than the largest element, so that it serves later rows with elements up to 4 larger.
    void two_passes(const method& how, bool is_all, worker& w) const;
    /// The second pass alone with what is known from earlier rows; both for columns in which that does not serve.
    void second_pass(const method& how, worker& w) const;
};

HALFTONE_OUT_OF_LINE void rows_of_columns::visit(const pass& with, bool prefetches, worker& w) const {
    std::fill_n(w.all + column, padded(width), with.nothing);
    std::fill_n(w.more + column, padded(width), with.nothing_more);
    for (extent i = begin; i < end;) {
        const run_at run(l, i, end);
        const extent known = prefetches ? run_at(l, i, l.reduced_size).count : 0;
        const std::byte* const from = x.data + (first + run.offset) * x.bytes;
        const float *const p = w.parameters + column, *floats = reinterpret_cast<const float*>(from);
        extent rows = run.count, stride = run.stride;
        if (!x.is_float) {
            rows = std::min(rows, widened / width / 4 * 4);
            x.widen_rows(from, stride, rows, width, known, w.buffer);
            floats = w.buffer, stride = width;
        }
        with.rows(rows, width, floats, stride, x.is_float ? known : 0, p, w.all + column, w.more + column);
        i += rows;
    }
}

HALFTONE_OUT_OF_LINE float rows_of_columns::mean_in_double(extent of, worker& w) const {
    double sum = 0;
    for (extent i = begin; i < end;) {
        const run_at run(l, i, end);
        const extent rows = std::min(run.count, axis_block);
        x.widen(x.data + (first + of + run.offset) * x.bytes, run.stride, rows, w.buffer);
        for (extent k = 0; k < rows; ++k) sum += static_cast<double>(w.buffer[k]);
        i += rows;
    }
    return static_cast<float>(sum / static_cast<double>(end - begin));
}

HALFTONE_OUT_OF_LINE void rows_of_columns::replace_infinite(worker& w) const {
    for (extent j = 0; j < width; ++j) {
        if (!is_inf(w.more[column + j])) continue;
        const float mean = mean_in_double(j, w);
        if (is_finite(mean)) w.parameters[column + j] = mean, w.more[column + j] = 0;
    }
}

HALFTONE_OUT_OF_LINE void rows_of_columns::two_passes(const method& how, bool is_all, worker& w) const {
    visit(how.first, true, w);
    if (how.of_kind == method::kind::logsumexp) {
        how.raise(width, w.all + column, is_all ? 0 : 2, w.center + column, w.total + column, w.parameters + column);
    } else {
        const float share = 1.0f / static_cast<float>(end - begin);
        for (extent j = column; j < column + padded(width); ++j) w.parameters[j] = w.all[j] * share;
        for (extent j = 0; j < width; ++j) {
            if (!is_finite(w.parameters[column + j])) w.parameters[column + j] = mean_in_double(j, w);
        }
    }
    visit(how.second, false, w);
    // An infinite largest element is the result, unless there is a NaN. It serves no other rows.
    for (extent j = column; j < column + width && how.of_kind == method::kind::logsumexp; ++j) {
        if (is_inf(w.center[j])) w.all[j] = 0, w.parameters[j] = std::numeric_limits<float>::quiet_NaN();
    }
}

HALFTONE_OUT_OF_LINE void rows_of_columns::second_pass(const method& how, worker& w) const {
    visit(how.second, true, w);
    constexpr extent together = 64;
    for (extent j = 0; j < width; j += together) {
        const rows_of_columns some = narrowed(j, together);
        const bool serves = how.of_kind == method::kind::variance
                                ? how.are_near_mean(some.width, static_cast<float>(end - begin), w.all + some.column,
                                                    w.more + some.column)
                                : how.are_below(some.width, w.more + some.column, w.parameters + some.column);
        if (!serves) some.two_passes(how, false, w);
    }
}

HALFTONE_OUT_OF_LINE void reduce_columns(const source& x, const axis_layout& l, const method& how, extent output, extent width,
                           extent begin, extent end, worker& w) {
    using enum method::kind;
    std::fill_n(w.total, padded(width), how.nothing());
    std::fill_n(w.center, padded(width), how.no_center());
    const extent first = l.output_offset(output);
    if (how.of_kind == terms && how.first.chooses) {
        rows_of_columns{x, l, first, 0, width, begin, end}.visit(how.first, true, w);
        return how.first.fold(width, w.all, w.total);
    }
    for (extent i = begin; i < end; i += rows_in_float) {
        const rows_of_columns some{x, l, first, 0, width, i, std::min(i + rows_in_float, end)};
        if (how.of_kind == terms) {
            some.visit(how.first, true, w);
        } else if (i == begin) {
            some.two_passes(how, some.end == end, w);
        } else {
            some.second_pass(how, w);
        }
        if (how.of_kind == variance) {
            some.replace_infinite(w);
            how.add_variances(width, static_cast<double>(i - begin), static_cast<double>(some.end - i), w.parameters,
                              w.all, w.more, w.center, w.total);
        } else {
            how.second.fold(width, w.all, w.total);
        }
    }
}

HALFTONE_OUT_OF_LINE method method::of(const cpu& device, const pass& only, double factor) {
    return {kind::terms,
            only,
            only,
            factor,
            1,
            device.select(HALFTONE_EACH_SET(raise_columns)),
            device.select(HALFTONE_EACH_SET(join_exponentials)),
            device.select(HALFTONE_EACH_SET(add_variances)),
            device.select(HALFTONE_EACH_SET(join_variances)),
            device.select(HALFTONE_EACH_SET(are_near_mean)),
            device.select(HALFTONE_EACH_SET(are_below))};
}

HALFTONE_OUT_OF_LINE method method::of(const cpu& device, axis_operation operation, extent size, double factor) {
    using enum axis_operation;
    if (operation == amax) return of(device, pass_of<axis_term::maximum>(device));
    if (operation == amin) return of(device, pass_of<axis_term::minimum>(device));
    if (operation == prod) return of(device, pass_of<axis_term::product>(device));
    method m = of(device, pass_of<axis_term::value>(device), operation == logsumexp ? 1 : factor);
    m.share = 1.0 / static_cast<double>(size);
    if (operation == var || operation == std_dev) {
        m.of_kind = kind::variance;
        m.is_root = operation == std_dev;
        m.second = pass_of<axis_term::square>(device);
    } else if (operation == logsumexp) {
        m.of_kind = kind::logsumexp;
        m.first = pass_of<axis_term::maximum>(device);
        m.second = pass_of<axis_term::exponential>(device);
    }
    return m;
}

HALFTONE_OUT_OF_LINE double method::result(double total, double center) const {
    if (of_kind == kind::variance) {
        const double variance = (total < 0 ? 0 : total) * factor;
        return is_root ? std::sqrt(variance) : variance;
    }
    if (of_kind != kind::logsumexp) return total * factor;
    return is_inf(center) && !is_nan(total) ? center : std::log(total) + center;
}

HALFTONE_OUT_OF_LINE void join_pieces(const method& how, const plan& cut, const axis_layout& l, extent first, extent count,
                        const double* totals, const double* centers, worker& w) {
    std::fill_n(w.total, padded(count), how.nothing());
    std::fill_n(w.center, padded(count), how.no_center());
    const auto of_piece = [&](const double* from, extent piece) { return from + piece * l.outputs + first; };
    if (how.of_kind == method::kind::logsumexp) {
        for (extent piece = 0; piece < cut.pieces; ++piece) how.first.join(count, of_piece(centers, piece), w.center);
    }
    for (extent piece = 0; piece < cut.pieces; ++piece) {
        const double* const total = of_piece(totals, piece);
        const double* const center = how.of_kind == method::kind::terms ? nullptr : of_piece(centers, piece);
        if (how.of_kind == method::kind::terms) {
            how.first.join(count, total, w.total);
        } else if (how.of_kind == method::kind::logsumexp) {
            how.join_exponentials(count, center, total, w.center, w.total);
        } else {
            const extent before = piece * cut.piece_size, some = std::min(cut.piece_size, l.reduced_size - before);
            how.join_variances(count, static_cast<double>(before), static_cast<double>(some), center, total, w.center,
                               w.total);
        }
    }
}

HALFTONE_OUT_OF_LINE void reduce(cpu& device, const source& x, const axis_layout& l, const method& how, const float* parameters,
                   const sink* y, float* kept, write_mode mode) {
    const plan cut = plan::of(l);
    // Whole vectors are read, beyond the last output, too.
    const std::size_t all = static_cast<std::size_t>(cut.pieces * l.outputs + 16) * sizeof(double);
    const bool is_cut = cut.pieces > 1, has_center = how.of_kind != method::kind::terms;
    const workspace::lease first_part(device.scratch(), is_cut ? all : 0),
        second_part(device.scratch(), is_cut && has_center ? all : 0);
    auto* const totals = first_part.as<double>();
    auto* const centers = second_part.as<double>();
    // Reduces the elements [begin, end) of a task's outputs into w.total and w.center.
    const auto some = [&](extent task, extent begin, extent end, worker& w) {
        const extent first = cut.first(l, task), count = cut.count(l, task);
        if (parameters == nullptr) {
            std::fill_n(w.parameters, count, 0.0f);
        } else {
            std::copy_n(parameters + first, count, w.parameters);
        }
        if (cut.is_columns) return reduce_columns(x, l, how, first, count, begin, end, w);
        for (extent o = 0; o < count; ++o) {
            const state s = reduce_output(x, l, how, first + o, begin, end, w.parameters[o], w.buffer);
            w.total[o] = s.total, w.center[o] = s.center;
        }
    };
    const auto finish = [&](extent first, extent count, worker& w) {
        const bool keeps_mean = how.of_kind == method::kind::variance;
        for (extent o = 0; o < count; ++o) {
            w.parameters[o] = static_cast<float>(how.result(w.total[o], w.center[o]));
            if (kept != nullptr)
                kept[first + o] = keeps_mean ? static_cast<float>(w.center[o] * how.share) : w.parameters[o];
        }
        if (y != nullptr) y->put(w.parameters, count, first, 1, mode);
    };
    device.parallel_for(cut.tasks * cut.pieces, sizeof(worker), [&](extent index, std::byte* scratch) {
        worker& w = *reinterpret_cast<worker*>(scratch);
        const extent task = index / cut.pieces, piece = index % cut.pieces, begin = piece * cut.piece_size;
        const extent first = cut.first(l, task), count = cut.count(l, task);
        some(task, begin, std::min(begin + cut.piece_size, l.reduced_size), w);
        if (!is_cut) return finish(first, count, w);
        std::copy_n(w.total, count, totals + piece * l.outputs + first);
        if (has_center) std::copy_n(w.center, count, centers + piece * l.outputs + first);
    });
    if (!is_cut) return;
    constexpr extent joined = 256;
    device.parallel_for(detail::ceil_div(l.outputs, joined), sizeof(worker), [&](extent index, std::byte* scratch) {
        worker& w = *reinterpret_cast<worker*>(scratch);
        const extent first = index * joined, count = std::min(joined, l.outputs - first);
        join_pieces(how, cut, l, first, count, totals, centers, w);
        finish(first, count, w);
    });
}

}  // namespace axis_cpu
}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone

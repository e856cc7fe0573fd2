// SPDX-License-Identifier: MIT
/// \file
/// The kernels of pointwise operations, launched by device.hpp: operand types, the evaluation of an expression on one
/// vector for each thread, and sums for the gradients of broadcast inputs.
#pragma once

#include <utility>

#include <halftone/kernel/common/rows/device.hpp>
#include <halftone/kernel/map/expression/scalar.hpp>
#include <halftone/kernel/map/map.hpp>
#include <halftone/number/integer.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel::on_device {

/// Elements of type T with the strides of a map's rows and columns; `vector` of them are 16 bytes.
template <class T, map_access Access>
struct map_place {
    static constexpr bool is_column = Access == map_access::column;
    static constexpr int vector = Access == map_access::scalar ? 1 : 16 / static_cast<int>(sizeof(T));

    global_span<T> values;
    extent row_stride;

    map_place(const map_operand& o, const map_shape& s)
        : values{reinterpret_cast<T*>(o.data), count_of(o, s)}, row_stride(o.row_stride) {}

    bool is_flat(const map_shape& s) const {
        if (!values.is_there() || Access == map_access::scalar) return true;
        return Access == map_access::each && (s.rows <= 1 || row_stride == s.columns);
    }
    /// Whether it can be accessed N elements at a time.
    bool fits(int n, const map_shape& s) const {
        if (!values.is_there() || Access == map_access::scalar) return true;
        return (Access == map_access::column || s.rows <= 1 || row_stride % n == 0) && starts_vector(values.data, n);
    }
    HALFTONE_HD HALFTONE_INLINE global_span<T> in_row(extent row) const {
        return Access == map_access::each ? values.from(row * row_stride) : values;
    }

  private:
    static extent count_of(const map_operand& o, const map_shape& s) {
        if (Access == map_access::scalar) return 1;
        if (Access == map_access::column || s.rows == 0) return s.columns;
        return (s.rows - 1) * o.row_stride + s.columns;
    }
};

/// An operand without data: it puts no constraint on the access of the others.
struct map_nowhere {
    static constexpr bool is_column = false;
    static constexpr int vector = 1;
    bool is_flat(const map_shape&) const { return true; }
    bool fits(int, const map_shape&) const { return true; }
};

template <class T, map_access Access>
struct map_input : map_place<const T, Access> {
    using map_place<const T, Access>::map_place;

    HALFTONE_KERNEL template <int N, class Simt>
    HALFTONE_HD HALFTONE_INLINE vec<float, N> load(Simt simt, extent row, extent i) const {
        if constexpr (Access == map_access::scalar) {
            const float value = detail::in_float(simt.load(this->values, 0));
            vec<float, N> all;
            HALFTONE_UNROLL for (int e = 0; e < N; ++e) all[e] = value;
            return all;
        } else {
            return load_floats<N>(simt, this->in_row(row), i);
        }
    }
};
struct map_unread_input : map_nowhere {
    HALFTONE_KERNEL template <int N, class Simt>
    HALFTONE_HD HALFTONE_INLINE vec<float, N> load(Simt, extent, extent) const {
        return {};
    }
};

/// A result with the outputs' shape. Without memory it is dropped.
template <class T>
struct map_output : map_place<T, map_access::each> {
    static constexpr bool is_summed = false;
    write_mode mode;

    map_output(const map_operand& o, const map_shape& s, write_mode m)
        : map_place<T, map_access::each>(o, s), mode(m) {}

    HALFTONE_KERNEL template <int N, class Simt>
    HALFTONE_HD HALFTONE_INLINE void store(Simt simt, extent row, extent i, vec<float, N> v) const {
        if (!this->values.is_there()) return;
        const global_span<T> to = this->in_row(row);
        if constexpr (!wide_number<T>) {  // gradients alone are added to, and none is of such a type
            if (mode == write_mode::add) {
                const vec<float, N> old = load_floats<N>(simt, to, i);
                HALFTONE_UNROLL for (int e = 0; e < N; ++e) v[e] = old[e] + v[e];
            }
        }
        store_rounded<N>(simt, to, i, v);
    }
};
struct map_no_output : map_nowhere {
    static constexpr bool is_summed = false;
    HALFTONE_KERNEL template <int N, class Simt>
    HALFTONE_HD HALFTONE_INLINE void store(Simt, extent, extent, const vec<float, N>&) const {}
};

/// Partial sums of a broadcast input's gradient: (pieces, columns) floats, or one for each block. Without memory they
/// are dropped.
template <map_access Access>
struct map_sums : map_nowhere {
    static constexpr bool is_summed = true, is_column = Access == map_access::column;
    global_span<float> partials;
};

/// Evaluates all expressions on vector number i of a row, into y[0], y[1], ...
HALFTONE_KERNEL template <int N, class Simt, class... E, class... Input, std::size_t... K, std::size_t... I>
HALFTONE_HD HALFTONE_INLINE void map_values([[maybe_unused]] Simt simt, const pack<E...>& expressions,
                                            const pack<Input...>& inputs, [[maybe_unused]] extent row,
                                            [[maybe_unused]] extent i, vec<float, N>* y, std::index_sequence<K...>,
                                            std::index_sequence<I...>) {
    const vec<float, N> x[] = {inputs.template at<I>().template load<N>(simt, row, i)..., vec<float, N>{}};
    HALFTONE_UNROLL for (int e = 0; e < N; ++e) {
        const float arguments[] = {x[I][e]..., x[sizeof...(I)][e]};
        ((y[K][e] = scalar::evaluate(expressions.template at<K>(), arguments)), ...);
    }
}

/// Computes all results of one vector.
template <int N, class Expressions, class Outputs, class Inputs>
struct map_part {
    const Expressions& expressions;
    const Outputs& outputs;
    const Inputs& inputs;
    extent row, i;

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE void operator()(Simt simt) const {
        run(simt, std::make_index_sequence<Outputs::count>{});
    }

  private:
    HALFTONE_KERNEL template <class Simt, std::size_t... K>
    HALFTONE_HD HALFTONE_INLINE void run(Simt simt, std::index_sequence<K...> results) const {
        vec<float, N> y[sizeof...(K)];
        map_values<N>(simt, expressions, inputs, row, i, y, results, std::make_index_sequence<Inputs::count>{});
        (outputs.template at<K>().template store<N>(simt, row, i, y[K]), ...);
    }
};

/// One vector a thread; in a single row, which may end within a vector, the last elements one by one.
template <int N, class Expressions, class Outputs, class Inputs>
struct map_kernel {
    static constexpr int threads = 256;
    static constexpr word shared_bytes = 0;

    Expressions expressions;
    Outputs outputs;
    Inputs inputs;
    map_shape shape;

    grid_shape grid() const { return simt::blocks_for(shape.rows * (shape.columns / N + shape.columns % N), threads); }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const extent i = static_cast<extent>(simt.block().x) * threads + simt.thread(), across = shape.columns / N;
        const extent vectors = shape.rows * across;
        if (i < vectors) {
            const extent row = shape.rows == 1 ? 0 : i / across;
            run<N>(simt, row, i - row * across);
        } else if (i < vectors + shape.columns % N) {
            if constexpr (N > 1) run<1>(simt, 0, across * N + (i - vectors));
        }
    }

  private:
    HALFTONE_KERNEL template <int Elements, class Simt>
    HALFTONE_HD HALFTONE_INLINE void run(Simt simt, extent row, extent i) const {
        run_part(simt, map_part<Elements, Expressions, Outputs, Inputs>{expressions, outputs, inputs, row, i});
    }
};

/// How the threads of a block are distributed: `across` of them along the columns, the others over pieces of rows.
struct map_partition {
    row_partition rows;
    int across = 1, blocks_across = 1;
};

/// Several vectors a thread, all of the same columns unless no column is summed; computes sums for broadcast inputs.
template <int N, class Expressions, class Outputs, class Inputs>
struct map_sums_kernel {
    static constexpr int threads = 128;
    static constexpr int min_blocks = 1;  // without it ptxas 13.0 limits registers for sm_120 and spills
    using team = row_team<threads, Outputs::count>;
    static constexpr word shared_bytes = team::shared_bytes;

    Expressions expressions;
    Outputs outputs;
    Inputs inputs;
    map_shape shape;
    map_partition partition;

    grid_shape grid() const {
        const extent pieces_in_block = threads / partition.across;
        return {partition.blocks_across, static_cast<int>(detail::ceil_div(partition.rows.count, pieces_in_block)), 1};
    }
    extent blocks() const { return static_cast<extent>(grid().x) * grid().y; }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        run(simt, std::make_index_sequence<Outputs::count>{});
    }

  private:
    HALFTONE_KERNEL template <class Simt, std::size_t... K>
    HALFTONE_HD HALFTONE_INLINE void run(Simt simt, std::index_sequence<K...> results) const {
        const extent vectors = shape.columns / N, step = static_cast<extent>(partition.blocks_across) * partition.across;
        const extent first = static_cast<extent>(simt.block().x) * partition.across + simt.thread() % partition.across;
        const extent piece =
            static_cast<extent>(simt.block().y) * (threads / partition.across) + simt.thread() / partition.across;
        vec<float, N> sums[sizeof...(K)]{};
        if (piece < partition.rows.count) {
            const extent begin = partition.rows.begin(piece), end = begin + partition.rows.rows_of(piece);
            for (extent row = begin; row < end; ++row) {
                for (extent i = first; i < vectors; i += step) {
                    vec<float, N> y[sizeof...(K)];
                    map_values<N>(simt, expressions, inputs, row, i, y, results,
                                  std::make_index_sequence<Inputs::count>{});
                    (take(simt, outputs.template at<K>(), row, i, y[K], sums[K]), ...);
                }
            }
        }
        (finish(simt, outputs.template at<K>(), piece, first, vectors, sums[K], constant<static_cast<int>(K)>{}), ...);
    }

    HALFTONE_KERNEL template <class Simt, class Output>
    HALFTONE_HD HALFTONE_INLINE void take(Simt simt, const Output& to, extent row, extent i, const vec<float, N>& y,
                                          vec<float, N>& sum) const {
        if constexpr (Output::is_summed) {
            HALFTONE_UNROLL for (int e = 0; e < N; ++e) sum[e] += y[e];
        } else {
            to.template store<N>(simt, row, i, y);
        }
    }
    HALFTONE_KERNEL template <class Simt, class Output, int K>
    HALFTONE_HD HALFTONE_INLINE void finish(Simt simt, const Output& to, extent piece, extent first, extent vectors,
                                            const vec<float, N>& sum, constant<K> slot) const {
        if constexpr (Output::is_summed) {
            if (!to.partials.is_there()) return;
            if constexpr (Output::is_column) {
                if (piece >= partition.rows.count || first >= vectors) return;
                HALFTONE_UNROLL for (int e = 0; e < N; ++e)
                    simt.store(to.partials, piece * shape.columns + first * N + e, sum[e]);
            } else {
                float mine = 0;
                HALFTONE_UNROLL for (int e = 0; e < N; ++e) mine += sum[e];
                const float total = team::sum(simt, mine, slot);
                const extent block = static_cast<extent>(simt.block().y) * partition.blocks_across + simt.block().x;
                if (simt.thread() == 0) simt.store(to.partials, block, total);
            }
        }
    }
};

/// out = (or +=) the sum of all partials, by one block.
template <class G>
struct map_total_kernel {
    static constexpr int threads = 256;
    using team = row_team<threads, 1>;
    static constexpr word shared_bytes = team::shared_bytes;

    global_span<const float> partials;
    global_span<G> out;
    write_mode mode;

    grid_shape grid() const { return {}; }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        float mine = 0;
        for (extent i = simt.thread(); i < partials.count; i += threads) mine += simt.load(partials, i);
        const float total = team::sum(simt, mine, constant<0>{});
        if (simt.thread() != 0) return;
        simt.store(out, 0, G(mode == write_mode::add ? detail::in_float(simt.load(out, 0)) + total : total));
    }
};

}  // namespace kernel::on_device
}  // namespace HALFTONE_ABI
}  // namespace halftone

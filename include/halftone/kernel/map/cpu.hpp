// SPDX-License-Identifier: MIT
/// \file
/// Pointwise operations on the CPU; map.hpp has the rules, the contract and an example.
#pragma once

#include <algorithm>
#include <bit>
#include <cstring>

#include <halftone/kernel/column_sum/cpu.hpp>
#include <halftone/kernel/common/fp64/cpu.hpp>
#include <halftone/kernel/common/rows/rows.hpp>
#include <halftone/kernel/map/cpu/job.hpp>
#include <halftone/kernel/map/cpu/strided.hpp>
#include <halftone/kernel/map/evaluate.hpp>
#include <halftone/kernel/map/fp64.hpp>
#include <halftone/kernel/map/map.hpp>
#include <halftone/kernel/strided_copy/cpu.hpp>

#define HALFTONE_BODY <halftone/kernel/map/cpu.simd.hpp>
#include <halftone/exec/cpu/each_set.hpp>
#include <halftone/number/in_float.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

/// A buffer for some rows of an operand, one vector block each. The remainder of a row after its whole vector blocks is
/// copied into such a buffer and computed there, so that the code of a map's expressions handles whole vectors only.
struct map_buffer {
    static constexpr extent rows = 8, columns = extent{4} * map_lanes;
    alignas(block_alignment) std::byte bytes[rows * columns * sizeof(float)];
};

/// A worker's operands in a piece: their addresses, and the buffers for the remainders of their rows.
struct map_room {
    map_stream *streams, *tails;
    map_buffer* buffers;
};

/// Runs a piece, some rows at a time: first the whole vector blocks, then the remainders of these rows.
class map_piece {
  public:
    map_piece(const cpu& device, const map_job& job, const map_body& body, extent piece, const map_room& room);

    void run() const;

  private:
    void send(const map_stream* operands, extent rows, extent columns) const {
        body_.block(body_.expressions, operands, operands + body_.outputs, rows, columns);
    }

    static bool is_sum(const map_stream& s) { return s.step == 0 && s.mode == write_mode::add; }
    static bool has_tail(const map_stream& s) { return s.step != 0; }
    bool is_output(int i) const { return i < body_.outputs; }

    /// Outputs at the same address share a buffer: the gradients of an input that is passed as two arguments.
    std::byte* buffer_of(int i) const;

    /// Returns how many rows are processed at a time: one if all elements are summed, since the sum's order is that of
    /// the rows.
    extent begin_tails() const;
    /// Calls copy(in the operand, in its buffer, bytes) for each of some rows.
    template <class Copy>
    void for_tails(int i, extent rows, const Copy& copy) const {
        const map_stream &s = room_.streams[i], &tail = room_.tails[i];
        for (extent row = 0; row < (s.row_step == 0 ? 1 : rows); ++row) {
            copy(s.data + row * s.row_step + whole_ * s.step, tail.data + row * tail.row_step,
                 static_cast<std::size_t>(left_ * s.step));
        }
    }
    void fill_tails(extent rows) const;
    void empty_tails(extent rows) const;

    const map_body& body_;
    const map_room& room_;
    int operands_;
    extent rows_, whole_, left_, lanes_, block_;
};

/// Runs the pieces of a job with at most `Operands` operands.
template <int Operands>
void run_map_pieces(cpu& device, map_job& job, const map_body& body) {
    // A scalar is repeated, so that a vector of it can be loaded.
    alignas(block_alignment) std::byte copies[Operands][block_alignment];
    for (int i = body.outputs; i < job.count; ++i) {
        map_operand& o = job.plans[i].operand;
        if (o.data == nullptr || o.access != map_access::scalar) continue;
        const extent fitting = static_cast<extent>(block_alignment) / o.element_bytes;
        for (extent lane = 0; lane < fitting; ++lane)
            device.copy(copies[i] + lane * o.element_bytes, o.data, static_cast<std::size_t>(o.element_bytes));
        o.data = copies[i];
    }
    job.choose_streams(body.outputs);
    device.parallel_for(job.pieces(), [&](extent piece) {
        map_stream streams[Operands], tails[Operands];
        map_buffer buffers[Operands];
        map_piece(device, job, body, piece, {streams, tails, buffers}).run();
    });
}

/// Partitions and runs a job whose first `gradients` plans are gradients.
void run_map(cpu& device, map_job& job, const map_body& body, int gradients,
             void (*pieces)(cpu&, map_job&, const map_body&));

template <>
struct map<cpu> {
    template <map_layout Layout = map_layout::rows, class... E, class... Outputs, class... Inputs>
    static void run(cpu& device, const pack<E...>& expressions, const pack<Outputs...>& outputs,
                    const pack<Inputs...>& inputs) {
        static_assert(sizeof...(E) == sizeof...(Outputs) && sizeof...(E) > 0,
                      "halftone: map: as many expressions as outputs");
        constexpr std::index_sequence_for<Outputs...> k;
        constexpr std::index_sequence_for<Inputs...> i;
        if constexpr (in_double<typename Outputs::value_type..., typename Inputs::value_type...>) {
            fp64::map_of<cpu>::template run<Layout>(device, expressions, outputs, inputs, k, i);
        } else {
            run_each<Layout>(device, expressions, outputs, inputs, k, i);
        }
    }

    template <map_layout Layout = map_layout::rows, class... E, class... OutputGradients, class... Inputs,
              class... Gradients>
    static void backward(cpu& device, const pack<E...>& expressions, const pack<OutputGradients...>& output_gradients,
                         const pack<Inputs...>& inputs, const pack<Gradients...>& gradients) {
        static_assert(sizeof...(E) == sizeof...(OutputGradients),
                      "halftone: map: as many gradients of outputs as expressions");
        static_assert(sizeof...(Inputs) == sizeof...(Gradients),
                      "halftone: map: one gradient for each input; kernel::no_gradient{} where none is wanted");
        constexpr std::index_sequence_for<OutputGradients...> k;
        constexpr std::index_sequence_for<Inputs...> i;
        if constexpr (in_double<typename OutputGradients::value_type..., typename Inputs::value_type...>) {
            fp64::map_of<cpu>::template backward<Layout>(device, expressions, output_gradients, inputs, gradients, k, i);
        } else {
            backward_each<Layout>(device, expressions, output_gradients, inputs, gradients, k, i);
        }
    }

  private:
    template <class Views, std::size_t Index>
    using element = typename std::remove_cvref_t<decltype(std::declval<Views>().template at<Index>())>::value_type;
    template <class E, class T, std::size_t Index>
    using read = std::conditional_t<reads<static_cast<int>(Index), E>, map_read<T>, map_unread>;

    /// An input's operand; without data if nothing reads it.
    template <map_layout Layout, class E, std::size_t Index, class V, int Rank>
    static map_plan input_plan(const char* role, std::size_t number, const V& v, const shape<Rank>& target) {
        map_plan plan{map_operand_of<Layout>(role, static_cast<int>(number), v, target)};
        if constexpr (!reads<static_cast<int>(Index), E>) plan.operand.data = nullptr;
        return plan;
    }

    template <map_layout Layout, class... E, class Outputs, class Inputs, std::size_t... K, std::size_t... I>
    static void run_each(cpu& device, const pack<E...>& given, const Outputs& outputs, const Inputs& inputs,
                         std::index_sequence<K...>, std::index_sequence<I...>) {
        const auto expressions = expressions_for(given, outputs, std::index_sequence<K...>{});
        const auto& target = outputs.first.shape();
        static_assert(
            ((decltype(outputs.first)::rank == std::remove_cvref_t<decltype(outputs.template at<K>())>::rank) && ...),
            "halftone: map: all outputs have one rank");
        static_assert((!std::is_const_v<std::remove_pointer_t<decltype(outputs.template at<K>().data())>> && ...),
                      "halftone: map: the last view is the output, and it is a view of constants");
        map_plan plans[] = {{map_result_of<Layout>("output", K, outputs.template at<K>(), target)}...,
                            input_plan<Layout, pack<E...>, I>("input", I, inputs.template at<I>(), target)...};
        launch<Layout, pack<map_write<element<Outputs, K>>...>, pack<read<pack<E...>, element<Inputs, I>, I>...>>(
            device, expressions, {map_shape_of(target), plans, sizeof...(K) + sizeof...(I)}, 0, target);
    }

    template <int TargetRank>
    static map_unwritten written(const no_gradient&);
    template <int TargetRank, class T, int Rank>
    static auto written(const gradient<T, Rank>&) {
        if constexpr (Rank == TargetRank) {
            return map_add<T>{};
        } else {
            return std::conditional_t<Rank == 0, map_sum, map_add<float>>{};
        }
    }

    template <map_layout Layout, class V, int Rank>
    static map_plan gradient_plan(std::size_t, const V&, const no_gradient&, const shape<Rank>&) {
        return {};
    }
    template <map_layout Layout, class V, class T, int Rank, int TargetRank>
    static map_plan gradient_plan(std::size_t number, const V&, const gradient<T, Rank>& g,
                                  const shape<TargetRank>& target) {
        static_assert(V::rank == Rank && !std::is_const_v<T>,
                      "halftone: map: a gradient has its input's rank, and is no view of constants");
        const map_operand to = map_result_of<Layout>("gradient of input", static_cast<int>(number), g.to, target);
        if constexpr (Rank != TargetRank) {
            if (to.access == map_access::strided) refuse_sums_beside_strides();
        }
        return {to, g.mode, &add_up<T>};
    }

    template <map_layout Layout, class... E, class OutputGradients, class Inputs, class Gradients, std::size_t... K,
              std::size_t... I>
    static void backward_each(cpu& device, const pack<E...>& expressions, const OutputGradients& output_gradients,
                              const Inputs& inputs, const Gradients& gradients, std::index_sequence<K...>,
                              std::index_sequence<I...>) {
        constexpr std::size_t count = sizeof...(I);
        const auto& target = output_gradients.first.shape();
        constexpr int rank = std::remove_cvref_t<decltype(output_gradients.first)>::rank;
        static_assert(((rank == std::remove_cvref_t<decltype(output_gradients.template at<K>())>::rank) && ...),
                      "halftone: map: all outputs have one rank");
        const auto wanted =
            make_pack(gradient_of<rank, static_cast<int>(I), count>(expressions, gradients.template at<I>())...);
        using expression_pack = std::remove_const_t<decltype(wanted)>;
        map_plan plans[] = {gradient_plan<Layout>(I, inputs.template at<I>(), gradients.template at<I>(), target)...,
                            input_plan<Layout, expression_pack, I>("input", I, inputs.template at<I>(), target)...,
                            input_plan<Layout, expression_pack, count + K>(
                                "gradient of output", K, output_gradients.template at<K>(), target)...};
        launch<Layout, pack<decltype(written<rank>(gradients.template at<I>()))...>,
               pack<read<expression_pack, element<Inputs, I>, I>...,
                    read<expression_pack, element<OutputGradients, K>, count + K>...>>(
            device, wanted, {map_shape_of(target), plans, 2 * count + sizeof...(K)}, count, target);
    }

    /// Adds the partial sums of a broadcast input's gradient.
    template <class T>
    static void add_up(cpu& device, const map_job& job, const map_plan& plan) {
        auto* const to = reinterpret_cast<T*>(plan.operand.data);
        if (plan.operand.access == map_access::column) {
            add_partials(device, job.rows.count, plan.partials, partial_stride(job.shape.columns), job.shape.columns,
                         to, plan.mode);
        } else {
            device.run([&] {
                double total = 0;
                for (extent i = 0; i < job.pieces() * map_lanes; ++i) total += static_cast<double>(plan.partials[i]);
                const auto sum = static_cast<float>(total);
                *to = static_cast<T>(plan.mode == write_mode::add ? detail::in_float(*to) + sum : sum);
            });
        }
    }

    template <map_layout Layout, class Outputs, class Inputs, class E, int Rank>
    static void launch(cpu& device, const E& expressions, map_job job, int gradients, const shape<Rank>& target) {
        const auto block = device.select(HALFTONE_EACH_SET(map_block<E, Outputs, Inputs>));
        // Rounded up to few different numbers, so that a program contains few copies of this function.
        constexpr auto operands = std::bit_ceil(std::max<std::size_t>(4, Outputs::count + Inputs::count));
        const map_body body{&expressions, block, Outputs::count};
        if constexpr (Layout != map_layout::rows) {
            if (is_strided(job, gradients)) {
                map_strides strides[operands];
                for (int i = 0; i < job.count; ++i) strides[i] = map_strides_of(job.plans[i].operand, target);
                return run_strided_map<operands>(device, job.plans, job.count, strides, body);
            }
        }
        run_map(device, job, body, gradients, &run_map_pieces<operands>);
    }
    static bool is_strided(const map_job& job, int gradients);
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone

#if defined(HALFTONE_OUT_OF_LINE)
#include <halftone/kernel/map/cpu.body.hpp>
#endif

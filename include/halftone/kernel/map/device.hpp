// SPDX-License-Identifier: MIT
/// \file
/// Pointwise operations on devices that run GPU kernels; map.hpp has the rules, the contract and an example.
///
///     ht::map(device, [](auto x, auto b) { return ht::gelu(x + b); }, x, bias, y);       // one kernel
///
/// The expression's type is a template argument of the kernel: every thread loads 16 bytes of consecutive elements,
/// evaluates each element in float (expression/scalar.hpp, which states the errors), and rounds once.
///
/// In the backward pass one kernel computes the gradients of all inputs. If one of them is summed, because its input
/// was broadcast, a thread keeps the same columns over a piece of rows and stores one partial sum for each piece
/// (columns) or block (single values); a second kernel adds these in order. Pieces depend on the shape alone.
#pragma once

#include <algorithm>
#include <utility>

#include <halftone/exec/workspace.hpp>
#include <halftone/kernel/column_sum/device.hpp>
#include <halftone/kernel/common/fp64/device.hpp>
#include <halftone/kernel/map/device/kernels.hpp>
#include <halftone/kernel/map/device/strided.hpp>
#include <halftone/kernel/map/fp64.hpp>
#include <halftone/kernel/strided_copy/device.hpp>
#include <halftone/number/integer.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

template <simt_device Device>
struct map<Device> {
    template <map_layout Layout = map_layout::rows, class... E, class... Outputs, class... Inputs>
    static void run(Device& device, const pack<E...>& expressions, const pack<Outputs...>& outputs,
                    const pack<Inputs...>& inputs) {
        static_assert(sizeof...(E) == sizeof...(Outputs) && sizeof...(E) > 0,
                      "halftone: map: as many expressions as outputs");
        constexpr std::index_sequence_for<Outputs...> k;
        constexpr std::index_sequence_for<Inputs...> i;
        if constexpr (in_double<typename Outputs::value_type..., typename Inputs::value_type...>) {
            fp64::map_of<Device>::template run<Layout>(device, expressions, outputs, inputs, k, i);
        } else {
            run_each<Layout>(device, expressions, outputs, inputs, k, i);
        }
    }

    template <map_layout Layout = map_layout::rows, class... E, class... OutputGradients, class... Inputs,
              class... Gradients>
    static void backward(Device& device, const pack<E...>& expressions,
                         const pack<OutputGradients...>& output_gradients, const pack<Inputs...>& inputs,
                         const pack<Gradients...>& gradients) {
        static_assert(sizeof...(E) == sizeof...(OutputGradients),
                      "halftone: map: as many gradients of outputs as expressions");
        static_assert(sizeof...(Inputs) == sizeof...(Gradients),
                      "halftone: map: one gradient for each input; kernel::no_gradient{} where none is wanted");
        constexpr std::index_sequence_for<OutputGradients...> k;
        constexpr std::index_sequence_for<Inputs...> i;
        if constexpr (in_double<typename OutputGradients::value_type..., typename Inputs::value_type...>) {
            fp64::map_of<Device>::template backward<Layout>(device, expressions, output_gradients, inputs, gradients, k, i);
        } else {
            backward_each<Layout>(device, expressions, output_gradients, inputs, gradients, k, i);
        }
    }

  private:
    template <class Views, std::size_t Index>
    using element = typename std::remove_cvref_t<decltype(std::declval<Views>().template at<Index>())>::value_type;
    template <class E, class T, std::size_t Index>
    using strided_input =
        std::conditional_t<reads<static_cast<int>(Index), E>, on_device::strided_input<T>, on_device::strided_unread>;

    template <std::size_t Count>
    static bool are_strided(const map_operand (&operands)[Count]) {
        bool strided = false;
        for (const map_operand& o : operands) strided = strided || o.access == map_access::strided;
        return strided;
    }
    template <std::size_t Outputs>
    static constexpr write_mode overwriting[Outputs]{};  // the first of its values

    template <class Expressions, class Outputs, class Inputs, std::size_t Count, std::size_t Modes, int Rank>
    static void launch_strided(Device& device, const Expressions& expressions, const map_operand (&operands)[Count],
                               const write_mode (&modes)[Modes], const shape<Rank>& target) {
        on_device::strided_map_kernel<Expressions, Outputs, Inputs> kernel{expressions};
        map_strides strides[Count];
        axis_values steps[Count];
        for (std::size_t i = 0; i < Count; ++i) {
            strides[i] = map_strides_of(operands[i], target);
            steps[i] = strides[i].steps;
        }
        kernel.extents = strides[0].extents;
        kernel.axes = merge_axes(strides[0].axes, kernel.extents, steps, static_cast<int>(Count));
        for (std::size_t i = 0; i < Count; ++i)
            kernel.places[i] = on_device::strided_map_place(operands[i], kernel.axes, kernel.extents, steps[i]);
        for (std::size_t k = 0; k < Modes; ++k) kernel.modes[k] = modes[k];
        device.launch(kernel);
    }
    static write_mode mode_of(const no_gradient&) { return write_mode::overwrite; }
    template <class T, int R>
    static write_mode mode_of(const gradient<T, R>& g) {
        return g.mode;
    }
    static on_device::strided_no_output strided_gradient(const no_gradient&);
    template <class T, int R>
    static on_device::strided_output<T> strided_gradient(const gradient<T, R>&);
    template <int Rank>
    static map_operand gradient_operand(std::size_t, const no_gradient&, const shape<Rank>&) {
        return {};
    }
    template <class T, int R, int Rank>
    static map_operand gradient_operand(std::size_t number, const gradient<T, R>& g, const shape<Rank>& target) {
        static_assert(R == Rank, "halftone: map: with strides, gradients have the outputs' rank");
        return map_result_of<map_layout::strided>("gradient of input", static_cast<int>(number), g.to, target);
    }

    template <int Rank, int TargetRank>
    static constexpr map_access access = Rank == TargetRank ? map_access::each
                                         : Rank == 0        ? map_access::scalar
                                                            : map_access::column;

    template <class E, std::size_t Index, class T, int Rank, int TargetRank>
    static auto input(const char* role, std::size_t number, const view<T, Rank>& v, const shape<TargetRank>& target) {
        const map_operand operand = map_operand_of(role, static_cast<int>(number), v, target);
        if constexpr (reads<static_cast<int>(Index), E>) {
            return on_device::map_input<std::remove_const_t<T>, access<Rank, TargetRank>>(operand,
                                                                                          map_shape_of(target));
        } else {
            return on_device::map_unread_input{};
        }
    }

    template <map_layout Layout, class... E, class Outputs, class Inputs, std::size_t... K, std::size_t... I>
    static void run_each(Device& device, const pack<E...>& given, const Outputs& outputs, const Inputs& inputs,
                         std::index_sequence<K...>, std::index_sequence<I...>) {
        const auto expressions = expressions_for(given, outputs, std::index_sequence<K...>{});
        const auto& target = outputs.first.shape();
        static_assert(
            ((decltype(outputs.first)::rank == std::remove_cvref_t<decltype(outputs.template at<K>())>::rank) && ...),
            "halftone: map: all outputs have one rank");
        static_assert((!std::is_const_v<std::remove_pointer_t<decltype(outputs.template at<K>().data())>> && ...),
                      "halftone: map: the last view is the output, and it is a view of constants");
        if constexpr (Layout != map_layout::rows) {
            const map_operand operands[] = {map_result_of<Layout>("output", K, outputs.template at<K>(), target)...,
                                            map_operand_of<Layout>("input", I, inputs.template at<I>(), target)...};
            if (Layout == map_layout::strided || are_strided(operands)) {
                launch_strided<std::remove_const_t<decltype(expressions)>,
                               pack<on_device::strided_output<element<Outputs, K>>...>,
                               pack<strided_input<pack<E...>, element<Inputs, I>, I>...>>(
                    device, expressions, operands, overwriting<sizeof...(K)>, target);
                return;
            }
        }
        if constexpr (Layout != map_layout::strided) launch(device, expressions,
               make_pack(output(map_result_of("output", K, outputs.template at<K>(), target), outputs.template at<K>(),
                                target)...),
               make_pack(input<pack<E...>, I>("input", I, inputs.template at<I>(), target)...), map_shape_of(target));
    }
    template <class T, int Rank>
    static on_device::map_output<T> output(const map_operand& operand, const view<T, Rank>&, const shape<Rank>& target,
                                           write_mode mode = write_mode::overwrite) {
        return {operand, map_shape_of(target), mode};
    }

    template <class Outputs, class Inputs>
    static constexpr int vector_size() {
        return []<class... O, class... I>(pack<O...>*, pack<I...>*) {
            return std::min(std::max({O::vector..., I::vector...}), 8);  // more would take too many registers
        }(static_cast<Outputs*>(nullptr), static_cast<Inputs*>(nullptr));
    }
    /// Whether a condition holds for all operands.
    template <class Test>
    static bool all(const pack<>&, const Test&) {
        return true;
    }
    template <class First, class... Rest, class Test>
    static bool all(const pack<First, Rest...>& operands, const Test& test) {
        return test(operands.first) && all(operands.rest, test);
    }
    /// Treats rows without gaps between them as one row, unless an operand depends on the column.
    template <class Outputs, class Inputs>
    static map_shape flattened(const Outputs& outputs, const Inputs& inputs, const map_shape& shape) {
        const auto flat = [&](const auto& operand) { return operand.is_flat(shape) && !operand.is_column; };
        if (!all(outputs, flat) || !all(inputs, flat)) return shape;
        return {shape.rows * shape.columns == 0 ? 0 : 1, shape.rows * shape.columns};
    }
    /// Calls f(constant<N>) with the number N of elements that a thread processes at a time: rows are multiples of N,
    /// except that a single row may have a remainder.
    template <class Outputs, class Inputs, class F>
    static void with_vectors(const Outputs& outputs, const Inputs& inputs, const map_shape& shape, bool may_have_rest,
                             const F& f) {
        constexpr int n = vector_size<Outputs, Inputs>();
        const bool whole = shape.columns % n == 0 || (shape.rows == 1 && may_have_rest);
        const auto fits = [&](const auto& operand) { return operand.fits(n, shape); };
        if (whole && all(outputs, fits) && all(inputs, fits)) {
            f(simt::constant<n>{});
        } else {
            f(simt::constant<1>{});
        }
    }

    template <class Expressions, class Outputs, class Inputs>
    static void launch(Device& device, const Expressions& expressions, const Outputs& outputs, const Inputs& inputs,
                       const map_shape& given) {
        const map_shape shape = flattened(outputs, inputs, given);
        with_vectors(outputs, inputs, shape, true, [&]<int N>(simt::constant<N>) {
            device.launch(on_device::map_kernel<N, Expressions, Outputs, Inputs>{expressions, outputs, inputs, shape});
        });
    }

    template <class V, int TargetRank>
    static on_device::map_no_output gradient_output(std::size_t, const V&, const no_gradient&,
                                                    const shape<TargetRank>&) {
        return {};
    }
    template <class V, class T, int Rank, int TargetRank>
    static auto gradient_output(std::size_t number, const V&, const gradient<T, Rank>& g,
                                const shape<TargetRank>& target) {
        static_assert(V::rank == Rank && !std::is_const_v<T>,
                      "halftone: map: a gradient has its input's rank, and is no view of constants");
        const map_operand operand = map_result_of("gradient of input", static_cast<int>(number), g.to, target);
        if constexpr (Rank == TargetRank) {
            return on_device::map_output<T>(operand, map_shape_of(target), g.mode);
        } else {
            return on_device::map_sums<access<Rank, TargetRank>>{};
        }
    }

    template <map_layout Layout, class... E, class OutputGradients, class Inputs, class Gradients, std::size_t... K,
              std::size_t... I>
    static void backward_each(Device& device, const pack<E...>& expressions, const OutputGradients& output_gradients,
                              const Inputs& inputs, const Gradients& gradients, std::index_sequence<K...>,
                              std::index_sequence<I...>) {
        constexpr int count = sizeof...(I);
        const auto& target = output_gradients.first.shape();
        constexpr int rank = std::remove_cvref_t<decltype(output_gradients.first)>::rank;
        static_assert(((rank == std::remove_cvref_t<decltype(output_gradients.template at<K>())>::rank) && ...),
                      "halftone: map: all outputs have one rank");
        const auto wanted =
            make_pack(gradient_of<rank, static_cast<int>(I), count>(expressions, gradients.template at<I>())...);
        using expression_pack = std::remove_const_t<decltype(wanted)>;
        if constexpr (Layout == map_layout::strided) {
            const map_operand operands[] = {
                gradient_operand(I, gradients.template at<I>(), target)...,
                map_operand_of<Layout>("input", I, inputs.template at<I>(), target)...,
                map_operand_of<Layout>("gradient of output", K, output_gradients.template at<K>(), target)...};
            const write_mode modes[] = {mode_of(gradients.template at<I>())...};
            launch_strided<expression_pack, pack<decltype(strided_gradient(gradients.template at<I>()))...>,
                           pack<strided_input<expression_pack, element<Inputs, I>, I>...,
                                strided_input<expression_pack, element<OutputGradients, K>, count + K>...>>(
                device, wanted, operands, modes, target);
        } else {
            backward_in_rows<Layout>(device, wanted, output_gradients, inputs, gradients, std::index_sequence<K...>{},
                             std::index_sequence<I...>{});
        }
    }

    template <map_layout Layout, class Wanted, class OutputGradients, class Inputs, class Gradients, std::size_t... K,
              std::size_t... I>
    static void backward_in_rows(Device& device, const Wanted& wanted, const OutputGradients& output_gradients,
                                 const Inputs& inputs, const Gradients& gradients, std::index_sequence<K...>,
                                 std::index_sequence<I...>) {
        static_assert(Layout == map_layout::rows,
                      "halftone: map: gradients are of views in contiguous rows at one distance, map_layout::rows, or all of "
                      "the outputs' rank, map_layout::strided");
        constexpr int count = sizeof...(I);
        const auto& target = output_gradients.first.shape();
        using expression_pack = Wanted;
        const auto results =
            make_pack(gradient_output(I, inputs.template at<I>(), gradients.template at<I>(), target)...);
        const auto arguments = make_pack(
            input<expression_pack, I>("input", I, inputs.template at<I>(), target)...,
            input<expression_pack, count + K>("gradient of output", K, output_gradients.template at<K>(), target)...);
        if constexpr ((std::remove_cvref_t<decltype(results.template at<I>())>::is_summed || ...)) {
            launch_sums(device, wanted, results, arguments, map_shape_of(target), gradients,
                        std::index_sequence<I...>{});
        } else {
            launch(device, wanted, results, arguments, map_shape_of(target));
        }
    }

    template <class Expressions, class Outputs, class Inputs, class Gradients, std::size_t... I>
    static void launch_sums(Device& device, const Expressions& expressions, const Outputs& outputs,
                            const Inputs& inputs, const map_shape& given, const Gradients& gradients,
                            std::index_sequence<I...>) {
        constexpr bool by_column = (std::remove_cvref_t<decltype(outputs.template at<I>())>::is_column || ...);
        const map_shape shape = flattened(outputs, inputs, given);
        with_vectors(outputs, inputs, shape, false, [&]<int N>(simt::constant<N>) {
            using kernel = on_device::map_sums_kernel<N, Expressions, Outputs, Inputs>;
            kernel job{expressions, outputs, inputs, shape,
                       partition(shape.rows, shape.columns / N, kernel::threads, by_column)};
            const extent floats[] = {partial_floats(outputs.template at<I>(), gradients.template at<I>(), job)...};
            extent begins[] = {0, floats[I]...};
            for (std::size_t i = 1; i <= sizeof...(I); ++i) begins[i] += begins[i - 1];
            const workspace::lease lease(device.scratch(),
                                         static_cast<std::size_t>(begins[sizeof...(I)]) * sizeof(float));
            job.outputs = make_pack(placed(outputs.template at<I>(), floats[I], lease.as<float>() + begins[I])...);
            device.launch(job);
            (finish(device, job, job.outputs.template at<I>(), gradients.template at<I>()), ...);
        });
    }

    static on_device::map_partition partition(extent rows, extent vectors, int threads, bool by_column) {
        constexpr extent most_blocks = 1024, least_rows = 16;
        on_device::map_partition c{};
        while (c.across < threads && c.across < vectors) c.across *= 2;
        extent blocks = detail::ceil_div(vectors, c.across);
        if (!by_column && blocks > most_blocks) blocks = most_blocks;
        c.blocks_across = simt::blocks_along_x(blocks).x;
        // Few threads add the partial sums of a column, so there should be few.
        const extent most_pieces = c.across == threads ? 256 : 1024;
        extent each = detail::ceil_div(rows, most_pieces);
        if (each < least_rows) each = least_rows;
        c.rows = {rows, each, detail::ceil_div(rows, each)};
        return c;
    }

    template <class Output, class Gradient, class Job>
    static extent partial_floats(const Output&, const Gradient& g, const Job& job) {
        if constexpr (!Output::is_summed) {
            return 0;
        } else {
            if (g.to.data() == nullptr) return 0;
            return Output::is_column ? job.partition.rows.count * job.shape.columns : job.blocks();
        }
    }
    /// The output with memory for its partial sums.
    template <class Output>
    static Output placed(Output output, [[maybe_unused]] extent floats, [[maybe_unused]] float* partials) {
        if constexpr (Output::is_summed) output.partials = {floats == 0 ? nullptr : partials, floats};
        return output;
    }
    template <class Output, class Gradient, class Job>
    static void finish(Device& device, const Job& job, const Output& output, const Gradient& g) {
        if constexpr (Output::is_summed) {
            if (g.to.data() == nullptr) return;
            if constexpr (Output::is_column) {
                on_device::add_partials(device, job.partition.rows.count, output.partials.data, job.shape.columns,
                                        job.shape.columns, g.to.data(), g.mode);
            } else {
                using G = std::remove_pointer_t<decltype(g.to.data())>;
                device.launch(on_device::map_total_kernel<G>{
                    {output.partials.data, output.partials.count}, {g.to.data(), 1}, g.mode});
            }
        }
    }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone

// SPDX-License-Identifier: MIT
/// \file
/// Pointwise operations on the CPU; map.hpp has the rules, the contract and an example.
#pragma once

#include <cstring>

#include <halftone/kernel/fp64/cpu.hpp>
#include <halftone/kernel/map/evaluate.hpp>
#include <halftone/kernel/map/fp64.hpp>
#include <halftone/kernel/map/map.hpp>
#include <halftone/kernel/rows/rows.hpp>

namespace halftone::inline HALFTONE_ABI::kernel {

/// An operand of a block: the bytes from one row to the next, and from one element to the next (0 for a scalar).
struct map_stream {
    std::byte* data;
    extent row_step, step;
    write_mode mode;
    bool past_caches = false;  ///< written there; `data` and the rows begin on cache lines
};

// What the body does with an operand; the element type stands in its own type.
template <class T>
struct map_read {};
struct map_unread {};
template <class T>
struct map_write {};
template <class T>
struct map_add {};  ///< overwrites or adds, as its mode says
struct map_unwritten {};

}  // namespace halftone::inline HALFTONE_ABI::kernel

#define HALFTONE_BODY <halftone/kernel/map/cpu.inc>
#include <halftone/exec/cpu/each_set.inc>

namespace halftone::inline HALFTONE_ABI::kernel {

/// Vectors have this many lanes at most: so often a scalar is repeated, and so many partial sums its gradient has.
inline constexpr int map_lanes = 16;

/// An operand, and where its partial sums are if it is a gradient that is summed: `partial_stride(columns)` floats for
/// each piece of rows, or `map_lanes` floats for each piece.
struct map_plan {
    map_operand operand;
    write_mode mode = write_mode::overwrite;
    float* partials = nullptr;
    bool past_caches = false;

    bool is_summed() const { return operand.data != nullptr && operand.access != map_access::each; }
};

/// A map cut into pieces: outputs, then inputs.
struct map_job {
    map_shape shape;
    map_plan* plans;
    int count;
    row_pieces rows{}, columns{};

    /// Cuts by the shape. Rows that follow each other without gaps become one, unless an operand counts columns.
    void cut(bool sums) {
        bool flat = true;
        for (int i = 0; i < count; ++i) {
            const map_operand& o = plans[i].operand;
            if (o.data == nullptr) continue;
            if (o.access == map_access::column) flat = false;
            if (o.access == map_access::each && shape.rows > 1 && o.row_stride != shape.columns) flat = false;
        }
        if (flat) shape = {shape.rows * shape.columns == 0 ? 0 : 1, shape.rows * shape.columns};
        const extent longest = sums ? 2 * piece_elements : 2 * longer_piece(shape.columns);
        columns = cut_rows(shape.columns, 1, shape.columns <= longest ? longest : piece_elements);
        rows = sums ? cut_rows_for_sums(shape.rows, columns.each) : cut_rows(shape.rows, columns.each);
    }
    /// Which of the first plans, the outputs, are written past the caches: large ones that are not read here as well.
    void choose_streams(int outputs) {
        for (int i = 0; i < outputs; ++i) {
            const map_operand& o = plans[i].operand;
            bool read = plans[i].mode == write_mode::add || plans[i].partials != nullptr;
            for (int j = outputs; j < count; ++j) read = read || plans[j].operand.data == o.data;
            plans[i].past_caches = !read && o.access == map_access::each && o.data != nullptr &&
                                   streams(o.data, shape.rows, shape.columns * o.element_bytes, o.row_stride * o.element_bytes);
        }
    }
    extent pieces() const { return rows.count * columns.count; }
    extent rows_of(extent piece) const { return rows.rows_of(piece / columns.count); }
    extent columns_of(extent piece) const { return columns.rows_of(piece % columns.count); }

    /// The operand where a piece begins; `nowhere` takes a vector of what nobody wants.
    map_stream stream(const map_plan& plan, extent piece, std::byte* nowhere) const {
        const extent row = rows.begin(piece / columns.count), column = columns.begin(piece % columns.count);
        const auto& [data, bytes, row_stride, access] = plan.operand;
        if (plan.partials != nullptr) {
            constexpr auto word = static_cast<extent>(sizeof(float));
            float* const sums = partials_of(plan, piece);
            const bool by_column = access == map_access::column;
            std::memset(sums, 0, static_cast<std::size_t>((by_column ? columns_of(piece) : map_lanes) * word));
            return {reinterpret_cast<std::byte*>(sums), 0, by_column ? word : 0, write_mode::add};
        }
        if (data == nullptr) return {nowhere, 0, 0, write_mode::overwrite};
        switch (access) {
            case map_access::each:
                return {data + (row * row_stride + column) * bytes, row_stride * bytes, bytes, plan.mode,
                        plan.past_caches};
            case map_access::column:
                return {data + column * bytes, 0, bytes, plan.mode};
            default:
                return {data, 0, 0, plan.mode};
        }
    }
    float* partials_of(const map_plan& plan, extent piece) const {
        if (plan.operand.access == map_access::scalar) return plan.partials + piece * map_lanes;
        return plan.partials + piece / columns.count * partial_stride(shape.columns) +
               columns.begin(piece % columns.count);
    }

    /// Cuts for a job whose first plans are gradients, and returns the bytes that their partial sums take.
    std::size_t cut_for_sums(int gradients) {
        bool sums = false;
        for (int i = 0; i < gradients; ++i) sums = sums || plans[i].is_summed();
        cut(sums);
        extent floats = 0;
        for (int i = 0; i < gradients; ++i) floats += partial_floats(plans[i]);
        return static_cast<std::size_t>(floats) * sizeof(float);
    }
    void place_sums(int gradients, float* next) {
        for (int i = 0; i < gradients; ++i) {
            if (plans[i].is_summed()) plans[i].partials = next;
            next += partial_floats(plans[i]);
        }
    }
    extent partial_floats(const map_plan& plan) const {
        if (!plan.is_summed()) return 0;
        return plan.operand.access == map_access::column ? rows.count * partial_stride(shape.columns)
                                                         : pieces() * map_lanes;
    }
};

/// Copies of one element, so that a vector of them can be loaded.
inline void map_repeat(cpu& device, map_operand& o, std::byte* copies) {
    if (o.data == nullptr || o.access != map_access::scalar) return;
    for (int i = 0; i < map_lanes; ++i)
        device.copy(copies + i * o.element_bytes, o.data, static_cast<std::size_t>(o.element_bytes));
    o.data = copies;
}

template <>
struct map<cpu> {
    template <class... E, class... Outputs, class... Inputs>
    static void run(cpu& device, const pack<E...>& expressions, const pack<Outputs...>& outputs,
                    const pack<Inputs...>& inputs) {
        static_assert(sizeof...(E) == sizeof...(Outputs) && sizeof...(E) > 0,
                      "halftone: map: as many expressions as outputs");
        constexpr std::index_sequence_for<Outputs...> k;
        constexpr std::index_sequence_for<Inputs...> i;
        if constexpr (in_double<typename Outputs::value_type..., typename Inputs::value_type...>) {
            fp64::map_of<cpu>::run(device, expressions, outputs, inputs, k, i);
        } else {
            run_each(device, expressions, outputs, inputs, k, i);
        }
    }

    template <class... E, class... OutputGradients, class... Inputs, class... Gradients>
    static void backward(cpu& device, const pack<E...>& expressions, const pack<OutputGradients...>& output_gradients,
                         const pack<Inputs...>& inputs, const pack<Gradients...>& gradients) {
        static_assert(sizeof...(E) == sizeof...(OutputGradients),
                      "halftone: map: as many gradients of outputs as expressions");
        static_assert(sizeof...(Inputs) == sizeof...(Gradients),
                      "halftone: map: one gradient for each input; kernel::no_gradient{} where none is wanted");
        constexpr std::index_sequence_for<OutputGradients...> k;
        constexpr std::index_sequence_for<Inputs...> i;
        if constexpr (in_double<typename OutputGradients::value_type..., typename Inputs::value_type...>) {
            fp64::map_of<cpu>::backward(device, expressions, output_gradients, inputs, gradients, k, i);
        } else {
            backward_each(device, expressions, output_gradients, inputs, gradients, k, i);
        }
    }

  private:
    template <class Views, std::size_t Index>
    using element = typename std::remove_cvref_t<decltype(std::declval<Views>().template at<Index>())>::value_type;
    template <class E, class T, std::size_t Index>
    using read = std::conditional_t<reads<static_cast<int>(Index), E>, map_read<T>, map_unread>;

    /// An input's operand; without data where nothing reads it.
    template <class E, std::size_t Index, class V, int Rank>
    static map_plan input_plan(const char* role, std::size_t number, const V& v, const shape<Rank>& target) {
        map_plan plan{map_operand_of(role, static_cast<int>(number), v, target)};
        if constexpr (!reads<static_cast<int>(Index), E>) plan.operand.data = nullptr;
        return plan;
    }

    template <class... E, class Outputs, class Inputs, std::size_t... K, std::size_t... I>
    static void run_each(cpu& device, const pack<E...>& expressions, const Outputs& outputs, const Inputs& inputs,
                         std::index_sequence<K...>, std::index_sequence<I...>) {
        const auto& target = outputs.first.shape();
        static_assert(
            ((decltype(outputs.first)::rank == std::remove_cvref_t<decltype(outputs.template at<K>())>::rank) && ...),
            "halftone: map: all outputs have one rank");
        static_assert((!std::is_const_v<std::remove_pointer_t<decltype(outputs.template at<K>().data())>> && ...),
                      "halftone: map: the last view is the output, and it is a view of constants");
        map_plan plans[] = {{map_operand_of("output", K, outputs.template at<K>(), target)}...,
                            input_plan<pack<E...>, I>("input", I, inputs.template at<I>(), target)...};
        [[maybe_unused]] alignas(block_alignment) std::byte copies[sizeof...(I) + 1][block_alignment];
        (map_repeat(device, plans[sizeof...(K) + I].operand, copies[I]), ...);
        map_job job{map_shape_of(target), plans, sizeof...(K) + sizeof...(I)};
        job.cut(false);
        launch<pack<map_write<element<Outputs, K>>...>, pack<read<pack<E...>, element<Inputs, I>, I>...>>(
            device, expressions, job);
    }

    template <int Index, int Inputs, class E>
    static auto gradient_of(const E&, const no_gradient&) {
        return symbolic::zero{};
    }
    template <int Index, int Inputs, class E, class T, int Rank>
    static auto gradient_of(const E& expressions, const gradient<T, Rank>&) {
        return gradient_expression<Index, Inputs>(expressions);
    }

    template <int TargetRank>
    static map_unwritten written(const no_gradient&);
    template <int TargetRank, class T, int Rank>
    static map_add<std::conditional_t<Rank == TargetRank, T, float>> written(const gradient<T, Rank>&);

    template <class V, int Rank>
    static map_plan gradient_plan(std::size_t, const V&, const no_gradient&, const shape<Rank>&) {
        return {};
    }
    template <class V, class T, int Rank, int TargetRank>
    static map_plan gradient_plan(std::size_t number, const V&, const gradient<T, Rank>& g,
                                  const shape<TargetRank>& target) {
        static_assert(V::rank == Rank && !std::is_const_v<T>,
                      "halftone: map: a gradient has its input's rank, and is no view of constants");
        return {map_operand_of("gradient of input", static_cast<int>(number), g.to, target), g.mode};
    }

    template <class... E, class OutputGradients, class Inputs, class Gradients, std::size_t... K, std::size_t... I>
    static void backward_each(cpu& device, const pack<E...>& expressions, const OutputGradients& output_gradients,
                              const Inputs& inputs, const Gradients& gradients, std::index_sequence<K...>,
                              std::index_sequence<I...>) {
        constexpr std::size_t count = sizeof...(I);
        const auto& target = output_gradients.first.shape();
        constexpr int rank = std::remove_cvref_t<decltype(output_gradients.first)>::rank;
        static_assert(((rank == std::remove_cvref_t<decltype(output_gradients.template at<K>())>::rank) && ...),
                      "halftone: map: all outputs have one rank");
        const auto wanted =
            make_pack(gradient_of<static_cast<int>(I), count>(expressions, gradients.template at<I>())...);
        using expression_pack = std::remove_const_t<decltype(wanted)>;
        map_plan plans[] = {gradient_plan(I, inputs.template at<I>(), gradients.template at<I>(), target)...,
                            input_plan<expression_pack, I>("input", I, inputs.template at<I>(), target)...,
                            input_plan<expression_pack, count + K>("gradient of output", K,
                                                                   output_gradients.template at<K>(), target)...};
        [[maybe_unused]] alignas(block_alignment) std::byte copies[count + 1][block_alignment];
        (map_repeat(device, plans[count + I].operand, copies[I]), ...);
        map_job job{map_shape_of(target), plans, 2 * count + sizeof...(K)};

        const workspace::lease lease(device.scratch(), job.cut_for_sums(count));
        job.place_sums(count, lease.as<float>());

        launch<pack<decltype(written<rank>(gradients.template at<I>()))...>,
               pack<read<expression_pack, element<Inputs, I>, I>...,
                    read<expression_pack, element<OutputGradients, K>, count + K>...>>(device, wanted, job);
        (finish(device, job, plans[I], gradients.template at<I>()), ...);
    }

    static void finish(cpu&, const map_job&, const map_plan&, const no_gradient&) {}
    /// Adds a broadcast input's partial sums up.
    template <class T, int Rank>
    static void finish(cpu& device, const map_job& job, const map_plan& plan, const gradient<T, Rank>& g) {
        if (!plan.is_summed()) return;
        if (plan.operand.access == map_access::column) {
            add_partials(device, job.rows.count, plan.partials, partial_stride(job.shape.columns), job.shape.columns,
                         g.to.data(), g.mode);
        } else {
            device.run([&] {
                double total = 0;
                for (extent i = 0; i < job.pieces() * map_lanes; ++i) total += static_cast<double>(plan.partials[i]);
                const auto sum = static_cast<float>(total);
                *g.to.data() = static_cast<T>(g.mode == write_mode::add ? static_cast<float>(*g.to.data()) + sum : sum);
            });
        }
    }

    template <class Outputs, class Inputs, class E>
    static void launch(cpu& device, const E& expressions, map_job& job) {
        job.choose_streams(Outputs::count);
        const auto body = device.select(&portable::map_block<E, Outputs, Inputs>, &avx2::map_block<E, Outputs, Inputs>,
                                        &avx512::map_block<E, Outputs, Inputs>);
        device.parallel_for(job.pieces(), [&](extent piece) {
            map_stream streams[Outputs::count + Inputs::count];
            alignas(block_alignment) std::byte nowhere[block_alignment];
            for (int i = 0; i < job.count; ++i) streams[i] = job.stream(job.plans[i], piece, nowhere);
            body(expressions, streams, streams + Outputs::count, job.rows_of(piece), job.columns_of(piece));
        });
    }
};

}  // namespace halftone::inline HALFTONE_ABI::kernel

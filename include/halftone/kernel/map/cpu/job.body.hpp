// SPDX-License-Identifier: MIT
/// \file
/// The bodies of the functions in job.hpp that are no templates.
#pragma once

#include <halftone/kernel/map/cpu/job.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

HALFTONE_OUT_OF_LINE void map_job::partition(bool sums) {
    bool flat = true;
    for (int i = 0; i < count; ++i) {
        const map_operand& o = plans[i].operand;
        if (o.data == nullptr) continue;
        if (o.access == map_access::column) flat = false;
        if (o.access == map_access::each && shape.rows > 1 && o.row_stride != shape.columns) flat = false;
    }
    if (flat) shape = {shape.rows * shape.columns == 0 ? 0 : 1, shape.rows * shape.columns};
    const extent longest = sums ? 2 * piece_elements : 2 * longer_piece(shape.columns);
    columns = partition_rows(shape.columns, 1, shape.columns <= longest ? longest : piece_elements);
    rows = sums ? partition_rows_for_sums(shape.rows, columns.each)
                : partition_rows(shape.rows, std::min(columns.each, shape.columns));
}

HALFTONE_OUT_OF_LINE void map_job::choose_streams(int outputs) {
    for (int i = 0; i < outputs; ++i) {
        const map_operand& o = plans[i].operand;
        bool read = plans[i].mode == write_mode::add || plans[i].partials != nullptr;
        for (int j = outputs; j < count; ++j) read = read || plans[j].operand.data == o.data;
        plans[i].non_temporal_stores =
            !read && o.access == map_access::each && o.data != nullptr &&
            stores_non_temporal(o.data, shape.rows, shape.columns * o.element_bytes, o.row_stride * o.element_bytes);
    }
}

HALFTONE_OUT_OF_LINE map_stream map_job::stream(const map_plan& plan, extent piece, std::byte* nowhere) const {
    const extent row = rows.begin(piece / columns.count), column = columns.begin(piece % columns.count);
    const auto& [data, bytes, row_stride, access, strides] = plan.operand;
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
                    plan.non_temporal_stores};
        case map_access::column:
            return {data + column * bytes, 0, bytes, plan.mode};
        default:  // a scalar; strided.hpp runs jobs with strides
            return {data, 0, 0, plan.mode};
    }
}

HALFTONE_OUT_OF_LINE float* map_job::partials_of(const map_plan& plan, extent piece) const {
    if (plan.operand.access == map_access::scalar) return plan.partials + piece * map_lanes;
    return plan.partials + piece / columns.count * partial_stride(shape.columns) + columns.begin(piece % columns.count);
}

HALFTONE_OUT_OF_LINE std::size_t map_job::cut_for_sums(int gradients) {
    bool sums = false;
    for (int i = 0; i < gradients; ++i) sums = sums || plans[i].is_summed();
    partition(sums);
    extent floats = 0;
    for (int i = 0; i < gradients; ++i) floats += partial_floats(plans[i]);
    return static_cast<std::size_t>(floats) * sizeof(float);
}

HALFTONE_OUT_OF_LINE void map_job::place_sums(int gradients, float* next) {
    for (int i = 0; i < gradients; ++i) {
        if (plans[i].is_summed()) plans[i].partials = next;
        next += partial_floats(plans[i]);
    }
}

HALFTONE_OUT_OF_LINE extent map_job::partial_floats(const map_plan& plan) const {
    if (!plan.is_summed()) return 0;
    return plan.operand.access == map_access::column ? rows.count * partial_stride(shape.columns)
                                                     : pieces() * map_lanes;
}

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone

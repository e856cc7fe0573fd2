// SPDX-License-Identifier: MIT
/// \file
/// Products of one shape in one launch on a GPU (a strided batch): each of a, b and c has a constant distance between
/// matrices.
///
///     launch_each(device, kernel, matrix_batch{12, m * k, k * n, m * n});      // kernel: of the first of twelve products
///     launch_each(device, kernel, one_matrix{});                               // a single product
///
/// Numeric contract: the bits of a launch for each matrix.
#pragma once

#include <algorithm>
#include <type_traits>

#include <halftone/kernel/matmul/device/finish.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel::on_device {

struct one_matrix {
    static constexpr extent count = 1, a = 0, b = 0, c = 0;

    one_matrix with(extent, extent, extent) const { return {}; }
};
struct matrix_batch {
    extent count;
    extent a, b, c;  // elements from one matrix to the next

    matrix_batch with(extent other_a, extent other_b, extent other_c) const {
        return {count, other_a, other_b, other_c};
    }
    matrix_batch only_one() const { return {1, a, b, c}; }
};

/// The kernel of one product, with `count` times the blocks along z: block (x, y, z) computes what block (x, y, z %
/// parts) does for the first.
template <class Kernel>
struct each_matrix_kernel {
    static constexpr int threads = Kernel::threads, min_blocks = Kernel::min_blocks;
    static constexpr word shared_bytes = Kernel::shared_bytes;

    Kernel first;
    matrix_batch batch;
    int parts;

    grid_shape grid() const {
        const grid_shape g = first.grid();
        return {g.x, g.y, static_cast<int>(batch.count) * parts};
    }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const int matrix = Kernel::has_parts ? simt.block().z / parts : simt.block().z;
        first.of_matrix(matrix, batch.a, batch.b, batch.c).run(simt, simt.block().z - matrix * parts);
    }
};

/// What launch_each launches.
template <class Kernel, class Batch>
using launched = std::conditional_t<std::is_same_v<Batch, one_matrix>, Kernel, each_matrix_kernel<Kernel>>;

template <class Device, class Kernel>
void launch_each(Device& device, const Kernel& kernel, const one_matrix&) {
    device.launch(kernel);
}
template <class Device, class Kernel>
void launch_each(Device& device, const Kernel& kernel, const matrix_batch& all) {
    constexpr int most_z = 65535;  // CUDA's limit
    const int parts = kernel.grid().z;
    const extent at_once = most_z / parts;
    for (extent i = 0; i < all.count; i += at_once) {
        matrix_batch some = all;
        some.count = std::min(at_once, all.count - i);
        device.launch(each_matrix_kernel<Kernel>{kernel.of_matrix(i, all.a, all.b, all.c), some, parts});
    }
}

}  // namespace kernel::on_device
}  // namespace HALFTONE_ABI
}  // namespace halftone

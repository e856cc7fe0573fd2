// SPDX-License-Identifier: MIT
/// \file
/// The pieces in which a convolution's output positions are unfolded, so that scratch memory stays small:
/// several images, or some rows of the output of one image. They depend only on the shape and the kind of device.
///
///     const auto cut = detail::conv2d_pieces::of(detail::conv2d_limits_of<Device>, problem, position_bytes);
///     cut.for_each(problem, [&](const detail::conv2d_piece& piece) { ... });
#pragma once

#include <algorithm>

#include <halftone/exec/simt/simt.hpp>
#include <halftone/kernel/conv2d/lowering/problem.hpp>
#include <halftone/number/integer.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// `bytes` is the size of a matrix that is unfolded at once, unless one row of positions needs more. A product of a matrix
/// with `positions` columns occupies the whole machine, so that no further images are added to it.
struct conv2d_limits {
    extent bytes, positions;
};
inline constexpr conv2d_limits conv2d_limits_of_gpu{extent{64} << 20, 65536},
    conv2d_limits_of_cpu{extent{8} << 20, 1024};
template <class Device>
inline constexpr conv2d_limits conv2d_limits_of = simt_device<Device> ? conv2d_limits_of_gpu : conv2d_limits_of_cpu;

/// Rows of positions of consecutive images; a piece with several images has all of their rows.
struct conv2d_piece {
    extent image, images, row, rows;
};

struct conv2d_pieces {
    extent images = 1, rows;  ///< the largest numbers in a piece

    /// The pieces of a problem that needs `position_bytes` of scratch memory for each position.
    static constexpr conv2d_pieces of(const conv2d_limits& limits, const conv2d_problem& p, extent position_bytes) {
        const extent row_bytes = std::max<extent>(1, position_bytes * p.window.across.positions);
        const extent fitting = std::max<extent>(1, limits.bytes / row_bytes), all = p.window.down.positions;
        if (fitting < all) return {1, fitting};
        const extent enough = ceil_div(limits.positions, p.positions());
        return {std::max<extent>(1, std::min({fitting / all, enough, p.images})), all};
    }
    /// The largest number of positions in a piece.
    constexpr extent positions(const conv2d_problem& p) const { return images * rows * p.window.across.positions; }

    template <class Run>
    void for_each(const conv2d_problem& p, const Run& run) const {
        for (extent image = 0; image < p.images; image += images) {
            const extent some = std::min(images, p.images - image);
            for (extent row = 0; row < p.window.down.positions; row += rows)
                run(conv2d_piece{image, some, row, std::min(rows, p.window.down.positions - row)});
        }
    }
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone

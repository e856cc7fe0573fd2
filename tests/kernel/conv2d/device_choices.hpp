// SPDX-License-Identifier: MIT
/// \file
/// A GPU's choice for a convolution in a few letters, as tests compare it: the family, what is unfolded at once, how many products
/// there are, and the first one's choice (kernel/matmul/device_choices.hpp).
///
///     i 64*s128.32          in place, 64 products by mma.sync
///     u21 4*w64             21 images are unfolded at once; 4 products by wgmma
///     u1/16 8*w64           16 rows of positions of an image
///     u1c32 8*w64           an image's gradient is folded by 32 channels of each group
#pragma once

#include <string>

#include <halftone/kernel/conv2d/device/explain.hpp>

#include "kernel/matmul/device_choices.hpp"

namespace conv2d_test {

/// What is unfolded at once, of `all_rows` of positions and `all_channels` of a group.
inline std::string piece_text(halftone::extent images, halftone::extent rows, halftone::extent all_rows,
                              halftone::extent channels, halftone::extent all_channels) {
    return "u" + std::to_string(images) + (rows < all_rows ? "/" + std::to_string(rows) : std::string()) +
           (channels < all_channels ? "c" + std::to_string(channels) : std::string());
}
inline std::string choice_of(const halftone::kernel::on_device::conv2d_call& call) {
    using namespace halftone::detail;
    const conv2d_plan plan = plan_conv2d(call.of);
    const conv2d_way& way = plan.best();
    const auto products = products_of(call);
    const std::string family = plan.best().family == conv2d_family::in_place
                                   ? "i"
                                   : piece_text(way.cut.images, way.cut.rows, call.of.p.window.down.positions,
                                                way.channels, call.of.p.group_channels());
    return family + " " + std::to_string(products.launches * products.each.matrices) + "*" +
           matmul_test::choice_of(products.each);
}

}  // namespace conv2d_test

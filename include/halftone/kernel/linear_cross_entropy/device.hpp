// SPDX-License-Identifier: MIT
/// \file
/// A linear layer with cross-entropy on a GPU; linear_cross_entropy.hpp has the arguments, the contract and an example.
#pragma once

#include <halftone/kernel/cross_entropy/device.hpp>
#include <halftone/kernel/linear_cross_entropy/device/by_rows.hpp>
#include <halftone/kernel/matmul/device.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

template <simt_device Device, std::size_t LogitBytes>
struct linear_cross_entropy<Device, LogitBytes> : linear_cross_entropy_by_rows<Device, LogitBytes> {};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone

// SPDX-License-Identifier: MIT
/// \file
/// The kernels that layer normalisation (layer_norm.hpp) and root mean square normalisation (rms_norm.hpp) share. The
/// type of the arguments decides which of the two is computed: centred rows (layer norm) have a mean and a bias.
///
///     kernel::norm<cpu>::forward(device, arguments);          // layer_norm_forward or rms_norm_forward, checked
#pragma once

#include <halftone/config.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

/// forward and backward of one device, for the checked arguments of either normalisation.
template <class Device>
struct norm;

/// Whether these are arguments of layer normalisation.
template <class Arguments>
inline constexpr bool is_centred = requires(const Arguments& a) { a.mean; };

/// The fields that RMS normalisation's arguments lack, as views without data.
template <class Arguments>
auto mean_of(const Arguments& a) {
    if constexpr (is_centred<Arguments>) {
        return a.mean;
    } else {
        return decltype(a.rstd){};
    }
}
template <class Arguments>
auto bias_of(const Arguments& a) {
    if constexpr (is_centred<Arguments>) {
        return a.bias;
    } else {
        return decltype(a.gain){};
    }
}
template <class Arguments>
auto dbias_of(const Arguments& a) {
    if constexpr (is_centred<Arguments>) {
        return a.dbias;
    } else {
        return decltype(a.dgain){};
    }
}

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone

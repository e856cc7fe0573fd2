// SPDX-License-Identifier: MIT
/// \file
/// Convolution on devices that run GPU kernels: includes the kernels that it calls. conv2d.hpp has the contract and an example.
#pragma once

#include <halftone/kernel/axis_reduction/device.hpp>
#include <halftone/kernel/conv2d/conv2d.hpp>
#include <halftone/kernel/map/device.hpp>
#include <halftone/kernel/matmul/device.hpp>
#include <halftone/kernel/strided_copy/device.hpp>
#include <halftone/kernel/unfold/device.hpp>

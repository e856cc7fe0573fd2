// SPDX-License-Identifier: MIT
/// \file
/// Convolution on the CPU: includes the kernels that it calls. conv2d.hpp has the contract and an example.
#pragma once

#include <halftone/kernel/axis_reduction/cpu.hpp>
#include <halftone/kernel/conv2d/conv2d.hpp>
#include <halftone/kernel/conv2d/depthwise/cpu.hpp>
#include <halftone/kernel/conv2d/implicit/cpu.hpp>
#include <halftone/kernel/map/cpu.hpp>
#include <halftone/kernel/matmul/cpu.hpp>
#include <halftone/kernel/strided_copy/cpu.hpp>
#include <halftone/kernel/unfold/cpu.hpp>

// SPDX-License-Identifier: MIT
/// \file
/// Includes every rule; updates.simd.hpp has their updates.
#pragma once

#include <halftone/kernel/optimizer_step/rule/adafactor.hpp>
#include <halftone/kernel/optimizer_step/rule/adamw.hpp>
#include <halftone/kernel/optimizer_step/rule/assign.hpp>
#include <halftone/kernel/optimizer_step/rule/lion.hpp>
#include <halftone/kernel/optimizer_step/rule/muon.hpp>
#include <halftone/kernel/optimizer_step/rule/sgd.hpp>

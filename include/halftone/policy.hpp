// SPDX-License-Identifier: MIT
/// \file
/// Precision policies, complete: roles and presets, recipes by path, operation categories, compile-time checks. All of
/// them
/// are types, which cost nothing at run time. Printing them needs policy/table.hpp.
///
///     using mine = ht::recipe<ht::amp_bf16, ht::rule<"*.norm", ht::full_fp32>>;
///     static_assert(!ht::needs_scaling<mine>);
#pragma once

#include <halftone/policy/category.hpp>
#include <halftone/policy/check.hpp>
#include <halftone/policy/lora.hpp>
#include <halftone/policy/model.hpp>
#include <halftone/policy/operations.hpp>
#include <halftone/policy/path.hpp>
#include <halftone/policy/presets.hpp>
#include <halftone/policy/promotion.hpp>
#include <halftone/policy/recipe.hpp>
#include <halftone/policy/repeat.hpp>
#include <halftone/policy/roles.hpp>
#include <halftone/policy/scaling.hpp>
#include <halftone/policy/types.hpp>

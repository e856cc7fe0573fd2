// SPDX-License-Identifier: MIT
/// \file
/// Shows a run while it goes on, and keeps its curves for the report.
#pragma once

#include <memory>
#include <string>

#include <halftone/observe/report/report.hpp>
#include <halftone/train/callback.hpp>

/// A bar on stderr; `page`, where there is one, gets the curves.
std::unique_ptr<halftone::trainer_callback> make_progress(const std::string& name, std::int64_t steps,
                                                          halftone::run_report* page = nullptr);

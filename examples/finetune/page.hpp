// SPDX-License-Identifier: MIT
/// \file
/// What finetune shows of a run: lines on stdout, summary.json, report.html.
#pragma once

#include <iosfwd>

#include <halftone/data/tokenizer.hpp>
#include <halftone/observe/report/report.hpp>

#include "options.hpp"
#include "plans.hpp"
#include "task.hpp"

/// A run that has ended.
struct shown_run {
    const options& o;
    const task& t;
    const conversations& data;
    const ht::tokenizer& tokenizer;
    const chosen_method& chosen;
    const tuning_result& result;
    const ht::run_report& page;
};

void print_results(std::ostream& out, const shown_run& run);
/// Writes summary.json and report.html.
void write_results(const shown_run& run);

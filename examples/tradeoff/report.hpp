// SPDX-License-Identifier: MIT
/// \file
/// The output of tradeoff: the table, summary.json, and the page tradeoff.html.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include <halftone/observe/report/report.hpp>

#include "run.hpp"

/// What all rows have in common.
struct surroundings {
    std::string device, isa;
    int threads = 0;
    std::string text;                  ///< what the texts are
    std::int64_t training = 0, held_out = 0;  ///< numbers of texts
    std::int64_t vocabulary = 0;       ///< ids in use
};

struct finished_row {
    row what;
    row_result result;
};

/// Prints the memory that was planned for each row.
void print_plans(std::ostream& out, const std::vector<finished_row>& rows);
/// Prints all of the rows.
void print_table(std::ostream& out, const std::vector<finished_row>& rows);

/// The contents of summary.json and of tradeoff.html.
std::string summary_json(const options& o, const surroundings& around, const std::vector<finished_row>& rows);
std::string page(const options& o, const surroundings& around, const std::vector<finished_row>& rows);
/// What report.html shows beside the curves.
halftone::report report_page(const options& o, const surroundings& around, const std::vector<finished_row>& rows);

// SPDX-License-Identifier: MIT
/// \file
/// The results of scaling: a strategy with its rows, as JSON and as a page.
#pragma once

#include <string>
#include <vector>

#include <halftone/dist/scaling_model.hpp>

#include "options.hpp"

struct scaled {
    halftone::scaling_strategy how;
    std::vector<halftone::scaling_row> rows;
    std::string name() const { return how.zero == 0 ? "data parallel" : "ZeRO " + std::to_string(how.zero); }
};

/// What was asked for, in words: "a GPT of 4 blocks of width 256, ...".
std::string subject_text(const options& o, const halftone::scaling_subject& s);
/// The table as JSON text.
std::string table_json(const options& o, const halftone::scaling_subject& s, const std::vector<scaled>& all);
/// A page with the curves and the table; it loads nothing.
std::string table_html(const options& o, const halftone::scaling_subject& s, const std::vector<scaled>& all);

// SPDX-License-Identifier: MIT
/// \file
/// The results of scaling: a strategy with its rows, as JSON and as a page.
#pragma once

#include <string>
#include <vector>

#include "model.hpp"
#include "options.hpp"

struct scaled {
    scaling::strategy how;
    std::vector<scaling::row> rows;
    std::string name() const { return how.zero == 0 ? "data parallel" : "ZeRO " + std::to_string(how.zero); }
};

/// What was asked for, in words: "a GPT of 4 blocks of width 256, ...".
std::string subject_text(const options& o, const scaling::subject& s);
/// The table as JSON text.
std::string table_json(const options& o, const scaling::subject& s, const std::vector<scaled>& all);
/// A page with the curves and the table; it loads nothing.
std::string table_html(const options& o, const scaling::subject& s, const std::vector<scaled>& all);

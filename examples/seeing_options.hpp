// SPDX-License-Identifier: MIT
/// \file
/// What the command lines of the programs here say about seeing.hpp.
#pragma once

#include <filesystem>

#include <halftone/observe/metrics/output_file.hpp>

namespace CLI {
class App;
}

struct seeing_options {
    bool profile = false;
    bool trace = false;                       ///< write a timeline of a few steps
    bool speed_of_light = false;              ///< print how far operations are from the machine's peaks
    bool tensorboard = false;                 ///< write event files
    bool report = true;                       ///< write report.html
    halftone::write_errors on_write_error = halftone::write_errors::stop;
};

/// --trace, --tensorboard, --report and --on-write-error.
void add_seeing_options(CLI::App& app, seeing_options& o);

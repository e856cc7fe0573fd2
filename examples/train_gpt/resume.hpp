// SPDX-License-Identifier: MIT
/// \file
/// --resume: the metrics of earlier runs, up to the checkpoints from which their policies go on.
#pragma once

#include <string>
#include <string_view>

#include <halftone/observe/metrics/output_file.hpp>

#include "options.hpp"

/// A text's CRC-32, in hexadecimal digits.
std::string checksum_of(std::string_view text);

/// Prepares metrics.jsonl.part, and tells how it is opened: with --resume it holds the lines that earlier runs wrote up to
/// the newest good checkpoint of each policy. `arguments` are those that decide a run's numbers; the number of steps may
/// differ. Throws exit_with(2) if a checkpoint was saved with others.
halftone::part_file rejoin_metrics(const options& o, const std::string& arguments);

// SPDX-License-Identifier: MIT
/// \file
/// How the programs here read a command line with CLI11.
#pragma once

#include <CLI/CLI.hpp>

#include <halftone/version.hpp>

#include "command_line.hpp"

/// Reads the command line; false if it asked for help or for the version, which has been printed. Throws exit_with for one
/// that is wrong.
inline bool parse(CLI::App& app, int argc, char** argv) {
    app.set_version_flag("--version", halftone::detail::sentence(HALFTONE_VERSION_MAJOR, '.', HALFTONE_VERSION_MINOR, '.',
                                                                 HALFTONE_VERSION_PATCH));
    try {
        app.parse(argc, argv);
        return true;
    } catch (const CLI::Success& e) {
        app.exit(e);
        return false;
    } catch (const CLI::ParseError& e) {
        refuse(e.what());
    }
}

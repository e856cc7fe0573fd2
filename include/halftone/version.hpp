// SPDX-License-Identifier: MIT
/// \file
/// The version of halftone, by Semantic Versioning 2.0.0. Before 1.0 a minor version may change any name.
#pragma once

#define HALFTONE_VERSION_MAJOR 0
#define HALFTONE_VERSION_MINOR 1
#define HALFTONE_VERSION_PATCH 0

// SPDX-License-Identifier: MIT
/// \file
/// What each of the two libraries offers. No type of halftone crosses the border.
#pragma once

#include <string>

namespace one {
std::string try_gpu();
}
namespace two {
std::string try_gpu();
}

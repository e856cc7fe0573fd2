// SPDX-License-Identifier: MIT
/// \file
/// Whether a stream is a terminal, and how wide that is.
///
///     const int columns = ht::terminal_columns(stderr);       // 0: a file or a pipe
#pragma once

#include <cstdio>

#include <halftone/config.hpp>

#if defined(_WIN32)
#include <io.h>
#else
#include <sys/ioctl.h>
#include <unistd.h>
#endif

namespace halftone::inline HALFTONE_ABI {

/// The columns of the terminal that `stream` writes to, 80 where it does not tell; 0 where there is none.
inline int terminal_columns(std::FILE* stream) {
#if defined(_WIN32)
    return _isatty(_fileno(stream)) != 0 ? 80 : 0;
#else
    const int descriptor = fileno(stream);
    if (descriptor < 0 || isatty(descriptor) == 0) return 0;
    winsize size{};
    return ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
#endif
}

}  // namespace halftone::inline HALFTONE_ABI

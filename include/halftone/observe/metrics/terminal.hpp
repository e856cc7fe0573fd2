// SPDX-License-Identifier: MIT
/// \file
/// Whether a stream is a terminal, and its width.
///
///     const int columns = ht::terminal_columns(stderr);       // 0: a file or a pipe
#pragma once

#include <cstdio>

#include <halftone/config.hpp>

#if defined(_WIN32)
#include <cstdint>

#include <io.h>
#else
#include <sys/ioctl.h>
#include <unistd.h>
#endif

#if defined(_WIN32)
// Declared as in <windows.h>, which would define its macros, too.
struct _CONSOLE_SCREEN_BUFFER_INFO;
extern "C" {
__declspec(dllimport) int __stdcall GetConsoleMode(void*, unsigned long*);
__declspec(dllimport) int __stdcall SetConsoleMode(void*, unsigned long);
__declspec(dllimport) int __stdcall GetConsoleScreenBufferInfo(void*, _CONSOLE_SCREEN_BUFFER_INFO*);
}
#endif

namespace halftone {
inline namespace HALFTONE_ABI {

/// The width of the terminal that `stream` writes to, 80 if it is unknown; 0 if it is not a terminal. On Windows it
/// enables escape sequences; a console without them (before Windows 10) counts as no terminal.
inline int terminal_columns(std::FILE* stream) {
#if defined(_WIN32)
    const int descriptor = _fileno(stream);
    if (descriptor < 0) return 0;
    void* const console = reinterpret_cast<void*>(_get_osfhandle(descriptor));
    constexpr unsigned long processed_output = 1, escape_sequences = 4;
    unsigned long mode = 0;
    if (GetConsoleMode(console, &mode) == 0) return 0;
    if (SetConsoleMode(console, mode | processed_output | escape_sequences) == 0) return 0;
    struct {
        std::int16_t columns, rows, x, y;
        std::uint16_t attributes;
        std::int16_t left, top, right, bottom;
        std::int16_t most_columns, most_rows;
    } screen{};  // with the system's layout
    static_assert(sizeof screen == 22);
    if (GetConsoleScreenBufferInfo(console, reinterpret_cast<_CONSOLE_SCREEN_BUFFER_INFO*>(&screen)) == 0) return 80;
    const int columns = screen.right - screen.left + 1;  // of the window, not of the buffer
    return columns > 0 ? columns : 80;
#else
    const int descriptor = fileno(stream);
    if (descriptor < 0 || isatty(descriptor) == 0) return 0;
    winsize size{};
    return ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
#endif
}

}  // namespace HALFTONE_ABI
}  // namespace halftone

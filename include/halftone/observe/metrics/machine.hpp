// SPDX-License-Identifier: MIT
/// \file
/// Information about the machine, for summaries of runs.
///
///     std::cout << ht::cpu_model() << '\n';            // "AMD EPYC 9554 64-Core Processor, family 25, model 17"
#pragma once

#include <cstdint>
#include <fstream>
#include <string>

#include <halftone/config.hpp>

#if !defined(_WIN32)
#include <sys/utsname.h>
#include <unistd.h>
#elif defined(__x86_64__)
#include <cstring>

#include <cpuid.h>
#endif

#if defined(_WIN32)
// Declared as in <windows.h>, which would define its macros, too.
struct _MEMORYSTATUSEX;
extern "C" __declspec(dllimport) int __stdcall GlobalMemoryStatusEx(_MEMORYSTATUSEX*);
#endif

namespace halftone {
inline namespace HALFTONE_ABI {

/// The processor's name, with its family and model numbers if there are any, since virtual machines abbreviate names.
/// If the system does not report the name, its architecture.
inline std::string cpu_model() {
#if defined(_WIN32) && defined(__x86_64__)
    unsigned words[12] = {}, a = 0, b = 0, c = 0, d = 0;
    for (unsigned part = 0; part < 3; ++part) {
        unsigned* const to = words + 4 * part;
        if (!__get_cpuid(0x80000002u + part, to, to + 1, to + 2, to + 3)) return "x86_64";
    }
    char text[sizeof words + 1] = {};
    std::memcpy(text, words, sizeof words);
    std::string name = text;
    name.erase(0, name.find_first_not_of(' '));
    name.erase(name.find_last_not_of(' ') + 1);
    if (!__get_cpuid(1, &a, &b, &c, &d)) return name;
    unsigned family = a >> 8 & 15, model = a >> 4 & 15;  // numbered as in Linux
    if (family == 6 || family == 15) model += (a >> 16 & 15) << 4;
    if (family == 15) family += a >> 20 & 255;
    return name + ", family " + std::to_string(family) + ", model " + std::to_string(model);
#elif defined(_WIN32)
    return "unknown";
#else
    std::ifstream information("/proc/cpuinfo");
    std::string name, family, model;
    for (std::string line; std::getline(information, line) && !line.empty();) {  // an empty line ends the first processor
        const std::size_t end = line.find_first_of("\t:"), begin = line.find_first_not_of(" \t", line.find(':') + 1);
        if (end == std::string::npos || begin == std::string::npos) continue;
        const std::string key = line.substr(0, end), value = line.substr(begin);
        if (key == "model name") name = value;
        if (key == "cpu family") family = ", family " + value;
        if (key == "model") model = ", model " + value;
    }
    if (!name.empty()) return name + family + model;
    utsname system{};
    return uname(&system) == 0 ? system.machine : "unknown";
#endif
}

/// The machine's memory in bytes; 0 if the system does not report it.
inline std::uint64_t physical_memory() {
#if defined(_SC_PHYS_PAGES) && defined(_SC_PAGESIZE)
    const long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    return pages > 0 && size > 0 ? static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(size) : 0;
#elif defined(_WIN32)
    struct {
        std::uint32_t bytes = 64, percent_in_use = 0;
        std::uint64_t physical = 0, others[6] = {};
    } status;  // with the system's layout
    static_assert(sizeof status == 64);
    return GlobalMemoryStatusEx(reinterpret_cast<_MEMORYSTATUSEX*>(&status)) != 0 ? status.physical : 0;
#else
    return 0;
#endif
}

}  // namespace HALFTONE_ABI
}  // namespace halftone

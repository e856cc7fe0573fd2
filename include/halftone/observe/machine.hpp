// SPDX-License-Identifier: MIT
/// \file
/// What the machine tells about itself, for summaries.
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
#endif

namespace halftone::inline HALFTONE_ABI {

/// The processor's name, and the numbers of its generation where there are any: virtual machines shorten names. Its
/// architecture where the system does not tell the name.
inline std::string cpu_model() {
#if defined(_WIN32)
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

/// Bytes of memory that this machine has; 0 where the system does not tell.
inline std::uint64_t physical_memory() {
#if defined(_SC_PHYS_PAGES) && defined(_SC_PAGESIZE)
    const long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    return pages > 0 && size > 0 ? static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(size) : 0;
#else
    return 0;
#endif
}

}  // namespace halftone::inline HALFTONE_ABI

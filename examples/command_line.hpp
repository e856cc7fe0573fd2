// SPDX-License-Identifier: MIT
/// \file
/// How the programs here end: what is wrong with a command line, with data or with the machine is one line on stderr and an
/// exit code.
#pragma once

#include <cstdint>
#include <filesystem>
#include <iostream>
#include <new>
#include <stdexcept>
#include <string>

#include <halftone/error.hpp>

/// Ends the program with one line on stderr and this exit code.
struct exit_with : std::runtime_error {
    exit_with(int exit_code, const std::string& line) : std::runtime_error(line), code(exit_code) {}
    int code;
};

/// A GPU's description and its name: "cuda, NVIDIA H200".
struct gpu_names {
    std::string device, gpu;
};
/// The names of the machine's GPU. Throws exit_with(3) if there is none. Each program has it in */gpu.cu if CUDA is
/// available, in */no_gpu.cpp otherwise.
gpu_names describe_gpu();

/// Ends a program that should use a GPU and cannot.
[[noreturn]] inline void refuse_gpu() { throw exit_with(3, "--device cuda: this program was built without CUDA"); }

/// Ends the program: the parts are the line.
template <class... Parts>
[[noreturn]] void refuse(const Parts&... parts) {
    throw exit_with(2, halftone::detail::sentence(parts...));
}

inline void check_range(const char* option, std::int64_t value, std::int64_t least, std::int64_t most) {
    if (value < least || value > most) refuse(option, " is ", value, "; expected ", least, " to ", most);
}

/// main() of a program: what f() returns, or the exit code of its exception: 2 for bad input, 1 for what nobody expects.
/// `needs` is what memory may not suffice for. If f() sets `is_silent`, exceptions with another code than 1 are told by another
/// process.
template <class Function>
int run_main(const char* program, const char* needs, const Function& f, const bool& is_silent = false) {
    const auto complain = [&](int code, const std::string& line) {
        if (!is_silent || code == 1) std::cerr << program << ": " << line << '\n';
        return code;
    };
    try {
        return f();
    } catch (const exit_with& e) {
        return complain(e.code, e.what());
    } catch (const halftone::error& e) {
        return complain(2, e.what());
    } catch (const std::filesystem::filesystem_error& e) {
        return complain(2, e.what());
    } catch (const std::bad_alloc&) {
        return complain(2, std::string("not enough memory for ") + needs);
    } catch (const std::exception& e) {
        return complain(1, e.what());
    }
}

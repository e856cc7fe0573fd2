// SPDX-License-Identifier: MIT
/// \file
/// Counts the system calls about memory that a function makes: mmap, munmap, mremap, mprotect, madvise and brk. It runs in a
/// child process, which this one traces.
#pragma once

#include <cstdint>
#include <optional>

#if defined(__linux__) && defined(__x86_64__)
#include <csignal>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>
#endif

namespace bench {

/// The number of calls; none if this system does not let processes trace their children.
template <class Function>
std::optional<std::int64_t> memory_calls_of(const Function& f) {
#if defined(__linux__) && defined(__x86_64__)
    const pid_t child = fork();
    if (child < 0) return std::nullopt;
    if (child == 0) {
        if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(1);
        raise(SIGSTOP);
        f();
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (!WIFSTOPPED(status)) return std::nullopt;
    ptrace(PTRACE_SETOPTIONS, child, nullptr, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL);
    std::int64_t calls = 0;
    bool enters = true;  // the child stops at the beginning and at the end of each call
    while (ptrace(PTRACE_SYSCALL, child, nullptr, nullptr) == 0 && waitpid(child, &status, 0) == child && WIFSTOPPED(status)) {
        if (WSTOPSIG(status) != (SIGTRAP | 0x80)) continue;
        user_regs_struct r{};
        if (enters && ptrace(PTRACE_GETREGS, child, nullptr, &r) == 0) {
            for (const long each : {SYS_mmap, SYS_munmap, SYS_mremap, SYS_mprotect, SYS_madvise, SYS_brk})
                calls += static_cast<long>(r.orig_rax) == each ? 1 : 0;
        }
        enters = !enters;
    }
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? std::optional<std::int64_t>(calls) : std::nullopt;
#else
    static_cast<void>(f);
    return std::nullopt;
#endif
}

}  // namespace bench

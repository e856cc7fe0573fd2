// SPDX-License-Identifier: MIT
/// \file
/// The test of every kernel on the emulated GPU (mutation testing): the kernel is correct in every schedule, and damage is
/// detected: a missing barrier, a missing wait, a wrong shuffle. Damage that is not detected means that a test is missing,
/// or that the barrier is not needed.
///
///     emulator::check_kernels([&](emulator::device& device) {
///         kernel::softmax<emulator::device>::forward(device, {...});
///         return y.same_bits(expected);                     // whether all values are right; do not use CHECK here
///     });
///
/// The callable is run some hundred times: use small shapes, several warps per block, and values that differ between lanes, so
/// that a wrong shuffle is visible. It must reset inputs that it changes.
#pragma once

#include <string>

#include <doctest/doctest.h>

#include <halftone/error.hpp>

#include <emulator/device.hpp>

namespace halftone::emulator {

// The number of schedules that a test runs under.
#if defined(HALFTONE_FULL_TESTS)
inline constexpr int seeds = 20;
#else
inline constexpr int seeds = 10;
#endif

constexpr const char* name(damage d) {
    constexpr const char* names[damages] = {"no damage", "a barrier removed", "a wait weakened",
                                            "a shuffle misdirected"};
    return names[static_cast<int>(d)];
}

/// The error message of a run; empty if it succeeds.
template <class Test>
std::string problem_of(device& d, const Test& test, const options& how, long harmed_launch = -1) {
    d.how() = how;
    d.harmed_launch() = harmed_launch < 0 ? -1 : d.launches() + harmed_launch;
    try {
        return test(d) ? "" : "wrong values";
    } catch (const failure& f) {
        return f.what();
    }
}

/// Checks that test(device) returns true, and that the machine reports nothing, in each of `seeds` schedules.
template <class Test>
void check_schedules(const Test& test, const simt::architecture& poses_as = simt::architecture_of(80)) {
    device d({}, poses_as);
    for (int seed = 1; seed <= seeds; ++seed) {
        // Seeds are far apart: a device goes on to the next one with each launch.
        const std::string problem = problem_of(d, test, {.seed = static_cast<std::uint64_t>(1000 * seed)});
        CHECK_MESSAGE(problem.empty(), "seed ", 1000 * seed, ": ", problem);
    }
}

/// Checks that every possible damage to any of the test's launches is detected in at least one of some schedules. Returns the
/// number of damages.
template <class Test>
int check_damages(const Test& test, int schedules = 5, const simt::architecture& poses_as = simt::architecture_of(80)) {
    device d({}, poses_as);
    REQUIRE(problem_of(d, test, {}) == "");
    const std::vector<statistics> launches = d.each_launch();
    REQUIRE_MESSAGE(!launches.empty(), "nothing was launched");
    int done = 0;
    for (std::size_t launch = 0; launch < launches.size(); ++launch) {
        for (int kind = 1; kind < damages; ++kind) {
            for (int site = 0; site < launches[launch].sites[kind]; ++site, ++done) {
                const auto harm = static_cast<damage>(kind);
                bool is_noticed = false;
                for (int seed = 1; seed <= schedules && !is_noticed; ++seed) {
                    const options how{
                        .seed = static_cast<std::uint64_t>(1000 * seed), .harm = harm, .harmed_site = site};
                    is_noticed = !problem_of(d, test, how, static_cast<long>(launch)).empty();
                }
                CHECK_MESSAGE(is_noticed, "no check notices ", std::string(name(harm)), ", site ", site, " of launch ", launch, " of ",
                              launches.size());
            }
        }
    }
    return done;
}

template <class Test>
void check_kernels(const Test& test, const simt::architecture& poses_as = simt::architecture_of(80)) {
    check_schedules(test, poses_as);
    check_damages(test, 5, poses_as);
}

}  // namespace halftone::emulator

// SPDX-License-Identifier: MIT
/// \file
/// The number of processors that a process may use: control groups of both versions, as found on machines and in containers.
#include <filesystem>
#include <fstream>
#include <string>

#include <doctest/doctest.h>

#include <halftone/exec/cpu/cpu.hpp>

#include "support/temporary_folder.hpp"

namespace exec_cpu_processors_tests {

namespace ht = halftone;

/// A /proc/self/cgroup and a /sys/fs/cgroup.
class groups {
  public:
    explicit groups(const std::string& text) { write("proc", text); }
    groups& with(const std::string& file, const std::string& text) {
        write("sys/" + file, text + "\n");
        return *this;
    }
    double quota() const { return ht::detail::quota_of_groups(path("proc"), path("sys")); }

  private:
    std::string path(const std::string& name) const { return (folder_.path() / name).string(); }
    void write(const std::string& name, const std::string& text) {
        std::filesystem::create_directories((folder_.path() / name).parent_path());
        std::ofstream(path(name)) << text;
    }
    support::temporary_folder folder_;
};

TEST_CASE("processors: quotas of control groups, version 2") {
    CHECK(groups("0::/\n").quota() == 0);  // no such file: no limit
    CHECK(groups("0::/\n").with("cpu.max", "max 100000").quota() == 0);
    CHECK(groups("0::/\n").with("cpu.max", "150000 100000").quota() == 1.5);
    // A group of several levels: the least of them.
    CHECK(groups("0::/a/b\n").with("a/cpu.max", "200000 100000").with("a/b/cpu.max", "max 100000").quota() == 2);
    CHECK(groups("0::/a/b\n").with("a/cpu.max", "200000 100000").with("a/b/cpu.max", "50000 100000").quota() == 0.5);
    CHECK(groups("0::/a/b\n").with("a/cpu.max", "20000 10000").with("a/b/cpu.max", "90000 10000").quota() == 2);
    // In a container that sees its own group as the root, the path names a folder that does not exist.
    CHECK(groups("0::/system.slice/docker-1.scope\n").with("cpu.max", "300000 100000").quota() == 3);
}

TEST_CASE("processors: quotas of control groups, version 1, and both versions mounted") {
    const std::string version_1 = "12:memory:/box\n4:cpu,cpuacct:/box\n1:name=systemd:/box\n";
    CHECK(groups(version_1).quota() == 0);
    CHECK(
        groups(version_1).with("cpu/box/cpu.cfs_quota_us", "-1").with("cpu/box/cpu.cfs_period_us", "100000").quota() ==
        0);
    CHECK(groups(version_1)
              .with("cpu/box/cpu.cfs_quota_us", "250000")
              .with("cpu/box/cpu.cfs_period_us", "100000")
              .quota() == 2.5);
    CHECK(groups(version_1).with("cpu/cpu.cfs_quota_us", "100000").with("cpu/cpu.cfs_period_us", "100000").quota() ==
          1);
    CHECK(groups(version_1 + "0::/\n")
              .with("unified/cpu.max", "100000 100000")
              .with("cpu/cpu.cfs_quota_us", "400000")
              .with("cpu/cpu.cfs_period_us", "100000")
              .quota() == 1);
}

TEST_CASE("processors: quotas that cannot be parsed limit nothing") {
    CHECK(groups("").quota() == 0);
    CHECK(groups("nonsense\n\n::\n0::\n0::relative\n").with("cpu.max", "100000 100000").quota() == 0);
    CHECK(groups("0::/\n").with("cpu.max", "").quota() == 0);
    CHECK(groups("0::/\n").with("cpu.max", "100000").quota() == 0);
    CHECK(groups("0::/\n").with("cpu.max", "100000 0").quota() == 0);
    CHECK(groups("0::/\n").with("cpu.max", "-5 100000").quota() == 0);
    CHECK(ht::detail::usable_processors() >= 1);
}

}  // namespace exec_cpu_processors_tests

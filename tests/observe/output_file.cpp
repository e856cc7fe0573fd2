// SPDX-License-Identifier: MIT
/// \file
/// Files are written completely or not at all; folders remain only if something remains in them.
#include <filesystem>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#if defined(__linux__)
#include <csignal>

#include <sys/resource.h>
#endif

#include <halftone/observe/metrics/output_file.hpp>

#include "support/temporary_folder.hpp"

namespace observe_output_file_tests {

namespace ht = halftone;
namespace fs = std::filesystem;

TEST_CASE("a file gets its name at the commit, and not before") {
    const support::temporary_folder folder;
    const fs::path path = folder.write("a.json", "old");
    {
        ht::output_file file(path);
        file.write("new ");
        file.write("text");
        CHECK(support::temporary_folder::read(path) == "old");
        CHECK(support::temporary_folder::read(path.string() + ".part") == "new text");
        file.commit();
    }
    CHECK(support::temporary_folder::read(path) == "new text");
    CHECK(!fs::exists(path.string() + ".part"));
}

TEST_CASE("without a commit nothing is left, and the old file is unchanged") {
    const support::temporary_folder folder;
    const fs::path path = folder.write("a.json", "old");
    {
        ht::output_file file(path);
        file.write("half a li");
    }
    CHECK(support::temporary_folder::read(path) == "old");
    CHECK(!fs::exists(path.string() + ".part"));
}

TEST_CASE("a file that cannot be written is an error") {
    const support::temporary_folder folder;
    const fs::path file = folder.write("file", "x");
    CHECK_THROWS_AS(ht::output_file(file / "below"), ht::output_error);
    CHECK_THROWS_AS(ht::output_file(folder.path() / "missing/a"), ht::output_error);
    CHECK_THROWS_AS(ht::output_file(folder.path()), ht::output_error);
    {
        ht::output_file late(folder.path() / "late");
        late.write("x");
        fs::create_directories(folder.path() / "late/in");  // a folder takes the name before the commit
        CHECK_THROWS_AS(late.commit(), ht::output_error);
    }
    CHECK(!fs::exists(folder.path() / "late.part"));
}

#if defined(__linux__)
TEST_CASE("a full disk is an error when it happens") {
    const support::temporary_folder folder;
    std::error_code failed;
    fs::create_symlink("/dev/full", folder.path() / "a.part", failed);
    REQUIRE(!failed);
    ht::output_file file(folder.path() / "a");
    CHECK_THROWS_AS(file.write("x"), ht::output_error);
}

/// While it lives no file can grow beyond so many bytes, as on a disk that is full.
class full_disk {
  public:
    explicit full_disk(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
        getrlimit(RLIMIT_FSIZE, &before_);
        rlimit now = before_;
        now.rlim_cur = bytes;
        setrlimit(RLIMIT_FSIZE, &now);
    }
    full_disk(const full_disk&) = delete;
    full_disk& operator=(const full_disk&) = delete;
    ~full_disk() {
        setrlimit(RLIMIT_FSIZE, &before_);
        std::signal(SIGXFSZ, handler_);
    }

  private:
    void (*handler_)(int);
    rlimit before_{};
};

TEST_CASE("a disk that fills up: the file ends with the last whole piece, and grows again when there is room") {
    const support::temporary_folder folder;
    ht::output_file file(folder.path() / "a", ht::part_file::kept);
    const std::string line = std::string(29, 'x') + "\n";
    file.write(line);
    {
        const full_disk full(100);
        file.write(line), file.write(line);
        CHECK_THROWS_WITH_AS(file.write(line), ("output: cannot write " + (folder.path() / "a.part").string() + ": File too large").c_str(),
                             ht::output_error);
        CHECK(support::temporary_folder::read(folder.path() / "a.part").size() == 90);
        CHECK_THROWS_AS(file.write(line), ht::output_error);
    }
    file.write(line);
    file.commit();
    CHECK(support::temporary_folder::read(folder.path() / "a") == line + line + line + line);
    folder.write("b.part", line + line);
    ht::output_file more(folder.path() / "b", ht::part_file::continued);
    {
        const full_disk full(70);
        CHECK_THROWS_AS(more.write(line), ht::output_error);
    }
    CHECK(support::temporary_folder::read(folder.path() / "b.part") == line + line);  // of an earlier run
}
#endif

TEST_CASE("a part that is kept stays with what was written, and an empty one does not") {
    const support::temporary_folder folder;
    { ht::output_file file(folder.path() / "empty", ht::part_file::kept); }
    {
        ht::output_file file(folder.path() / "some", ht::part_file::kept);
        file.write("line\n");
    }
    CHECK(!fs::exists(folder.path() / "empty.part"));
    CHECK(support::temporary_folder::read(folder.path() / "some.part") == "line\n");
    { ht::output_file anew(folder.path() / "some", ht::part_file::kept); }
    CHECK(!fs::exists(folder.path() / "some.part"));
}

TEST_CASE("folders are made, and removed unless they are kept") {
    const support::temporary_folder folder;
    const fs::path deep = folder.path() / "a/b/c";
    {
        const ht::output_folder out(deep);
        CHECK(fs::is_directory(deep));
    }
    CHECK(!fs::exists(folder.path() / "a"));
    {
        ht::output_folder out(deep);
        out.keep();
    }
    CHECK(fs::is_directory(deep));
    {
        const ht::output_folder out(folder.path() / "a/b/d");
        std::error_code ignored;
        fs::create_directories(out.path() / "something", ignored);
    }
    CHECK_MESSAGE(fs::exists(folder.path() / "a/b/d/something"), "a file that another program put there remains");
    CHECK_NOTHROW(ht::output_folder(deep / ""));
    CHECK(fs::exists(deep));
    CHECK_THROWS_AS(ht::output_folder(folder.write("file", "x") / "below/deep"), ht::output_error);
    CHECK_THROWS_AS(ht::output_folder(""), ht::output_error);
    CHECK_NOTHROW(ht::output_folder("."));
}

}  // namespace observe_output_file_tests

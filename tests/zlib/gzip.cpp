// SPDX-License-Identifier: MIT
/// \file
/// Files compressed by gzip, and the error messages for what is wrong with them.
#include <cstdint>
#include <filesystem>
#include <string>

#include <doctest/doctest.h>

#include <halftone/data/gzip.hpp>
#include <halftone/data/idx.hpp>

#include "support/temporary_folder.hpp"

namespace zlib_gzip_tests {

namespace ht = halftone;
namespace fs = std::filesystem;

/// As gzip compresses them.
std::string compressed(const std::string& bytes) {
    z_stream z{};
    REQUIRE(deflateInit2(&z, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY) == Z_OK);
    std::string out(deflateBound(&z, static_cast<uLong>(bytes.size())) + 64, '\0');
    z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
    z.avail_in = static_cast<uInt>(bytes.size());
    z.next_out = reinterpret_cast<Bytef*>(out.data());
    z.avail_out = static_cast<uInt>(out.size());
    REQUIRE(deflate(&z, Z_FINISH) == Z_STREAM_END);
    out.resize(z.total_out);
    deflateEnd(&z);
    return out;
}

TEST_CASE("a file is decompressed if it is compressed") {
    const support::temporary_folder folder;
    std::string bytes;
    for (int i = 0; i < 300000; ++i) bytes += static_cast<char>(i * i / 7);
    CHECK(ht::read_gzip(folder.write("plain", bytes)) == bytes);
    CHECK(ht::read_gzip(folder.write("a.gz", compressed(bytes))) == bytes);
    CHECK(ht::read_gzip(folder.write("zeros.gz", compressed(std::string(1 << 20, '\0')))) == std::string(1 << 20, '\0'));
    CHECK(ht::read_gzip(folder.write("two.gz", compressed("one ") + compressed("two"))) == "one two");
    CHECK(ht::read_gzip(folder.write("empty.gz", compressed(""))).empty());
    const fs::path file = folder.write("l.gz", compressed(std::string("\0\0\x08\x01\0\0\0\x02\x07\x01", 10)));
    CHECK(ht::parse_idx(ht::read_gzip(file), file).extents == std::vector<ht::extent>{2});
}

TEST_CASE("each damaged file has its sentence") {
    const support::temporary_folder folder;
    std::string bytes;
    for (int i = 0; i < 100000; ++i) bytes += static_cast<char>(i * i / 7);
    const std::string good = compressed(bytes);
    const auto text = [&](const std::string& file, std::uint64_t limit = std::uint64_t{1} << 36) -> std::string {
        try {
            ht::read_gzip(folder.write("x", file), limit);
        } catch (const ht::data_error& e) {
            return e.what();
        }
        return "no error";
    };
    const auto contains = [](const std::string& all, const std::string& part) { return all.find(part) != std::string::npos; };
    CHECK(text(good) == "no error");
    for (const std::size_t kept : {std::size_t{2}, std::size_t{9}, std::size_t{11}, good.size() / 2, good.size() - 8, good.size() - 1}) {
        CAPTURE(kept);
        CHECK(contains(text(good.substr(0, kept)), "x ends too early, after " + std::to_string(kept) + " bytes"));
    }
    std::string other = good;
    other[other.size() - 6] = static_cast<char>(other[other.size() - 6] ^ 1);
    CHECK(contains(text(other), "is damaged: incorrect data check"));
    other = good;
    other[2] = 7;
    CHECK(contains(text(other), "is damaged"));
    CHECK(contains(text(good + "rest"), "is damaged"));
    CHECK(contains(text(good, 50000), "x holds more than 50000 bytes"));
    CHECK(contains(text(bytes, 50000), "more than 50000 bytes up to"));
    // A small file that would fill memory.
    CHECK(contains(text(compressed(std::string(1 << 22, '\0')), 1 << 20), "holds more than 1048576 bytes"));
}

}  // namespace zlib_gzip_tests

// SPDX-License-Identifier: MIT
/// \file
/// Files compressed by gzip, read with zlib. No umbrella header includes this one: it needs zlib's header, and a program
/// that uses it links -lz.
///
///     const ht::idx_array images = ht::parse_idx(ht::read_gzip(file), file);       // compressed or not
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>

#include <zlib.h>

#include <halftone/data/data_error.hpp>
#include <halftone/data/text.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// The bytes of a file, decompressed if it begins as gzip's files do, as they are if not. Throws data_error if it cannot
/// be read, is not what gzip wrote (a wrong checksum, say), ends too early, or gives more than `limit` bytes.
inline std::string read_gzip(const std::filesystem::path& path, std::uint64_t limit = std::uint64_t{1} << 36) {
    std::string file = detail::read_file("gzip", path, limit);
    if (file.size() < 2 || file[0] != '\x1f' || file[1] != '\x8b') return file;
    struct inflater {
        z_stream stream{};
        int code = inflateInit2(&stream, 16 + MAX_WBITS);  // 16: with gzip's header and checksum
        ~inflater() { inflateEnd(&stream); }
    } z;
    if (z.code != Z_OK) fail<out_of_memory>("gzip: zlib cannot begin to read ", path.string());
    std::string result;
    std::size_t taken = 0;
    char chunk[1 << 16];
    for (;;) {
        constexpr std::size_t most = std::size_t{1} << 30;  // zlib counts in 32 bits
        const std::size_t given = std::min(file.size() - taken, most);
        z.stream.next_in = reinterpret_cast<Bytef*>(file.data() + taken);
        z.stream.avail_in = static_cast<uInt>(given);
        z.stream.next_out = reinterpret_cast<Bytef*>(chunk);
        z.stream.avail_out = sizeof chunk;
        const int code = inflate(&z.stream, Z_NO_FLUSH);
        taken += given - z.stream.avail_in;
        result.append(chunk, sizeof chunk - z.stream.avail_out);
        if (result.size() > limit) fail<data_error>("gzip: ", path.string(), " holds more than ", limit, " bytes");
        if (code == Z_STREAM_END) {
            if (taken == file.size()) return result;
            if (inflateReset(&z.stream) != Z_OK) fail<data_error>("gzip: ", path.string(), " is damaged");
            continue;  // another member: gzip's files may be concatenated
        }
        if (code == Z_MEM_ERROR) fail<out_of_memory>("gzip: zlib has no memory for ", path.string());
        if (code != Z_OK && code != Z_BUF_ERROR) {
            fail<data_error>("gzip: ", path.string(), " is damaged: ",
                             z.stream.msg != nullptr ? z.stream.msg : "it does not continue as gzip's files do");
        }
        if (taken == file.size() && z.stream.avail_out != 0)
            fail<data_error>("gzip: ", path.string(), " ends too early, after ", file.size(), " bytes");
    }
}

}  // namespace HALFTONE_ABI
}  // namespace halftone

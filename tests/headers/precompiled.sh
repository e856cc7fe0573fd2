# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# Precompiled headers that cannot hide a missing include: a file gets a precompiled header only if it includes that header anyway,
# directly or indirectly, and under no condition. Sourced.
#
#     precompile FOLDER INCLUDE COMPILER FLAG...    compiles the headers of the list below, from INCLUDE/halftone/, into FOLDER
#     precompiled_for FOLDER INCLUDE FILE...        prints each file's name and, after a tab, the argument of -include, or nothing

# The later ones include most of the earlier ones. Whoever sources this may have a list of its own.
precompiled_headers=(tensor/view.hpp policy/presets.hpp exec/cpu/cpu.hpp memory/store.hpp autodiff/engine/tape.hpp kernel.hpp autodiff/op/linear.hpp optim/adamw.hpp amp.hpp)

precompile() {
    local folder=$1 include=$2 header name
    shift 2
    for header in "${precompiled_headers[@]}"; do
        name=$folder/${header//\//_}
        echo "#include <halftone/$header>" >"$name"
        printf '%s\0' "$name"
    done | xargs -0 -P "$(nproc)" -I{} "$@" -I"$include" -x c++-header {} -o {}.gch
}

precompiled_for() {
    local folder=$1 include=$2
    shift 2
    awk -v folder="$folder" -v include="$include" -v headers="${precompiled_headers[*]}" '
        # What a file includes, itself told by its path or, for one of halftone, by <its name>.
        function closure(file, path, line, header, depth, n, i, list) {
            if (file in seen) return
            seen[file] = 1
            path = file
            if (file ~ /^</) path = include "/" substr(file, 2, length(file) - 2)
            while ((getline line <path) > 0) {
                if (line ~ /^ *# *if/) ++depth
                if (line ~ /^ *# *endif/) --depth
                if (depth > 0 || line !~ /^#include [<"]/) continue
                header = line
                sub(/^#include /, "", header)
                sub(/[>"][^>"]*$/, header ~ /^</ ? ">" : "", header)
                if (header ~ /^<halftone\//) list[++n] = header
                else if (header ~ /^"/) { i = path; sub(/[^\/]*$/, "", i); list[++n] = i substr(header, 2) }
            }
            close(path)
            for (i = 1; i <= n; ++i) closure(list[i])
        }
        BEGIN {
            count = split(headers, candidate, " ")
            for (f = 1; f < ARGC; ++f) {
                delete seen
                best = ""
                file = ARGV[f] ~ /^halftone\// ? "<" ARGV[f] ">" : ARGV[f]
                closure(file)
                for (c = 1; c <= count; ++c)
                    if ("<halftone/" candidate[c] ">" in seen && "<halftone/" candidate[c] ">" != file) best = candidate[c]
                if (best) { gsub("/", "_", best); best = folder "/" best }
                print ARGV[f] "\t" best
            }
        }' "$@"
}

# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# Precompiled headers that hide nothing: a file is given one only out of those that it includes anyway, through whatever else
# it includes. What stands there before its first line stands there before the end of its includes without, too. Sourced.
#
#     precompile FOLDER INCLUDE COMPILER FLAG...    into FOLDER, out of INCLUDE's halftone/, those of the list below
#     precompiled_for FOLDER INCLUDE FILE...        for each file its name and, after a tab, what to give to -include; or nothing

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
        function closure(file, path, line, header, n, i, list) {
            if (file in seen) return
            seen[file] = 1
            path = file
            if (file ~ /^</) path = include "/" substr(file, 2, length(file) - 2)
            while ((getline line <path) > 0) {
                if (line !~ /^#include [<"]/) continue
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

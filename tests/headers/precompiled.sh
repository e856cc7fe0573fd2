# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# Precompiled headers that cannot hide a missing include: a file gets a precompiled header only if it includes that header anyway,
# directly or indirectly, and under no condition. Sourced.
#
#     precompile FOLDER INCLUDE COMPILER FLAG...    compiles the headers of the list below, from INCLUDE/halftone/, into FOLDER
#     precompiled_for FOLDER INCLUDE FILE...        prints each file's name and, after a tab, the argument of -include, or nothing
#     chained FOLDER INCLUDE HEADER...              the same, with several headers in a line, each of which includes the one before: one
#                                                   source may include them in this order, and each still finds only what it includes

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

# What both of these read, in awk: reach[NUMBER, FILE] of what the file of this number includes, itself told by its path or, for one of
# halftone, by <its name>, under no condition; best[NUMBER], the last of the precompiled headers among these.
what_files_include='
    function includes_of(file, path, line, header, depth, i) {
        if (file in count) return
        count[file] = 0
        path = file
        if (file ~ /^</) path = include "/" substr(file, 2, length(file) - 2)
        while ((getline line <path) > 0) {
            if (line ~ /^ *# *if/) ++depth
            if (line ~ /^ *# *endif/) --depth
            if (depth > 0 || line !~ /^#include [<"]/) continue
            header = line
            sub(/^#include /, "", header)
            sub(/[>"][^>"]*$/, header ~ /^</ ? ">" : "", header)
            if (header ~ /^"/) { i = path; sub(/[^\/]*$/, "", i); header = i substr(header, 2) }
            else if (header !~ /^<halftone\//) continue
            list[file, ++count[file]] = header
        }
        close(path)
    }
    function closure(number, file, i) {
        if ((number, file) in reach) return
        reach[number, file] = 1
        ++size[number]
        includes_of(file)
        for (i = 1; i <= count[file]; ++i) closure(number, list[file, i])
    }
    BEGIN {
        candidates = split(headers, candidate, " ")
        for (f = 1; f < ARGC; ++f) {
            name[f] = ARGV[f] ~ /^halftone\// ? "<" ARGV[f] ">" : ARGV[f]
            closure(f, name[f])
            for (c = 1; c <= candidates; ++c)
                if ((f, "<halftone/" candidate[c] ">") in reach && "<halftone/" candidate[c] ">" != name[f]) best[f] = candidate[c]
            if (best[f]) { gsub("/", "_", best[f]); best[f] = folder "/" best[f] }
        }
    }'

precompiled_for() {
    local folder=$1 include=$2
    shift 2
    awk -v folder="$folder" -v include="$include" -v headers="${precompiled_headers[*]}" "$what_files_include"'
        BEGIN { for (f = 1; f < ARGC; ++f) print ARGV[f] "\t" best[f] }' "$@"
}

chained() {
    local folder=$1 include=$2
    shift 2
    awk -v folder="$folder" -v include="$include" -v headers="${precompiled_headers[*]}" "$what_files_include"'
        BEGIN {
            # From what includes least to what includes most, each behind the largest that it includes and that is the last of its line.
            for (f = 1; f < ARGC; ++f) {
                for (i = f; i > 1 && size[order[i - 1]] > size[f]; --i) order[i] = order[i - 1]
                order[i] = f
            }
            for (i = 1; i < ARGC; ++i) {
                f = order[i]
                at = 0
                for (l = 1; l <= lines; ++l)
                    if (best[f] == best[last[l]] && (f, name[last[l]]) in reach && (!at || size[last[l]] > size[last[at]])) at = l
                if (!at) at = ++lines
                text[at] = text[at] (text[at] ? " " : "") ARGV[f]
                last[at] = f
            }
            for (l = 1; l <= lines; ++l) print text[l] "\t" best[last[l]]
        }' "$@"
}

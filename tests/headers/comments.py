# SPDX-License-Identifier: MIT
"""Checks of what comments say.

    tests/headers/comments.py alone      a comment with three slashes says something where an editor shows it alone: it does not begin
                                         with "The same", "And", "Its" and such words, which refer to another comment (api.sh)
    tests/headers/comments.py paths      the files that comments of sources and scripts name exist (readme.sh)
"""
import glob
import os
import re
import subprocess
import sys

SOURCES = ('.hpp', '.cuh', '.cpp', '.cu')
SCRIPTS = ('.py', '.sh', '.cmake', '.awk', 'CMakeLists.txt')

# The beginnings of a declaration's comment, and of one behind a member, that refer to what stands elsewhere.
REFERS = re.compile(r'(the same|same|and|also|but|both|of|its|it|they|their|those|that|ditto|likewise|as above|as below|see above|see below|what both share)\b',
                    re.IGNORECASE)
REFERS_BEHIND = re.compile(r'(the same|same|and|also|but|ditto|likewise|as above|as below|see above|see below)\b', re.IGNORECASE)

# A path: its folders, if it has any, and the name of a file. Names without a folder are paths only if they are those of sources.
PATH = re.compile(r'(?<![\w<>./*{$~-])((?:[\w*.-]+/)+[\w*.-]+\.(?:hpp|cuh|cpp|cu|py|sh|md|awk|cmake|json|tsv)|[\w*.-]+\.(?:hpp|cuh|cpp|cu|py|sh))(?![\w/])')
OF_OTHER_PROJECTS = ('CLI/', 'c10/', 'torch/', 'transformers/', 'llama.cpp')


def lines_of(file):
    with open(file, encoding='utf-8') as stream:
        return stream.read().splitlines()


def headers():
    return sorted(os.path.join(folder, name) for folder, _, names in os.walk('include') for name in names
                  if name.endswith(('.hpp', '.cuh')))


def alone(file):
    """The lines with comments that refer to what stands elsewhere."""
    is_inside = False  # of a comment with three slashes
    for number, line in enumerate(lines_of(file), 1):
        text = line.strip()
        if '///<' in text:
            if REFERS_BEHIND.match(text.split('///<')[1].strip()):
                yield number, text
        elif text.startswith('///') and not is_inside and REFERS.match(text[3:].strip()):
            yield number, text
        is_inside = text.startswith('///') and '///<' not in text


def comments(file):
    sign = re.compile(r'(?<!:)//+<?(.*)' if file.endswith(SOURCES) else r'(?:^|\s)#(?!include)(.*)')
    for number, line in enumerate(lines_of(file), 1):
        if comment := sign.search(line):
            yield number, comment.group(1)


def exists(path, file):
    """Whether there is such a file in include/halftone, in include, in the folder of the comment's file or in one above it."""
    folders = ['include/halftone', 'include', '.']
    folder = os.path.dirname(file)
    while folder:
        folders.append(folder)
        folder = os.path.dirname(folder)
    return any(glob.glob(os.path.join(folder, path)) for folder in folders)


def paths(file):
    """The lines with paths at which there is no file. A name in capital letters, as NAME.hpp, stands for any, as *.hpp does."""
    for number, comment in comments(file):
        for path in PATH.findall(comment):
            stands_for_any = re.search(r'(?<![A-Za-z])[A-Z]+(?![A-Za-z])', path) or re.match(r'[^/]*\*[^/]*$', path)
            if not path.startswith(OF_OTHER_PROJECTS) and not exists(path, file) and not stands_for_any:
                yield number, path


def main():
    faults = count = 0
    if sys.argv[1:] == ['alone']:
        files = headers()
        for file in files:
            for number, text in alone(file):
                print(f'{file}:{number}: says nothing alone, as an editor shows it: {text}')
                faults += 1
        said = 'whose comments stand alone'
    else:
        listed = subprocess.run(['git', 'ls-files'], capture_output=True, text=True)
        files = listed.stdout.splitlines() if listed.returncode == 0 else glob.glob('**', recursive=True)
        files = [file for file in files if file.endswith(SOURCES + SCRIPTS) and os.path.isfile(file)]
        for file in files:
            for number, path in paths(file):
                print(f'{file}:{number}: there is no {path}')
                faults += 1
        said = 'whose comments name files that exist'
    print(f'{len(files)} files {said}' if faults == 0 else f'{faults} faults')
    return faults != 0


os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), '../..'))
if __name__ == '__main__':
    sys.exit(main())

# SPDX-License-Identifier: MIT
"""A check of floors.sh: headers divide and round up by detail::ceil_div and round_up (number/integer.hpp), and take log2(e) from
number/constants.hpp; none writes (x + y - 1) / y, (x + 7) / 8 or the constant out.

    tests/headers/rounding.py
"""
import os
import re
import sys

UP = re.compile(r'\+ \(?([\w.:>()\[\]-]+)\)? - 1\)+ ?/ ?\1(?!\w)')
UP_BY_NUMBER = re.compile(r'\+ (\d+)\)+ ?/ ?(\d+)(?![\w.])')
LOG2_OF_E = re.compile(r'1\.442695\d*f?')
AT_HOME = ('include/halftone/number/integer.hpp', 'include/halftone/number/constants.hpp')


def forms(text):
    """The offsets of what is written out, in a text without comments, over the ends of lines."""
    for found in UP.finditer(text):
        yield found.start(), found.group(0)
    for found in UP_BY_NUMBER.finditer(text):
        if int(found.group(1)) + 1 == int(found.group(2)):
            yield found.start(), found.group(0)
    for found in LOG2_OF_E.finditer(text):
        yield found.start(), found.group(0)


def main():
    files = sorted(os.path.join(folder, name) for folder, _, names in os.walk('include') for name in names
                   if name.endswith(('.hpp', '.cuh')) and os.path.join(folder, name) not in AT_HOME)
    faults = 0
    for file in files:
        with open(file, encoding='utf-8') as stream:
            lines = [re.sub(r'//.*', '', line).rstrip('\n') for line in stream]
        text = '\n'.join(lines)
        # Each blank, and the end of a line with the blanks around it, as one blank; offsets become lines by a table.
        plain, line_of, line, after_blank = [], [], 1, False
        for letter in text:
            if not (letter.isspace() and after_blank):
                plain.append(' ' if letter.isspace() else letter)
                line_of.append(line)
            after_blank = letter.isspace()
            line += letter == '\n'
        for at, form in forms(''.join(plain)):
            one = 'detail::ceil_div or round_up (number/integer.hpp)' if '/' in form else 'detail::log2_of_e (number/constants.hpp)'
            print(f'{file}:{line_of[at]}: "{form}" is written out; use {one}')
            faults += 1
    print(f'{len(files)} headers round up by one function' if faults == 0 else f'{faults} faults')
    return faults != 0


os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), '../..'))
if __name__ == '__main__':
    sys.exit(main())

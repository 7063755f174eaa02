"""Positions only grow and may wrap: names that end in _pos are compared by signed difference."""
import re

from common import blank, c_files, line_of, main

NAME = r"\b(?:\w+(?:->|\.))*\w*_pos\b"
CALL_OR_INDEX = r"(?:\[[^\]\n]*\])?"
LEFT = re.compile(rf"({NAME}){CALL_OR_INDEX}\s*(?:<=?|>=?)(?![<>=])")
RIGHT = re.compile(rf"(?<![<>-])[<>]=?\s*({NAME})(?!\s*\()")


def lint(files):
    out = []
    for path, text in c_files(files).items():
        code = blank(text)
        for pattern in (LEFT, RIGHT):
            for m in pattern.finditer(code):
                if code[max(0, m.start() - 1):m.start()] in ("<", ">", "-") and pattern is RIGHT:
                    continue
                out.append((path, line_of(text, m.start()), f"{m.group(1)}: compare positions by signed difference"))
    return out


if __name__ == "__main__":
    main(lint,
         bad=[(text, {"tier/a.c": text}) for text in (
             "if (a_pos < b)\n", "if (a->tail_pos >= x)\n", "while (b > r.read_pos)\n", "if (a <= c->head_pos)\n",
             "if (lane_pos[k] < 3)\n", "if (step_pos>0)\n")],
         good=[(text, {"tier/a.c": text}) for text in (
             "if ((int64_t)(a_pos - b_pos) < 0)\n", "x = p->tail_pos;\n", "spw_pos_before(a_pos, b_pos)\n",
             "/* a_pos < b_pos */\n", "y = a_pos << 2;\n", "z = 1 >> b_pos;\n", "if (a_pos == b_pos)\n")])

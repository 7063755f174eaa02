"""Libraries never print, never exit and read no environment: only tools do."""
import re

from common import LAYERS, blank, c_files, line_of, main

LOUD = re.compile(r"\b(v?f?printf|perror|puts|fputs|syslog|exit|_exit|abort|getenv|secure_getenv)\s*\(")


def lint(files):
    out = []
    for path, text in c_files(files, LAYERS).items():
        for m in LOUD.finditer(blank(text)):
            out.append((path, line_of(text, m.start()), f"{m.group(1)}: libraries never print, exit or read the environment"))
    return out


if __name__ == "__main__":
    main(lint,
         bad=[(text, {"tier/a.c": text}) for text in (
             'printf("x");\n', 'fprintf(stderr, "x");\n', "exit(1);\n", 'getenv("HOME");\n', "abort();\n")],
         good=[("tools may", {"tools/a.c": 'printf("x"); exit(1);\n'}),
               ("formatting is no printing", {"shm/a.c": 'snprintf(b, 3, "printf(x)"); on_exit_wanted(); /* exit(1) */\n'})])

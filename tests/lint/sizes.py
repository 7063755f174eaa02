"""One file, one idea: past 600 lines look for the second one."""
from common import main

MOST = 600
ENDINGS = (".c", ".h", ".cu", ".py", ".sh", ".pml", "meson.build", ".md")


def lint(files):
    return [(path, MOST + 1, f"{text.count(chr(10))} lines, over {MOST}: look for the second idea")
            for path, text in files.items()
            if path.endswith(ENDINGS) and text.count("\n") > MOST]


if __name__ == "__main__":
    main(lint,
         bad=[("601 lines", {"tier/a.c": "\n" * (MOST + 1)})],
         good=[("600 lines", {"tier/a.c": "\n" * MOST}), ("no source", {"LICENSE": "\n" * 5000})])

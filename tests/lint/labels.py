"""Ordering labels: each [XX-1] is declared once and stands at both ends of its pair.

A declaration is a line of a file-opening comment that says `[XX-1] publish -> drain`. An end is an
ordinary comment at the operation, beginning with the label; doc comments are neither. The ends say
which side they are: `release` and `acquire`, or `full` fences. The letters of a label belong to one
declaring file, so that a label has one meaning.
"""
import re

from common import c_files, comments_of, line_of, main

LABEL = re.compile(r"\[([A-Z]{2,3})-(\d+)\]")
SIDE = re.compile(r"\b(release|acquire|full)\b")
DECLARED = re.compile(r"\[([A-Z]{2,3}-\d+)\][^\[]{1,120}?->")
FOLDERS = ("shm", "tier", "gpu", "sched", "tools")


def lint(files):
    out, declared, ends, letters, words = [], {}, {}, {}, {}
    for path, text in c_files(files, FOLDERS).items():
        opening = True
        for offset, comment in comments_of(text):
            first, opening = opening, False
            where = (path, line_of(text, offset))
            if comment.startswith("/**"):
                continue
            if first and offset < 400:
                for m in DECLARED.finditer(comment):
                    line = line_of(text, offset + m.start())
                    if m.group(1) in declared:
                        out.append((path, line, f"[{m.group(1)}] is declared in {declared[m.group(1)][0]} too"))
                    declared[m.group(1)] = (path, line)
                    owner = letters.setdefault(m.group(1).split("-")[0], path)
                    if owner != path:
                        out.append((path, line, f"the letters of [{m.group(1)}] belong to {owner}"))
                continue
            for m in LABEL.finditer(comment):
                ends.setdefault(f"{m.group(1)}-{m.group(2)}", []).append(where)
                words.setdefault(f"{m.group(1)}-{m.group(2)}", set()).update(SIDE.findall(comment))
    for label, where in ends.items():
        if len(where) < 2:
            out.append((*where[0], f"[{label}] has one end only"))
        elif "full" not in words[label] and not words[label] >= {"release", "acquire"}:
            out.append((*where[0], f"[{label}] has one side only: no release, or no acquire, and no full fence"))
        if label not in declared:
            out.append((*where[0], f"[{label}] is declared in no file-opening comment (`[{label}] this -> that`)"))
    for label, where in declared.items():
        if label not in ends:
            out.append((*where, f"[{label}] is declared, but stands at no operation"))
    return out


if __name__ == "__main__":
    head = "#ifndef SPW_A_H\n#define SPW_A_H\n/*\n * Ring.\n *   pairs  [AB-1] publish -> drain   [AB-2] gate -> check\n */\n"
    one, two = "/* [AB-1] release: record before tail */\n", "/* [AB-1] acquire: tail before record */\n"
    gate = "/* opening */\nint x; /* [AB-2] release */\n/* [AB-2] acquire */\n"
    main(lint,
         bad=[("one end", {"shm/a.h": head, "shm/a.c": "/* o */\n" + one + gate}),
              ("two ends of one side", {"shm/a.h": head, "shm/a.c": "/* o */\n" + one + one + gate}),
              ("second end only in a doc comment", {"shm/a.h": head + "/** [AB-1] acquire */\n", "shm/a.c": "/* o */\n" + one + gate}),
              ("not declared", {"shm/a.c": "/* o */\n" + one + two}),
              ("declared, never used", {"shm/a.h": head, "shm/a.c": "/* o */\n" + one + two}),
              ("declared twice", {"shm/a.h": head, "shm/b.h": head, "shm/a.c": "/* o */\n" + one + two + gate})],
         good=[("declared over two lines", {"shm/a.h": head.replace("publish ->", "publish\n *   ->"), "shm/a.c": "/* o */\n" + one + two + gate}),
               ("both ends", {"shm/a.h": head, "shm/a.c": "/* o */\n" + one + two + gate}),
               ("ends in two files", {"shm/a.h": head, "shm/a.c": "/* o */\n" + one + gate, "tier/b.c": "/* o */\n" + two})])

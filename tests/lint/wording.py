"""Tracked files speak of the project: no paths of one machine, nothing about how it is worked on."""
import re

from common import line_of, main

# spelled in pieces, so that this file does not report itself
WORDS = [
    (re.compile("/wo" + r"rk/|/ho" + r"me/[a-z]|/ro" + r"ot/|\.libra" + "ry/"), None, "a path of one machine"),
    (re.compile("/tm" + r"p/[A-Za-z]"), (".md", ".1", ".3", ".5", ".7", ".8", ".h"), "a literal path for temporary files"),
    (re.compile(r"\bsub" + r"[- ]?agents?\b|\bhelper (?:se" + r"ssion|agent)s?\b|\bcoding agents?\b", re.I), None,
     "words about how the project is worked on"),
    # but for the name of a column in published traces
    (re.compile(r"(?<!#)\bse" + r"ssions?\b", re.I), None, "say conversation, attachment, run or process"),
    (re.compile(r"\bhel" + r"pers?\b", re.I), (".md", ".1", ".8"), "say what it is"),
]


def lint(files):
    out = []
    for path, text in files.items():
        if path == "LICENSE":
            continue
        for pattern, endings, words in WORDS:
            if endings and not path.endswith(endings):
                continue
            for m in pattern.finditer(text):
                out.append((path, line_of(text, m.start()), f"{m.group(0)}: {words}"))
    return out


if __name__ == "__main__":
    main(lint,
         bad=[(text, {path: text}) for path, text in (
             ("a.c", "see /wo" + "rk/x"), ("docs/a.md", "cd /tm" + "p/x"), ("tools/x", "# sub" + "agent"),
             ("a.md", "in this Se" + "ssion"), ("README.md", "a hel" + "per"), ("a.py", "/ho" + "me/me"))],
         good=[("plain", {"a.c": "setsid(); start_new_session(); /* keeps the frame" + "work/ folder */",
                          "tools/a.c": "#define HEADER \"#se" + "ssion\\treq\"",
                          "tests/a.c": "mkdtemp(\"/tm" + "p/x\")"})])

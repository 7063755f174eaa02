"""docs/failure-cases.md names tests that exist."""
import re

from common import main

DOC = "docs/failure-cases.md"
NAME = re.compile(r"`((?:unit|gpu|process|crash|stress|model|fuzz)/\w+)(?:: (\w+))?`")


def lint(files):
    out = []
    for number, line in enumerate(files.get(DOC, "").splitlines(), 1):
        for path, test in NAME.findall(line):
            source = files.get(f"tests/{path}.c", files.get(f"tests/{path}.pml"))
            if source is None:
                out.append((DOC, number, f"there is no tests/{path}"))
            elif test and not re.search(rf"\b{test}\b", source):
                out.append((DOC, number, f"tests/{path} has no test {test}"))
    return out


if __name__ == "__main__":
    there = {"tests/unit/test_a.c": "Test(a, works)\n", "tests/model/m.pml": "init {}\n"}
    main(lint,
         bad=[("file", {DOC: "`unit/test_b: works`\n", **there}), ("test", {DOC: "`unit/test_a: work`\n", **there}),
              ("model", {DOC: "| R-1 | `model/n` |\n", **there})],
         good=[("both", {DOC: "`unit/test_a: works`, `model/m`, `spw_attach()`\n", **there})])

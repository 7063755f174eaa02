"""Atomics are touched only through shm/atomic.h, whose operations are named by their order."""
import re

from common import blank, c_files, line_of, main

RAW = re.compile(r"\b(atomic_\w+|__atomic_\w+|__sync_\w+|__c11_atomic_\w+)\s*\(|#\s*include\s*<(stdatomic\.h)>"
                 r"|\b(memory_order_\w+|__ATOMIC_\w+)\b")


def lint(files):
    out = []
    for path, text in c_files(files).items():
        # the stand-in driver counts for tests, and has the driver's place outside this project's code
        if path == "shm/atomic.h" or path.startswith("tests/fake_cuda/"):
            continue
        for m in RAW.finditer(blank(text)):
            what = next(g for g in m.groups() if g)
            out.append((path, line_of(text, m.start()), f"{what}: use the operations of shm/atomic.h"))
    return out


if __name__ == "__main__":
    main(lint,
         bad=[(text, {path: text}) for path, text in (
             ("tier/a.c", "x = atomic_load(&a);\n"), ("tests/stress/a.c", "__atomic_store_n(&a, 1, 0);\n"),
             ("shm/ring.h", "__sync_synchronize();\n"), ("sched/a.c", "#include <stdatomic.h>\n"),
             ("tests/unit/a.c", "f(&a, memory_order_relaxed);\n"), ("bench/a.c", "atomic_fetch_add_explicit (&a, 1, o);\n"))],
         good=[("the stand-in driver", {"tests/fake_cuda/a.c": "atomic_fetch_add(&a, 1);\n"}),
               ("the one place", {"shm/atomic.h": "#include <stdatomic.h>\n"}),
               ("ours", {"tier/a.c": "spw_atomic_load_acquire(&a); /* not atomic_load(&a) */ _Atomic(int) b;\n"})])

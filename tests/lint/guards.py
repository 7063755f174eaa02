"""Each header opens with the guard that its path gives: shm/bcast_ring.h has SPW_SHM_BCAST_RING_H."""
import re

from common import c_files, main


def guard_of(path):
    return "SPW_" + re.sub(r"[^A-Za-z0-9]", "_", path).upper()


def lint(files):
    out = []
    for path, text in c_files(files).items():
        guard = guard_of(path)
        if path.endswith(".h") and not re.match(rf"(?:\s*/\*.*?\*/)?\s*#ifndef {guard}\n#define {guard}\n", text, re.S):
            out.append((path, 1, f"does not open with the guard {guard}"))
    return out


if __name__ == "__main__":
    main(lint,
         bad=[("none", {"shm/a.h": "int x;\n"}), ("other name", {"shm/a.h": "#ifndef SPW_A_H\n#define SPW_A_H\n#endif\n"}),
              ("define differs", {"shm/a.h": "#ifndef SPW_SHM_A_H\n#define SPW_SHM_B_H\n#endif\n"})],
         good=[("right", {"shm/a_b.h": "#ifndef SPW_SHM_A_B_H\n#define SPW_SHM_A_B_H\n#endif\n"}),
               ("after a comment", {"shm/a.h": "/* x */\n#ifndef SPW_SHM_A_H\n#define SPW_SHM_A_H\n#endif\n"})])

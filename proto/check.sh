#!/bin/sh
# The contract's checks: `lint` (style), `breaking` (against the version of deploy/upgrade-from), `generated` (proto/gen and the
# facade's own generated code are what buf generates); all of them when none is named. Exit code 77 means that a check could not be made here.
set -u
cd "$(dirname "$0")/.." || exit 1
PATH=$PWD/node_modules/.bin:$PATH

check_lint() { buf lint && buf format --diff --exit-code; }

check_breaking() {
  base=$(cat deploy/upgrade-from)
  if ! git cat-file -e "$base^{commit}" 2>/dev/null; then
    echo "the commit of deploy/upgrade-from, $base, is not in this clone's history"
    return 77
  fi
  # Handed over as one image, since an earlier version may divide its files among modules otherwise than this one does. When
  # it can't be built, the comparison fails for want of an image.
  buf build "$(git rev-parse --git-common-dir)#format=git,ref=$base" --path proto/sandgate --output -#format=binpb |
    buf breaking --against -#format=binpb --exclude-imports
}

check_generated() {
  fresh=$(mktemp -d)
  buf generate --output "$fresh" && diff -r "$fresh/proto/gen" proto/gen
  result=$?
  sh facade/generate.sh check || result=1
  rm -rf "$fresh"
  return $result
}

failed=0
for check in ${*:-lint breaking generated}; do
  "check_$check" || failed=$?
done
exit "$failed"

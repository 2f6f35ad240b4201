#!/bin/sh
# The secrets of one installation, in a folder with a subfolder for each process: `usage` below says how to make and
# change them. Keys are made by services/kit/src/rpc/internal-keys.ts, and changed in the ring by
# services/kit/src/storage/key-ring.ts: in the image that IMAGE names, else with the Node.js that `npm install` brings.
# MONGODB_HOSTS (mongodb:27017) and MONGODB_OPTIONS (replicaSet=rs0&authSource=admin) go into the databases' addresses.
#
# The folder is its owner's alone. What lies below can be read by whoever is given a subfolder, which is how a container
# of any user gets its own and no other's. keys/ is for whoever runs this; no process has it.
set -eu
umask 077

usage() {
  cat >&2 <<'END'
secrets.sh make <folder>                 everything, in a new folder
secrets.sh add <folder> <caller>         one more signing key for a process, and its public half for everybody
secrets.sh use <folder> <caller> <kid>   makes keys/<kid>.jwk.json the key that a process signs its calls with
secrets.sh drop <folder> <kid>           nobody believes what this key signed any more
secrets.sh ring-add <folder>             one more key in the key ring, which opens what it sealed; prints its id
secrets.sh ring-use <folder> <id>        the key of this id seals from the next start on
secrets.sh ring-drop <folder> <id>       takes a key out of the ring that nothing needs any more
secrets.sh publish <folder>              hands out keys/jwks.json and keys/keyring.json again, after a change of theirs
END
  exit 64
}
[ $# -ge 2 ] || usage
verb=$1
folder=$2
services="identity workspace image-registry sandbox telemetry"
root=$(cd "$(dirname "$0")/.." && pwd)

# run <program> <command> <file or folder in keys/> [<argument>]
run() {
  program=services/kit/src/$1
  command=$2
  on=$3
  shift 3
  if [ -n "${IMAGE:-}" ]; then
    # On an engine with user namespaces too it is this user who writes.
    docker run --rm --network none --userns host --user "$(id -u):$(id -g)" --volume "$(cd "$folder" && pwd):/secrets" \
      "$IMAGE" "$program" "$command" "/secrets/keys$on" "$@"
  else
    [ -e "$root/node_modules" ] || {
      echo "secrets.sh: set IMAGE to the platform's image, or run npm install in $root first" >&2
      exit 1
    }
    PATH=$root/node_modules/.bin:$PATH node "$root/$program" "$command" "$folder/keys$on" "$@"
  fi
}
# keys make, keys add <caller>, keys drop <kid>
keys() {
  command=$1
  shift
  run rpc/internal-keys.ts "$command" "" "$@"
}
# ring add, ring use <id>, ring drop <id>
ring() {
  command=$1
  shift
  run storage/key-ring.ts "$command" /keyring.json "$@"
}

# put <file>: its new content from standard input, in one step, so that a reader finds the old or the new.
put() {
  cat >"$1.new"
  chmod 444 "$1.new"
  mv -f "$1.new" "$1"
}
password() { od -An -N24 -tx1 /dev/urandom | tr -d ' \n'; }

publish() {
  for service in $services; do
    put "$folder/$service/jwks.json" <"$folder/keys/jwks.json"
    put "$folder/$service/keyring.json" <"$folder/keys/keyring.json"
  done
}

case $verb in
  make)
    [ ! -e "$folder" ] || { echo "secrets.sh: $folder is there already, and nothing in it is changed" >&2; exit 1; }
    # Half of them would be in the way of the next attempt.
    trap 'rm -rf "$folder"' EXIT
    mkdir -p "$folder"
    keys make >/dev/null
    for part in facade gateway $services collector mongodb nats; do
      mkdir "$folder/$part"
      chmod 755 "$folder/$part"
    done
    for caller in facade $services; do
      put "$folder/$caller/internal-key.json" <"$folder/keys/$caller.jwk.json"
      # A letter first: nats-server takes a password of digits for a number.
      printf 'p%s' "$(password)" | put "$folder/$caller/events-password"
    done
    # What serves previews by itself, and what is on each node of a cluster, have no part in events.
    for caller in gateway collector; do
      put "$folder/$caller/internal-key.json" <"$folder/keys/$caller.jwk.json"
    done
    publish
    for service in $services; do
      printf 'mongodb://%s:%s@%s/?%s' "$service" "$(password)" "${MONGODB_HOSTS:-mongodb:27017}" \
        "${MONGODB_OPTIONS:-replicaSet=rs0&authSource=admin}" | put "$folder/$service/database"
    done
    password | put "$folder/identity/admin-password"
    password | put "$folder/mongodb/root-password"
    head -c 512 /dev/urandom | base64 | put "$folder/mongodb/keyfile"
    for caller in facade $services operator; do
      name=$(printf %s "$caller" | tr a-z- A-Z_)
      [ "$caller" = operator ] && value=p$(password) || value=$(cat "$folder/$caller/events-password")
      echo "SANDGATE_NATS_${name}_PASSWORD=$value"
    done | put "$folder/nats/passwords.env"
    trap - EXIT
    echo "made $folder; the operator's password is in $folder/identity/admin-password"
    ;;
  add | drop)
    [ $# = 3 ] || usage
    keys "$verb" "$3"
    publish
    ;;
  use)
    [ $# = 4 ] || usage
    # A process that was not there when the secrets were made.
    [ -d "$folder/$3" ] || { mkdir "$folder/$3" && chmod 755 "$folder/$3"; }
    put "$folder/$3/internal-key.json" <"$folder/keys/$4.jwk.json"
    ;;
  ring-add)
    ring add
    publish
    ;;
  ring-use | ring-drop)
    [ $# = 3 ] || usage
    ring "${verb#ring-}" "$3"
    publish
    ;;
  publish) publish ;;
  *) usage ;;
esac

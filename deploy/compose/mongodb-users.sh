#!/bin/bash
# Makes the replica set of one member, and a user for each service who has that service's database and no other. Can be run
# again: a member that is there stays, and a user gets the password that stands in the service's `database` secret now.
# Runs in the MongoDB image beside the server; /secrets holds what deploy/secrets.sh made.
set -eu
mongo() {
  mongosh --quiet --host mongodb --authenticationDatabase admin --username root \
    --password "$(cat /secrets/mongodb/root-password)" "$@"
}

mongo --eval '
  try { rs.status() } catch (error) {
    if (error.codeName !== "NotYetInitialized") throw error;
    rs.initiate({ _id: "rs0", members: [{ _id: 0, host: "mongodb:27017" }] });
  }
  while (!db.hello().isWritablePrimary) sleep(100);
'
for service in identity workspace image-registry sandbox telemetry; do
  address=$(cat "/secrets/$service/database")
  user=${address#mongodb://} && user=${user%%@*}
  NAME=${user%%:*} PASSWORD=${user#*:} DATABASE=sandgate_${service//-/_} mongo admin --eval '
    const { NAME: user, PASSWORD: pwd, DATABASE: database } = process.env;
    const roles = [{ role: "readWrite", db: database }];
    if (db.getUser(user)) db.updateUser(user, { pwd, roles });
    else db.createUser({ user, pwd, roles });
  '
done
echo "the replica set and its users are ready"

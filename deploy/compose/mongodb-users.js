// Makes the replica set of one member, and a user for each service who has that service's database and no other. Can be
// run again: a member that is there stays, and a user gets the password that stands in the service's `database` secret
// now. Runs in mongosh beside the server; /secrets holds what deploy/secrets.sh made.
const { readFileSync } = require("node:fs");

const admin = db.getSiblingDB("admin");
admin.auth("root", readFileSync("/secrets/mongodb/root-password", "utf8"));

try {
  rs.status();
} catch (error) {
  if (error.codeName !== "NotYetInitialized") throw error;
  rs.initiate({ _id: "rs0", members: [{ _id: 0, host: "mongodb:27017" }] });
}
while (!db.hello().isWritablePrimary) sleep(100);

for (const service of ["identity", "workspace", "image-registry", "sandbox", "telemetry"]) {
  const [, user, pwd] = /^mongodb:\/\/([^:]+):([^@]+)@/.exec(readFileSync(`/secrets/${service}/database`, "utf8"));
  const roles = [{ role: "readWrite", db: `sandgate_${service.replace("-", "_")}` }];
  if (admin.getUser(user)) admin.updateUser(user, { pwd, roles });
  else admin.createUser({ user, pwd, roles });
}
print("the replica set and its users are ready");

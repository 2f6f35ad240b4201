/**
 * A client of the admin server that lists the workspaces which the workspace service doesn't know, and purges those
 * that an operator names, in the process on this machine or in this container.
 */
import { askAdminServer, socketUsage } from "./admin-client.ts";

const usage = `Workspaces that the process on this machine stores things of, and the workspace service doesn't know.
  list           counts them, and lists the first thousand
  purge <id>...  removes everything that is stored of each, for good
${socketUsage}`;

/** Ids in one request, whose address has to stay short. */
const batchSize = 100;

const [command, ...ids] = process.argv.slice(2);
if (command === "list" && ids.length === 0) await askAdminServer("POST", "/commands/list-unknown-workspaces");
else if (command === "purge" && ids.length > 0) {
  while (ids.length > 0) {
    const options = ids.splice(0, batchSize).map((id) => `option=${encodeURIComponent(id)}`);
    await askAdminServer("POST", `/commands/purge-workspaces?${options.join("&")}`);
  }
} else {
  process.stderr.write(usage);
  process.exitCode = 1;
}

/**
 * A client of the admin server that shows, replays and drops the dead letters of the process on this machine or in this
 * container.
 */
import { askAdminServer, socketUsage } from "./admin-client.ts";

const usage = `Dead letters are events that a consumer of the process on this machine failed to handle for good.
  list [<id>]     lists the first 100, or those after this one
  show <id>       shows one with its whole event
  replay <id>...  hands each to its consumer again, and removes it once it is handled
  drop <id>...    removes each without a replay
${socketUsage}`;

const request = (method: string, path: string) => askAdminServer(method, `/dead-letters${path}`);

const [command, ...ids] = process.argv.slice(2);
const paths = ids.map((id) => `/${encodeURIComponent(id)}`);
if (command === "list") await request("GET", ids[0] ? `?after=${encodeURIComponent(ids[0])}` : "");
else if (command === "show" && paths.length === 1) await request("GET", paths[0] ?? "");
else if (command === "replay" && paths.length > 0) for (const path of paths) await request("POST", `${path}/replay`);
else if (command === "drop" && paths.length > 0) for (const path of paths) await request("DELETE", path);
else {
  process.stderr.write(usage);
  process.exitCode = 1;
}

import { join } from "node:path";
import { messageOf } from "../base/domain-error.ts";
import { askSocket } from "./admin.socket.ts";

/** The name of the socket in the folder of a platform in one process. */
export const adminSocketName = "admin.sock";

/** How the usage texts of commands name the socket. */
export const socketUsage = `SANDGATE_ADMIN_SOCKET is the process's socket (${adminSocketName} in SANDGATE_DATA, which is ./data unless set). Only
the user that runs the process, and root, can open it.
`;

/**
 * Sends a request to the process on this machine or in this container by its admin socket, and prints the answer. On a
 * failure it prints what is wrong and sets exit code 1.
 */
export async function askAdminServer(method: string, path: string): Promise<void> {
  const { SANDGATE_DATA: data = "./data" } = process.env;
  const socket = process.env.SANDGATE_ADMIN_SOCKET || join(data, adminSocketName);
  try {
    const { status, body } = await askSocket(socket, method, path);
    process.stdout.write(
      status === 204 ? `${method} ${path}: done\n` : `${JSON.stringify(JSON.parse(body), null, 2)}\n`,
    );
    if (status >= 400) process.exitCode = 1;
  } catch (error) {
    process.stderr.write(`No process answers at ${socket}: ${messageOf(error)}\n`);
    process.exitCode = 1;
  }
}

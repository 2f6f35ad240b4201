import { messageOf } from "../base/domain-error.ts";

/**
 * Sends a request to the admin server of the process on this machine or in this container, and prints the answer. On a
 * failure it prints what is wrong and sets exit code 1. SANDGATE_ADMIN_HOST and SANDGATE_ADMIN_PORT say where the
 * server is (127.0.0.1:9464 unless set).
 */
export async function askAdminServer(method: string, path: string): Promise<void> {
  const { SANDGATE_ADMIN_HOST: givenHost = "127.0.0.1", SANDGATE_ADMIN_PORT: port = "9464" } = process.env;
  const host = givenHost === "0.0.0.0" ? "127.0.0.1" : givenHost;
  try {
    const response = await fetch(`http://${host}:${port}${path}`, { method });
    const body = await response.text();
    process.stdout.write(
      response.status === 204 ? `${method} ${path}: done\n` : `${JSON.stringify(JSON.parse(body), null, 2)}\n`,
    );
    if (!response.ok) process.exitCode = 1;
  } catch (error) {
    process.stderr.write(`The admin server at ${host}:${port} can't be reached: ${messageOf(error)}\n`);
    process.exitCode = 1;
  }
}

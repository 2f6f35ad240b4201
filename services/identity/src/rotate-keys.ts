/**
 * Changes the keys of session and refresh tokens: a client of the admin server of identity's process on this machine.
 */
import { askAdminServer, socketUsage } from "@sandgate/kit/process/admin-client";

const usage = `Makes new keys for session and refresh tokens. Old tokens stay valid until they expire.
  --emergency   drops the old keys at once: every access token is refused within a second, and everybody signs in again
${socketUsage}`;

const options = process.argv.slice(2);
if (options.length === 0) await askAdminServer("POST", "/commands/rotate-keys");
else if (options.join() === "--emergency") await askAdminServer("POST", "/commands/rotate-keys?option=emergency");
else {
  process.stderr.write(usage);
  process.exitCode = 1;
}

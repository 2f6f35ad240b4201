/**
 * Makes a user an operator or removes a second factor, when no operator can. It asks the admin server of identity's
 * process on this machine.
 */
import { askAdminServer, socketUsage } from "@sandgate/kit/process/admin-client";

const usage = `Changes a user of the platform, given by the name with which the user signs in.
  make-operator <username>         gives an enabled user whose address is verified an operator's rights, from the
                                   next sign-in or refresh on
  remove-second-factor <username>  removes the user's second factor and ends the user's sessions; a mail tells the user
${socketUsage}`;

const [command, username, ...more] = process.argv.slice(2);
const isKnown = command === "make-operator" || command === "remove-second-factor";
if (isKnown && username !== undefined && more.length === 0) {
  await askAdminServer("POST", `/commands/${command}?option=${encodeURIComponent(username)}`);
} else {
  process.stderr.write(usage);
  process.exitCode = 1;
}

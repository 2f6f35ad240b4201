import { stderr } from "node:process";

/** Says on standard error how far a bench has come, since it takes a while and may end early. */
export function report(what: string): void {
  stderr.write(`${new Date().toISOString()} ${what}\n`);
}

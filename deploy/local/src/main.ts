import { messageOf } from "@sandgate/kit/base/domain-error";
import { createLogger } from "@sandgate/kit/base/logging";
import { unknownSettings } from "@sandgate/kit/base/settings";
import { stopOnSignal } from "@sandgate/kit/process/host";
import { openPlatform, type Platform } from "./platform.ts";
import { readLocalSettings } from "./settings.ts";

/** The whole platform in one process, as `npm start` runs it. Says in one line why it can't start, with exit code 1. */
function fail(error: unknown): never {
  const message = messageOf(error);
  const detailed = /^(debug|trace)$/.test(process.env.SANDGATE_LOG_LEVEL ?? "") && error instanceof Error;
  process.stderr.write(`sandgate: ${detailed ? error.stack : message}\n`);
  process.exit(1);
}

/** Where the command line looks unless told otherwise. */
const defaultUrl = "http://127.0.0.1:8080";

async function welcome(platform: Platform): Promise<string> {
  const { url, firstStart } = platform;
  const username = firstStart?.username ?? (process.env.SANDGATE_ADMIN_USERNAME || "admin@localhost");
  const password = firstStart?.password ?? "<password>";
  const body = JSON.stringify({ username, password });
  return [
    `Sandgate is ready at ${url} (dashboard: ${url}/dashboard/, reference: ${url}/docs)`,
    ...(firstStart ? [`Sign in as ${username} with the password ${password}, which is shown only this once:`] : []),
    ...(firstStart ? [] : ["Sign in:"]),
    `  curl -s ${url}/auth/login -H 'content-type: application/json' -d '${body}'`,
    "Or by the command line, in another terminal:",
    `  npx sandgate login${url === defaultUrl ? "" : ` --url ${url}`} && npx sandgate run --rm -it default -- sh`,
    ...(await platform.problems()).map((problem) => `Not available yet: ${problem}`),
    ...(await platform.warnings()).map((warning) => `Warning: ${warning}`),
    ...unknownSettings(process.env).map((name) => `Ignored: ${name} is not a setting; docs/settings.md lists them all`),
    "",
  ].join("\n");
}

/** Throws when standard output is closed. */
function print(text: string): Promise<void> {
  return new Promise((resolve, reject) => {
    process.stdout.write(text, (error) => (error ? reject(error) : resolve()));
  });
}

try {
  const { settings, env } = readLocalSettings(process.env);
  const logger = createLogger({ service: "local", level: settings.logLevel });
  // Also an unhandled rejection. The process is in an unknown state then.
  process.on("uncaughtException", (error) => {
    logger.fatal({ err: error }, "unexpected error, so this process ends");
    process.exit(1);
  });
  // As in `npm start | head`. Each write reports the error to its caller; a log that nobody reads is no reason to end.
  process.stdout.on("error", () => {});
  const natsEnd = Promise.withResolvers<void>();
  const platform = await openPlatform(settings, env, natsEnd.resolve);
  const endAfterFailure = stopOnSignal(() =>
    platform.stop().catch((error: unknown) => {
      logger.error({ err: error }, "did not stop cleanly");
      throw error;
    }),
  );
  natsEnd.promise.then(endAfterFailure);
  try {
    await print(await welcome(platform));
  } catch (cause) {
    await platform.stop();
    throw new Error("standard output was closed before the sign-in could be printed", { cause });
  }
  platform.forgetPassword();
} catch (error) {
  fail(error);
}

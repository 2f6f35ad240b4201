import { format } from "node:util";
import { type DestinationStream, type Logger, pino } from "pino";

export type { Logger } from "pino";

/** Fields whose values are never logged, up to two levels deep. */
const secretFields = [
  "authorization",
  "password",
  "token",
  "accessToken",
  "refreshToken",
  "access_token",
  "refresh_token",
  "currentPassword",
  "current_password",
  "recaptchaToken",
  "otp",
  "secret",
  "cookie",
];
const redactedPaths = secretFields.flatMap((field) => [field, `*.${field}`, `*.*.${field}`]);

/**
 * Creates a logger that writes JSON lines to standard output, with the service's name and ISO times. Its level is
 * "info" unless set.
 */
export function createLogger(o: { service: string; level?: string }, destination?: DestinationStream): Logger {
  const options = {
    level: o.level ?? "info",
    base: { service: o.service },
    timestamp: pino.stdTimeFunctions.isoTime,
    formatters: { level: (label: string) => ({ level: label }) },
    redact: { paths: redactedPaths, censor: "[redacted]" },
  };
  return destination ? pino(options, destination) : pino(options);
}

/**
 * Makes what logs a state that is looked at again and again, at level "warn" unless set: once when it begins, and again
 * when its reason has changed. An undefined reason says that it is over, which is logged at level "info" when there are
 * words for that. The entry has the reason, or the details that are given instead.
 */
export function createStateLog(
  logger: Logger,
  text: string,
  o: { level?: "info" | "warn"; over?: string } = {},
): (reason: string | undefined, details?: object) => void {
  const { level = "warn", over } = o;
  let logged: string | undefined;
  return (reason, details = { reason }) => {
    if (reason === logged) return;
    if (reason !== undefined) logger[level](details, text);
    else if (over !== undefined) logger.info(over);
    logged = reason;
  };
}

/** Turns Node's warnings, and what libraries such as Connect's server print with `console`, into log lines. */
export function logConsole(logger: Logger): void {
  const print =
    (level: "debug" | "info" | "warn" | "error") =>
    (...args: unknown[]) => {
      const err = args.find((arg) => arg instanceof Error);
      logger[level]({ err }, format(...args.filter((arg) => arg !== err)));
    };
  const info = print("info");
  Object.assign(console, { debug: print("debug"), log: info, info, warn: print("warn"), error: print("error") });
  // Node's own listener prints to standard error.
  process.removeAllListeners("warning");
  process.on("warning", (warning) => logger.warn({ err: warning }, warning.message));
}

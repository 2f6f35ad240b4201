import { type DestinationStream, type Logger, pino } from "pino";

export type { Logger } from "pino";

/** Names of fields whose values never reach a log, up to two levels deep. */
const secretFields = [
  "authorization",
  "password",
  "token",
  "accessToken",
  "refreshToken",
  "access_token",
  "refresh_token",
];
const redactedPaths = secretFields.flatMap((field) => [field, `*.${field}`, `*.*.${field}`]);

/** A logger of JSON lines on standard output, one per event, with the service's name and ISO times. Level "info" unless set. */
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

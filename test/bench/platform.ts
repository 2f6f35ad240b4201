import { startPlatform, type TestPlatform } from "../platform/local.ts";

/** The platform with the settings of `npm start`, but without rate limits. */
export function startBenchPlatform(): Promise<TestPlatform> {
  return startPlatform({ settings: { SANDGATE_LOG_LEVEL: "warn" } });
}

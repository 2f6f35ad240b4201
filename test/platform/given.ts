import { startPlatform, type TestPlatform } from "./local.ts";

/** What tests of those who use a platform need of it, in whatever form it runs. */
export type UsedPlatform = Pick<TestPlatform, "url" | "admin" | "mailFolder" | "stop">;

let given: UsedPlatform | undefined;

/** Has test files that are loaded from now on use a platform that runs already. It is told when each has ended. */
export function testOn(platform: UsedPlatform): void {
  given = platform;
}

/** The platform that was given, with settings of its own; else one in one process with these. */
export async function usePlatform(o: { settings?: Record<string, string> } = {}): Promise<UsedPlatform> {
  return given ?? startPlatform(o);
}

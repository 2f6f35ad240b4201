const required = new Set((process.env.SANDGATE_REQUIRE ?? "").split(",").map((name) => name.trim()));

/**
 * Whether a server that a suite needs is available: `describe.runIf(await requireServer("docker", () =>
 * engine.ping()))`. The probe throws to say what is missing. A skip is reported on stderr and counted in the last line
 * of `npm test`; a server named in `SANDGATE_REQUIRE` (comma-separated) fails the suite instead.
 */
export async function requireServer(name: string, probe: () => Promise<unknown>): Promise<boolean> {
  try {
    await probe();
    return true;
  } catch (cause) {
    const reason = cause instanceof Error ? cause.message : String(cause);
    if (required.has(name)) throw new Error(`SANDGATE_REQUIRE names ${name}, which is missing: ${reason}`, { cause });
    process.stderr.write(`SKIPPED for want of ${name}: ${reason}\n`);
    return false;
  }
}

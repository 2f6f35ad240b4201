/** The errors of every route that uses a sandbox. */
export const inSandbox = ["SANDBOX_NOT_FOUND", "SANDBOX_NOT_READY", "CONFLICT"] as const;
export const ofProcess = [...inSandbox, "NOT_FOUND"] as const;

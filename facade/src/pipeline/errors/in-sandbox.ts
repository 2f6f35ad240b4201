/** The errors of every route that uses a sandbox, and of those that use something in it that may not be there. */
export const inSandbox = ["SANDBOX_NOT_FOUND", "SANDBOX_NOT_READY", "CONFLICT"] as const;
export const ofThingInSandbox = [...inSandbox, "NOT_FOUND"] as const;

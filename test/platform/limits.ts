/** Settings of a platform without rate limits, and without limits of a user: most suites act as one, the operator. */
export const unlimited = {
  SANDGATE_RATE_LIMIT: "0",
  SANDGATE_SIGNIN_RATE_LIMIT: "0",
  SANDGATE_CHANGE_RATE_LIMIT: "0",
  SANDGATE_MAILS_PER_HOUR: "0",
  SANDGATE_NETWORK_MAILS_PER_HOUR: "0",
  SANDGATE_USER_MAX_API_TOKENS: "0",
  SANDGATE_USER_MAX_WORKSPACES: "0",
  SANDGATE_USER_MAX_SANDBOXES: "0",
  SANDGATE_USER_MAX_MEMORY_MB: "0",
  SANDGATE_WORKSPACE_MAX_IMAGES: "0",
  SANDGATE_WORKSPACE_RECORDS_MB: "0",
  SANDGATE_WORKSPACE_FAILURES_PER_HOUR: "0",
};

/** Settings of a platform whose workspaces may have any number of sandboxes. */
export const unlimitedSandboxes = {
  SANDGATE_WORKSPACE_MAX_SANDBOXES: "0",
  SANDGATE_WORKSPACE_MAX_MEMORY_MB: "0",
};

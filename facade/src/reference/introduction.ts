/** The tags of routes with their meaning, in the order in which the reference shows them. */
export const tags = [
  { name: "Sandboxes", description: "Provision sandboxes, wait for them, read them and stop them." },
  { name: "Commands", description: "Run commands and terminals in a sandbox, read their output and control them." },
  { name: "Files", description: "Read, write, list, move and delete the files of a sandbox." },
  { name: "Ports", description: "Reach servers that listen in a sandbox." },
  { name: "Monitoring", description: "Read and follow the logs of a sandbox, and its use of CPU and memory." },
  { name: "Sandbox images", description: "Register the container images that sandboxes are made from." },
  { name: "Registries", description: "Keep the credentials of private registries." },
  { name: "Workspaces", description: "Everything belongs to a workspace. Every user has a personal one." },
  { name: "Members", description: "Share a workspace with other users." },
  { name: "API tokens", description: "Make tokens for programs." },
  { name: "Accounts", description: "Register, sign in, and keep an account safe." },
  { name: "Operators", description: "What only operators of the platform may do." },
  { name: "Health", description: "Probes for supervisors and load balancers." },
  { name: "Reference", description: "This reference, in several forms." },
];

/** What the reference begins with: how to get from a password to a sandbox. */
export function renderQuickStart(url: string): string {
  return `Runs isolated container sandboxes inside workspaces.

## Quick start

Sign in, and make an API token for what follows:

\`\`\`sh
curl ${url}/auth/login -H 'Content-Type: application/json' \\
  -d '{"username": "you@example.com", "password": "…"}'
curl ${url}/api-tokens -H "Authorization: Bearer $access_token" -H 'Content-Type: application/json' \\
  -d '{"description": "quick start"}'
\`\`\`

Find your workspace and an image, provision a sandbox from it, and wait until it is ready:

\`\`\`sh
curl ${url}/workspaces -H "Authorization: Bearer $token"
curl ${url}/sandbox-images -H "Authorization: Bearer $token" -H "X-Workspace-Id: $workspace"
curl ${url}/sandboxes/provision -H "Authorization: Bearer $token" -H "X-Workspace-Id: $workspace" \\
  -H 'Content-Type: application/json' -d '{"image_id": "…", "name": "first"}'
curl ${url}/sandboxes/wait -H "Authorization: Bearer $token" -H "X-Workspace-Id: $workspace" \\
  -H 'Content-Type: application/json' -d '{"sandbox_id": "first"}'
\`\`\`

Read its logs, and stop it:

\`\`\`sh
curl ${url}/sandbox/monitoring/first -H "Authorization: Bearer $token" -H "X-Workspace-Id: $workspace"
curl -X DELETE ${url}/sandboxes/first -H "Authorization: Bearer $token" -H "X-Workspace-Id: $workspace"
\`\`\`

Every error has the body \`{ "error": { "code", "message", "hint", … } }\`. Branch on \`code\`;
[all codes](${url}/docs/errors) are explained.`;
}

import { apiUrl } from "./api.ts";

/** An argument of a shell's line, whatever is in it. */
export function quote(argument: string): string {
  return `'${argument.replaceAll("'", "'\\''")}'`;
}

/** A request of the API as a line for a shell, with the token and workspace as variables. */
export function curlLine(method: string, path: string, body?: object): string {
  const parts = [
    "curl",
    ...(method === "GET" || (method === "POST" && body) ? [] : ["-X", method]),
    quote(`${apiUrl}${path}`),
    `-H "Authorization: Bearer $SANDGATE_TOKEN"`,
    `-H "X-Workspace-Id: $SANDGATE_WORKSPACE"`,
    ...(body ? [`-H 'Content-Type: application/json'`, `-d ${quote(JSON.stringify(body))}`] : []),
  ];
  return parts.join(" ");
}

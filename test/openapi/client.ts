// A program on the types that openapi-typescript makes of the description (`api.ts` beside it).
import { argv, stdout } from "node:process";
import createClient from "openapi-fetch";
import type { components, paths } from "./api.ts";

const [baseUrl = "", username = "", password = ""] = argv.slice(2);
const { data: session } = await createClient<paths>({ baseUrl }).POST("/auth/login", { body: { username, password } });
const headers = { Authorization: `Bearer ${session?.tokens.access_token}` };
const api = createClient<paths>({ baseUrl, headers });

const { data: listed } = await api.GET("/workspaces");
const workspace = { header: { "x-workspace-id": listed?.workspaces[0]?.id ?? null } };
// What has a default may be left out.
const { data: images } = await api.GET("/sandbox-images", { params: workspace });
const image: components["schemas"]["Image"] | undefined = images?.images.find(({ is_default }) => is_default);
const { data: sandbox } = await api.POST("/sandboxes/provision", {
  params: workspace,
  body: { image_id: image?.id ?? "", labels: { made: "typescript" } },
});
const state: components["schemas"]["SandboxState"] | undefined = sandbox?.state;
const { error } = await api.GET("/sandboxes/{sandbox_id}", {
  params: { ...workspace, path: { sandbox_id: "none" } },
});
await api.DELETE("/sandboxes/{sandbox_id}", { params: { ...workspace, path: { sandbox_id: sandbox?.id ?? "" } } });
stdout.write(JSON.stringify({ state, labels: sandbox?.labels, code: error?.error.code }));
